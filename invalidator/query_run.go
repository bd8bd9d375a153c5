package invalidator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// queryWorker makes one bundle of runs after the other.
type queryWorker struct {
	pool   *queryPool
	writer *writer
}

// work is one worker. It returns when ctx ends.
func (q *queryPool) work(ctx context.Context) {
	w := queryWorker{q, newWriter(ctx, q.engine.options.KeyPrefix)}
	for b := q.next(ctx); b != nil; b = q.next(ctx) {
		w.serve(b)
		w.writer.deny(false)
		q.done(b)
	}
}

// serve makes the runs of a bundle, node by node, and makes them again while Redis is away.
func (w *queryWorker) serve(b *queryBundle) {
	t := w.pool.engine.topology.Load()
	for n, runs := range w.byNode(t, b.runs) {
		w.writer.node = n
		again := w.attempt(b, runs)
		for len(again) > 0 && !t.several() && n.health.await(b.ctx, t.since) {
			again = w.attempt(b, again)
		}
		for _, r := range again {
			if t.several() {
				w.pool.forgone(r) // one node that is away must not hold up the queries for keys of others
			} else {
				w.pool.leave(r)
			}
		}
	}
}

// byNode parts runs by the node that serves their keys. Those of a node that is away are answered at once.
func (w *queryWorker) byNode(t *topology, runs []*queryRun) map[*node][]*queryRun {
	if !t.several() {
		return map[*node][]*queryRun{t.nodes[0]: runs}
	}
	parts := map[*node][]*queryRun{}
	for _, r := range runs {
		n := t.nodeOf(r.key.key, false)
		if n == nil || !n.health.isUp.Load() {
			w.pool.begin(r)
			w.pool.forgone(r)
			continue
		}
		parts[n] = append(parts[n], r)
	}
	return parts
}

// asked is a run whose query was answered.
type asked struct {
	run     *queryRun
	serves  []waiter
	began   instant
	value   event.Fields
	missing bool
	err     error
}

// attempt makes runs of one node, and writes what they have read. If Redis goes away before that, it is dropped, since
// it would be old by the time that Redis is back: attempt returns the runs that must be made again. A run alone has the
// lock of its key meanwhile. Quick ones have none: they would take as long as the queries that locks save.
func (w *queryWorker) attempt(b *queryBundle, runs []*queryRun) (again []*queryRun) {
	q, release := w.pool, func() {}
	if len(b.runs) == 1 {
		release = w.lock(b.ctx, runs[0].key.key)
	}
	all, late := w.ask(b, runs)
	for _, r := range late {
		q.leave(r)
	}
	j := &job{ctx: b.ctx, once: true, reply: reply{never, always}}
	actions := w.write(j, all)
	release() // before anybody else begins a run for the key
	done := actions[:0]
	for i := range actions {
		a, act := &all[i], actions[i]
		switch left := j.givenUp || act.strays; {
		case left && b.ctx.Err() == nil:
			again = append(again, a.run)
			continue
		case left: // somebody may have come to it after the bundle was cut short
			q.leave(a.run)
			continue
		}
		done = append(done, act)
		err := a.err
		q.engine.metrics.ran(err, a.missing)
		if err == nil {
			err = act.err
		}
		q.end(a.run, j.answers(a.serves, a.began, err, act.first.begun))
	}
	q.engine.metrics.did(done)
	return again
}

