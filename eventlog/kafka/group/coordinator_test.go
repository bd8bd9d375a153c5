package group

import (
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
)

// bareMember is a member of a group in single requests.
type bareMember struct {
	*rig
	client     *kafka.Client
	id         string
	generation int
	shares     []kafka.SyncGroupRequestAssignment // where it leads: nothing for anybody
}

func (r *rig) bare() *bareMember {
	r.t.Helper()
	c, err := broker.New(broker.Options{Brokers: r.cluster.Brokers()})
	must(r.t, err)
	r.t.Cleanup(func() { must(r.t, c.Close()) })
	return &bareMember{rig: r, client: c.Kafka()}
}

// introduce asks for a member's id, with which it then joins.
func (b *bareMember) introduce() {
	b.t.Helper()
	testbed.Eventually(b.t, patience, "the coordinator gives out a member's id", func() bool {
		res, err := b.client.JoinGroup(b.t.Context(), b.joinRequest())
		must(b.t, err)
		b.id = res.MemberID
		return errors.Is(res.Error, kafka.MemberIDRequired) // before, there may be no coordinator
	})
}

func (b *bareMember) joinRequest() *kafka.JoinGroupRequest {
	return &kafka.JoinGroupRequest{
		GroupID: b.group, MemberID: b.id, SessionTimeout: time.Minute, RebalanceTimeout: 2 * time.Minute,
		ProtocolType: "consumer",
		Protocols:    []kafka.GroupProtocol{{Name: protocol, Metadata: kafka.GroupProtocolSubscription{Topics: b.topics}}},
	}
}

// rejoin joins, and returns what delivers nil when the coordinator has answered, as it does once all have joined.
func (b *bareMember) rejoin() <-chan error {
	done := make(chan error, 1)
	go func() {
		ctx := b.t.Context()
		res, err := b.client.JoinGroup(ctx, b.joinRequest())
		if err == nil {
			err = res.Error
		}
		if err == nil {
			b.generation, b.shares = res.GenerationID, nil
			for _, m := range res.Members {
				b.shares = append(b.shares, kafka.SyncGroupRequestAssignment{MemberID: m.ID})
			}
		}
		done <- err
	}()
	return done
}

// sync takes part in the generation; it waits for the leader's.
func (b *bareMember) sync() error {
	res, err := b.client.SyncGroup(b.t.Context(), &kafka.SyncGroupRequest{
		GroupID: b.group, MemberID: b.id, GenerationID: b.generation, ProtocolType: "consumer", ProtocolName: protocol,
		Assignments: b.shares,
	})
	if err == nil {
		err = res.Error
	}
	return err
}

// heartbeat returns what it is answered. The library takes the two fields of the answer for each other, so that the
// error's number lies in the lower half of the throttle time.
func (b *bareMember) heartbeat() error {
	b.t.Helper()
	res, err := b.client.Heartbeat(b.t.Context(),
		&kafka.HeartbeatRequest{GroupID: b.group, MemberID: b.id, GenerationID: int32(b.generation)})
	must(b.t, err)
	if code := kafka.Error(int16(res.Throttle.Milliseconds())); code != 0 {
		return code
	}
	return res.Error
}

// commit commits an offset as a member of some generation.
func (b *bareMember) commit(generation int, offset int64) error {
	b.t.Helper()
	res, err := b.client.OffsetCommit(b.t.Context(), &kafka.OffsetCommitRequest{
		GroupID: b.group, MemberID: b.id, GenerationID: generation,
		Topics: map[string][]kafka.OffsetCommit{b.topics[0]: {{Offset: offset}}},
	})
	must(b.t, err)
	return res.Topics[b.topics[0]][0].Error
}

// committed returns what the group has committed of a partition of the first topic; -1: nothing.
func (b *bareMember) committed(partition int) int64 {
	b.t.Helper()
	res, err := b.client.OffsetFetch(b.t.Context(),
		&kafka.OffsetFetchRequest{GroupID: b.group, Topics: map[string][]int{b.topics[0]: {partition}}})
	must(b.t, err)
	return res.Topics[b.topics[0]][0].CommittedOffset
}

// What a member that keeps its partitions relies upon: while the coordinator waits for somebody to join, it takes
// commits of the generation that ends, also of a member that has joined already, and nobody has been given anything.
// From the moment that all have joined it takes none of that generation, so that what a next owner then reads stays as
// it is. No page promises it; in Kafka's code it is ClassicGroup.validateOffsetCommit.
func TestTheCoordinatorTakesCommitsOfAGenerationUntilAllHaveJoinedTheNextOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.SharedKafka(t), 1)
	a, late, b := r.bare(), r.bare(), r.bare()
	a.introduce()
	must(t, <-a.rejoin())
	must(t, a.sync())
	late.introduce()
	lateJoined := late.rejoin()
	testbed.Eventually(t, patience, "the first hears that another joins", func() bool {
		return errors.Is(a.heartbeat(), kafka.RebalanceInProgress)
	})
	must(t, <-a.rejoin())
	must(t, <-lateJoined)
	must(t, a.sync())
	must(t, late.sync())
	must(t, a.heartbeat())
	before := a.generation

	b.introduce()
	bJoined := b.rejoin()
	testbed.Eventually(t, patience, "the first hears that a third one joins", func() bool {
		return errors.Is(a.heartbeat(), kafka.RebalanceInProgress)
	})
	must(t, a.commit(before, 10))
	aJoined := a.rejoin()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for offset := int64(11); offset <= 30; offset++ {
		if err := a.commit(before, offset); err != nil {
			t.Fatalf("at %d, while the coordinator waits for one who does not join: %v", offset, err)
		}
		<-tick.C
	}
	select {
	case err := <-aJoined:
		t.Fatalf("the rebalance is over, with %v, though one has not joined", err)
	default:
	}
	if got := b.committed(0); got != 30 {
		t.Fatalf("committed: %d", got)
	}

	must(t, <-late.rejoin())
	must(t, <-aJoined)
	must(t, <-bJoined)
	if a.generation != before+1 {
		t.Errorf("after generation %d came %d", before, a.generation)
	}
	for what, x := range map[string]struct {
		generation int
		want       kafka.Error
	}{
		"of the generation before":                     {before, kafka.IllegalGeneration},
		"of the next one, before it is shared out":     {a.generation, kafka.RebalanceInProgress},
		"of a generation that has not been, by chance": {a.generation + 1, kafka.IllegalGeneration},
	} {
		if err := a.commit(x.generation, 99); !errors.Is(err, x.want) {
			t.Errorf("a commit %s is answered %v", what, err)
		}
	}
	if got := b.committed(0); got != 30 {
		t.Errorf("committed: %d", got)
	}
}
