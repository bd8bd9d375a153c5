package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/group"
	"github.com/freshet/freshet/eventlog/kafka/record"
	"github.com/freshet/freshet/proof/testbed"
)

// patience is how long a test waits for what must come.
const patience = 2 * time.Minute

// rig is a topic of invalidations, its marks and a group of one test.
type rig struct {
	t       *testing.T
	cluster *testbed.KafkaCluster
	client  *broker.Client
	names   broker.Names
	group   string
}

func newRig(t *testing.T, partitions int, config ...string) *rig {
	t.Helper()
	return newRigOn(t, testbed.SharedKafka(t), partitions, config...)
}

func newRigOn(t *testing.T, cluster *testbed.KafkaCluster, partitions int, config ...string) *rig {
	t.Helper()
	r := &rig{t: t, cluster: cluster}
	r.names.Topic = r.cluster.Topic(t, r.cluster.NewTopicName(t), partitions, config...)
	r.cluster.Topic(t, r.names.Marks(), 1, "cleanup.policy=compact")
	r.group = r.names.Topic + ".group"
	r.client = r.connect()
	return r
}

func (r *rig) connect() *broker.Client {
	r.t.Helper()
	c, err := broker.New(broker.Options{Brokers: r.cluster.Brokers()})
	must(r.t, err)
	r.t.Cleanup(func() { must(r.t, c.Close()) })
	return c
}

// document is a record of one change with a key that names it.
func document(source string, term, seq uint64, prev, pos int) []byte {
	var b event.Batch
	b.Reset()
	b.Source, b.Term = source, term
	b.AddOrigin(event.Origin{Table: "shop.product", Event: at(pos), D: time.Second})
	b.Add(append(b.Text(), fmt.Sprintf("%s:%d:%d", source, term, seq)...), 1, event.ActionDelete)
	var e record.Encoder
	e.Add(&b, 0)
	h := record.Header{Source: source, Term: term, Seq: seq, Age: event.Unknown}
	if prev > 0 {
		h.Prev = at(prev)
		h.Prev.Row = 1
	}
	return e.Finish(h)
}

func at(pos int) event.Version { return event.Version{Epoch: 1, File: 1, Pos: uint64(pos)} }

// produce appends documents to a partition.
func (r *rig) produce(partition int, documents ...[]byte) int64 {
	r.t.Helper()
	var first int64 = -1
	for _, d := range documents {
		var offset int64
		eventually(r.t, "a record is taken", func() (ok bool) {
			var err error
			offset, err = r.client.Produce(r.t.Context(), r.names.Topic, partition, broker.Record{Key: []byte("s"), Value: d})
			return err == nil // a client that has not heard yet that a topic was created again fails at first
		})
		if first < 0 {
			first = offset
		}
	}
	return first
}

// series produces the records from seq to last of source s, term 1.
func (r *rig) series(partition int, seq, last int) {
	r.t.Helper()
	for ; seq <= last; seq++ {
		r.produce(partition, document("s", 1, uint64(seq), 10*(seq-1), 10*seq))
	}
}

// got is a batch that was handed out.
type got struct {
	partition int
	key       string
	p         eventlog.Partition
	token     eventlog.Token
	leftover  bool
}

func (g got) commit() { g.p.Commit(g.token) }

// worker is a member of the group that hands out what it fetches.
type worker struct {
	rig      *rig
	consumer *Consumer
	registry *prometheus.Registry
	batches  chan got
	ends     chan error // what Fetch or Partition ended with, for each partition
	buried   chan broker.Record
	stop     func() error
	winding  func(error) // called with the error of Fetch, before the handle returns
}

// work starts a member. Without auto, its batches are committed by the test.
func (r *rig) work(auto bool, change ...func(*Options)) *worker {
	return r.workWith(auto, func(error) {}, change...)
}

