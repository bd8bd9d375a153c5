package producer

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

const (
	// grace is how long the brokers may be in trouble that passes by itself before an operator hears of it. A leader
	// moves in less.
	grace = 5 * time.Second
	// quiet is how long nothing more is said about the same kind of trouble.
	quiet = time.Minute
)

// trouble spaces the attempts at one thing. None is ever the last: whatever the brokers say, somebody may mend it
// while we wait (an ACL, a password, a replica), and what we hold is nowhere else but in the binlog.
type trouble struct {
	p       *Producer
	retries *prometheus.CounterVec
	backoff retry.Backoff
	since   time.Time // of the first failure
	told    bool
}

func (p *Producer) newTrouble(retries *prometheus.CounterVec) *trouble {
	return &trouble{p: p, retries: retries, backoff: p.o.Backoff}
}

// wait waits before the next attempt. The end of ctx is no trouble.
func (t *trouble) wait(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	_ = retry.Sleep(ctx, t.pause(err)) // the caller looks at ctx
}

// pause enters an attempt that failed, and returns how long to wait before the next.
func (t *trouble) pause(err error) time.Duration {
	class := broker.Classify(err)
	t.retries.WithLabelValues(class.String()).Inc()
	if t.since.IsZero() {
		t.since = time.Now()
	}
	if class != broker.Transient || time.Since(t.since) >= grace {
		t.p.troubles.raise(class, err, !t.told)
		t.told = true
	}
	return t.backoff.Next()
}

// over is to be called after a success.
func (t *trouble) over() {
	if t.since.IsZero() {
		return
	}
	if t.told {
		t.p.troubles.over(time.Since(t.since))
	}
	t.since, t.told = time.Time{}, false
	t.backoff.Reset()
}

// troubles keeps a dozen partitions from saying the same a dozen times.
type troubles struct {
	p      *Producer
	mu     sync.Mutex
	told   int // of those in trouble, how many said so
	raised map[broker.Class]time.Time
}

// raise raises an alarm, unless that class of trouble was told a moment ago.
func (t *troubles) raise(class broker.Class, err error, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first {
		t.told++
	}
	if at, ok := t.raised[class]; ok && time.Since(at) < quiet {
		return
	}
	if t.raised == nil {
		t.raised = map[broker.Class]time.Time{}
	}
	t.raised[class] = time.Now()
	t.p.o.Alarms.Raise(alarm.KafkaAway, err.Error()+
		"; the reader tries again until the brokers take it, and reads no further once its buffer is full: nothing is lost")
}

// over says that the last of those in trouble is out of it.
func (t *troubles) over(lasted time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told--; t.told == 0 {
		t.p.o.Log.Info("kafka takes records again", "source", t.p.o.Source, "topic", t.p.o.Topics.Topic, "after", lasted)
		t.raised = nil
	}
}
