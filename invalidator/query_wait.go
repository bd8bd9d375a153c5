package invalidator

import (
	"context"
	"time"

	"github.com/freshet/freshet/event"
)

// A key that waits for its query keeps the value that it had. That is worth a moment: what is deleted meanwhile is
// asked of a database that is busy already. It is not worth more, for slow queries of one mapping hold up those of all.
const (
	// staleFor is for how long a key waits for its query with the old value: as long as for a lock of somebody else.
	staleFor = 5 * time.Second
	// staleCheck is how often it is looked who has waited so long.
	staleCheck = time.Second
)

// expire deletes the keys that have waited for their query for too long. They go on waiting. It returns when ctx ends.
func (q *queryPool) expire(ctx context.Context) {
	w := q.engine.node.newWriter(ctx)
	for pause(ctx, staleCheck) {
		for {
			overdue, actions := q.overdue(q.engine.clock().add(-staleFor))
			if len(actions) == 0 {
				break
			}
			j := &job{ctx: ctx, once: true, reply: reply{sent: never, replied: always}}
			w.perform(j, actions)
			if j.givenUp {
				q.restore(overdue)
				break
			}
			// A key that could not be deleted is in trouble when its query has run.
			q.engine.metrics.did(actions)
		}
	}
}

// overdue takes note of some runs in line for which a key has waited since then or before, and returns them with what
// deletes their keys. It may come after the value that a run writes: a key is missing then that need not be.
func (q *queryPool) overdue(then moment) (runs []*queryRun, actions []action) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := 0; i < q.line.len() && len(runs) < tripCalls; i++ {
		r := q.line.at(i)
		if len(r.waiting) == 0 || r.since > then {
			continue
		}
		r.since = never
		a := newest(r.waiting)
		a.item.Intent = event.IntentForget
		runs, actions = append(runs, r), append(actions, a)
	}
	return runs, actions
}

// restore has the keys of runs deleted later on: Redis was away.
func (q *queryPool) restore(runs []*queryRun) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range runs {
		r.since = always
	}
}
