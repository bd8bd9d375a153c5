package invalidator

import (
	"sync/atomic"
	"time"
)

// trips is how large the round trips to a Redis are. A delete counts only if its reply came within D/4 (see [rule]), so
// one that was late and is sent again in a round trip of the same size may be late forever. Hence a late round trip has
// the next ones halved, down to a 64th, for deletes and for writes, first and final ones: a large command holds up what
// others have sent. So does one that had no answer at all in time: each time that is a silence.
//
// They are doubled again after a full one that took less than a quarter of what it might have, for then the double is
// no risk; and after none has been late for long, since a far Redis takes as long for a small round trip as for a large
// one. How long depends on D: a large unit, all of whose round trips have to be in time, must fit in between.
//
// It is asked, and hears of the outcome, once for each round trip, by any goroutine.
type trips struct {
	halved atomic.Int32
	// tried is when a round trip was late, or when they were last doubled just to see.
	tried atomic.Int64
}

const (
	maxHalved   = 6
	tryAgainPer = 64 // in D
)

// ended takes note of how long the slowest round trip of a job took, and whether one had no answer. d is the shortest
// second delete in use; 0: none is.
func (t *trips) ended(j *job, d time.Duration, now instant) {
	switch {
	case d == 0:
	case j.slowest > d/late, j.overdue:
		t.tried.Store(int64(now))
		// Only the first of those that were under way at that size halves it.
		t.halved.CompareAndSwap(j.halved, min(j.halved+1, maxHalved))
	case j.halved == 0 || !j.full():
	case j.slowest < d/late/4:
		t.halved.CompareAndSwap(j.halved, j.halved-1)
	case now.sub(instant(t.tried.Load())) > tryAgainPer*d:
		t.tried.Store(int64(now))
		t.halved.CompareAndSwap(j.halved, j.halved-1)
	}
}

// most returns how many keys of a class the job may hold.
func (j *job) most(c class) int { return j.lane.most(c, j.halved) }

// heavy reports whether the job's keys and values are all that a round trip should carry.
func (j *job) heavy() bool { return j.bytes >= j.lane.bytes>>j.halved }

// full reports whether nothing can be added to the job.
func (j *job) full() bool { return j.size >= j.most(j.class) || j.heavy() }

// fits reports whether keys of a class can be added to the job.
func (j *job) fits(c class) bool { return j.size == 0 || j.class == c && !j.full() }
