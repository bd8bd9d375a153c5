package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/proof/testbed"
)

// lossy is a topic of two partitions.
type lossy struct {
	t       *testing.T
	cluster *testbed.KafkaCluster
	client  *broker.Client
	names   broker.Names
}

func newLossy(t *testing.T) *lossy {
	t.Helper()
	l := &lossy{t: t, cluster: testbed.SharedKafka(t)}
	l.names.Topic = l.cluster.NewTopicName(t)
	var err error
	l.client, err = broker.New(broker.Options{Brokers: l.cluster.Brokers()})
	must(t, err)
	t.Cleanup(func() { must(t, l.client.Close()) })
	topics := broker.InvalidatorTopics(l.names, l.names.Topic, []time.Duration{time.Minute}, broker.Sizing{Partitions: 2})
	must(t, l.client.Ensure(t.Context(), topics, true))
	return l
}

// lose writes a record to a partition and deletes it.
func (l *lossy) lose(partition int) { l.loseOf(l.names.Topic, partition) }

func (l *lossy) loseOf(topic string, partition int) {
	l.t.Helper()
	_, err := l.client.Produce(l.t.Context(), topic, partition, broker.Record{Value: []byte("{}")})
	must(l.t, err)
	l.cluster.DeleteRecords(l.t, topic, partition, -1)
}

// lossyMember is a process of the group.
type lossyMember struct {
	*Log
	doubts  *doubt.Book
	claimed chan int
	stop    func() error
	done    chan struct{}
}

func (l *lossy) join() *lossyMember {
	l.t.Helper()
	log := slog.New(slog.NewTextHandler(l.t.Output(), nil))
	alarms, err := alarm.New(log, nil)
	must(l.t, err)
	m := &lossyMember{claimed: make(chan int, 100), done: make(chan struct{})}
	m.doubts, err = doubt.New(nil, alarms, nil)
	must(l.t, err)
	m.Log, err = New(l.client, Options{
		Topic: l.names.Topic, Group: l.names.Topic, Delays: []time.Duration{time.Minute}, Session: 6 * time.Second, Log: log,
		Alarms: alarms, Doubts: m.doubts,
	})
	must(l.t, err)
	ctx, stop := context.WithCancel(l.t.Context())
	var ended error
	go func() {
		defer close(m.done)
		ended = m.Consume(ctx, func(ctx context.Context, p eventlog.Partition) error {
			m.claimed <- p.ID()
			_, _, err := p.Fetch(ctx)
			if ctx.Err() != nil || err != nil {
				<-ctx.Done()
				return nil
			}
			return err
		})
	}()
	m.stop = sync.OnceValue(func() error { stop(); <-m.done; return ended })
	l.t.Cleanup(func() { _ = m.stop() })
	return m
}

// eventually asks until a condition holds that the brokers alone know of.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !cond(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func stoppedOf(m *lossyMember) (n int) {
	for _, lag := range m.Partitions() {
		if lag.Stopped != nil {
			n++
		}
	}
	return n
}

// Each of two members finds that it cannot end, the one that has the stopped partition and the one that has not.
func TestWhoWaitsForTheEndIsToldOfAPartitionThatAnotherHasStopped(t *testing.T) {
	l := newLossy(t)
	l.lose(0)
	a, b := l.join(), l.join()
	eventually(t, "each has a partition, of which one is stopped", func() bool {
		return len(a.Partitions()) == 1 && len(b.Partitions()) == 1 && stoppedOf(a)+stoppedOf(b) == 1
	})
	if n := len(a.doubts.List()) + len(b.doubts.List()); n == 0 {
		t.Error("nobody has recorded a doubt")
	}
	has, not := a, b
	if stoppedOf(b) == 1 {
		has, not = b, a
	}
	if !has.FreshAsOf().IsZero() {
		t.Error("the process with the partition is fresh")
	}
	ends := map[int]int64{0: 1, 1: 0}
	not.CloseAt(ends)
	<-not.done
	var lost *consumer.LostError
	if err := not.stop(); !errors.As(err, &lost) || lost.Partition != 0 {
		t.Fatalf("the process without it: %v", err)
	}
	has.CloseAt(ends)
	<-has.done
	if err := has.stop(); !errors.As(err, &lost) || lost.Partition != 0 || lost.Loss != consumer.Uncommitted {
		t.Fatalf("the process with it: %v", err)
	}
}

func TestNothingIsLeftToDoOnceAllPartitionsAreStopped(t *testing.T) {
	l := newLossy(t)
	l.lose(0)
	m := l.join()
	for id := <-m.claimed; id != 1; id = <-m.claimed {
		t.Errorf("partition %d is worked on", id)
	}
	eventually(t, "one is stopped", func() bool { return stoppedOf(m) == 1 })
	must(t, m.stop())
	l.lose(1)
	m = l.join()
	<-m.done
	var lost *consumer.LostError
	if err := m.stop(); !errors.As(err, &lost) {
		t.Fatalf("ended with %v", err)
	}
	if n := len(m.doubts.List()); n != 2 {
		t.Errorf("%d doubts", n)
	}
}

func TestParkedKeysThatAreLostAreADoubtAndTheDeletesGoOn(t *testing.T) {
	l := newLossy(t)
	retries := l.names.Retry(l.names.Topic, time.Minute)
	l.loseOf(retries, 0)
	m := l.join()
	eventually(t, "there is a doubt, and both partitions are worked on", func() bool {
		select {
		case <-m.done:
			t.Fatalf("the invalidator ended: %v", m.stop())
		default:
		}
		return len(m.doubts.List()) == 1 && len(m.Partitions()) == 2
	})
	if d := m.doubts.List()[0]; d.Cause != alarm.RecordsLost || d.Group != l.names.Topic || d.Subject != retries+"/0" {
		t.Errorf("the doubt: %+v", d)
	}
	must(t, m.stop())
}
