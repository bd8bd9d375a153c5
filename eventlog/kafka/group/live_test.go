package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
)

func TestPartitionsAreSharedAndTheirOffsetsHandedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.SharedKafka(t), 4, 1)
	// What is committed while the work is wound up counts too.
	a := r.join(Options{}, func(c *Assignment) error {
		c.Commit(int64(100+c.Partition), fmt.Sprint("seen ", c.Partition))
		return nil
	})
	for _, c := range a.began(5) {
		if c.Offset != -1 || c.Metadata != "" {
			t.Fatalf("%s/%d begins at %d %q in a new group", c.Topic, c.Partition, c.Offset, c.Metadata)
		}
		c.Commit(7, "")
	}
	b := r.join(Options{}, nil)
	a.ended(5)
	for _, c := range append(a.began(3), b.began(2)...) {
		if want := fmt.Sprint("seen ", c.Partition); c.Offset != int64(100+c.Partition) || c.Metadata != want {
			t.Errorf("%s/%d is handed over at %d %q", c.Topic, c.Partition, c.Offset, c.Metadata)
		}
	}
	// The standard tool sees it.
	out := r.cluster.Tool(t, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group",
		r.group)
	if !strings.Contains(out, r.topics[0]) || !strings.Contains(out, "103") {
		t.Errorf("kafka-consumer-groups shows\n%s", out)
	}
	must(t, a.stop())
	if n := len(b.began(5)); n != 5 {
		t.Errorf("who stays has %d partitions", n)
	}
}

// A broker that is set to take little says so of each partition, and takes nothing of the offset with it.
func TestABrokerThatTakesLittleMetadataTakesTheOffsets(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Kafka(t, testbed.KafkaOptions{Properties: []string{"offset.metadata.max.bytes=30"}}), 1)
	a := r.join(Options{On: func() string { return strings.Repeat("r", 900) }}, nil)
	c := a.began(1)[0]
	c.TakeOver()
	c.Commit(7, "freshet1;"+strings.Repeat("x", 2000))
	b := r.bare()
	testbed.Eventually(t, patience, "the offset is committed", func() bool { return b.committed(0) == 7 })
	must(t, a.stop())
	if c := r.join(Options{}, nil).began(1)[0]; c.Offset != 7 || c.Metadata != "freshet1" {
		t.Errorf("the next one begins at %d %q", c.Offset, c.Metadata)
	}
	little := func(f broker.Finding) bool {
		return !f.Fail && strings.Contains(f.What, "takes 30 bytes of metadata with an offset") &&
			strings.Contains(f.Fix, "set offset.metadata.max.bytes=4096")
	}
	client, err := broker.New(broker.Options{Brokers: r.cluster.Brokers()})
	must(t, err)
	defer client.Close()
	if found := client.Check(t.Context(), nil, true); !slices.ContainsFunc(found, little) {
		t.Errorf("the check finds %+v", found)
	}
}

func TestAMemberThatDiesIsSucceededAndComesBackAsAStandby(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.SharedKafka(t), 1)
	a := r.join(Options{}, nil)
	a.began(1)[0].Commit(41, "a")
	b := r.join(Options{}, nil)
	a.ended(1)
	// A standby does not take the place of the one who is there.
	assignment := a.began(1)[0]
	if assignment.Offset != 41 {
		t.Fatalf("goes on at %d", assignment.Offset)
	}
	take(t, b.counts, 1, "generations")
	a.cable.set(true)
	cut := time.Now()
	a.ended(1) // it notices by itself, before
	noticed := time.Since(cut)
	assignment.Commit(99, "too late")
	assignment = b.began(1)[0]
	t.Logf("the one who was cut off noticed after %v, the other had the partition after %v", noticed, time.Since(cut))
	if assignment.Offset != 41 || assignment.Metadata != "a" {
		t.Fatalf("succeeded at %d %q", assignment.Offset, assignment.Metadata)
	}
	// It comes back, and assignments what it had in an older generation.
	a.cable.set(false)
	b.ended(1)
	b.began(1)
	if n := take(t, a.counts, 3, "generations"); n[2] != 0 {
		t.Fatalf("who came back was given %v", n)
	}
}

func TestAHandleThatTakesTooLongHoldsUpOnlyItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.SharedKafka(t), 2)
	release := make(chan struct{})
	a := r.join(Options{Drain: time.Second}, func(c *Assignment) error {
		if c.Partition == 0 {
			<-release
			c.Commit(99, "long after its time")
		}
		return nil
	})
	a.began(2)
	b := r.join(Options{}, nil)
	a.ended(2)
	given := b.began(1)[0] // though a's handle has not returned
	select {
	case c := <-a.starts:
		t.Fatalf("%d was handled while an older handle ran", c.Partition)
	default:
	}
	close(release)
	if kept := a.began(1)[0]; kept.Partition == given.Partition || kept.Offset != -1 {
		t.Fatalf("a goes on with %d at %d, b has %d", kept.Partition, kept.Offset, given.Partition)
	}
}

