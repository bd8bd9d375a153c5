package group

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/proof/testbed"
)

// awaitCommitted waits until the group has committed an offset of a partition.
func (b *bareMember) awaitCommitted(c *Assignment, want int64) {
	b.t.Helper()
	testbed.Eventually(b.t, patience, "an offset is committed", func() bool { return b.committed(c.Partition) == want })
}

func TestASurvivorKeepsItsPartitionsWhileAKilledMemberComesBack(t *testing.T) {
	for range 5 {
		if killedAndBack(t) {
			return
		}
	}
	t.Error("five times the session of the one that was killed was over before the other had joined")
}

// killedAndBack reports whether a member came back before the brokers missed it.
func killedAndBack(t *testing.T) bool {
	r := newRig(t, testbed.SharedKafka(t), 4)
	look := r.bare()
	a := r.join(Options{Keep: true}, nil)
	kept := map[int]*Assignment{}
	for _, c := range a.began(4) {
		kept[c.Partition] = c
	}
	b := r.join(Options{Keep: true}, nil)
	b.began(2)
	for _, c := range a.ended(2) {
		delete(kept, c.Partition)
	}
	take(t, a.counts, 2, "generations")

	b.cable.set(true) // it is gone without a word
	back := r.join(Options{Keep: true}, nil)
	defer func() {
		for _, m := range []*member{a, b, back} {
			must(t, m.stop())
		}
	}()
	var step int64
	tick := time.NewTicker(every)
	defer tick.Stop()
	for begun, heard := 0, false; begun < 2 || !heard; { // till its session is over, the other works and commits
		select {
		case <-back.starts:
			begun++
		case n := <-a.counts:
			if heard = n == 2; !heard {
				return false
			}
		case <-tick.C:
			if step++; step*int64(every) > int64(patience) {
				t.Fatal("who came back is given nothing")
			}
			for _, c := range kept {
				c.Commit(step, "")
			}
		}
	}
	for _, c := range kept {
		c.Commit(1000, "")
		look.awaitCommitted(c, 1000)
	}
	select {
	case c := <-a.ends:
		t.Errorf("%d was revoked", c.Partition)
	case c := <-a.starts:
		t.Errorf("%d was begun again", c.Partition)
	default:
	}
	t.Logf("who came back was given its partitions while the other committed %d times", step)
	return true
}

func TestAPartitionThatMovesIsRevokedAndItsLateCommitChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.SharedKafka(t), 2)
	look := r.bare()
	release := make(chan struct{})
	a := r.join(Options{Keep: true}, func(c *Assignment) error {
		<-release
		c.Commit(99, "late")
		return nil
	})
	assignments := a.began(2)
	for _, c := range assignments {
		c.Commit(10, "")
		look.awaitCommitted(c, 10)
	}
	b := r.join(Options{Keep: true}, nil)
	moved := b.began(1)[0]
	if c := a.ended(1)[0]; c.Partition != moved.Partition || moved.Offset != 10 {
		t.Fatalf("%d was revoked, the other has %d from %d on", c.Partition, moved.Partition, moved.Offset)
	}
	// It comes back while the handle that it was taken from still works on it.
	must(t, b.stop())
	for take(t, a.counts, 1, "generations")[0] != 2 || len(a.counts) > 0 {
	}
	select {
	case c := <-a.starts:
		t.Fatalf("%d was handled while an older handle ran", c.Partition)
	default:
	}
	close(release)
	again := a.began(1)[0]
	if again.Partition != moved.Partition || again.Offset != 10 {
		t.Errorf("%d begins at %d", again.Partition, again.Offset)
	}
	i := slices.IndexFunc(assignments, func(c *Assignment) bool { return c.Partition != moved.Partition })
	assignments[i].Commit(20, "") // what is committed before goes with it
	look.awaitCommitted(assignments[i], 20)
	if got := look.committed(moved.Partition); got != 10 {
		t.Errorf("the late commit counts: %d", got)
	}
	if len(a.ends) > 0 {
		t.Error("what has not moved was revoked too")
	}
}

func TestAMemberThatIsThrownOutGivesUpAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.SharedKafka(t), 3)
	look := r.bare()
	a := r.join(Options{Keep: true}, nil)
	a.began(3)
	res, err := look.client.DescribeGroups(t.Context(), &kafka.DescribeGroupsRequest{GroupIDs: []string{r.group}})
	must(t, err)
	_, err = look.client.LeaveGroup(t.Context(), &kafka.LeaveGroupRequest{
		GroupID: r.group, Members: []kafka.LeaveGroupRequestMember{{ID: res.Groups[0].Members[0].MemberID}},
	})
	must(t, err)
	a.ended(3)
	a.began(3)
}

// keeper is a member without brokers, whose handles report which partitions they have.
type keeper struct {
	*run
	*coordinator
	begun, ended chan int
}

