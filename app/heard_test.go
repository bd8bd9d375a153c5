package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router"
)

// hearing is an answer to a doubt in a member of a group, with an engine that finishes all it is handed, and a Redis
// without keys.
type hearing struct {
	noRedis
	*answering

	mu sync.Mutex
	// heard is what this member has heard that everybody sees, and said what the topic of marks says.
	heard, said event.Version
	away        error
	passes      int
}

func newHearing(t *testing.T) *hearing {
	t.Helper()
	c, err := config.Parse("f.yaml", []byte(`
source: {addresses: ["127.0.0.1:1"], user: u}
redis: {addresses: ["127.0.0.1:1"]}
mappings: [{table: shop.product, keys: [products]}]
`), operate.CheckMappings)
	must(t, err)
	route, err := router.New(c.Mappings, router.Options{})
	must(t, err)
	n := &naming{back: make(chan struct{})}
	close(n.back)
	h := &hearing{}
	s, err := scope.New(scope.Deps{Redis: h, Serve: n.serve}, scope.Options{Rate: 1e9})
	must(t, err)
	h.answering = &answering{
		doubts: book(t, nil), scope: s, scoped: map[string]time.Time{}, log: slog.New(slog.DiscardHandler),
		mine: func(*doubt.Doubt) bool { return true },
		learn: func(context.Context, string) ([]*operate.Learned, error) {
			return []*operate.Learned{{Source: "shop", Mappings: route.Mappings()}}, nil
		},
		visible: func(string) (event.Version, bool) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.heard, true
		},
		marked: func(context.Context, string) (event.Version, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.said, h.away
		},
		finished: func(context.Context, []doubt.Doubt, func(string)) error { return nil },
	}
	return h
}

// Scan implements [scope.Redis].
func (h *hearing) Scan(context.Context, uint64, string, int64) ([]string, uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passes++
	return nil, 0, nil
}

// Server implements [scope.Redis].
func (*hearing) Server(context.Context) (string, error) { return "redis", nil }

// Size implements [scope.Redis].
func (*hearing) Size(context.Context) (int64, error) { return 0, nil }

// set has this member hear something, and the topic say something.
func (h *hearing) set(heard, said uint64, away error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard, h.said, h.away = at(heard), at(said), away
}

// is fails the test unless so many passes over Redis have begun by now, and so many doubts are left.
func (h *hearing) is(t *testing.T, passes, doubts int) {
	t.Helper()
	time.Sleep(3 * finishedEach)
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := h.doubts.List(); h.passes != passes || len(left) != doubts {
		t.Fatalf("%d passes have begun, want %d, and in doubt are %+v", h.passes, passes, left)
	}
}

// Another member may have finished a change that this one has not heard of. What is forgotten under an older version
// than that is left alone, so the second pass waits for what the topic of marks had when the answer began.
func TestTheLastPassWaitsForTheMarksThatOthersMayHaveHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHearing(t)
		must(t, h.doubts.Record(t.Context(), doubt.Doubt{Cause: alarm.TruncatedTable, Source: "shop", Message: "a sentence"}))
		h.set(50, 90, errors.New("no leader"))
		must(t, h.answerDue(t.Context()))
		h.is(t, 0, 1)
		if said := h.doubts.List()[0].Answer; !strings.Contains(said, "do not say what everybody can see: no leader") {
			t.Errorf("it says %q", said)
		}
		h.set(50, 90, nil)
		done := make(chan error, 1)
		go func() { done <- h.answerDue(t.Context()) }()
		h.is(t, 1, 1)
		h.set(89, 200, nil) // what comes later need not be waited for
		h.is(t, 1, 1)
		h.set(90, 200, nil)
		h.is(t, 2, 0)
		must(t, <-done)
	})
}