func TestTheFirstErrorOfAHandleEndsTheMember(t *testing.T) {
	r := newRig(t, testbed.SharedKafka(t), 3)
	client, err := broker.New(broker.Options{Brokers: r.cluster.Brokers()})
	must(t, err)
	defer client.Close()
	m, err := New(client, Options{ID: r.group, Topics: r.topics})
	must(t, err)
	poison := errors.New("poison")
	err = m.Run(t.Context(), func(ctx context.Context, c *Assignment) error {
		if c.Partition == 1 {
			return poison
		}
		<-ctx.Done()
		c.Commit(5, "")
		return ctx.Err()
	})
	if !errors.Is(err, poison) || !strings.Contains(err.Error(), r.topics[0]+"/1") {
		t.Fatalf("ended with %v", err)
	}
	// It has left, so the next one need not wait for its session, and finds what the others committed at the end.
	began := time.Now()
	for _, c := range r.join(Options{}, nil).began(3) {
		if want := map[int]int64{0: 5, 1: -1, 2: 5}[c.Partition]; c.Offset != want {
			t.Errorf("%d goes on at %d, want %d", c.Partition, c.Offset, want)
		}
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the next member waited for %v", d)
	}
}

func TestPartitionsThatAreAddedAreShared(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.SharedKafka(t), 1)
	a := r.join(Options{}, nil)
	a.began(1)
	r.cluster.AddPartitions(t, r.topics[0], 3)
	a.ended(1)
	a.began(3)
}

func TestAGroupOutlivesItsBroker(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t)
	p := newPair(newRig(t, cluster, 4))
	p.settle()
	must(t, cluster.Broker(1).Kill())
	must(t, cluster.Start(t.Context()))
	p.settle()
	t.Logf("all partitions were worked on %v after the broker was back", time.Since(p.settled))
}

func TestAGroupOutlivesItsCoordinator(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t, testbed.KafkaOptions{Brokers: 3})
	r := newRig(t, cluster, 4)
	p := newPair(r)
	p.settle()
	client, err := broker.New(broker.Options{Brokers: cluster.Brokers()})
	must(t, err)
	defer client.Close()
	res, err := client.Kafka().FindCoordinator(t.Context(),
		&kafka.FindCoordinatorRequest{Key: r.group, KeyType: kafka.CoordinatorKeyTypeConsumer})
	must(t, err)
	must(t, cluster.Broker(res.Coordinator.NodeID).Kill())
	p.settle()
	t.Logf("all partitions were worked on %v after the coordinator died", time.Since(p.settled))
}

// pair is two members of a group with four partitions, of which the first keeps what it has.
type pair struct {
	t       *testing.T
	a, b    *member
	held    map[*member]map[*Assignment]bool // false: it has ended
	settled time.Time                        // when settle was called last
}

func newPair(r *rig) *pair {
	p := &pair{t: r.t, a: r.join(Options{Keep: true}, nil), b: r.join(Options{}, nil)}
	p.held = map[*member]map[*Assignment]bool{p.a: {}, p.b: {}}
	return p
}

// settle waits until each has heard of another generation, has two partitions and has not lost them again; a rebalance
// more may come before that.
func (p *pair) settle() {
	p.t.Helper()
	p.settled = time.Now()
	begun := func(m *member, c *Assignment) {
		if _, ended := p.held[m][c]; !ended {
			p.held[m][c] = true
		}
		c.Commit(max(c.Offset, 0)+1, "")
	}
	working := func(m *member) (n int) {
		for _, held := range p.held[m] {
			if held {
				n++
			}
		}
		return n
	}
	heard := map[*member]bool{}
	for timeout := time.After(patience); !heard[p.a] || !heard[p.b] || working(p.a) != 2 || working(p.b) != 2; {
		select {
		case <-p.a.counts:
			heard[p.a] = true
		case <-p.b.counts:
			heard[p.b] = true
		case c := <-p.a.starts:
			begun(p.a, c)
		case c := <-p.b.starts:
			begun(p.b, c)
		case c := <-p.a.ends:
			p.held[p.a][c] = false
		case c := <-p.b.ends:
			p.held[p.b][c] = false
		case <-timeout:
			p.t.Fatalf("heard: %d of 2; held: %d and %d", len(heard), working(p.a), working(p.b))
		}
	}
}
