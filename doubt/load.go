package doubt

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/retry"
)

// Run puts what has come again and follows what other processes write to the keeper, until ctx ends.
func (b *Book) Run(ctx context.Context) error {
	var g errgroup.Group
	if f, ok := b.keeper.(Follower); ok {
		g.Go(func() error {
			f.Follow(ctx, func() { _ = b.Load(ctx) }) // what it has read it returns; only ctx can stop that
			return nil
		})
	}
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-b.repeated:
			}
			if retry.Sleep(ctx, again) == nil {
				b.catchUp(ctx)
			}
		}
	})
	return g.Wait()
}

// catchUp puts the doubts of which the keeper lacks a repeat.
func (b *Book) catchUp(ctx context.Context) {
	b.mu.Lock()
	var late []string
	for id, e := range b.doubts {
		if e.behind {
			late = append(late, id)
		}
	}
	b.mu.Unlock()
	for _, id := range late {
		if err := b.put(ctx, id); err != nil && ctx.Err() == nil {
			b.alarms.Raise(alarm.StoreFailed, "a doubt that has come again cannot be saved: "+err.Error())
			raise(b.repeated)
		}
	}
}

func raise(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// turn waits until nobody else writes to the keeper, or reads all of it. Call done afterwards.
func (b *Book) turn(ctx context.Context) (done func(), err error) {
	select {
	case b.writing <- struct{}{}:
		return func() { <-b.writing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Load reads what is kept. With a [Follower] it waits for what that reads while [Book.Run] runs.
func (b *Book) Load(ctx context.Context) error {
	if b == nil || b.keeper == nil {
		return nil
	}
	done, err := b.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	kept, err := b.keeper.Doubts(ctx)
	if err != nil {
		return fmt.Errorf("doubts: %w", err)
	}
	shared, err := b.readShared(ctx)
	if err != nil {
		return fmt.Errorf("doubts: %w", err)
	}
	b.merge(kept, shared)
	return nil
}

// Refresh reads what other processes had kept before the call.
func (b *Book) Refresh(ctx context.Context) error {
	if f, ok := b.keeper.(Follower); ok {
		if err := f.CatchUp(ctx); err != nil {
			return fmt.Errorf("doubts: %w", err)
		}
	}
	return b.Load(ctx)
}

// merge takes over what is kept. Its caller has the turn, so that nothing is put between the reading and this.
func (b *Book) merge(kept []Doubt, shared *sharing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if shared != nil {
		b.shared.groups, b.shared.settled, b.shared.stuck = shared.groups, shared.settled, shared.stuck
	}
	now := time.Now()
	there := map[string]bool{}
	for _, d := range kept {
		d.modernize()
		there[d.ID] = true
		e := b.doubts[d.ID]
		switch {
		case e == nil:
			b.doubts[d.ID] = &entry{Doubt: d, put: now, kept: d.Definitions}
			continue
		case e.put.IsZero(): // it came while what is kept was not known yet
			e.Count += d.Count
			e.put, e.behind = now, true
			if !e.Last.After(d.Last) { // whatever the clocks say: groups may have settled what is kept
				e.Last = d.Last.Add(1)
			}
			raise(b.repeated)
		case d.Since.After(e.Since): // it was dropped, and has come since: what was asked for was the one before
			e.Since, e.Count = d.Since, d.Count
			if !e.behind {
				e.Last, e.Message, e.Asked, e.AskedAt = d.Last, d.Message, d.Asked, d.AskedAt
			}
			e.begin()
		default:
			e.Count = max(e.Count, d.Count)
		}
		if d.AskedAt.After(e.AskedAt) || d.Asked && !e.Asked || d.Last.After(e.Last) {
			e.begin()
		}
		e.ask(d.Asked, d.AskedAt)
		if d.At.Compare(e.At) > 0 {
			e.At = d.At
		}
		if e.lose(d.Lost); e.Lost != nil && *e.Lost != *d.Lost { // another process has put it, and knew of less
			e.behind = true
			raise(b.repeated)
		}
		e.merge(d.Definitions)
		if d.Since.Before(e.Since) {
			e.Since = d.Since
		}
		switch {
		case d.Last.After(e.Last):
			e.Last, e.Message = d.Last, d.Message
		case d.Last.Before(e.Last) && !e.behind:
			// Another process has put it as it stood before it came again, as when an operator asks for its answer.
			e.behind = true
			raise(b.repeated)
		}
	}
	for id, e := range b.doubts {
		switch {
		case there[id] || e.put.IsZero():
		case e.behind:
			e.renew(b) // dismissed by another process, which did not know that it has come again
		default:
			delete(b.doubts, id)
		}
	}
	b.loaded = true
	b.count()
}
