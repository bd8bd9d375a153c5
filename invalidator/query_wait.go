package invalidator

import (
	"context"
	"fmt"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/retry"
)

// Queries can be slower than changes come, by any factor. What waits for them must hold up nobody else: neither
// fetching, nor the watermark, which everything that comes later waits for. So there are two bounds on what waits, in
// bytes and in time. Beyond them a key forgoes its query: it is forgotten, as if its mapping said delete, and the
// application reads for itself.
//
// What is served gently forgoes none: it is not stale, so it may wait for long. Its partition fetches no more instead
// ([partitionLoop.takesMore]).

const (
	// queryShare is the share of [Options].MaxMemory, as a divisor, that all keys may hold that are to be rebuilt by
	// query.
	queryShare = 4
	// staleFor is for how long a key waits for a query to begin, with the value that it had: as long as for a lock of
	// somebody else.
	staleFor = 5 * time.Second
	// staleCheck is how often it is looked which have waited so long.
	staleCheck = time.Second
)

// expire takes keys out of the line that have waited for their query for too long. It returns when ctx ends.
func (q *queryPool) expire(ctx context.Context) {
	for retry.Beat(ctx, staleCheck) == nil {
		deliver(q.overdue(q.engine.clock().add(-staleFor)))
	}
}

// overdue takes out of the line, and out of bundles, all that wait for a run to begin which a key that changed has
// waited for since then or before.
func (q *queryPool) overdue(then instant) (answers []queryResult) {
	q.mu.Lock()
	defer q.mu.Unlock()
	look := func(r *queryRun) {
		if r.since > then {
			return
		}
		for _, w := range r.waiting {
			answers = append(answers, queryResult{waiter: w, forgone: true})
		}
		r.waiting, r.since = nil, never // it is dropped when its turn comes, if nobody waits for it then
	}
	live := &q.line.runs[liveTurn]
	for i := range live.len() {
		look(live.at(i).run)
	}
	for b := range q.underWay {
		for _, r := range b.runs {
			if r.bundle == b && len(r.serves) == 0 { // it has not begun
				look(r)
			}
		}
	}
	q.waiting.Add(-int64(len(answers)))
	return answers
}

// forgone ends a run and answers all that it was to serve: no value is written.
func (q *queryPool) forgone(r *queryRun) {
	var answers []queryResult
	for _, w := range r.serves {
		answers = append(answers, queryResult{waiter: w, forgone: true})
	}
	q.end(r, answers)
}

// take asks for room for what a unit holds; false: there is none. One unit passes, however large.
func (q *queryPool) take(bytes int64) bool {
	if now := q.held.Add(bytes); now > q.most && now != bytes {
		q.held.Add(-bytes)
		return false
	}
	return true
}

// spoil has runs that are under way for keys of the unit forget their key: what they have read may be from before the
// unit's changes, which no run will follow.
func (q *queryPool) spoil(u *unit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.runs) == 0 {
		return
	}
	for i := range u.size {
		if r := q.runs[waiter{unit: u, at: i}.key()]; r != nil {
			r.spoiled = len(r.serves) > 0
		}
	}
}

// isSpoiled reports whether the run that is under way must not write what it has read.
func (q *queryPool) isSpoiled(r *queryRun) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return r.spoiled
}

// holdsItsShare reports whether a partition that is served gently holds as much as it may of what must be rebuilt by
// query: it waits, and forgoes nothing. Any goroutine may ask.
func (s *partitionLoop) holdsItsShare() bool {
	return s.gentle && s.queried.Load() >= s.engine.queries.most
}

// admit lets a unit wait for its queries, if there is room for it.
func (s *partitionLoop) admit(u *unit) {
	b := u.entry.batch
	bytes := u.extra() + int64(b.Bytes())*int64(u.size)/int64(b.Len())
	if !s.gentle && !s.engine.queries.take(bytes) {
		s.forgo(u)
		return
	}
	u.queried = bytes
	s.queried.Add(bytes)
	s.awaitVisible(u)
}

// released gives back what a unit held while it had queries to wait for.
func (s *partitionLoop) released(u *unit) {
	if u.queried == 0 {
		return
	}
	s.queried.Add(-u.queried)
	if s.gentle {
		s.engine.room.changed() // it may fetch again
	} else {
		s.engine.queries.held.Add(-u.queried)
	}
	u.queried = 0
}

// forgo has the keys of a unit forgotten, from now on, instead of rebuilt by query.
func (s *partitionLoop) forgo(u *unit) {
	e := s.engine
	e.queries.spoil(u)
	s.released(u)
	e.metrics.forgone.Add(float64(u.size))
	e.alarms.Raise(alarm.RebuildForgone,
		fmt.Sprintf("queries cannot keep up with the changes of table %s, so keys that they should rebuild are "+
			"deleted instead: make the query faster, or bound its mapping by rate_limit", u.entry.batch.Of(u.ordinal(0)).Table))
	if u.trouble != nil {
		u.trouble = nil
		s.troubled.Add(-int64(u.size))
	}
	u.class, u.forget = writes, true
	u.begin()
	if u.final {
		s.enqueueDue(u)
	} else {
		s.outboxTo(u.node).fresh[writes].push(u)
	}
}

// setForgoneApart has the keys of a unit that wait for no query any more forgotten at once, as a unit of their own.
// They leave the unit itself when all others are answered ([partitionLoop.withoutForgone]): their places are spoken of
// until then.
func (s *partitionLoop) setForgoneApart(u *unit) {
	from := u.apart
	u.apart = len(u.forgone)
	if from == u.apart {
		return
	}
	apart := &unit{
		entry: u.entry, d: u.d, node: u.node, routed: u.routed, moved: u.moved, asks: u.asks,
		class: u.class, known: u.known, first: u.first, deleted: u.deleted,
		final: u.final, paced: u.paced,
	}
	for _, at := range u.forgone[from:] {
		apart.idx = append(apart.idx, uint32(u.ordinal(at)))
	}
	apart.size = len(apart.idx)
	more := unitBytes + int64(4*cap(apart.idx)) + s.shareAbsorbed(u, apart)
	u.entry.hold(s, more)
	u.entry.open++
	if !apart.deleted {
		u.entry.undeleted++
	}
	if u.trouble != nil {
		s.troubled.Add(-int64(apart.size))
	}
	s.forgo(apart)
}

// withoutForgone takes the keys that were set apart out of a unit of which all others are answered. It returns nil if
// there are no others.
func (s *partitionLoop) withoutForgone(u *unit) *unit {
	if u.apart == 0 {
		return u
	}
	gone := make([]bool, u.size)
	for _, at := range u.forgone {
		gone[at] = true
	}
	left, place := make([]uint32, 0, u.size-len(u.forgone)), make([]int, u.size)
	for i := range u.size {
		if place[i] = len(left); !gone[i] {
			left = append(left, uint32(u.ordinal(i)))
		}
	}
	for i := range u.failed {
		u.failed[i].at = place[u.failed[i].at]
	}
	u.entry.hold(s, int64(4*cap(left)))
	u.idx, u.size, u.forgone, u.apart = left, len(left), nil, 0
	if u.size > 0 {
		return u
	}
	if !u.deleted {
		u.entry.undeleted--
	}
	s.released(u)
	s.closeAbsorbed(u)
	s.close(u.entry)
	return nil
}
