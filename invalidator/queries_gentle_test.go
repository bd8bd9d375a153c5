package invalidator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// readRows returns a batch of n rows that were just read, with keys that begin in a way and are rebuilt by query.
func readRows(prefix string, n int, pos uint64, d time.Duration) *event.Batch {
	things := make([]thing, n)
	for i := range things {
		things[i] = query(fmt.Sprint(prefix, i))
	}
	b := batchOfThings(origin(pos, d), things...)
	b.Read = time.Now()
	return b
}

// taking gives the rig's engine queries that take so long, and says how many of them run at once at most, by whether
// their key is a walk's.
func (r *rig) taking(each time.Duration) (q *tapeRebuilder, most func(walks bool) int) {
	running, largest := map[bool]int{}, map[bool]int{}
	q = r.rebuilding(func(ctx context.Context, key string) (string, error) {
		walks := strings.HasPrefix(key, "walk")
		r.redis.set(func() { running[walks]++; largest[walks] = max(largest[walks], running[walks]) })
		err := retry.Sleep(ctx, each)
		r.redis.set(func() { running[walks]-- })
		return "v", err
	})
	return q, func(walks bool) int {
		r.redis.mu.Lock()
		defer r.redis.mu.Unlock()
		return largest[walks]
	}
}

// begun returns how many queries have begun for keys that begin in a way, and forgets all.
func (q *tapeRebuilder) begun(prefix string) (n int) {
	q.r.redis.mu.Lock()
	defer q.r.redis.mu.Unlock()
	for _, line := range q.tape {
		if _, key, _ := strings.Cut(line, " "); strings.HasPrefix(key, prefix) {
			n++
		}
	}
	q.tape = nil
	return n
}

// A key that changed is queried before all that a walk has in line, and half of the sessions are left to such keys.
func TestLiveKeysAreQueriedBeforeGentleOnes(t *testing.T) {
	for workers, gentle := range map[int]int{1: 1, 4: 2, 5: 2} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			gently(t, Options{QueryWorkers: workers}, 0, func(r *gentleRig) {
				q, most := r.taking(100 * ms)
				r.serve(readRows("walk", 300, 4, 0), readRows("walk", 300, 5, 0))
				r.pass(250 * ms)
				if n := q.begun("walk"); n != 3*gentle || most(true) != gentle {
					t.Fatalf("%d queries for rows, %d at once, want %d at once", n, most(true), gentle)
				}
				r.append(aged(batchOfThings(origin(6, 0), query("live0"), query("live1")), 0))
				r.pass(ms)
				if n, want := q.begun("live"), min(2, workers-gentle); n != want {
					t.Errorf("%d live keys are queried at once, want %d", n, want)
				}
				r.pass(250 * ms)
				if n := q.begun("live"); n != max(0, 2-(workers-gentle)) {
					t.Errorf("%d live keys are queried as soon as a session is free", n)
				}
				r.watermark(1)
			})
		})
	}
}

// A change of a key that a walk has in line takes the key to the front, and no query is run for it twice.
func TestAGentleKeyThatChangesIsQueriedAtOnce(t *testing.T) {
	gently(t, Options{QueryWorkers: 1}, 0, func(r *gentleRig) {
		q, _ := r.taking(100 * ms)
		log := r.serve(readRows("walk", 20, 4, 0))
		r.pass(50 * ms)
		r.append(aged(batchOfThings(origin(5, 0), query("walk15")), 0))
		r.pass(100 * ms)
		q.ran("0s walk0", "100ms walk15")
		r.pass(time.Minute)
		r.watermark(1)
		if n := q.begun("walk"); n != 20 || log.watermark() != 1 {
			t.Errorf("%d queries for 20 keys, and %d batches are finished", n, log.watermark())
		}
	})
}

