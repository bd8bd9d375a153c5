package leader

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// rig is the topics of one test.
type rig struct {
	topic
	t       testing.TB
	cluster *testbed.KafkaCluster
}

func newRig(t testing.TB, config ...string) *rig {
	t.Helper()
	return newRigOn(t, testbed.SharedKafka(t), config...)
}

func newRigOn(t testing.TB, cluster *testbed.KafkaCluster, config ...string) *rig {
	t.Helper()
	names := broker.Names{Topic: cluster.NewTopicName(t)}
	r := &rig{t: t, cluster: cluster, topic: topic{names: names, source: "shop"}}
	r.least = func() uint64 { return 1 } // for terms that can be read
	config = append(config, "cleanup.policy=compact")
	cluster.Topic(t, names.Checkpoint(r.source), 1, config...)
	cluster.Topic(t, names.Marks(), 1, config...)
	r.client = r.connect(broker.Options{})
	return r
}

func (r *rig) connect(o broker.Options) *broker.Client {
	r.t.Helper()
	o.Brokers = r.cluster.Brokers()
	c, err := broker.New(o)
	must(r.t, err)
	r.t.Cleanup(func() { must(r.t, c.Close()) })
	return c
}

// proxied returns a client whose connections go through a proxy.
func (r *rig) proxied() (*broker.Client, *proxy.Kafka) {
	r.t.Helper()
	p := proxy.StartKafka(r.t, r.cluster.Brokers()[0])
	return r.connect(broker.Options{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, p.Addr())
	}}), p
}

func (r *rig) log() *slog.Logger { return slog.New(slog.NewTextHandler(r.t.Output(), nil)) }

// open takes a term and returns its checkpoint.
func (r *rig) open() *Checkpoint {
	r.t.Helper()
	return r.openWith(Options{})
}

func (r *rig) openWith(o Options) *Checkpoint {
	r.t.Helper()
	cp, err := r.tryOpen(o)
	must(r.t, err)
	return cp
}

func (r *rig) tryOpen(o Options) (*Checkpoint, error) {
	r.t.Helper()
	o.Names, o.Source, o.Log = r.names, r.source, r.log()
	o, err := o.withDefaults()
	must(r.t, err)
	c, err := r.take(r.t.Context())
	if err != nil {
		return nil, err
	}
	return open(r.t.Context(), c, &o, newMetrics())
}

func (r *rig) mark(term uint64, epoch uint32) {
	r.t.Helper()
	m := record.Mark{Mark: event.Mark{
		Source: r.source, Term: term, Version: event.Version{Epoch: epoch, File: 1, Pos: 4},
		Made: time.Now(),
	}}
	_, err := r.client.Produce(r.t.Context(), r.names.Marks(), 0,
		broker.Record{Key: []byte(r.source), Value: m.Append(nil)})
	must(r.t, err)
}

func place(pos uint64) event.Position {
	return event.Position{Flavor: event.MySQL, Server: "a", Epoch: 1, File: "binlog.000001", Pos: pos}
}

// reader is a running leader or standby.
type reader struct {
	*Leader
	t    testing.TB
	led  chan *Checkpoint // a leadership began
	lost chan error       // its context ended: the cause
	stop func() error

	generations atomic.Int64 // that it was part of
}

// generationCounter counts what the group logs when a generation begins.
type generationCounter struct {
	slog.Handler
	n *atomic.Int64
}

func (c generationCounter) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "a generation of the consumer group began" {
		c.n.Add(1)
	}
	return c.Handler.Handle(ctx, r)
}

// start starts a reader whose leadership does nothing until its context ends.
func (r *rig) start(c *broker.Client, o Options) *reader {
	r.t.Helper()
	out := &reader{t: r.t, led: make(chan *Checkpoint, 100), lost: make(chan error, 100)}
	o.Names, o.Source, o.Log = r.names, r.source, slog.New(generationCounter{r.log().Handler(), &out.generations})
	if o.Session == 0 {
		o.Session = 6 * time.Second
	}
	l, err := New(c, o)
	must(r.t, err)
	out.Leader = l
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- l.Run(ctx, func(ctx context.Context, cp *Checkpoint) error {
			out.led <- cp
			<-ctx.Done()
			out.lost <- context.Cause(ctx)
			return nil
		})
	}()
	out.stop = sync.OnceValue(func() error { cancel(); return <-done })
	r.t.Cleanup(func() { must(r.t, out.stop()) })
	return out
}

// leads waits until the reader leads.
func (r *reader) leads() *Checkpoint {
	r.t.Helper()
	select {
	case cp := <-r.led:
		return cp
	case <-time.After(30 * time.Second):
		r.t.Fatal("it does not lead after 30 s")
		return nil
	}
}

// loses waits until the reader has lost its leadership.
func (r *reader) loses() error {
	r.t.Helper()
	select {
	case err := <-r.lost:
		return err
	case <-time.After(30 * time.Second):
		r.t.Fatal("it still leads after 30 s")
		return nil
	}
}

func brokerOptions() broker.Options { return broker.Options{} }

// members returns how many readers the source has.
func members(t *testing.T, l *Leader) (int, error) {
	return l.client.GroupMembers(t.Context(), l.names.ReaderGroup(l.source))
}
