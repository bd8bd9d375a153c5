package invalidator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// endlessLog makes batches for as long as they are fetched.
type endlessLog struct{ keys, made int }

func (*endlessLog) ID() int { return 0 }

func (l *endlessLog) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	keys := make([]string, l.keys)
	for i := range keys {
		keys[i] = fmt.Sprintf("product:%d:%d", l.made, i)
	}
	l.made++
	return batchOf(uint64(l.made+4), d2, keys...), token{n: l.made}, ctx.Err()
}

func (*endlessLog) Commit(eventlog.Token) {}

// What max_memory counts is about what the pending keys really hold, be it of many small batches or a few large.
func TestPendingKeysHoldAboutWhatIsCounted(t *testing.T) {
	limit := testbed.Cut[int64](4<<20, 16<<20)
	for _, keys := range []int{1, 20, 2000} {
		e := start(t, Deps{Redis: noRedis{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
			Options{MaxMemory: limit, MaxPending: 1 << 30})
		before := heapBytes()
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- e.Serve(ctx, &endlessLog{keys: keys}) }()
		held := heldWhenFull(t, e) - before
		t.Logf("batches of %d keys: %d keys pending, %d MiB counted, %d MiB held",
			keys, e.Snapshot().Pending, e.Snapshot().Bytes>>20, held>>20)
		if held > limit*5/4 || held < limit/2 {
			t.Errorf("batches of %d keys hold %d bytes, counted as %d", keys, held, limit)
		}
		stop()
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	}
}

// refusingRedis refuses every key, each time in a text of its own, as a text that was read from a connection is.
type refusingRedis struct {
	noRedis
	some bool // of one command's keys all but the first
}

func (r refusingRedis) Unlink(_ context.Context, commands []*Command) {
	for i, c := range commands {
		c.Found, c.Err = 0, nil
		if c.Len() > 1 || !r.some || i > 0 {
			c.Err = answerError(strings.Clone("NOPERM this user has no permissions to access one of the keys used as arguments"))
		}
	}
}

// Keys that Redis refuses are pending like others, and hold what Redis said of them as well.
func TestKeysInTroubleHoldAboutWhatIsCounted(t *testing.T) {
	limit := testbed.Cut[int64](4<<20, 8<<20)
	for name, redis := range map[string]refusingRedis{"all": {}, "all but one": {some: true}} {
		e := start(t, Deps{Redis: redis, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, Options{
			MaxMemory: limit, MaxPending: 1 << 30, Retry: retry.Policy{ParkAfter: 1},
		})
		before := heapBytes()
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- e.Serve(ctx, &endlessLog{keys: 2000}) }()
		held := heldWhenFull(t, e) - before
		t.Logf("%s: %d keys pending, %d MiB counted, %d MiB held", name, e.Snapshot().Pending, e.Snapshot().Bytes>>20,
			held>>20)
		if held > limit*2 {
			t.Errorf("%s: keys in trouble hold %d bytes, counted as %d", name, held, limit)
		}
		stop()
		if err := <-served; err != nil {
			t.Fatal(err)
		}
	}
}

// heldWhenFull waits until max_memory holds up fetching for good, and returns how large the heap is then. The cap is
// reached for a moment before that, too: while a batch is not packed yet.
func heldWhenFull(t *testing.T, e *Engine) int64 {
	t.Helper()
	var held int64
	full := func(s Snapshot) bool { return s.Waiting == "invalidator.max_memory is reached" && s.InFlight == 0 }
	testbed.Eventually(t, 10*time.Minute, "max_memory holds up fetching for good", func() bool {
		before := e.Snapshot()
		if !full(before) {
			return false
		}
		held = heapBytes()
		after := e.Snapshot()
		return full(after) && after.Pending == before.Pending && after.Bytes == before.Bytes
	})
	return held
}

// heapBytes is how large the heap is. What became garbage while garbage was collected takes a second collection.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
