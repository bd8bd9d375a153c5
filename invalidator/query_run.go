package invalidator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// queryWorker makes one run after the other.
type queryWorker struct {
	pool   *queryPool
	writer *writer
}

// work is one worker. It returns when ctx ends.
func (q *queryPool) work(ctx context.Context) {
	t := q.engine.topology.Load()
	w := queryWorker{q, newWriter(ctx, q.engine.options.KeyPrefix)}
	if !t.several() {
		w.writer.node = t.nodes[0]
	}
	for r := q.next(ctx); r != nil; r = q.next(ctx) {
		running, cancel := context.WithCancel(ctx)
		q.mu.Lock()
		r.cancel = cancel
		q.mu.Unlock()
		answers, again := w.attempt(running, r)
		for again && !t.several() && w.writer.node.health.await(running, t.since) {
			answers, again = w.attempt(running, r)
		}
		if again && t.several() {
			answers = q.forgone(r) // one node that is away must not hold up the queries for keys of others
		}
		w.writer.deny(false)
		cancel()
		q.end(r)
		deliver(answers)
	}
}

// attempt makes a run of all that wait for it, under the lock of its key. Where Redis goes away before the value is
// written the value is dropped, for it would be old by the time that Redis is back; the run must be made again.
func (w *queryWorker) attempt(ctx context.Context, r *queryRun) (answers []queryResult, again bool) {
	q := w.pool
	if t := q.engine.topology.Load(); t.several() {
		if w.writer.node = t.nodeOf(r.key.key, false); w.writer.node == nil || !w.writer.node.health.isUp.Load() {
			return nil, len(q.begin(r)) > 0
		}
	}
	release := w.lock(ctx, r.key.key)
	defer release()
	serves := q.begin(r)
	if len(serves) == 0 {
		return nil, false
	}
	began := q.engine.clock()
	value, missing, err := q.rebuilder.Query(ctx, r.key.source, r.key.query, event.Fields(r.key.params),
		transactions(serves))
	j := &job{ctx: ctx, once: true, reply: reply{sent: never, replied: always}}
	// Not under ctx: that nobody waits for the run any more says nothing of Redis.
	asked := q.engine.clock()
	now, away := w.writer.node.health.time.now(w.writer.ctx)
	if ctx.Err() != nil {
		j.givenUp = true
		return j.answers(serves, began, nil), false
	}
	a := newest(serves)
	switch {
	case err != nil:
		q.failed(&a, err)
		a.item.Intent = event.IntentForget
	case q.isSpoiled(r):
		a.item.Intent = event.IntentForget
	case missing:
		a.item.Intent = event.IntentRemove
	default:
		a.item.Intent, a.item.Fields = event.IntentPut, value
	}
	if away != nil && retry.ClassifyRedis(away) != retry.Fatal {
		w.writer.failed(asked, away)
		j.givenUp = true
		return j.answers(serves, began, nil), ctx.Err() == nil
	}
	// What it read is as old as the run.
	old := w.writer.node.health.slept(began, a.item.D) || w.writer.node.isNew(&a.item, began)
	a.item.Judge(a.item.Intent, now, q.engine.clock().sub(began), old)
	actions := []action{a}
	w.writer.perform(j, actions)
	if (j.givenUp || actions[0].strays) && ctx.Err() == nil {
		return j.answers(serves, began, nil), true
	}
	q.engine.metrics.did(actions)
	q.engine.metrics.ran(err, missing)
	if err == nil {
		err = actions[0].err
	}
	answers = j.answers(serves, began, err)
	for i := range answers {
		answers[i].begun = actions[0].first.begun
	}
	return answers, false
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

// answers tells each key what became of the run that began then.
func (j *job) answers(serves []waiter, began instant, err error) []queryResult {
	answers := make([]queryResult, len(serves))
	for i, s := range serves {
		answers[i] = queryResult{
			waiter: s, err: j.err, givenUp: j.givenUp, slowest: j.slowest,
			reply: reply{began, max(began, j.reply.replied)},
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
