package invalidator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/retry"
)

// A transaction of more keys than may be pending passes, for marks come alongside it and drain the queue.
func TestATransactionLargerThanEveryCapPasses(t *testing.T) {
	for _, o := range []Options{{MaxInFlight: 100}, {MaxPending: 100}, {MaxMemory: 1000}} {
		inBubble(t, o, func(r *rig) {
			const batches = 50
			for i := range batches {
				keys := make([]string, 70)
				for j := range keys {
					keys[j] = fmt.Sprintf("%d:%d", i, j)
				}
				r.log.batches <- batchOf(uint64(4+i), d2, keys...)
			}
			synctest.Wait()
			if n := len(r.log.batches); o.MaxInFlight == 0 && n == 0 {
				r.Fatal("no cap held up fetching")
			}
			for range batches {
				r.mark(1000)
				r.pass(d2)
			}
			r.watermark(batches)
			if s := r.engine.Snapshot(); s.InFlight+s.Pending+s.Bytes != 0 {
				r.Fatalf("%+v", s)
			}
		})
	}
}

func TestBeyondACapNothingIsFetched(t *testing.T) {
	for name, o := range map[string]Options{
		"max_in_flight": {MaxInFlight: 3}, "max_pending": {MaxPending: 3}, "max_memory": {MaxMemory: 1300},
	} {
		inBubble(t, o, func(r *rig) {
			if name == "max_in_flight" {
				r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return 900 * ms } })
			}
			for i := range 10 {
				r.append(batchOf(uint64(4+i), d2, fmt.Sprintf("k%d", i)))
			}
			if got := 10 - len(r.log.batches); got < 3 || got > 4 {
				r.Errorf("%s: %d batches were fetched, want 3 or the 4th, which was being fetched", name, got)
			}
			if s := r.engine.Snapshot(); s.Waiting != "invalidator."+name+" is reached" {
				r.Errorf("%s: waiting for %q", name, s.Waiting)
			}
		})
	}
}

// Partitions share the caps, and what one of them holds cannot keep another from emptying its queue.
func TestPartitionsShareTheCaps(t *testing.T) {
	inBubble(t, Options{MaxPending: 5}, func(r *rig) {
		second, third := newFakeLog(), newFakeLog()
		second.id, third.id = 8, 3
		served := make(chan error, 2)
		ctx, revoke := context.WithCancel(r.Context())
		go func() { served <- r.engine.Serve(ctx, second) }()
		go func() { served <- r.engine.Serve(ctx, third) }()
		for i := range 20 {
			for _, l := range []*fakeLog{r.log, second, third} {
				l.batches <- batchOf(uint64(4+i), d2, fmt.Sprintf("k%d", i))
			}
		}
		synctest.Wait()
		// Whose the pending keys are is left to chance.
		p := r.engine.Snapshot()
		if len(p.Partitions) != 3 || p.Partitions[0].ID != 3 || p.Pending < 5 || p.Pending > 8 {
			r.Fatalf("%+v", p)
		}
		if sum := p.Partitions[0].Pending + p.Partitions[1].Pending + p.Partitions[2].Pending; sum != p.Pending {
			r.Fatalf("%d keys are pending in the partitions, %d in all", sum, p.Pending)
		}
		r.mark(10)
		r.pass(5 * d2)
		revoke()
		for range 2 {
			if err := <-served; err != nil {
				r.Fatal(err)
			}
		}
		at := []int{second.watermark(), third.watermark()}
		r.mark(1000)
		r.pass(time.Minute)
		r.mark(1000)
		r.pass(time.Minute)
		r.watermark(20)
		if at[0] != second.watermark() || at[1] != third.watermark() {
			r.Fatal("committed to a partition that was given up")
		}
		if s := r.engine.Snapshot(); s.InFlight+s.Pending+s.Bytes+s.Unmarked != 0 || len(s.Partitions) != 1 {
			r.Fatalf("given up partitions left something behind: %+v", s)
		}
	})
}

// What is under way in Redis when freshet is told to stop comes back and is committed; the rest is dropped.
func TestWhenStoppedWhatIsUnderWayIsCommitted(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return 300 * ms } })
		r.append(batchOf(4, 0, "under way"))
		r.append(batchOf(5, d2, "pending"))
		r.pass(100 * ms)
		r.stop()
		begin := time.Now()
		if err := <-r.served; err != nil {
			r.Fatal(err)
		}
		if took := time.Since(begin); took != 200*ms {
			r.Fatalf("stopped after %s, want as soon as Redis had answered", took)
		}
		r.watermark(1)
		r.mark(1000)
		r.pass(time.Minute)
		r.watermark(1)
		r.tape("0s under way", "0s pending")
	})
}

func TestStoppingDoesNotWaitForARedisThatIsAway(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() { r.redis.answer = func([]string) error { return readonly } })
		r.append(batchOf(4, 0, "a"))
		r.pass(time.Minute)
		r.stop()
		begin := time.Now()
		if err := <-r.served; err != nil {
			r.Fatal(err)
		}
		if took := time.Since(begin); took > time.Second {
			r.Fatalf("stopped after %s", took)
		}
		r.watermark(0)
	})
}

func TestServeEndsWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Deps{Redis: noRedis{}, Store: &memStore{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
			Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ran, served := make(chan error, 1), make(chan error, 1)
		go func() { ran <- e.Run(ctx) }()
		go func() { served <- e.Serve(t.Context(), newFakeLog()) }()
		synctest.Wait()
		stop()
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
		if err := e.Serve(t.Context(), newFakeLog()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	deps := Deps{Redis: noRedis{}, Store: &memStore{}}
	if _, err := New(deps, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{
		{MaxInFlight: -1}, {MaxPending: -1}, {MaxMemory: -1}, {RateLimit: -1}, {Timeout: -1}, {ShortestD: -1},
	} {
		if _, err := New(deps, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	if _, err := New(Deps{}, Options{}); err == nil {
		t.Error("no Redis and no store, but no error")
	}
}

func TestAnUnknownBatchSizeIsNoMatter(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		keys := make([]string, 3*tripKeys+17)
		for i := range keys {
			keys[i] = fmt.Sprintf("k%d", i)
		}
		r.append(batchOf(4, d2, keys...))
		r.mark(4)
		r.pass(d2)
		r.watermark(1)
		for _, k := range []int{0, commandKeys - 1, commandKeys, tripKeys, len(keys) - 1} {
			if n := r.count(keys[k]); n != 2 {
				r.Fatalf("key %d was deleted %d times", k, n)
			}
		}
	})
}

// advising is a store that knows what to do when it fails.
type advising struct{ retry.Store }

func (advising) Advice() string { return "look at the brokers" }

func TestTheStoreItselfSaysWhatToDoWhenItFails(t *testing.T) {
	for want, s := range map[string]retry.Store{"look at the brokers": advising{}, "look at the store": nil} {
		if got := (&Engine{store: s}).advice(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