// ask makes the queries of runs, each for all that wait for it when it begins: runs of one query together, one query
// after the other. If queries that should have been quick were not, or their values are large, it returns the runs that
// have no answer: another worker may take them.
func (w *queryWorker) ask(b *queryBundle, runs []*queryRun) (all []asked, late []*queryRun) {
	q := w.pool
	first, more, size := q.engine.clock(), true, 0
	runs = slices.Clone(runs) // others read the bundle's
	for len(runs) > 0 {
		began := q.engine.clock()
		if !more {
			return all, append(late, runs...)
		}
		source, query, from := runs[0].key.source, runs[0].key.query, len(all)
		var serves []waiter
		var params []event.Fields
		runs = slices.DeleteFunc(runs, func(r *queryRun) bool {
			if r.key.source != source || r.key.query != query {
				return false
			}
			a := asked{run: r, began: began, serves: q.begin(r)}
			if len(a.serves) == 0 {
				late = append(late, r) // nobody waits for it any more
				return true
			}
			all, serves, params = append(all, a), append(serves, a.serves...), append(params, event.Fields(r.key.params))
			return true
		})
		if len(params) == 0 {
			continue
		}
		worked, answered := false, make([]bool, len(params))
		q.rebuilder.Query(b.ctx, source, query, params, transactions(serves),
			func(i int, value event.Fields, missing bool, err error) bool {
				a := &all[from+i]
				a.value, a.missing, a.err, answered[i] = value, missing, err, true
				worked, size = worked || err == nil, size+len(value)
				more = more && b.ctx.Err() == nil && size < bundleBytes && q.engine.clock().sub(first) <= bundleTime
				return more
			})
		had := all[:from]
		for i, a := range all[from:] {
			if answered[i] {
				had = append(had, a)
			} else {
				late = append(late, a.run)
			}
		}
		all = had
		q.lasted(query, q.engine.clock().sub(began)/time.Duration(max(len(all)-from, 1)), worked)
	}
	return all, late
}

// write writes what was read, and returns what was done about each run.
func (w *queryWorker) write(j *job, all []asked) []action {
	q := w.pool
	actions := make([]action, len(all))
	if len(all) == 0 {
		return actions
	}
	// Not under the bundle's context: that nobody waits for the runs any more says nothing of Redis.
	sent := q.engine.clock()
	now, away := w.writer.node.health.time.now(w.writer.ctx)
	switch {
	case j.ctx.Err() != nil:
		j.givenUp = true
		return actions
	case away != nil && retry.ClassifyRedis(away) != retry.Fatal:
		w.writer.failed(sent, away)
		j.givenUp = true
		return actions
	}
	for i := range all {
		a, r := &actions[i], &all[i]
		*a = newest(r.serves)
		switch {
		case r.err != nil:
			q.failed(a, r.err)
			a.item.Intent = event.IntentForget
		case q.isSpoiled(r.run):
			a.item.Intent = event.IntentForget
		case r.missing:
			a.item.Intent = event.IntentRemove
		default:
			a.item.Intent, a.item.Fields = event.IntentPut, r.value
		}
		// What it read is as old as the run.
		old := w.writer.node.health.slept(r.began, a.item.D) || w.writer.node.isNew(&a.item, r.began)
		a.item.Judge(a.item.Intent, now, q.engine.clock().sub(r.began), old)
	}
	w.writer.perform(j, actions)
	return actions
}

// transactions are those whose changes a run answers, as far as they have GTIDs; nil: none has.
func transactions(serves []waiter) *event.GTIDSet {
	var set *event.GTIDSet
	for _, s := range serves {
		b := s.unit.entry.batch
		o := &b.Origins[b.Invalidations[s.unit.ordinal(s.at)].Origin]
		if o.Number == 0 {
			continue
		}
		if set == nil {
			set = &event.GTIDSet{}
		}
		// On MariaDB a set is the last GTID of each domain, and they come in any order.
		if g := b.Commons[o.Common].GTID(o.Number); !set.Contains(g) {
			set.Add(g)
		}
	}
	return set
}

// answers tells each key what became of the run that began then, and, for a final action, what is known of the first.
func (j *job) answers(serves []waiter, began instant, err error, begun int64) []queryResult {
	answers := make([]queryResult, len(serves))
	for i, s := range serves {
		answers[i] = queryResult{
			waiter: s, err: j.err, slowest: j.slowest,
			reply: reply{began, max(began, j.reply.replied)}, begun: begun,
		}
		if err != nil {
			var p interface{ Permanent() bool }
			answers[i].failure, answers[i].permanent = err.Error(), errors.As(err, &p) && p.Permanent()
		}
	}
	return answers
}

