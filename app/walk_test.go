package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal/walk"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
)

// walker returns what walks a source that does not answer, with an engine that is given what is handed out.
func walker(t *testing.T, serve func(ctx context.Context, p eventlog.Partition) error) *walking {
	t.Helper()
	c, err := config.Parse("freshet.yaml", []byte(`
source: {name: shop, addresses: ["127.0.0.1:1"], user: root}
redis: {addresses: ["127.0.0.1:1"]}
mappings: [{table: shop.product, keys: ["product:{id}"]}]
`), operate.CheckMappings)
	must(t, err)
	m, err := newWalkMetrics(prometheus.NewRegistry())
	must(t, err)
	return &walking{
		shared: &shared{config: c}, metrics: m, serve: serve,
		take:     func(ctx context.Context, _ int) error { return ctx.Err() },
		newest:   func(string) (m event.Mark, ok bool) { return m, false },
		mappings: func(context.Context) ([]spec.Mapping, error) { return c.Mappings, nil },
	}
}

// A walk that nobody waits for reads no more, but the engine is not stopped between the first and the final action of
// what it has: the final actions of older changes rely on those.
func TestAWalkThatNobodyWaitsForFinishesWhatItHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, x := range map[string]struct {
			stop func(w *walking) (wanted bool)
			want error
		}{
			"it was cancelled": {func(*walking) bool { return false }, errDismissed},
			"other mappings": {func(w *walking) bool {
				w.mappings = func(context.Context) ([]spec.Mapping, error) { return nil, nil }
				return true
			}, errRemapped},
		} {
			finished := false
			w := walker(t, func(ctx context.Context, p eventlog.Partition) error {
				if _, _, err := p.Fetch(ctx); err != io.EOF {
					return fmt.Errorf("it hands out %w", err)
				}
				time.Sleep(time.Hour) // D, and a Redis that is away
				if ctx.Err() != nil {
					return errors.New("the engine is stopped")
				}
				finished = true
				return nil
			})
			asked := 0
			err := w.runWhile(t.Context(), &walked{Walk: operate.Walk{Schema: "shop", Name: "product"}},
				func(context.Context) bool {
					asked++
					return x.stop(w)
				})
			if err != x.want || !finished || asked != 1 {
				t.Errorf("%s: it ends with %v, all of it finished: %v, asked %d times", name, err, finished, asked)
			}
		}
	})
}

// What is read and was not handed out yet is not, then.
func TestAWalkThatNobodyWaitsForHandsOutNothing(t *testing.T) {
	wanted, stop := context.WithCancelCause(t.Context())
	w := walker(t, nil)
	p := &walkRun{walking: w, walked: &walked{}, last: true}
	p.reading, p.end = context.WithCancel(wanted)
	defer p.end()
	p.chunk = []*event.Batch{{}, {}}
	if _, _, err := p.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.reading.Err() != nil {
		t.Error("the session ends after each batch")
	}
	stop(errDismissed)
	if _, _, err := p.Fetch(t.Context()); err != io.EOF || p.err != errDismissed || p.finished() {
		t.Errorf("%v, %v, finished: %v", err, p.err, p.finished())
	}
}

// The member that is asked may have the query of a mapping in its file, and the one that walks may not.
func TestAWalkWithoutItsQueryIsRefused(t *testing.T) {
	served := false
	w := walker(t, func(context.Context, eventlog.Partition) error {
		served = true
		return nil
	})
	kept, err := config.Parse("reader.yaml", []byte(`
source: {name: shop, addresses: ["127.0.0.1:1"], user: root}
redis: {addresses: ["127.0.0.1:1"]}
mappings: [{table: shop.product, keys: ["product:{id}"], rebuild: {query: "SELECT name FROM shop.product WHERE id = {id}"}}]
`), operate.CheckMappings)
	must(t, err)
	k := &walked{Walk: operate.Walk{Schema: "shop", Name: "product"}}
	var never walk.Refusal
	if err := w.run(t.Context(), t.Context(), k, kept.Mappings); !errors.As(err, &never) || served {
		t.Errorf("%v, served: %v", err, served)
	}
	k.Forget = true // needs no values
	if err := w.run(t.Context(), t.Context(), k, kept.Mappings); !served || errors.As(err, &never) {
		t.Errorf("%v, served: %v", err, served)
	}
}

// A condition that few rows meet says nothing about how far the walk is.
func TestAWalkIsAsFarAsTheRowsThatItHasPassed(t *testing.T) {
	t.Parallel()
	var k walked
	k.resume(3, 6, 0) // what an earlier version has kept
	k.about.Store(1000)
	k.passed.Add(497)
	k.meter()
	if p := k.progress.Load(); p.Done != 500 || p.Of != 1000 || p.Keys != 6 {
		t.Errorf("%+v", p)
	}
}
