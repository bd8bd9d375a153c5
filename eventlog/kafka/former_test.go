package kafka

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/letters"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// membership is a log of one partition whose member tells what it is given.
type membership struct {
	*Log
	t                testing.TB
	cluster          *testbed.KafkaCluster
	client           *broker.Client
	names            broker.Names
	delays           []time.Duration // the first is configured, all have a topic
	alarms           *alarm.Board
	claimed, revoked chan int
}

func (m *membership) ensure() {
	m.t.Helper()
	topics := broker.InvalidatorTopics(m.names, m.names.Topic, m.delays, broker.Sizing{Partitions: 1})
	must(m.t, m.client.Ensure(m.t.Context(), topics, true))
}

func (m *membership) await(what string, c <-chan int) {
	m.t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		m.t.Fatalf("within a minute nothing was %s", what)
	}
}

// joined starts a member, and returns once it has its partition.
func joined(t *testing.T) *membership { return joinedLooking(t, retriesEvery) }

// joinedLooking does so, of a member that looks this often for topics that it does not know.
func joinedLooking(t *testing.T, listEvery time.Duration) *membership {
	t.Helper()
	m := &membership{
		t: t, cluster: testbed.SharedKafka(t), delays: []time.Duration{time.Minute, time.Hour},
		claimed: make(chan int, 100), revoked: make(chan int, 100),
	}
	m.names.Topic = m.cluster.NewTopicName(t)
	var err error
	m.client, err = broker.New(broker.Options{Brokers: m.cluster.Brokers()})
	must(t, err)
	t.Cleanup(func() { must(t, m.client.Close()) })
	m.ensure()
	m.join(listEvery)
	m.await("shared out", m.claimed)
	return m
}

// join starts a member.
func (m *membership) join(listEvery time.Duration) {
	t := m.t
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	alarms, err := alarm.New(log, nil)
	must(t, err)
	m.alarms = alarms
	m.Log, err = New(m.client, Options{
		Topic: m.names.Topic, Group: m.names.Topic, Delays: m.delays[:1], Session: 6 * time.Second, Log: log,
		Alarms: m.alarms,
	})
	must(t, err)
	m.listEvery = listEvery
	ctx, stop := context.WithCancel(t.Context())
	done, l := make(chan error, 1), m.Log
	go func() {
		done <- l.Consume(ctx, func(ctx context.Context, p eventlog.Partition) error {
			m.claimed <- p.ID()
			<-ctx.Done()
			m.revoked <- p.ID()
			return nil
		})
	}()
	t.Cleanup(func() { stop(); must(t, <-done) })
}

// newer makes the topic of another delay, as a member whose configuration is newer does before it joins, and parks a
// key there.
func (m *membership) newer(d time.Duration) (topic string) {
	m.t.Helper()
	topics := broker.InvalidatorTopics(m.names, m.names.Topic, []time.Duration{d}, broker.Sizing{Partitions: 1})
	must(m.t, m.client.Ensure(m.t.Context(), topics, true))
	store, err := letters.New(m.client, letters.Options{
		Topic: m.names.Topic, Group: m.names.Topic, Delays: []time.Duration{d},
	})
	must(m.t, err)
	must(m.t, store.Park(m.t.Context(), []retry.Entry{{
		Source: "s", Key: "k", Table: "t", Action: event.ActionDelete, Due: time.Now().Add(d),
		Version: event.Version{Epoch: 1, File: 1, Pos: 4},
	}}))
	return m.names.Retry(m.names.Topic, d)
}

// A stamp in Redis says that all is finished. A key that another member has parked is not, whatever its delays are.
func TestAKeyThatIsParkedForADelayThatAnotherMemberHasIsParked(t *testing.T) {
	m := joined(t)
	if parked, err := m.Parked(t.Context()); parked || err != nil {
		t.Fatalf("before: %v, %v", parked, err)
	}
	m.newer(7 * time.Minute)
	first := m.Log
	m.join(retriesEvery)
	testbed.Eventually(t, 2*time.Minute, "a generation has begun", first.retries.again.Load)
	if parked, err := first.Parked(t.Context()); !parked || err != nil {
		t.Errorf("after: %v, %v", parked, err)
	}
}

// What it has parked is tried by the others when it is gone.
func TestWhatAMemberHasParkedThatIsGoneIsServed(t *testing.T) {
	m := joinedLooking(t, 100*time.Millisecond)
	m.newer(7 * time.Minute)
	testbed.Eventually(t, 2*time.Minute, "the key is served", func() bool {
		held, _ := m.Letters().Held()
		return held.Parked == 1
	})
}

// The brokers share out nothing at all to a group of which one topic is missing.
func TestARetryTopicThatIsDeletedOnceItsDelayIsNotConfiguredStopsNobody(t *testing.T) {
	m := joined(t)
	former := m.names.Retry(m.names.Topic, m.delays[1])
	all, err := m.client.Topics(t.Context())
	must(t, err)
	if !slices.Contains(all, former) {
		t.Fatalf("%s is not there", former)
	}
	m.cluster.DeleteTopic(t, former)
	m.await("revoked", m.revoked)
	m.await("shared out again", m.claimed)
	if got := m.alarms.Records(); len(got) > 0 {
		t.Errorf("alarms %+v", got)
	}
}

func TestANeededTopicThatIsDeletedIsAnAlarmAndNobodyStandsBy(t *testing.T) {
	m := joined(t)
	m.cluster.DeleteTopic(t, m.names.Retry(m.names.Topic, m.delays[0]))
	m.await("revoked", m.revoked)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); !m.missing.Load() || !m.standby.Load(); {
		select {
		case <-tick.C: // only the brokers know
		case <-deadline:
			t.Fatal("it is not noticed")
		}
	}
	if standby, _ := m.Standby(); standby {
		t.Error("it says that others have all partitions")
	}
	if got := m.alarms.Records(); len(got) != 1 || got[0].Kind != alarm.KafkaAway {
		t.Errorf("alarms %+v", got)
	}
	m.ensure()
	m.await("shared out again", m.claimed)
}
