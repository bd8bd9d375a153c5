package invalidator

import (
	"context"
	"fmt"
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
	halved := r.engine.node.live.trips.halved.Load()
	entries, err := r.engine.store.Due(ctx, time.Now(), retryAtOnce>>halved)
	if err != nil {
		return 0, nil, err
	}
	plain, others := sortEntries(entries)
	repeated := false
	for _, some := range [][]retry.Entry{plain, others} {
		if len(some) == 0 {
			continue
		}
		j := r.try(ctx, some, halved)
		if j == nil || j.givenUp || j.err != nil {
			return 0, j.fault(), ctx.Err()
		}
		again, err := r.settle(ctx, some, j)
		if err != nil {
			return 0, nil, err
		}
		repeated = repeated || again
	}
	if len(entries) > 0 {
		r.engine.repeating.Store(repeated)
		r.engine.health.hurry()
	}
	next, err := r.engine.store.NextDue(ctx)
	if err != nil || next.IsZero() {
		r.engine.repeating.Store(false)
		return longestWait, nil, err
	}
	return min(max(time.Until(next), 0), longestWait), nil, nil
}

// sortEntries tells keys that are only deleted from those that take more. With a guard they are forgotten under the
// version of their change: an older value may be written once more, by an action that was repeated, and the guard must
// know better. A counter is raised: one that is gone would say nothing to who reads it meanwhile. And some are told of.
func sortEntries(entries []retry.Entry) (plain, others []retry.Entry) {
	for _, e := range entries {
		if isPlain(&e) {
			plain = append(plain, e)
		} else {
			others = append(others, e)
		}
	}
	return plain, others
}

// isPlain reports whether a parked key is deleted, and nothing else.
func isPlain(e *retry.Entry) bool {
	switch e.Action {
	case event.ActionRebuild, event.ActionHash, event.ActionSet, event.ActionZSet, event.ActionIncr:
		return false
	}
	return len(e.Notices) == 0
}

func (j *job) fault() error {
	if j == nil {
		return nil
	}
	return j.err
}

// try deletes the keys once; nil if ctx ended before they were sent.
func (r *retrier) try(ctx context.Context, entries []retry.Entry, halved int32) *job {
	j := &job{
		ctx: ctx, done: r.done, lane: r.engine.node.live, kind: stored, single: true, size: len(entries), halved: halved,
	}
	if isPlain(&entries[0]) {
		for i := range entries {
			j.keys = append(j.keys, entries[i].Key)
		}
	} else {
		j.class, j.entries = writes, entries
	}
	select {
	case <-j.lane.slots:
	case <-ctx.Done():
		return nil
	}
	r.engine.metrics.sent[stored].Add(float64(j.size))
	j.lane.jobs <- j
	return <-r.done
}

// settle removes those that were deleted, and stores the others for later. It reports whether some are to be deleted
// again because of a silence.
func (r *retrier) settle(ctx context.Context, entries []retry.Entry, j *job) (repeated bool, err error) {
	var done []uint64
	var again []retry.Entry
	failed, buried := j.failed, 0
	for i, e := range entries {
		switch {
		case len(failed) > 0 && failed[0].at == i:
			e = r.afterFailure(e, failed[0].error)
			failed = failed[1:]
			if e.Due.IsZero() {
				buried++
			}
			again = append(again, e)
		case r.counts(j.reply, e.D):
			done = append(done, e.ID)
			r.untold(&e)
		default:
			// Redis was silent, or nobody had asked it anything: the delete may have come before the write of a
			// reader that waited next to it.
			repeated = true
			r.engine.health.sawD(e.D)
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
// silence of Redis can be in the way.
func (r *retrier) counts(a reply, d time.Duration) bool {
	return counts(a, always, r.engine.health.watch.dark(d), d)
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
