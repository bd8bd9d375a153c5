package invalidator

import (
	"context"
	"sync"
	"time"
)

const (
	// askTimeEvery is how often Redis is asked what its clock says. Clocks of two machines drift apart by less than 100
	// ppm, that is 1 ms meanwhile.
	askTimeEvery = 10 * time.Second
	// slowTime is how long the answer may take for it to be used for that long: it is as old as its way.
	slowTime = 500 * time.Millisecond
)

// redisTime knows what Redis' clock says at least, without asking each time. What is sent says by that clock until when
// it may take effect ([write.Item]), so that two clocks are never compared: only Redis' own with itself, and how far it
// has moved on with how far ours has.
type redisTime struct {
	redis   Redis
	clock   func() instant
	timeout time.Duration
	// stepped is called when Redis' clock has moved on by so much more than ours, or less if that is negative.
	stepped func(by time.Duration)

	mu   sync.Mutex
	last said
	// dials is how many connections had been made before it was asked: a new one may lead to another server.
	dials int64
}

// said is what Redis said about its clock, in ms, when it was asked and when the reply came; never: it was not asked.
type said struct {
	ms             int64
	asked, replied instant
}

func newRedisTime(r Redis, clock func() instant, timeout time.Duration, stepped func(by time.Duration)) *redisTime {
	return &redisTime{redis: r, clock: clock, timeout: timeout, stepped: stepped, last: said{replied: never}}
}

// now returns the time of Redis' clock in ms, or somewhat less: the reply was on its way for a while. What it makes
// known of a step is known before it returns.
func (t *redisTime) now(ctx context.Context) (int64, error) {
	dials := t.redis.Dials()
	t.mu.Lock()
	last, known := t.last, t.last.replied != never && t.dials == dials
	t.mu.Unlock()
	if known && last.replied.sub(last.asked) < slowTime {
		if passed := t.clock().sub(last.replied); passed < askTimeEvery {
			return last.ms + passed.Milliseconds(), nil
		}
	}
	asked := t.clock()
	answer, err := t.ask(ctx)
	if err != nil {
		return 0, err
	}
	next := said{answer.UnixMilli(), asked, t.clock()}
	t.mu.Lock()
	last, t.last, t.dials = t.last, next, dials
	t.mu.Unlock()
	if by := next.step(last); by != 0 {
		t.stepped(by)
	}
	return next.ms, nil
}

// step returns by how much Redis' clock has moved on more than ours since it said something before; 0 if the ways of
// the replies, or a drift of 1000 ppm, may be why.
func (s said) step(before said) time.Duration {
	if before.replied == never {
		return 0
	}
	moved := time.Duration(s.ms-before.ms) * time.Millisecond
	least, most := s.asked.sub(before.replied), s.replied.sub(before.asked)
	leeway := oversleep + max(most, -least)/1000
	switch {
	case moved > most+leeway:
		return moved - most
	case moved < least-leeway:
		return moved - least
	}
	return 0
}

func (t *redisTime) ask(ctx context.Context) (said time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	for again := true; again; again = isNoNews(err) {
		said, err = t.redis.Time(ctx)
	}
	return said, err
}
