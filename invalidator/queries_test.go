package invalidator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

func TestAQueryWaitsUntilTheChangeIsVisible(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		q := r.rebuilding(nil)
		r.append(batchOfThings(origin(4, d2), query("a")))
		r.pass(time.Minute)
		q.ran()
		if s := r.engine.Snapshot(); s.Unmarked != 1 || s.Pending != 1 {
			r.Fatalf("%+v", s)
		}
		r.mark(4)
		q.ran("1m0s a")
		r.calls("acquire", "rebuild a set 1/1/4/1 the row", "release")
		r.watermark(0)
		r.pass(d2)
		q.ran("1m0s a", "1m2s a")
		r.watermark(1)
		if s := r.engine.Snapshot(); s.Unmarked+s.InFlight+s.Pending+s.Bytes != 0 || s.RebuildQueue != 0 {
			r.Fatalf("%+v", s)
		}
	})
}

func TestOldNewsIsQueriedOnce(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		q := r.rebuilding(nil)
		r.append(aged(batchOfThings(origin(4, d2), query("a")), time.Hour))
		q.ran("0s a")
		r.calls("acquire", "rebuild a set", "release")
		r.watermark(1)
	})
}

// All that wait for a key share one run; those that come while it is under way share the next, for it may have read
// before their changes.
func TestOneRunServesAllThatWaitedWhenItBegan(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 2}, func(r *rig) {
		q := r.rebuilding(func(ctx context.Context, _ string) (string, error) {
			return "v", retry.Sleep(ctx, 100*ms)
		})
		b := func(pos uint64) *event.Batch { return aged(batchOfThings(origin(pos, 0), query("a")), 0) }
		r.append(b(4)) // begins at once
		for pos := uint64(5); pos < 10; pos++ {
			r.append(b(pos))
		}
		r.watermark(0)
		r.pass(100 * ms)
		r.watermark(1)
		r.pass(100 * ms)
		r.watermark(6)
		q.ran("0s a", "100ms a")
		r.calls("acquire", "rebuild 1/1/4/1", "release", "acquire", "rebuild 1/1/9/1", "release")
	})
}

func (r *rig) lastCall() string {
	r.redis.mu.Lock()
	defer r.redis.mu.Unlock()
	return r.redis.calls[len(r.redis.calls)-1]
}

func TestARowThatIsGoneIsRemoved(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.rebuilding(func(context.Context, string) (string, error) { return "", nil })
		r.append(aged(batchOfThings(origin(4, 0), query("a")), 0))
		r.calls("acquire", "rebuild a drop", "release")
		r.watermark(1)
	})
}

func TestAFailedQueryDeletesTheKeyAndIsTriedAgain(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		failing := true
		q := r.rebuilding(func(context.Context, string) (string, error) {
			if failing {
				return "", errQuery
			}
			return "v", nil
		})
		r.append(aged(batchOfThings(origin(4, 0), query("a")), 0))
		q.ran("0s a")
		r.calls("acquire", "rebuild a forget", "release")
		if s := r.engine.Snapshot(); s.InTrouble != 1 || r.alarms.count(alarm.RebuildFailed) != 1 {
			r.Fatalf("%+v", s)
		}
		r.redis.set(func() { failing = false })
		r.pass(time.Second)
		r.watermark(1)
		if len(q.tape) != 2 || !hasWords(r.redis.calls[4], "set 1/1/4/1") {
			r.Fatalf("%q %q", q.tape, r.redis.calls)
		}
	})
}

func TestAQueryThatFailsForeverEndsAsADelete(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.rebuilding(func(context.Context, string) (string, error) { return "", errQuery })
		r.append(batchOfThings(origin(4, d2), query("a")))
		r.mark(4)
		r.pass(time.Minute)
		r.watermark(1)
		if parked, dead := r.store.counts(); parked+dead != 0 || r.store.parks != 1 ||
			!strings.Contains(r.lastCall(), "rebuild evalsha") {
			r.Fatalf("%d parked, %d dead, parked %d times, at last %s", parked, dead, r.store.parks, r.lastCall())
		}
	})
}

// Without the query in its configuration a process can only delete; it does not try again in place.
func TestAnUnknownQueryIsNotTriedAgain(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(batchOfThings(origin(4, d2), query("a")))
		r.mark(4)
		r.calls("acquire", "rebuild a forget", "release")
		r.pass(d2)
		r.watermark(1)
		if parked, _ := r.store.counts(); parked != 1 || r.store.parked()[0].Action != event.ActionRebuild {
			r.Fatalf("%+v", r.store.parked())
		}
		r.calls("acquire", "rebuild a forget", "release")
		r.pass(time.Minute)
		if parked, dead := r.store.counts(); parked+dead != 0 || !hasWords(r.lastCall(), "forget 1/1/4/1") {
			r.Fatalf("%d parked, %d dead, at last %s", parked, dead, r.lastCall())
		}
	})
}

