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

// throttled notes and counts what a broker asked for.
func (c *Client) throttled(p place, d time.Duration) {
	if d <= 0 {
		return
	}
	c.count.throttledFor(p.request, d)
	t := &c.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = map[place]time.Time{}
	}
	t.until[p] = time.Now().Add(d)
	t.some.Store(true)
}
