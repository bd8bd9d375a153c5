package app

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router"
)

// naming is where keys are named: an engine that finishes all it is handed once Redis is back, and a source that is
// asked for its tables.
type naming struct {
	*answering
	// back ends the silence of Redis.
	back                 chan struct{}
	finished, units      atomic.Int64
	asks, asking, atOnce atomic.Int64
}

func newNaming(t *testing.T) *naming {
	t.Helper()
	c, err := config.Parse("f.yaml", []byte(`
source: {addresses: ["127.0.0.1:1"], user: u}
redis: {addresses: ["127.0.0.1:1"]}
mappings: [{table: shop.product, keys: ["product:{id}"]}]
`), operate.CheckMappings)
	must(t, err)
	route, err := router.New(c.Mappings, router.Options{})
	must(t, err)
	n := &naming{back: make(chan struct{})}
	s, err := scope.New(scope.Deps{Redis: noRedis{}, Serve: n.serve}, scope.Options{Rate: 1e9})
	must(t, err)
	n.answering = &answering{
		scope: s, asked: make(chan request),
		visible: func(string) (event.Version, bool) { return event.Version{}, true },
		learn: func(context.Context, string) ([]*operate.Learned, error) {
			n.atOnce.Store(max(n.atOnce.Load(), n.asking.Add(1)))
			n.asks.Add(1)
			time.Sleep(5 * time.Millisecond)
			n.asking.Add(-1)
			return []*operate.Learned{{Source: "shop", Mappings: route.Mappings()}}, nil
		},
	}
	return n
}

// noRedis is not asked for keys that are named.
type noRedis struct{ scope.Redis }

func (n *naming) serve(ctx context.Context, p eventlog.Partition) error {
	n.units.Add(1)
	select {
	case <-n.back:
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		b, token, err := p.Fetch(ctx)
		if err != nil {
			return nil
		}
		n.finished.Add(int64(b.Len()))
		p.Commit(token)
	}
}

// start has keys forgotten until the test ends.
func (n *naming) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		must(t, n.forgetAll(ctx))
	}()
	return func() {
		cancel()
		<-done
	}
}

// While Redis is away nothing that is named is finished, and a program may name keys again and again.
func TestKeysThatAreNamedWhileRedisIsAwayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaming(t)
		defer n.start(t)()
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = strings.Repeat("k", 1000)
		}
		accepted, refused := 0, false
		for !refused && accepted < 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // and does not wait for the end
			_, err := n.forget(ctx, keys)
			cancel()
			if refused = strings.Contains(err.Error(), "too many keys that were named before"); !refused {
				accepted++
			}
		}
		if !refused || accepted < 10 || n.named.Load() > namedBytes {
			t.Errorf("keys that are named have no bound: %d requests of 1 MB were accepted, %d bytes", accepted, n.named.Load())
		}
		close(n.back)
		synctest.Wait()
		if got := n.finished.Load(); got != int64(accepted*len(keys)) || n.named.Load() != 0 {
			t.Errorf("%d keys are finished of %d requests, and %d bytes left", got, accepted, n.named.Load())
		}
		if count, err := n.forget(t.Context(), keys); count != len(keys) || err != nil {
			t.Errorf("once Redis is back: %d, %v", count, err)
		}
	})
}

// A program may name the key of each row that it changes. The source has only so many connections.
func TestTheSourceIsNotAskedForEachKeyThatIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNaming(t)
		close(n.back)
		defer n.start(t)()
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				count, err := n.forget(t.Context(), []string{"product:1"})
				if count != 1 || err != nil {
					t.Errorf("%d, %v", count, err)
				}
			})
		}
		all.Wait()
		if n.asks.Load() > 2 || n.atOnce.Load() > 1 {
			t.Errorf("the source is asked for each key: %d times, %d at once", n.asks.Load(), n.atOnce.Load())
		}
		if got := n.finished.Load(); got != 500 || n.units.Load() > 12 {
			t.Errorf("%d keys in %d units of work", got, n.units.Load())
		}
	})
}
