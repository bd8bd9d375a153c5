package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// place is what a broker holds up because of a quota: one kind of request for one partition.
type place struct {
	request, topic string
	partition      int
}

// throttle keeps until when brokers want no more requests. A broker that is asked earlier does not read from the
// connection until then (KIP-219), so that the request would seem to hang.
type throttle struct {
	some  atomic.Bool // whether there ever was any, so that the common case takes no lock
	mu    sync.Mutex
	until map[place]time.Time
}

// wait returns when the place may be asked again, or with the context's error when that ends before.
func (t *throttle) wait(ctx context.Context, p place) error {
	if !t.some.Load() {
		return nil
	}
	t.mu.Lock()
	left := time.Until(t.until[p])
	if left <= 0 {
		delete(t.until, p)
	}
	t.mu.Unlock()
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// throttled notes and counts what a broker asked for of one partition.
func (c *Client) throttled(p place, d time.Duration) {
	c.throttledAll(p.request, p.topic, d, 1, func(int) int { return p.partition })
}

// throttledAll notes what a broker asked for of the n partitions of a request, and counts it once.
func (c *Client) throttledAll(request, topic string, d time.Duration, n int, partition func(i int) int) {
	if d <= 0 {
		return
	}
	c.count.throttledFor(request, d)
	t := &c.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = map[place]time.Time{}
	}
	until := time.Now().Add(d)
	for i := range n {
		t.until[place{request, topic, partition(i)}] = until
	}
	t.some.Store(true)
}
