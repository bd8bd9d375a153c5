package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// The tests' own subscriber must not fall over what the tests do to Redis.
func TestTheSubscriberWaitsForARedisThatIsAway(t *testing.T) {
	redis := testbed.Redis(t)
	testbed.Must(t, redis.Kill())
	b := &bazaar{r: &rig{redis: redis}}
	ready := make(chan struct{})
	b.listener.start(1, func(ctx context.Context, _ int) error { return b.listen(ctx, ready) })
	testbed.Must(t, redis.Start(t.Context()))
	select {
	case <-ready:
	case <-time.After(3 * time.Minute):
		t.Fatal("it does not subscribe when Redis is there")
	}
	redis.Do(t, "publish", "items", "17")
	testbed.Eventually(t, 2*time.Minute, "the message is heard", func() bool {
		b.heard.mu.Lock()
		defer b.heard.mu.Unlock()
		return b.heard.n == 1
	})
	testbed.Must(t, b.listener.stop())
}