// What was read before Redis went away is not written when it is back: it is read again.
func TestAValueReadBeforeRedisWentAwayIsReadAnew(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		n := 0
		q := r.rebuilding(func(context.Context, string) (string, error) {
			n++
			return fmt.Sprintf("value%d", n), nil
		})
		r.refusing(isPut, "READONLY You can't write against a read only replica.")
		r.append(aged(batchOfThings(origin(4, 0), query("a")), 0))
		r.pass(10 * time.Second)
		r.watermark(0)
		r.redis.set(func() { r.redis.answerCall = nil })
		r.pass(time.Second)
		r.watermark(1)
		last := r.redis.calls[len(r.redis.calls)-2]
		if !strings.Contains(last, fmt.Sprintf("value%d", n)) || n < 2 {
			r.Errorf("after %d queries %s was written", n, last)
		}
		if got := len(q.tape); got != n {
			r.Errorf("%d queries", got)
		}
	})
}

func TestALockThatSomebodyElseHoldsIsWaitedForOnlySoLong(t *testing.T) {
	for _, c := range []struct {
		name string
		free time.Duration // when the other gives it back
		want time.Duration // when the query runs at the latest
	}{
		{"given back", time.Second, 1500 * ms},
		{"never given back", time.Hour, 5500 * ms},
	} {
		inBubble(t, Options{}, func(r *rig) {
			begin := time.Now()
			r.redis.set(func() {
				r.redis.answerCall = func(s sentCall) (any, error) {
					if s.script == "acquire" && time.Since(begin) < c.free {
						return int64(0), nil
					}
					return int64(1), nil
				}
			})
			q := r.rebuilding(nil)
			r.append(aged(batchOfThings(origin(4, 0), query("a")), 0))
			q.ran()
			r.pass(c.want)
			if len(q.tape) != 1 {
				r.Fatalf("%s: queries: %q", c.name, q.tape)
			}
			r.watermark(1)
		})
	}
}

// A query that takes long keeps its lock; and the lock is given back after the value is written.
func TestALockIsRenewedWhileTheQueryRuns(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.rebuilding(func(ctx context.Context, _ string) (string, error) { return "v", retry.Sleep(ctx, 4*time.Second) })
		r.append(aged(batchOfThings(origin(4, 0), query("a")), 0))
		r.pass(4 * time.Second)
		r.calls("acquire freshet:lock:{a}", "renew", "renew", "rebuild a set", "release")
	})
}

// forgotten returns how often a key was forgotten.
func (r *rig) forgotten(key string) (n int) {
	r.redis.mu.Lock()
	defer r.redis.mu.Unlock()
	for _, c := range r.redis.calls {
		if strings.Contains(c, "freshet:v:{"+key+"} forget") {
			n++
		}
	}
	return n
}

// slowly has the query of the key a take 10 s.
func (r *rig) slowly() *tapeRebuilder {
	return r.rebuilding(func(ctx context.Context, key string) (string, error) {
		if key != "a" {
			return "v", nil
		}
		return "v", retry.Sleep(ctx, 10*time.Second)
	})
}

// A slow query of one key holds up the others: they are deleted instead, and finished, with no query at all.
func TestAKeyThatWaitsLongForItsQueryIsDeletedInstead(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 1}, func(r *rig) {
		q := r.slowly()
		r.append(aged(batchOfThings(origin(4, d2), query("a"), query("b")), 0))
		r.append(aged(batchOfThings(origin(5, d2), query("c")), time.Hour))
		r.mark(5)
		r.pass(4 * time.Second)
		if n := r.forgotten("b") + r.forgotten("c"); n != 0 {
			r.Fatalf("deleted %d times after 4s: %q", n, r.redis.calls)
		}
		r.pass(3 * time.Second)
		if b, c := r.forgotten("b"), r.forgotten("c"); b != 1 || c != 1 || r.alarms.count(alarm.RebuildForgone) == 0 {
			r.Fatalf("after 7s b was deleted %d times, c %d times, and there are %d alarms: %q", b, c,
				r.alarms.count(alarm.RebuildForgone), r.redis.calls)
		}
		r.watermark(0)
		r.pass(time.Minute)
		r.watermark(2)
		q.ran("0s a", "10s a")
		if s := r.engine.Snapshot(); s.InFlight+s.Pending+s.Bytes+s.RebuildQueue != 0 || r.engine.queries.held.Load() != 0 {
			r.Fatalf("%+v, %d bytes held", s, r.engine.queries.held.Load())
		}
	})
}