// failed says that a key could not be rebuilt.
func (q *queryPool) failed(a *action, err error) {
	q.engine.alarms.Raise(alarm.RebuildFailed,
		fmt.Sprintf("keys cannot be rebuilt by the query of a mapping of table %s (%v), so they "+
			"are deleted: correct the query, or what it needs on the server; see freshet dlq list for keys that were given up",
			a.note.Table, err))
}

// newest is the action that serves all the keys: under the highest of their versions, with the largest D, and with
// what each of them must be told about.
func newest(serves []waiter) action {
	var a action
	var begun int64
	for i, s := range serves {
		b, n := s.unit.entry.batch, s.unit.ordinal(s.at)
		v, e := b.Version(n), b.EffectOf(n)
		note := write.Notice{
			Key: b.Key(n), Action: event.ActionRebuild, Effect: e, Source: b.Source, Version: v,
			Table: b.Of(n).Table,
		}
		note.Fields, _ = cut(b.Fields(n), notices(e))
		if len(note.Fields) > 0 && !isTold(a.notes, note) {
			a.notes = append(a.notes, note)
		}
		d := max(a.item.D, s.unit.d)
		if i == 0 || v.Compare(a.item.Version) > 0 {
			a.item = write.Item{
				Key: b.Key(n), Action: event.ActionRebuild, Effect: e, Source: b.Source, Version: v,
				Now: time.Now(),
			}
			a.note = write.Notice{Table: note.Table}
		}
		a.item.D = d
		// A mark that was begun before this run holds all that was finished since, and the run reads all that was
		// before. Only a final action confirms; in a first one the partition is still noting what other keys of the
		// unit have begun.
		if s.unit.final {
			begun = max(begun, s.unit.first.begun)
		}
	}
	a.item.Begun = begun
	return a
}

// isTold reports whether a notice says what one of the others says.
func isTold(told []write.Notice, n write.Notice) bool {
	for i := len(told) - 1; i >= max(0, len(told)-16); i-- { // some may be told twice
		o := &told[i]
		if string(o.Fields) == string(n.Fields) && (o.Effect == n.Effect || *o.Effect == *n.Effect) {
			o.Version = later(o.Version, n.Version)
			return true
		}
	}
	return false
}

func later(v, o event.Version) event.Version {
	if o.Compare(v) > 0 {
		return o
	}
	return v
}

// How often a lock that somebody else holds is asked for.
const (
	firstPoll = 10 * time.Millisecond
	lastPoll  = 500 * time.Millisecond
)

// lock takes the lock of a key, and returns what gives it back. If somebody else holds it, it waits for at most as
// long as a lock that is not renewed lasts, and then does without: the lock is relief for the database, and what is
// written is guarded without it. So it does if Redis is away: that will be noticed by what is written.
func (w *queryWorker) lock(ctx context.Context, key string) (release func()) {
	b := newBuilder(w.pool.engine.options.KeyPrefix)
	l := b.Lock(key, 0)
	left := l.TTL
	for wait := firstPoll; ; wait = min(2*wait, lastPoll) {
		held, err := w.send(b, b.Acquire(l))
		if held {
			break
		}
		if err != nil || left <= 0 || ctx.Err() != nil {
			return func() {}
		}
		_ = retry.Sleep(ctx, min(wait, left)) // the loop looks at ctx
		left -= wait
	}
	renewing, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for retry.Sleep(renewing, l.TTL/3) == nil {
			if held, err := w.send(b, b.Renew(l)); err == nil && !held {
				return // it took too long, and somebody else may have it
			}
		}
	}()
	return func() {
		stop()
		<-stopped
		_, _ = w.send(b, b.Release(l)) // it runs out by itself
	}
}

// send makes a round trip of one call of a lock, and tells whether the lock was ours.
func (w *queryWorker) send(b *write.Builder, c *write.Call) (held bool, err error) {
	ctx, cancel := context.WithTimeout(w.writer.ctx, w.writer.node.timeout)
	defer cancel()
	for again := true; again; again = isNoNews(err) {
		w.writer.node.redis.Do(ctx, []*write.Call{c})
		held, err = write.Held(c)
	}
	b.Reset()
	return held, err
}
