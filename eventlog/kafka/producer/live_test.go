package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
	"github.com/freshet/freshet/proof/testbed"
)

// rig is a topic of invalidations and its topic of marks on real brokers.
type rig struct {
	t       *testing.T
	cluster *testbed.KafkaCluster
	client  *broker.Client
	names   broker.Names
}

func newRig(t *testing.T, c *testbed.KafkaCluster, partitions int, config ...string) *rig {
	t.Helper()
	g := &rig{t: t, cluster: c, names: broker.Names{Topic: c.NewTopicName(t)}}
	c.Topic(t, g.names.Topic, partitions, config...)
	c.Topic(t, g.names.Marks(), 1, "cleanup.policy=compact")
	var err error
	g.client, err = broker.New(broker.Options{Brokers: c.Brokers(), Compression: kafka.Lz4, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.client.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// contents returns the records of each partition.
func (g *rig) contents(partitions int) [][][]byte {
	g.t.Helper()
	values := make([][][]byte, partitions)
	for id := range partitions {
		_, err := g.client.ReadAll(g.t.Context(), g.names.Topic, id, func(r broker.Record) error {
			values[id] = append(values[id], r.Value)
			return nil
		})
		if err != nil {
			g.t.Fatal(err)
		}
	}
	return values
}

func (g *rig) check(partitions int, appended []*event.Batch) {
	g.t.Helper()
	got, err := consume(g.contents(partitions), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	compare(g.t, got, appended)
}

// load makes transactions of a few keys each, in order.
func load(first, n int) []*event.Batch {
	all := make([]*event.Batch, n)
	for i := range all {
		all[i] = batch(first+i, fmt.Sprint("product:", i%50), fmt.Sprint("list:", i%7), "ключ\xff")
	}
	return all
}

func TestARealBrokerHoldsWhatWasAppended(t *testing.T) {
	g := newRig(t, testbed.SharedKafka(t), 12)
	r := run(t, g.client, Options{Topics: g.names})
	all := load(1, 500)
	r.append(all...)
	made := time.Now()
	r.Mark(event.Mark{Source: source, Term: 7, Version: all[499].Last, Made: made, Read: true})
	if end := r.flush(); end.Pos != 500 {
		t.Errorf("durable up to %d, want 500", end.Pos)
	}
	g.check(12, all)
	var last record.Mark
	_, err := g.client.ReadAll(t.Context(), g.names.Marks(), 0, func(rec broker.Record) (err error) {
		last, err = record.ParseMark(rec.Value)
		return errors.Join(err, sameKey(rec.Key))
	})
	if err != nil || last.Version != all[499].Last || !last.AsOf.Equal(made.Truncate(time.Microsecond)) {
		t.Errorf("the last mark is %+v, %v", last, err)
	}
	for id, end := range last.Ends {
		if _, want, err := g.client.Range(t.Context(), g.names.Topic, id); err != nil || end != want {
			t.Errorf("partition %d ends at %d, %v; the mark says %d", id, want, err, end)
		}
	}
}

func sameKey(key []byte) error {
	if string(key) != source {
		return fmt.Errorf("the key is %q, want the source's name", key)
	}
	return nil
}

func TestARealBrokersLimitIsFound(t *testing.T) {
	g := newRig(t, testbed.SharedKafka(t), 1, "max.message.bytes=20000")
	r := run(t, g.client, Options{Topics: g.names})
	var keys []string
	for n := range 20_000 {
		keys = append(keys, fmt.Sprintf("product:%x", n*n*n))
	}
	b := batch(1, keys...)
	r.append(b)
	<-r.Durable()
	g.check(1, []*event.Batch{b})
	all := []*event.Batch{b, valued(2, "short", incompressible(40_000), "short")}
	r.append(all[1])
	<-r.Durable()
	g.check(1, all)
	if n := testutil.ToFloat64(r.metrics.forgotten); n != 1 {
		t.Errorf("%v values were forgotten, want the one that is too large", n)
	}
	r.append(batch(3, incompressible(40_000)))
	if err := r.wait(); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "max.message.bytes") {
		t.Errorf("run: %v, want %v", err, ErrTooLarge)
	}
}

// incompressible returns a text that lz4 cannot make shorter.
func incompressible(n int) string {
	var s strings.Builder
	x := uint64(1)
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		s.WriteByte("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[x%64])
	}
	return s.String()
}

func TestPartitionsAreAddedToARealTopic(t *testing.T) {
	t.Parallel()
	g := newRig(t, testbed.SharedKafka(t), 2)
	r := run(t, g.client, Options{Topics: g.names, Refresh: 100 * time.Millisecond})
	before, after := load(1, 100), load(101, 100)
	r.append(before...)
	g.cluster.AddPartitions(t, g.names.Topic, 5)
	eventually(t, "the producer knows of the new partitions", func() bool { return len(r.Ends()) == 5 })
	r.append(after...)
	if end := r.flush(); end.Pos != 200 {
		t.Errorf("durable up to %d, want 200", end.Pos)
	}
	got, err := consume(g.contents(5), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for id, of := range got {
		for _, it := range of {
			n++
			want := 5
			if it.version.Pos <= 100 {
				want = 2
			}
			if Partition(it.key, want) != id {
				t.Errorf("%v is in partition %d", it, id)
			}
		}
	}
	if n != 600 {
		t.Errorf("%d invalidations, want 600", n)
	}
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it does not come about that %s", what)
		}
	}
}

func TestATopicThatIsMadeAgainIsNoticedOnARealBroker(t *testing.T) {
	t.Parallel()
	g := newRig(t, testbed.SharedKafka(t), 2)
	r := run(t, g.client, Options{Topics: g.names})
	r.append(load(1, 100)...)
	for e := range r.Durable() {
		if e.Pos == 100 {
			break
		}
	}
	g.cluster.DeleteTopic(t, g.names.Topic)
	g.cluster.Topic(t, g.names.Topic, 2)
	r.append(load(101, 10)...)
	if err := r.wait(); !errors.Is(err, ErrTopicChanged) {
		t.Errorf("run: %v, want %v", err, ErrTopicChanged)
	}
}

// What is under way when a broker dies, stops or hangs is produced again when it is back, in order.
func TestTheLogIsWholeAfterABrokersRestart(t *testing.T) {
	t.Parallel()
	c := testbed.Kafka(t)
	g := newRig(t, c, 3)
	b := c.Broker(1)
	for _, fault := range []struct {
		name    string
		suffer  func() error
		recover func() error
	}{
		{"killed", b.Kill, func() error { return b.Start(t.Context()) }},
		{"stopped", b.Stop, func() error { return b.Start(t.Context()) }},
		{"hanging until attempts have timed out", b.Pause, b.Resume},
	} {
		t.Run(fault.name, func(t *testing.T) {
			g := &rig{t: t, cluster: c, client: g.client, names: broker.Names{Topic: c.NewTopicName(t)}}
			c.Topic(t, g.names.Topic, 3)
			c.Topic(t, g.names.Marks(), 1)
			r := run(t, g.client, Options{Topics: g.names, MaxBuffered: 64 << 10})
			all := load(1, 3000)
			half := make(chan struct{})
			done := make(chan error, 1)
			go func() {
				for i, b := range all {
					if i == len(all)/2 {
						close(half)
					}
					if err := r.Append(context.Background(), b); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			<-half
			if err := fault.suffer(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "an attempt fails", func() bool {
				return testutil.ToFloat64(r.metrics.retries.WithLabelValues("transient")) > 0
			})
			if err := fault.recover(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatalf("append: %v", err)
			}
			if end := r.flush(); end.Pos != 3000 {
				t.Errorf("durable up to %d, want 3000", end.Pos)
			}
			g.check(3, all)
		})
	}
}