func (r *rig) workWith(auto bool, winding func(error), change ...func(*Options)) *worker {
	r.t.Helper()
	w := &worker{
		winding: winding,
		rig:     r, registry: prometheus.NewRegistry(),
		batches: make(chan got, 10000), ends: make(chan error, 100), buried: make(chan broker.Record, 100),
	}
	log := slog.New(slog.NewTextHandler(r.t.Output(), nil))
	board, err := alarm.New(log, nil)
	must(r.t, err)
	o := Options{
		Names: r.names, Group: r.group, Log: log, Alarms: board, Registerer: w.registry,
		Bury: func(_ context.Context, topic string, partition int, b broker.Record, cause error) error {
			if topic != r.names.Topic || cause == nil {
				return fmt.Errorf("bury %s/%d: %v", topic, partition, cause)
			}
			b.Value = bytes.Clone(b.Value)
			w.buried <- b
			return nil
		},
	}
	for _, c := range change {
		c(&o)
	}
	client := r.connect()
	w.consumer, err = New(client, o)
	must(r.t, err)
	m, err := group.New(client, group.Options{
		ID: r.group, Topics: []string{r.names.Topic}, Session: 6 * time.Second,
		Log: log,
	})
	must(r.t, err)
	ctx, cancel := context.WithCancel(r.t.Context())
	rctx, rcancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- w.consumer.Run(rctx) }()
	done := make(chan error, 1)
	go func() {
		err := m.Run(ctx, func(ctx context.Context, c *group.Assignment) error { return w.serve(ctx, c, auto) })
		rcancel()
		done <- errors.Join(err, <-ran)
	}()
	w.stop = sync.OnceValue(func() error { cancel(); return <-done })
	r.t.Cleanup(func() {
		if err := w.stop(); err != nil && !errors.As(err, new(*LostError)) {
			r.t.Error(err)
		}
	})
	return w
}

func (w *worker) serve(ctx context.Context, c *group.Assignment, auto bool) error {
	p, err := w.consumer.Partition(ctx, c)
	if err != nil {
		w.ends <- err
		return err
	}
	for {
		b, token, err := p.Fetch(ctx)
		if err != nil {
			w.winding(err)
			w.ends <- err
			if errors.As(err, new(*LostError)) {
				return err
			}
			return nil
		}
		g := got{p.ID(), b.Key(0), p, token, b.Leftover}
		if auto {
			g.commit()
		}
		w.batches <- g
	}
}

// take waits for n batches.
func (w *worker) take(n int) (out []got) {
	w.rig.t.Helper()
	for len(out) < n {
		select {
		case g := <-w.batches:
			out = append(out, g)
			continue
		default:
		}
		select {
		case g := <-w.batches:
			out = append(out, g)
		case err := <-w.ends:
			if len(w.batches) > 0 { // which came before
				w.ends <- err
				continue
			}
			w.rig.t.Fatalf("%d of %d batches, then %v", len(out), n, err)
		case <-time.After(patience):
			w.rig.t.Fatalf("%d of %d batches", len(out), n)
		}
	}
	return out
}

// end waits for a partition to end.
func (w *worker) end() error {
	w.rig.t.Helper()
	select {
	case err := <-w.ends:
		return err
	case <-time.After(patience):
		w.rig.t.Fatal("no partition ended")
		return nil
	}
}

// lost waits for a partition to end with a loss, and stops.
func (w *worker) lost(want Loss) *LostError {
	w.rig.t.Helper()
	var lost *LostError
	if err := w.end(); !errors.As(err, &lost) || lost.Loss != want {
		w.rig.t.Fatalf("ended with %v, want %s", err, want)
	}
	w.rig.t.Log(lost)
	if err := w.stop(); !errors.As(err, new(*LostError)) {
		w.rig.t.Fatalf("the member ended with %v", err)
	}
	return lost
}

func keys(batches []got) (out []string) {
	for _, g := range batches {
		out = append(out, g.key)
	}
	return out
}

// expect compares the keys of a partition of which all others are empty.
func expect(t *testing.T, batches []got, want ...string) {
	t.Helper()
	if k := keys(batches); !slices.Equal(k, want) {
		t.Fatalf("handed out %q, want %q", k, want)
	}
}

// eventually asks until a condition holds. What it asks about has no signal: it is known to the brokers alone.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// committed returns the metadata that the group has committed for partition 0.
func (r *rig) committed() string {
	r.t.Helper()
	res, err := r.client.Kafka().OffsetFetch(r.t.Context(), &kafka.OffsetFetchRequest{
		GroupID: r.group, Topics: map[string][]int{r.names.Topic: {0}},
	})
	must(r.t, err)
	return res.Topics[r.names.Topic][0].Metadata
}

// recommit commits an offset of partition 0 from outside, while the group has no members.
func (r *rig) recommit(offset int64, metadata ...string) {
	r.t.Helper()
	o := kafka.OffsetCommit{Partition: 0, Offset: offset}
	if len(metadata) > 0 {
		o.Metadata = metadata[0]
	}
	res, err := r.client.Kafka().OffsetCommit(r.t.Context(), &kafka.OffsetCommitRequest{
		GroupID: r.group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{r.names.Topic: {o}},
	})
	must(r.t, err)
	must(r.t, res.Topics[r.names.Topic][0].Error)
}
