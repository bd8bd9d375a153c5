package checkpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// DefaultSaveEvery is the default of [SaverOptions].Every.
const DefaultSaveEvery = 200 * time.Millisecond

// SaverOptions configure [Checkpoint.Run]. The zero value of each field means its default.
type SaverOptions struct {
	// Every is the least time between two saves. Default 200 ms: a crash then costs at most that much work again.
	Every time.Duration
	// Backoff spaces the attempts after a save that failed. Default 100 ms to 5 s.
	Backoff retry.Backoff
	// Reporter reports saves that fail. Nothing is lost: the position stays where it is. Default: nobody hears of them.
	Reporter *retry.Reporter
	// Advanced, if set, is called for every end that the position has moved over, in order.
	Advanced func(e event.End)
}

// Run advances the checkpoint over ends and saves it: at once after a pause, then no more often than
// [SaverOptions].Every. A save that fails is tried again forever. Run returns when ends is closed and all of it is
// saved, or when ctx ends: then it takes what is there without waiting, saves once more and returns the error of that
// save, if any. One Run at a time.
func (c *Checkpoint) Run(ctx context.Context, ends <-chan event.End, o SaverOptions) error {
	s, err := c.newSaver(o)
	if err != nil {
		return err
	}
	defer s.timer.Stop()
	for {
		select {
		case e, open := <-ends:
			if !open {
				return s.finish(ctx)
			}
			s.advance(e)
			s.arm()
		case <-s.timer.C:
			s.armed = false
			_ = s.save() // another follows
		case <-ctx.Done():
			s.drain(ends)
			return c.Save()
		}
	}
}

// saver is the state of one Run.
type saver struct {
	c     *Checkpoint
	o     SaverOptions
	loop  retry.Loop
	timer *time.Timer
	armed bool
	// next is before when no save is to begin.
	next time.Time
}

func (c *Checkpoint) newSaver(o SaverOptions) (*saver, error) {
	o.Every = orDefault(o.Every, DefaultSaveEvery)
	o.Backoff.Min = orDefault(o.Backoff.Min, 100*time.Millisecond)
	o.Backoff.Max = orDefault(o.Backoff.Max, 5*time.Second)
	if o.Every < 0 {
		return nil, fmt.Errorf("%s: saving every %s: want more than 0s", c.name, o.Every)
	}
	t := time.NewTimer(0)
	t.Stop()
	return &saver{c: c, o: o, loop: retry.Loop{Backoff: o.Backoff, Reporter: o.Reporter}, timer: t}, nil
}

func (s *saver) advance(e event.End) {
	s.c.Advance(e)
	if s.o.Advanced != nil {
		s.o.Advanced(e)
	}
}

// arm sees to it that a save follows.
func (s *saver) arm() {
	if !s.armed {
		s.armed = true
		s.timer.Reset(time.Until(s.next))
	}
}

// save saves once and tells how it went. After a failure another one follows.
func (s *saver) save() error {
	err := s.c.Save()
	if err != nil {
		s.next = time.Now().Add(s.loop.Failed(err))
		s.arm()
		return err
	}
	s.loop.Succeeded()
	s.next = time.Now().Add(s.o.Every)
	return nil
}

// drain takes the ends that are there.
func (s *saver) drain(ends <-chan event.End) {
	for {
		select {
		case e, open := <-ends:
			if !open {
				return
			}
			s.advance(e)
		default:
			return
		}
	}
}

// finish saves what is left, as often as it takes. Once ctx has ended a failure is final, also that of an attempt which
// began before: each may take long, and a process that stops has seconds.
func (s *saver) finish(ctx context.Context) error {
	for {
		err := s.save()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if s.loop.Backoff.Wait(ctx) != nil {
			return s.c.Save()
		}
	}
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
