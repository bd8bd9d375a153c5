package invalidator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// retrier makes the later attempts of parked keys, on one goroutine. What it does commutes, so it needs no order among
// them nor with the partitions.
type retrier struct {
	engine *Engine
	done   chan *job
}

// retryAtOnce is how many parked keys are tried in one round trip, unless [trips] are halved.
const retryAtOnce = commandKeys

// run runs until ctx ends, or until Redis will never do what is asked of it.
func (r *retrier) run(ctx context.Context) error {
	o := r.engine.options.Retry
	loop := retry.Loop{
		Backoff: retry.Backoff{Min: o.MinBackoff, Max: o.MaxBackoff, Rand: o.Rand},
		Reporter: &retry.Reporter{Failed: func(err error) {
			r.engine.alarms.Raise(alarm.StoreFailed,
				fmt.Sprintf("parked keys cannot be read or settled (%v), so they wait: %s", err, r.engine.advice()))
		}},
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.engine.stored:
		}
		wait, fatal, err := r.round(ctx)
		switch {
		case fatal != nil:
			return fatal
		case ctx.Err() != nil:
			return nil
		case err != nil:
			wait = loop.Failed(err)
		default:
			loop.Succeeded()
		}
		timer.Reset(wait)
	}
}

// longestWait bounds how long the retrier trusts what it last heard from the store, which others may change: dead
// letters are replayed, and clocks are set.
const longestWait = time.Second

// round tries what is due and returns how long to wait for the next.
func (r *retrier) round(ctx context.Context) (wait time.Duration, fatal, err error) {
	t := r.engine.topology.Load()
	halved := t.halved()
	entries, err := r.engine.store.Due(ctx, time.Now(), retryAtOnce>>halved)
	if err != nil {
		return 0, nil, err
	}
	repeated := false
	for _, some := range r.sort(t, entries) {
		j := r.try(ctx, some)
		switch {
		case ctx.Err() != nil:
			return 0, nil, ctx.Err()
		case some.node == nil, j == nil, j.givenUp && j.err == nil && j.once:
			err = r.postpone(ctx, some.entries)
		case j.givenUp || j.err != nil:
			return 0, j.err, ctx.Err()
		default:
			var again bool
			again, err = r.settle(ctx, some, j)
			repeated = repeated || again
		}
		if err != nil {
			return 0, nil, err
		}
	}
	if len(entries) > 0 {
		r.engine.repeating.Store(repeated)
		r.engine.hurry()
	}
	next, err := r.engine.store.NextDue(ctx)
	if err != nil || next.IsZero() {
		r.engine.repeating.Store(false)
		return longestWait, nil, err
	}
	return min(max(time.Until(next), 0), longestWait), nil, nil
}

// sorted are parked keys that are tried in one job.
type sorted struct {
	node    *node // nil: nobody has their slots
	routed  instant
	plain   bool
	entries []retry.Entry
}

// sort sorts keys by node, and tells those that are only deleted from those that take more. With a guard they are
// forgotten under the version of their change: an older value may be written once more, by an action that was repeated,
// and the guard must know better. A counter is raised: one that is gone would say nothing to who reads it meanwhile.
// And of some a notice is sent.
func (r *retrier) sort(t *topology, entries []retry.Entry) (all []sorted) {
	for i := range entries {
		e := &entries[i]
		s := sorted{node: t.nodeOf(e.Key, false), routed: t.since, plain: isPlain(e)}
		at := slices.IndexFunc(all, func(o sorted) bool { return o.node == s.node && o.plain == s.plain })
		if at < 0 {
			at = len(all)
			all = append(all, s)
		}
		all[at].entries = append(all[at].entries, *e)
	}
	return all
}

// halved is how often round trips of all nodes are halved.
func (t *topology) halved() (most int32) {
	for _, n := range t.nodes {
		most = max(most, n.live.trips.halved.Load())
	}
	return most
}

// isPlain reports whether a parked key is deleted, and nothing else.
func isPlain(e *retry.Entry) bool {
	switch e.Action {
	case event.ActionRebuild, event.ActionHash, event.ActionSet, event.ActionZSet, event.ActionIncr:
		return false
	}
	return len(e.Notices) == 0
}

