package invalidator

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/freshet/freshet/event"
)

// queryPool rebuilds keys by query: some workers, each with a bundle of runs, of which one query is under way. Keys
// come to it when their changes are known to be visible (a first action), or when a final action is due; from then on
// a run of their query that begins serves them. So all that wait for one key share the next run, whatever partition
// they came from, and those that come while it is under way share the one after it: it may have read before their
// changes.
//
// A run is as good as a delete that was sent when it began. What it reads is at least as new as all changes that
// were visible then, and it is written under the highest version among those it serves, so that the guard keeps it
// from replacing what a later run, or another process, has written meanwhile.
type queryPool struct {
	engine    *Engine
	rebuilder Rebuilder
	more      chan struct{}
	// waiting is how many keys wait for a run to begin.
	waiting atomic.Int64
	// held is about how many bytes all hold that must be rebuilt by query, without what is served gently. most is how
	// many that may be, and what each partition may hold that is served gently.
	held atomic.Int64
	most int64

	mu   sync.Mutex
	runs map[runKey]*queryRun
	line queryLine // those that have keys and are not under way
	// underWay are the bundles of the workers, and took is about how long each query takes that has succeeded.
	underWay map[*queryBundle]struct{}
	took     map[string]time.Duration
}

// runKey is what keys must have in common for one run to serve them.
type runKey struct{ source, query, key, params string }

// queryRun is the runs of one query for one key, for as long as any key waits for one.
type queryRun struct {
	key     runKey
	waiting []waiter
	// since is since when one of them has waited; never if there is none.
	since instant
	// before is since when one of those has waited that the run under way serves.
	before instant
	// spoiled says that a change came for which no run will follow the one under way.
	spoiled bool
	// serves are those that the run under way serves, and bundle the one that it is in.
	serves []waiter
	bundle *queryBundle
	// turn is the line that it stands in, and stood how often it has been put into one.
	turn  turn
	stood int
	// gentle says that the run under way was taken from a gentle line.
	gentle bool
}

// waiter is a key of a unit that waits for a run.
type waiter struct {
	partition *partitionLoop
	unit      *unit
	at        int // its place in the unit
}

// waiterBytes is about what a key holds while it waits for a run, besides its batch, and until its answer is taken.
const waiterBytes = int64(unsafe.Sizeof(waiter{})) + int64(unsafe.Sizeof(queryRun{})) +
	2*int64(unsafe.Sizeof(runKey{})) + int64(unsafe.Sizeof(queryResult{}))

// queryResult is what became of a key that was to be rebuilt by query.
type queryResult struct {
	waiter
	// reply is when the run began and when its write was acknowledged; slowest is how long the write's round trip took.
	reply   reply
	slowest time.Duration
	// failure says why the key is in trouble; permanent says that trying again will not help.
	failure   string
	permanent bool
	// forgone says that no query was run, since it would have had to wait for too long.
	forgone bool
	// err is set when nothing can be done; givenUp when the partition ended first.
	err     error
	givenUp bool
	// begun is what the run says about the marks of a final one: see [firstAction].
	begun int64
}

// inbox is where a partition finds answers. There are never more than keys it asked for.
type inbox struct {
	mu      sync.Mutex
	answers []queryResult
}

func newQueryPool(e *Engine, r Rebuilder) *queryPool {
	if r == nil {
		r = noRebuilder{}
	}
	return &queryPool{
		engine: e, rebuilder: r, more: make(chan struct{}, 1), runs: map[runKey]*queryRun{},
		most:     max(e.options.MaxMemory/queryShare, 1),
		line:     queryLine{pacer: e.gentlePace, most: max(e.options.QueryWorkers/2, 1)},
		underWay: map[*queryBundle]struct{}{}, took: map[string]time.Duration{},
	}
}

// ask has the keys of a unit that is due rebuilt. It does not block. The unit is the pool's until all its keys are
// answered.
func (q *queryPool) ask(s *partitionLoop, u *unit) {
	q.waiting.Add(int64(u.size))
	q.mu.Lock()
	for i := range u.size {
		q.enqueue(waiter{s, u, i})
	}
	q.mu.Unlock()
	wake(q.more)
}

// enqueue adds a key to the next run of its query. The caller holds mu.
func (q *queryPool) enqueue(w waiter) {
	k := w.key()
	r := q.runs[k]
	isNew := r == nil
	if isNew {
		r = &queryRun{key: k, since: never, before: never}
		q.runs[k] = r
	} else {
		q.engine.metrics.joined.Inc()
	}
	r.waiting = append(r.waiting, w)
	t := w.turn()
	if t == liveTurn {
		r.since = min(r.since, q.engine.clock())
	}
	if isNew || r.turn != noTurn && t < r.turn {
		q.line.put(r, t)
	}
}

func (w waiter) key() runKey {
	b, n := w.unit.entry.batch, w.unit.ordinal(w.at)
	e := b.EffectOf(n)
	k := runKey{source: b.Source, query: e.Query, key: b.Key(n)}
	if _, params := cut(b.Fields(n), notices(e)); len(params) > 0 {
		k.params = unsafe.String(&params[0], len(params)) // the batch's text is never written again
	}
	return k
}

