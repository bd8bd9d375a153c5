package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// quotaKey is what a broker holds up because of a quota: one kind of request for one partition.
type quotaKey struct {
	request, topic string
	partition      int
}

// throttle keeps until when brokers want no more requests. A broker that is asked earlier does not read from the
// connection until then (KIP-219), so that the request would seem to hang.
type throttle struct {
	some  atomic.Bool // whether there ever was any, so that the common case takes no lock
	mu    sync.Mutex
	until map[quotaKey]time.Time
}

// wait returns when all places may be asked again, or with the context's error when that ends before.
func (t *throttle) wait(ctx context.Context, places ...quotaKey) error {
	if !t.some.Load() {
		return nil
	}
	t.mu.Lock()
	longest := time.Duration(0)
	for _, p := range places {
		left := time.Until(t.until[p])
		if left <= 0 {
			delete(t.until, p)
		}
		longest = max(longest, left)
	}
	t.mu.Unlock()
	if longest == 0 {
		return nil
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// throttled notes what a broker asked for in answer to a request for these places, and counts it once.
func (c *Client) throttled(d time.Duration, places ...quotaKey) {
	if d <= 0 {
		return
	}
	c.count.throttledFor(places[0].request, d)
	t := &c.throttle
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = map[quotaKey]time.Time{}
	}
	until := time.Now().Add(d)
	for _, p := range places {
		t.until[p] = until
	}
	t.some.Store(true)
}
