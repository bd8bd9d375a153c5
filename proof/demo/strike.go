package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// blow is something that the demo does to a part while all others work.
type blow struct {
	strike func(ctx, working context.Context) error
	// takes is about how long it takes until all is as before.
	takes time.Duration
}

// strike deals all blows, in turn, spread over the demo's duration: Redis is sent back half-way.
func (s *stage) strike(ctx, working context.Context) error {
	before, halfWay, after := s.blows()
	middle := time.Now().Add(s.duration / 2)
	if err := deal(ctx, working, s.pause(before), before); err != nil {
		return err
	}
	if s.duration > 0 {
		wait(working, time.Until(middle))
	} else {
		wait(working, s.pause(nil))
	}
	if err := deal(ctx, working, 0, halfWay); err != nil {
		return err
	}
	return deal(ctx, working, s.pause(slices.Concat(halfWay, after)), after)
}

// pause returns how long to wait before each of the blows of half of the demo's duration.
func (s *stage) pause(blows []blow) time.Duration {
	if s.duration == 0 {
		return 15 * time.Second
	}
	rest := s.duration / 2
	for _, b := range blows {
		rest -= b.takes
	}
	return rest / time.Duration(len(blows)+1)
}

// deal deals blows, with a pause before each.
func deal(ctx, working context.Context, pause time.Duration, blows []blow) error {
	for _, b := range blows {
		wait(working, pause)
		if working.Err() != nil {
			return nil
		}
		if err := b.strike(ctx, working); err != nil {
			return err
		}
	}
	return nil
}

// blows are those of this demo: what is done to Redis, and what before and after that.
func (s *stage) blows() (before, halfWay, after []blow) {
	takeover := 2 * time.Second
	if s.kafka {
		takeover = 12 * time.Second // a session of the consumer group: nobody knows before that a member is dead
	}
	var parts []blow
	for _, f := range s.freshets {
		parts = append(parts, blow{killed(f.name, f.kill, f.start), takeover})
	}
	if s.cluster != nil {
		b := s.cluster.Broker(1)
		parts = append(parts, blow{killed("the Kafka broker", b.Kill, b.Start), takeover})
	}
	before, after = parts[:len(parts)/2], parts[len(parts)/2:]
	if s.redis.Dir != "" { // it is the demo's own, and can be killed
		before = slices.Insert(slices.Clone(before), 0, blow{s.save, 0})
		halfWay = []blow{{s.sendBack, takeover + 2*time.Second}}
	}
	return before, halfWay, after
}

// killed kills a part with -9, and starts it again two seconds later.
func killed(name string, kill func() error, start func(context.Context) error) func(_, _ context.Context) error {
	return func(ctx, working context.Context) error {
		fmt.Println("*** kill -9", name)
		if err := kill(); err != nil {
			return err
		}
		wait(working, 2*time.Second)
		fmt.Println("*** start", name, "again")
		return start(ctx)
	}
}

// save has Redis save a snapshot, from which it starts later.
func (s *stage) save(ctx, _ context.Context) error {
	fmt.Println("*** redis saves a snapshot")
	return s.redis.Client().Save(ctx).Err()
}

// sendBack restarts Redis from its snapshot, and says what freshet does about it.
func (s *stage) sendBack(ctx, working context.Context) error {
	kill := func() error {
		s.turns.Add(1)
		return s.redis.Kill()
	}
	start := func(ctx context.Context) error {
		if err := s.redis.Start(ctx); err != nil {
			return err
		}
		defer s.turns.Add(1)
		return s.meter.again(ctx)
	}
	if err := killed("redis", kill, start)(ctx, working); err != nil {
		return err
	}
	return s.freshets[len(s.freshets)-1].tell(ctx) // with Kafka, an invalidator: a reader has no Redis
}

// unlessAway runs f. An error of f is none while Redis is away.
func (s *stage) unlessAway(f func() error) error {
	before := s.turns.Load()
	err := f()
	if before%2 == 1 || s.turns.Load() != before {
		return nil
	}
	return err
}

// tell waits until freshet doubts what Redis holds, and then until it does no longer, and prints both.
func (f *freshet) tell(ctx context.Context) error {
	var last suspicion
	if err := f.await(ctx, "notice what redis holds", func(s status) bool {
		d := s.older()
		if d != nil {
			last = *d
		}
		return d != nil
	}); err != nil {
		return err
	}
	began := time.Now()
	fmt.Println("*** freshet doubts:", last.Message)
	if err := f.await(ctx, "do the changes again", func(s status) bool {
		d := s.older()
		if d != nil {
			last = *d
		}
		return d == nil
	}); err != nil {
		return err
	}
	e, err := f.client.EndedDoubt(ctx, last.ID)
	if err != nil {
		return err
	}
	fmt.Printf("*** the doubt is %s after %s: %s\n", e.How, time.Since(began).Round(100*time.Millisecond), e.Answer)
	return nil
}
