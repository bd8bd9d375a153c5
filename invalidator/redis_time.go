package invalidator

import (
	"context"
	"errors"
	"sync"
	"time"
)

// askTimeEvery is how often Redis is asked what its clock says. Clocks of two machines drift apart by less than 100
// ppm, that is 1 ms meanwhile.
const askTimeEvery = 10 * time.Second

// redisTime knows what Redis' clock says at least, without asking each time. What is sent says by that clock until when it
// may take effect ([write.Item]), so that two clocks are never compared: only Redis' own with itself.
type redisTime struct {
	redis   Redis
	clock   func() instant
	timeout time.Duration

	mu sync.Mutex
	// said is what Redis said, in ms, and at is when the reply came; never: it was not asked.
	said int64
	at   instant
	// dials is how many connections had been made before it was asked: a new one may lead to another server.
	dials int64
}

func newRedisTime(r Redis, clock func() instant, timeout time.Duration) *redisTime {
	return &redisTime{redis: r, clock: clock, timeout: timeout, at: never}
}

// now returns the time of Redis' clock in ms, or somewhat less: the reply was on its way for a while.
func (t *redisTime) now(ctx context.Context) (int64, error) {
	dials := t.redis.Dials()
	t.mu.Lock()
	said, at, known := t.said, t.at, t.at != never && t.dials == dials
	t.mu.Unlock()
	if known && t.clock().sub(at) < askTimeEvery {
		return said + t.clock().sub(at).Milliseconds(), nil
	}
	answer, err := t.ask(ctx)
	if err != nil {
		return 0, err
	}
	said, at = answer.UnixMilli(), t.clock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said, t.at, t.dials = said, at, dials
	return said, nil
}

func (t *redisTime) ask(ctx context.Context) (said time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	for again := true; again; again = errors.Is(err, errUnused) {
		said, err = t.redis.Time(ctx)
	}
	return said, err
}