// begin has a run serve all that wait for it by now, and those that it was to serve before.
func (q *queryPool) begin(r *queryRun) []waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting.Add(-int64(len(r.waiting)))
	r.serves, r.before = append(r.serves, r.waiting...), min(r.before, r.since)
	r.waiting, r.since, r.spoiled = nil, never, false
	return slices.Clone(r.serves)
}

// end ends a run with what became of its keys. If others came meanwhile it stands in line again.
func (q *queryPool) end(r *queryRun, answers []queryResult) {
	defer deliver(answers)
	q.mu.Lock()
	defer q.mu.Unlock()
	r.serves, r.bundle, r.before = nil, nil, never
	q.line.ended(r)
	wake(q.more)
	delete(q.runs, r.key)
	if len(r.waiting) == 0 {
		return
	}
	r.key = r.waiting[0].key() // not to hold on to the text of a batch that is finished
	q.runs[r.key] = r
	t := noTurn
	for _, w := range r.waiting {
		t = min(t, w.turn())
	}
	q.line.put(r, t)
}

// leave ends a run that came to nothing. Those that it was to serve wait again, for as long as they have; but a
// partition that has ended meanwhile waits for nothing.
func (q *queryPool) leave(r *queryRun) {
	var answers []queryResult
	q.mu.Lock()
	for _, w := range r.serves {
		if w.partition.ctx.Err() != nil {
			answers = append(answers, queryResult{waiter: w, givenUp: true})
			continue
		}
		r.waiting = append(r.waiting, w)
		q.waiting.Add(1)
	}
	r.serves, r.since = nil, min(r.since, r.before)
	q.mu.Unlock()
	q.end(r, answers)
}

// withdraw takes back the keys of a partition that ends, and returns how many had not begun. A bundle under way that
// serves nobody else is cut short; those that it serves come back all the same.
func (q *queryPool) withdraw(s *partitionLoop) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	isOurs := func(w waiter) bool { return w.partition == s }
	for _, r := range q.runs {
		before := len(r.waiting)
		r.waiting = slices.DeleteFunc(r.waiting, isOurs)
		n += before - len(r.waiting)
	}
	for b := range q.underWay {
		if !slices.ContainsFunc(b.runs, b.isWanted) {
			b.cancel()
		}
	}
	q.waiting.Add(-int64(n))
	return n
}

// deliver hands answers to the partitions.
func deliver(answers []queryResult) {
	for _, a := range answers {
		in := &a.partition.answers
		in.mu.Lock()
		in.answers = append(in.answers, a)
		in.mu.Unlock()
		wake(a.partition.poke)
	}
}

// ask has a unit that is due rebuilt by query.
func (s *partitionLoop) ask(u *unit) {
	if s.ending {
		return
	}
	u.next, u.out = u.size, u.size
	s.asked += u.size
	s.engine.metrics.sent[u.kind()].Add(float64(u.size))
	s.engine.queries.ask(s, u)
}

// kind is why the keys of a unit are sent.
func (u *unit) kind() kind {
	switch {
	case u.trouble != nil:
		return retried
	case u.final:
		return finals
	}
	return firsts
}

// takeAnswers takes note of what came back from those who rebuild by query.
func (s *partitionLoop) takeAnswers() {
	s.answers.mu.Lock()
	answers := s.answers.answers
	s.answers.answers = nil
	s.answers.mu.Unlock()
	s.asked -= len(answers)
	var touched []*unit
	for i := range answers {
		a := &answers[i]
		switch {
		case a.err != nil:
			s.fail(a.err)
			continue
		case a.givenUp:
			continue
		}
		u := a.unit
		switch {
		case a.forgone:
			u.forgone = append(u.forgone, a.at)
		case a.failure != "":
			u.failed = append(u.failed, failure{at: a.at, error: a.failure, permanent: a.permanent})
			u.answered(a.reply, a.slowest)
		default:
			s.engine.metrics.acknowledged(u.kind(), 1)
			u.answered(a.reply, a.slowest)
		}
		if !u.final {
			u.first.begun = max(u.first.begun, a.begun)
		}
		if u.out--; !u.touched && (a.forgone || u.out == 0) {
			u.touched = true
			touched = append(touched, u)
		}
	}
	for _, u := range touched {
		u.touched = false
		s.setForgoneApart(u)
		if u.out > 0 {
			continue
		}
		if u = s.withoutForgone(u); u != nil {
			s.judge(u)
		}
	}
}

// noRebuilder is what an engine has that was given none.
type noRebuilder struct{}

// Query implements [Rebuilder].
func (noRebuilder) Query(_ context.Context, _, _ string, params []event.Fields, _ *event.GTIDSet,
	answer func(int, event.Fields, bool, error) bool,
) {
	for i := 0; i < len(params) && answer(i, nil, false, errNoQuery{}); i++ {
	}
}

// errNoQuery says that this process knows no queries.
type errNoQuery struct{}

// Error implements error.
func (errNoQuery) Error() string {
	return "the query is not in this process's configuration: give it the mappings that the reader has"
}

// Permanent implements what [Rebuilder] tells.
func (errNoQuery) Permanent() bool { return true }
