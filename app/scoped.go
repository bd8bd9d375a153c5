package app

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router/keyspace"
)

// part is what doubts are about in the keys of one source.
type part struct {
	operate.Learned
	keys *keyspace.Keyspace
	// lost are the partitions whose records are lost, if that is all that the doubts are about, and meant says which keys
	// these can be; nil: any.
	lost  []int
	meant func(key string) bool
	// forgotten is how many keys were.
	forgotten int64
	// heard is what this process must have heard that everybody sees before the last pass: other members of the group may
	// have, and what they have finished is left alone by a pass that knows less.
	heard event.Version
}

// part returns what doubts are about in the keys of a source.
func (a *answering) part(ctx context.Context, l *operate.Learned, due []doubt.Doubt) (*part, error) {
	keys, err := l.InDoubt(a.prefix, due...)
	p := &part{Learned: *l, keys: keys}
	if err != nil || a.spread == nil || due[0].Lost == nil { // of those that are due together, all say it or none
		return p, err
	}
	spread, err := a.spread(ctx, l.Source)
	if err != nil {
		return nil, err
	}
	var lost []*doubt.Lost
	for _, d := range due {
		lost = append(lost, d.Lost)
		p.lost = append(p.lost, d.Lost.Partition)
	}
	slices.Sort(p.lost)
	p.lost = slices.Compact(p.lost)
	p.meant = spread.Holds(lost...)
	return p, nil
}

// newest returns the newest version of a source that everybody is known to see.
func (a *answering) newest(source string) func() event.Version {
	return func() event.Version {
		v, _ := a.visible(source)
		return v
	}
}

// forgetIn has all keys of a part forgotten, or as many as are by the time that all doubts are dismissed. It returns
// for how long that went through Redis.
func (a *answering) forgetIn(ctx context.Context, p *part, due []doubt.Doubt, say func(format string, args ...any),
) (busy time.Duration, err error) {
	if len(p.keys.Targets()) == 0 {
		return 0, nil
	}
	var progress scope.Progress
	var waits atomic.Pointer[string]
	t := scope.Task{
		Keys: p.keys, Meant: p.meant, Source: p.Source, At: latest(due), Progress: &progress, Newest: a.newest(p.Source),
		Finished: func(ctx context.Context) error {
			if err := a.finished(ctx, due, func(until string) { waits.Store(&until) }); err != nil {
				return err
			}
			return await(ctx, a.newest(p.Source), p.heard)
		},
	}
	operate.Narrow(&t, due...)
	done := make(chan error, 1)
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { done <- a.scope.Run(running, t) }()
	ticker := time.NewTicker(looksEach)
	defer ticker.Stop()
	var meter event.Meter
	meter.Take(time.Now(), 0, 0) // so that the pace is known after the first look
	for {
		select {
		case now := <-ticker.C:
			if dismissed(a.doubts, due...) {
				cancel()
			}
			for _, d := range due {
				a.doubts.Reached(d.ID, sentence(&progress, waits.Load()), scoped(&meter, now, &progress))
			}
		case err = <-done:
			if running.Err() != nil {
				err = ctx.Err()
			}
			p.forgotten = progress.Found.Load()
			return time.Duration(progress.Busy.Load()), err
		}
	}
}

// ofPartitions says in which partitions the keys of parts can have been, if not in any.
func ofPartitions(parts []*part) string {
	switch {
	case len(parts[0].lost) == 0:
		return ""
	case slices.ContainsFunc(parts, func(p *part) bool { return p.meant == nil }):
		return ", of any partition since it is not known over how many they were spread, were"
	}
	return fmt.Sprintf(" of partitions %s were", numbers(parts[0].lost))
}

// latest returns the last place in the binlog that a doubt is about.
func latest(due []doubt.Doubt) (at event.Version) {
	for _, d := range due {
		if d.At.Compare(at) > 0 {
			at = d.At
		}
	}
	return at
}

// scoped returns how far the two passes of a scope are; nil while it is between them.
func scoped(m *event.Meter, now time.Time, p *scope.Progress) *event.Progress {
	looked, all := min(p.Looked.Load(), p.Keys.Load()), p.Keys.Load()
	var far *event.Progress
	switch p.Stage.Load() {
	case scope.StageFirst:
		far = m.Take(now, looked, 2*all)
	case scope.StageSecond:
		far = m.Take(now, all+looked, 2*all)
	default:
		return nil
	}
	far.Keys = p.Found.Load()
	return far
}

// sentence says how far a scope has come, and until when it waits, if that is known.
func sentence(p *scope.Progress, waits *string) string {
	all := p.Keys.Load()
	looked := fmt.Sprintf("%d of about %d keys looked at, %d forgotten", min(p.Looked.Load(), all), all, p.Found.Load())
	if trouble := p.Trouble.Load(); trouble != nil {
		return fmt.Sprintf("being answered, and waiting for redis (%v): %s", *trouble, looked)
	}
	switch p.Stage.Load() {
	case scope.StageFirst:
		return "being answered, first of two passes over redis: " + looked
	case scope.StageSettling:
		if waits != nil && *waits != "" {
			return fmt.Sprintf("being answered: %d keys forgotten; before the second pass it waits until %s", p.Found.Load(),
				*waits)
		}
		return fmt.Sprintf("being answered: %d keys forgotten; the second pass begins once slow readers are over, and older "+
			"changes are finished", p.Found.Load())
	case scope.StageSecond:
		return "being answered, second of two passes over redis: " + looked
	}
	return "about to be answered"
}
