package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/event/latency"
)

// silent is a topic that could not be read so far.
type silent struct{ doubttest.Memory }

func (*silent) Follow(ctx context.Context, _ func()) { <-ctx.Done() }

func TestTheStateIsNotFreshBeforeItIsKnownWhatIsInDoubt(t *testing.T) {
	book, err := doubt.New(&silent{}, nil, nil)
	must(t, err)
	p := quiet(t)
	p.doubts = book
	if s := p.status(); s.State != Starting || !strings.Contains(s.Sentence, "what is in doubt") {
		t.Fatalf("%s: %s", s.State, s.Sentence)
	}
	must(t, book.Load(t.Context()))
	if s := p.status(); s.State != Fresh {
		t.Fatalf("%s: %s", s.State, s.Sentence)
	}
}

// quiet is a process whose halves are other processes, and which has nothing to say.
func quiet(t *testing.T) *process {
	t.Helper()
	alarms, err := alarm.New(slog.New(slog.DiscardHandler), nil)
	must(t, err)
	return &process{
		shared: &shared{
			config: &config.Config{}, registry: prometheus.NewRegistry(), alarms: alarms, doubts: book(t, alarms),
			latency: latency.New(),
		},
		reader: &otherReaders{}, invalidator: &otherInvalidators{freshAsOf: time.Now}, log: inProcess{},
	}
}
