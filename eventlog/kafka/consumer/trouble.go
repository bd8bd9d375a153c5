package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

const (
	// grace is how long the brokers may be in trouble that passes by itself before an operator hears of it, and how
	// long a log that seems to be cut short may take to show that it is not. A leader moves in less.
	grace = 5 * time.Second
	// quiet is how long nothing more is said about the same kind of trouble.
	quiet = time.Minute
)

// trouble spaces the attempts of one goroutine at one thing. None is ever the last.
type trouble struct {
	c       *Consumer
	what    string
	backoff retry.Backoff
	since   time.Time // of the first failure in a row
	told    bool
}

func (c *Consumer) newTrouble(what string) *trouble {
	b := retry.Backoff{Max: 900 * time.Millisecond}
	return &trouble{c: c, what: what, backoff: b}
}

// wait waits before the next attempt. The end of ctx is no trouble.
func (t *trouble) wait(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	t.c.metrics.retries.Inc()
	if t.since.IsZero() {
		t.since = time.Now()
	}
	if class := broker.Classify(err); class != broker.Transient || time.Since(t.since) >= grace {
		if !t.told {
			t.told = true
			t.c.o.Log.Warn("kafka refuses or does not answer", "trying", t.what, "error", err)
		}
		t.c.away.raise(t.c.o.Alarms, class, err)
	}
	_ = t.backoff.Wait(ctx) // the caller looks at ctx
}

// failing reports whether the last attempt failed.
func (t *trouble) failing() bool { return !t.since.IsZero() }

// over is to be called after a success.
func (t *trouble) over() {
	if t.told {
		t.c.o.Log.Info("kafka answers again", "trying", t.what, "after", time.Since(t.since))
	}
	if !t.since.IsZero() {
		t.since, t.told = time.Time{}, false
		t.backoff.Reset()
	}
}

// away keeps many partitions from raising the same alarm many times.
type away struct {
	mu     sync.Mutex
	raised map[broker.Class]time.Time
}

func (a *away) raise(alarms *alarm.Board, class broker.Class, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.raised[class]; ok && time.Since(at) < quiet {
		return
	}
	if a.raised == nil {
		a.raised = map[broker.Class]time.Time{}
	}
	a.raised[class] = time.Now()
	alarms.Raise(alarm.KafkaAway, err.Error()+"; the invalidator tries again until it can read on: nothing is lost as long"+
		" as the topic's retention lasts")
}

// pause waits a little, without there being any trouble.
func (t *trouble) pause(ctx context.Context) { _ = t.backoff.Wait(ctx) }