func newKeeper(t *testing.T, joined generations) *keeper {
	k := &keeper{coordinator: &coordinator{most: -1}, begun: make(chan int, 10), ended: make(chan int, 10)}
	m := &Member{o: Options{
		Keep: true, Session: DefaultSession, Drain: DefaultDrain,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}}
	k.run = &run{Member: m, joined: joined, held: map[topicPartition]held{}, last: map[topicPartition]<-chan struct{}{}}
	k.commits, _, _ = generationOf(t, k.coordinator)
	clear(k.commits.assignments)
	k.handle = func(ctx context.Context, c *Assignment) error {
		k.begun <- c.Partition
		<-ctx.Done()
		k.ended <- c.Partition
		return nil
	}
	return k
}

// gives begins a generation and starts what it gives.
func (k *keeper) gives(t *testing.T, generation int32, member string, partitions ...int) []int {
	given := k.adopt(generation, member, map[string][]int{"t": partitions})["t"]
	for _, p := range given {
		k.start(t.Context(), &Assignment{Topic: "t", Partition: p, Offset: 10})
	}
	synctest.Wait()
	return given
}

func drain(c chan int) (all []int) {
	for len(c) > 0 {
		all = append(all, <-c)
	}
	slices.Sort(all)
	return all
}

func TestOnlyTheSameMembersNextGenerationKeepsWhatItGivesAgain(t *testing.T) {
	type outcome struct{ Revoked, Given []int }
	for name, x := range map[string]struct {
		generation int32
		member     string
		joinFailed bool
		partitions []int
		want       outcome
	}{
		"the next":            {generation: 8, member: "m", partitions: []int{0, 1}},
		"the next, with less": {generation: 8, member: "m", partitions: []int{1}, want: outcome{Revoked: []int{0}}},
		"the next, with others": {
			generation: 8, member: "m", partitions: []int{1, 2},
			want: outcome{Revoked: []int{0}, Given: []int{2}},
		},
		"the next, with nothing": {generation: 8, member: "m", want: outcome{Revoked: []int{0, 1}}},
		"one was missed": {
			generation: 9, member: "m", partitions: []int{0, 1},
			want: outcome{[]int{0, 1}, []int{0, 1}},
		},
		"it begins to count again": {
			generation: 1, member: "m", partitions: []int{0, 1},
			want: outcome{[]int{0, 1}, []int{0, 1}},
		},
		"another member": {generation: 8, member: "n", partitions: []int{0, 1}, want: outcome{[]int{0, 1}, []int{0, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeeper(t, nil)
				k.gives(t, 7, "m", 0, 1)
				drain(k.begun)
				given := k.gives(t, x.generation, x.member, x.partitions...)
				got := outcome{Revoked: drain(k.ended), Given: given}
				if d := cmp.Diff(x.want, got); d != "" {
					t.Error(d)
				}
				if d := cmp.Diff(x.want.Given, drain(k.begun)); d != "" {
					t.Errorf("begun: %s", d)
				}
				k.revoke(all)
				k.working.Wait()
			})
		})
	}
}

func TestWhatIsFinishedBetweenTwoGenerationsIsCommittedInTheSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, nil)
		k.gives(t, 7, "m", 0, 1)
		assignments := map[int]*Assignment{}
		for at, h := range k.held {
			assignments[at.partition] = h.assignment
		}
		k.answers = append(k.answers, always(kafka.IllegalGeneration))
		assignments[0].Commit(20, "")
		assignments[1].Commit(21, "")
		if !k.commits.send(t.Context()) {
			t.Error("what is refused is sent again for the same generation")
		}
		assignments[0].Commit(30, "") // nothing is sent any more
		if !k.commits.send(t.Context()) {
			t.Error("it is not known that nothing can be sent")
		}
		k.expect(t)
		k.gives(t, 8, "m", 0)
		assignments[1].Commit(40, "of what is somebody else's")
		k.commits.send(t.Context())
		k.expect(t, `0 at 30 ""`)
		if want := []int32{7, 8}; !slices.Equal(k.generations, want) {
			t.Errorf("sent for generations %v, want %v", k.generations, want)
		}
		k.revoke(all)
		k.working.Wait()
	})
}

// An answer of the generation before must not hold up the commits of this one.
func TestARefusalThatComesAfterTheNextGenerationBeganIsOfThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, nil)
		k.gives(t, 7, "m", 0)
		k.answers = append(k.answers, func(int32) kafka.Error {
			k.adopt(8, "m", map[string][]int{"t": {0}})
			return kafka.IllegalGeneration
		})
		k.held[topicPartition{"t", 0}].assignment.Commit(20, "")
		if k.commits.send(t.Context()) {
			t.Error("it is not sent again")
		}
		k.commits.send(t.Context())
		k.expect(t, `0 at 20 ""`)
		k.revoke(all)
		k.working.Wait()
	})
}

// silence is a group that gives nothing.
type silence struct{}

func (silence) Next(ctx context.Context) (*kafka.Generation, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestWhatIsKeptIsGivenUpTwoSessionsAfterTheLastGenerationEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, silence{})
		k.gives(t, 7, "m", 0, 1)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		k.run.ended = time.Now()
		go func() { defer close(done); k.loop(ctx) }()
		time.Sleep(2*DefaultSession - time.Nanosecond)
		synctest.Wait()
		if n := len(k.ended); n > 0 {
			t.Errorf("%d were given up before", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := len(k.ended); n != 2 {
			t.Errorf("%d were given up", n)
		}
		stop()
		<-done
		k.working.Wait()
	})
}
