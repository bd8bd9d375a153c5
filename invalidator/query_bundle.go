package invalidator

import (
	"context"
	"slices"
	"strings"
	"time"
)

const (
	// quickQuery is how long a query may take to be bundled: about as long as the round trips that it would have alone.
	quickQuery = time.Millisecond
	// bundleRuns is how many runs there are in a bundle at most. A change that comes meanwhile waits for as many queries
	// if all workers are at work.
	bundleRuns = 16
	// bundleTime is after what time the runs of a bundle that have no answer yet are left to other workers, and
	// bundleBytes after how many bytes of values.
	bundleTime  = 2 * bundleRuns * quickQuery
	bundleBytes = 1 << 20
)

// queryBundle is what a worker takes on at once: one run, under the lock of its key, or several whose queries are known
// to be quick. These are asked one after the other without locks, and share a round trip that writes what they have
// read. Alone, each would need three round trips to Redis, which would take most of the time.
type queryBundle struct {
	runs   []*queryRun
	ctx    context.Context
	cancel context.CancelFunc
}

// isWanted reports whether some key waits for a run of the bundle that is not over. The caller holds the pool's lock.
func (b *queryBundle) isWanted(r *queryRun) bool {
	return r.bundle == b && (len(r.waiting) > 0 ||
		slices.ContainsFunc(r.serves, func(w waiter) bool { return w.partition.ctx.Err() == nil }))
}

// next takes the runs whose turn it is; nil when ctx ended.
func (q *queryPool) next(ctx context.Context) *queryBundle {
	for {
		q.mu.Lock()
		runs, ready := q.takeRuns()
		if len(runs) > 0 {
			b := &queryBundle{runs: runs}
			b.ctx, b.cancel = context.WithCancel(ctx)
			for _, r := range runs {
				r.bundle = b
			}
			q.underWay[b] = struct{}{}
			q.mu.Unlock()
			return b
		}
		q.mu.Unlock()
		var paced <-chan time.Time
		if ready != never {
			paced = time.After(ready.sub(q.engine.clock()))
		}
		select {
		case <-q.more:
		case <-paced:
		case <-ctx.Done():
			return nil
		}
	}
}

// takeRuns takes runs out of the line. Each worker takes its share of what waits, so that none is idle meanwhile. What
// is served gently comes alone, as in all that is gentle. The caller holds mu.
func (q *queryPool) takeRuns() (runs []*queryRun, ready instant) {
	r, ready := q.line.take(q.engine.clock(), q.runs)
	if r == nil {
		return nil, ready
	}
	runs = append(runs, r)
	if !r.gentle {
		most := min(bundleRuns, 1+q.line.runs[liveTurn].len()/q.engine.options.QueryWorkers)
		live := &q.line.runs[liveTurn]
		for q.isQuick(r) && len(runs) < most && q.line.waits(liveTurn, q.runs) && q.isQuick(live.head().run) {
			runs = append(runs, q.line.pop(liveTurn))
		}
	}
	if !q.line.isEmpty() {
		wake(q.more)
	}
	return runs, never
}

// isQuick reports whether a run's query is known to be quick.
func (q *queryPool) isQuick(r *queryRun) bool {
	d, known := q.took[r.key.query]
	return known && d <= quickQuery
}

// lasted takes note of how long a query took for each key: of the last few times, the latest counts most. One that
// failed is not known to be quick any more.
func (q *queryPool) lasted(query string, d time.Duration, worked bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch old, known := q.took[query]; {
	case !worked:
		delete(q.took, query)
	case known:
		q.took[query] = (3*old + d) / 4
	default:
		q.took[strings.Clone(query)] = d // not to hold on to a batch
	}
}

// done ends a bundle.
func (q *queryPool) done(b *queryBundle) {
	b.cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.underWay, b)
}