// What must be rebuilt by query may hold a share of the memory. The rest is deleted at once, and again as the final
// action.
func TestWhatFindsNoRoomToWaitForItsQueryIsDeletedInstead(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 1}, func(r *rig) {
		r.engine.queries.most = 1
		q := r.slowly()
		r.append(batchOfThings(origin(4, d2), query("a")))
		r.append(batchOfThings(origin(5, d2), query("b")))
		if n := r.forgotten("b"); n != 1 || r.alarms.count(alarm.RebuildForgone) != 1 {
			r.Fatalf("deleted %d times, %d alarms: %q", n, r.alarms.count(alarm.RebuildForgone), r.redis.calls)
		}
		r.mark(5)
		r.pass(d2)
		if n := r.forgotten("b"); n != 2 {
			r.Fatalf("deleted %d times: %q", n, r.redis.calls)
		}
		r.watermark(0)
		r.pass(time.Minute)
		r.watermark(2)
		q.ran("0s a", "10s a")
		r.append(aged(batchOfThings(origin(6, 0), query("b")), 0)) // there is room again
		q.ran("0s a", "10s a", "1m2s b")
		r.watermark(3)
	})
}

// A run that has read before a change must not write it back once the change was finished without a query.
func TestARunForgetsItsKeyIfALaterChangeFoundNoRoom(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 1}, func(r *rig) {
		r.engine.queries.most = 1
		r.slowly()
		r.append(aged(batchOfThings(origin(4, 0), query("a")), 0))
		r.append(aged(batchOfThings(origin(5, 0), query("a")), 0))
		if n := r.forgotten("a"); n != 1 {
			r.Fatalf("deleted %d times: %q", n, r.redis.calls)
		}
		r.pass(10 * time.Second)
		if n := r.forgotten("a"); n != 2 || strings.Contains(strings.Join(r.redis.calls, "\n"), " set ") {
			r.Fatalf("deleted %d times: %q", n, r.redis.calls)
		}
		r.watermark(2)
	})
}

// Keys that wait for queries do not stop the fetching: max_in_flight does not count them.
func TestKeysThatWaitForQueriesHoldUpNoOther(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 1, MaxInFlight: 2}, func(r *rig) {
		r.slowly()
		var things []thing
		for i := range 20 {
			things = append(things, query(fmt.Sprint("a", i)))
		}
		r.append(aged(batchOfThings(origin(4, 0), query("a")), 0))
		r.append(aged(batchOfThings(origin(5, 0), things...), 0))
		r.append(aged(batchOf(6, 0, "other"), 0))
		r.tape("0s other")
		r.append(batchOfThings(origin(7, d2), things...)) // not visible yet
		r.append(aged(batchOf(8, 0, "another"), 0))
		r.tape("0s other", "0s another")
	})
}

// When the partition ends, a query that runs for it alone is cut short, and those that wait are not run.
func TestQueriesEndWithTheirPartition(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 1}, func(r *rig) {
		cut := false
		q := r.rebuilding(func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			cut = true
			return "", ctx.Err()
		})
		r.append(aged(batchOfThings(origin(4, 0), query("a"), query("b"), query("c")), 0))
		q.ran("0s a")
		r.stop()
		if err := <-r.served; err != nil {
			r.Fatal(err)
		}
		r.served <- nil
		synctest.Wait()
		q.ran("0s a")
		r.calls("acquire", "release")
		if s := r.engine.Snapshot(); !cut || s.InFlight+s.Pending+s.Bytes+s.RebuildQueue != 0 ||
			len(r.engine.queries.runs) != 0 {
			r.Fatalf("cut short: %v, %d runs, %+v", cut, len(r.engine.queries.runs), s)
		}
	})
}

// Queries are bounded, and so is what they hold.
func TestSoManyQueriesRunAtOnce(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 3}, func(r *rig) {
		running, most := 0, 0
		r.rebuilding(func(ctx context.Context, _ string) (string, error) {
			r.redis.set(func() { running++; most = max(most, running) })
			err := retry.Sleep(ctx, 10*ms)
			r.redis.set(func() { running-- })
			return "v", err
		})
		var things []thing
		for i := range 30 {
			things = append(things, query(fmt.Sprint(i)))
		}
		r.append(aged(batchOfThings(origin(4, 0), things...), 0))
		if s := r.engine.Snapshot(); s.RebuildQueue != 27 {
			r.Errorf("%d wait, want 27", s.RebuildQueue)
		}
		r.pass(time.Second)
		r.watermark(1)
		if most != 3 {
			r.Errorf("%d at once, want 3", most)
		}
	})
}