// try deletes the keys once; nil if ctx ended, or their node left, before they were sent. Where there are several
// nodes, one that is away does not hold up the keys of others.
func (r *retrier) try(ctx context.Context, s sorted) *job {
	n := s.node
	if n == nil || n.health.apart && !n.health.isUp.Load() {
		return nil
	}
	j := &job{
		ctx: ctx, done: r.done, lane: n.live, kind: stored, single: true, size: len(s.entries),
		halved: n.live.trips.halved.Load(), routed: s.routed, once: n.health.apart,
	}
	if s.plain {
		for i := range s.entries {
			j.keys = append(j.keys, s.entries[i].Key)
		}
	} else {
		j.class, j.entries = writes, s.entries
	}
	select {
	case <-j.lane.slots:
	case <-n.left:
		return nil
	case <-ctx.Done():
		return nil
	}
	r.engine.metrics.sent[stored].Add(float64(j.size))
	j.lane.jobs <- j
	return <-r.done
}

// postpone leaves keys of a node that is away, or of none, for later.
func (r *retrier) postpone(ctx context.Context, entries []retry.Entry) error {
	for i := range entries {
		entries[i].Due = time.Now().Add(longestWait)
	}
	return r.engine.store.Settle(ctx, nil, entries)
}

// settle removes those that were deleted, and stores the others for later. It reports whether some are to be deleted
// again because of a silence.
func (r *retrier) settle(ctx context.Context, s sorted, j *job) (repeated bool, err error) {
	var done []uint64
	var again []retry.Entry
	failed, buried := j.failed, 0
	for i, e := range s.entries {
		switch {
		case len(failed) > 0 && failed[0].at == i && failed[0].strays:
			e.Due = time.Now().Add(longestWait)
			failed = failed[1:]
			again = append(again, e)
			r.engine.readAgain()
		case len(failed) > 0 && failed[0].at == i:
			e = r.afterFailure(e, failed[0].error)
			failed = failed[1:]
			if e.Due.IsZero() {
				buried++
			}
			again = append(again, e)
		case r.counts(s.node, &e, j.reply):
			done = append(done, e.ID)
			r.untold(&e)
		default:
			// Redis was silent, or nobody had asked it anything: the delete may have come before the write of a
			// reader that waited next to it.
			repeated = true
			r.engine.spans.saw(e.D)
			e.Due = time.Now().Add(e.D)
			again = append(again, e)
		}
	}
	if err := r.engine.store.Settle(ctx, done, again); err != nil {
		return repeated, err
	}
	m := r.engine.metrics
	m.found.Add(float64(j.found))
	m.acknowledged(stored, j.size-len(j.failed))
	m.settled.Add(float64(len(done)))
	r.engine.buried(buried)
	return repeated, nil
}

// untold reports that some messages of a key were dropped, once those that were kept have been sent.
func (r *retrier) untold(e *retry.Entry) {
	if e.Untold > 0 {
		r.engine.alarms.Raise(alarm.NoticesDropped, "table "+e.Table+
			": keys changed again and again while redis refused them, and not all of their messages and "+
			"stream entries were kept until it took them: consumers of them should forget what they hold of this table")
	}
}

// counts reports whether the delete of a parked key was its last. It was parked D after its mark, so only a
// silence of Redis can be in the way, or that its slot has moved.
func (r *retrier) counts(n *node, e *retry.Entry, a reply) bool {
	dark := max(n.health.watch.dark(e.D), r.engine.topology.Load().movedAt(e.Key))
	return counts(a, always, dark, e.D)
}

func (r *retrier) afterFailure(e retry.Entry, text string) retry.Entry {
	e.Attempts++
	e.Error, e.Last = text, time.Now()
	if step, _ := r.engine.options.Retry.Next(e.Attempts); step == retry.Bury {
		e.Due = time.Time{}
	} else {
		e.Due = e.Last.Add(r.engine.options.Retry.ParkDelay(e.Attempts))
	}
	return e
}