// Where live keys need more queries than can be run, a walk gets a few.
func TestGentleKeysAreQueriedNowAndThenInASeaOfLiveOnes(t *testing.T) {
	gently(t, Options{QueryWorkers: 2}, 0, func(r *gentleRig) {
		q, _ := r.taking(100 * ms)
		r.serve(readRows("walk", 300, 4, 0))
		r.pass(time.Second)
		q.begun("")
		for i := range 20 {
			r.append(aged(batchOfThings(origin(uint64(5+i), 0), someQueries(fmt.Sprint("live", i, ":"), 40)...), 0))
			r.pass(time.Second)
		}
		if n := q.begun("walk"); n < 400/(liveRuns+1)-2 || n > 400/(liveRuns+1)+2 {
			t.Errorf("%d of 400 queries are for rows, want one of %d", n, liveRuns+1)
		}
	})
}

func someQueries(prefix string, n int) []thing {
	things := make([]thing, n)
	for i := range things {
		things[i] = query(fmt.Sprint(prefix, i))
	}
	return things
}

// A walk keeps its pace, whatever has gathered, and final actions come before first ones.
func TestGentleQueriesKeepThePace(t *testing.T) {
	gently(t, Options{GentleRate: 50}, 0, func(r *gentleRig) {
		q, _ := r.taking(ms)
		log := r.serve(readRows("walk", 50, 4, d2), readRows("walk later", 400, 4, d2))
		r.pass(time.Second)
		if n := q.begun("walk"); n < 95 || n > 110 {
			t.Errorf("%d queries within a second, want 100", n)
		}
		r.pass(d2)
		if log.watermark() != 1 {
			t.Error("the final actions of the first batch wait for the first actions of others")
		}
		r.pass(time.Minute)
		if log.watermark() != 2 {
			t.Errorf("%d batches are finished", log.watermark())
		}
	})
}

// A table whose query is slow is walked as fast as it allows: nothing piles up in memory, nothing is deleted for want
// of a query, and the room for keys that changed is left to these.
func TestAWalkWaitsForItsQueries(t *testing.T) {
	gently(t, Options{QueryWorkers: 1}, 0, func(r *gentleRig) {
		q, _ := r.taking(100 * ms)
		var batches []*event.Batch
		for i := range 60 {
			batches = append(batches, readRows(fmt.Sprint("walk", i, ":"), 100, uint64(4+i), d2))
		}
		log := r.serve(batches...)
		r.pass(time.Minute)
		if n := len(batches) - len(log.batches); n < 11 || n > 11+6 {
			t.Errorf("%d batches are fetched, and 600 queries done", n)
		}
		r.engine.queries.most = 1
		r.append(aged(batchOfThings(origin(5, 0), query("live")), 0))
		r.pass(time.Second)
		if n := r.alarms.count(alarm.RebuildForgone); n != 0 {
			t.Errorf("a key is deleted for want of a query: %d alarms", n)
		}
		if n := q.begun("live"); n != 1 {
			t.Errorf("the live key is queried %d times", n)
		}
		r.watermark(1)
	})
}

// Keys that wait for their final query hold memory for D, which may be long. So a walk by query is held up once it
// holds its share, and goes on when some are finished.
func TestAWalkHoldsItsShareOfTheMemory(t *testing.T) {
	gently(t, Options{MaxMemory: 1 << 20}, 0, func(r *gentleRig) {
		r.taking(0)
		var batches []*event.Batch
		for i := range 60 {
			batches = append(batches, readRows(fmt.Sprint("walk", i, ":"), 100, uint64(4+i), time.Minute))
		}
		log := r.serve(batches...)
		r.pass(30 * time.Second)
		fetched := len(batches) - len(log.batches)
		held := r.engine.Snapshot().Bytes
		if fetched == 60 || held > 1<<19 {
			t.Errorf("%d batches are fetched, and hold %d bytes", fetched, held)
		}
		r.append(batchOfThings(origin(5, 0), query("live")))
		r.mark(5)
		r.pass(10 * time.Minute)
		if n := r.alarms.count(alarm.RebuildForgone); n != 0 || log.watermark() != 60 {
			t.Errorf("%d batches are finished, and there are %d alarms", log.watermark(), n)
		}
		r.watermark(1)
		if s := r.engine.Snapshot(); s.InFlight+s.Pending+s.Bytes+s.RebuildQueue != 0 {
			t.Errorf("%+v", s)
		}
	})
}
