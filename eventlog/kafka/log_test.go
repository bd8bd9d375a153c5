package kafka

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/producer"
	"github.com/freshet/freshet/eventlog/logtest"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// life is one process that has both ends of the log.
type life struct {
	*producer.Producer
	log  *Log
	ends chan event.End
}

// Consume implements logtest.Log.
func (l *life) Consume(ctx context.Context, handle func(context.Context, eventlog.Partition) error) error {
	return l.log.Consume(ctx, handle)
}

// Marks are those that came through the topic.
func (l *life) Marks() <-chan event.Mark { return l.log.Marks() }

// Durable delivers what the producer does.
func (l *life) Durable() <-chan event.End { return l.ends }

// run runs what a process does besides reading and invalidating, until ctx ends.
func (l *life) run(ctx context.Context) error {
	var forward sync.WaitGroup
	forward.Go(func() {
		for e := range l.Producer.Durable() {
			select {
			case l.ends <- e:
			case <-ctx.Done():
			}
		}
		if ctx.Err() == nil { // all is acknowledged
			l.log.CloseAt(maps.Collect(slices.All(l.Ends())))
		}
		close(l.ends)
	})
	err := l.Producer.Run(ctx)
	forward.Wait()
	return err
}

// lives opens the log of one test as one process after the other.
type lives struct {
	client *broker.Client
	topic  string
	// stalled: the topic takes nothing, as when too few of its replicas are in sync. That of the marks does.
	stalled atomic.Bool

	mu    sync.Mutex
	term  uint64
	heads map[int]event.Version
}

// produceTo is the client as the producer has it.
type produceTo struct {
	*broker.Client
	*lives
}

// ProduceAll implements producer.Client.
func (p produceTo) ProduceAll(ctx context.Context, topic string, to []broker.ProduceTo) []broker.ProduceResult {
	if topic != p.topic || !p.stalled.Load() {
		return p.Client.ProduceAll(ctx, topic, to)
	}
	results := make([]broker.ProduceResult, len(to))
	for i := range results {
		results[i].Err = kafkago.NotEnoughReplicas
	}
	return results
}

func (l *lives) open(t *testing.T) logtest.Opened {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term++
	out, err := producer.New(produceTo{l.client, l}, producer.Options{
		Topics: broker.Names{Topic: l.topic}, Source: "logtest", Term: l.term, Heads: l.heads, MaxBuffered: 64 << 10,
	})
	must(t, err)
	log, err := New(l.client, Options{
		Topic: l.topic, Group: l.topic, Session: 6 * time.Second,
		Delays: []time.Duration{time.Minute},
	})
	must(t, err)
	p := &life{Producer: out, log: log, ends: make(chan event.End)}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := p.run(ctx); err != nil {
			t.Errorf("produce: %v", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.heads = out.Heads() // what a checkpoint would know, or a little more
	})
	t.Cleanup(func() { cancel(); group.Wait() })
	for out.Ends() == nil { // nothing is taken before the partitions are known, so a stall must not come earlier
		runtime.Gosched()
	}
	return logtest.Opened{Log: p, Close: out.Close}
}

func TestTheLogConforms(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t, testbed.KafkaOptions{Proxied: true})
	line := cluster.Broker(1).Proxy
	logtest.Run(t, func(t *testing.T) logtest.Harness {
		client, err := broker.New(broker.Options{Brokers: cluster.Brokers(), Timeout: 3 * time.Second})
		must(t, err)
		t.Cleanup(func() { must(t, client.Close()) })
		l := &lives{client: client, topic: cluster.NewTopicName(t)}
		names := broker.Names{Topic: l.topic}
		size := broker.Sizing{Partitions: 3}
		must(t, client.Ensure(t.Context(), append(broker.ReaderTopics(names, "logtest", size),
			broker.InvalidatorTopics(names, l.topic, []time.Duration{time.Minute}, size)...), true))
		return logtest.Harness{
			Open: l.open,
			Stall: func(t *testing.T) func() {
				l.stalled.Store(true)
				return func() { l.stalled.Store(false) }
			},
			LoseAcknowledgements: func(t *testing.T) func() {
				line.OnRequest(func(r proxy.Request) proxy.Action {
					if r.API == proxy.Produce || r.API == proxy.OffsetCommit {
						return proxy.DropReply
					}
					return proxy.Forward
				})
				return func() { line.OnRequest(nil) }
			},
		}
	})
}
