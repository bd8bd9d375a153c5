package group

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"
)

// crowd is a group as its leader sees it when it shares out.
type crowd struct {
	members    []kafka.GroupMember
	partitions []kafka.Partition
}

func (c *crowd) join(id string, generation int32, owned map[string][]int, topics ...string) {
	data, err := json.Marshal(ownership{Generation: generation, Owned: owned})
	if err != nil {
		panic(err)
	}
	c.members = append(c.members, kafka.GroupMember{ID: id, Topics: topics, UserData: data})
}

func (c *crowd) topic(name string, partitions int) {
	for p := range partitions {
		c.partitions = append(c.partitions, kafka.Partition{Topic: name, ID: p})
	}
}

func (c *crowd) share() kafka.GroupMemberAssignments {
	return (&balancer{log: slog.New(slog.DiscardHandler)}).AssignGroups(c.members, c.partitions)
}

// drawCrowd draws members with any claims, also wrong ones, and topics.
func drawCrowd(t *rapid.T, sameTopics bool) (*crowd, []string) {
	c := &crowd{}
	sizes := rapid.SliceOfN(rapid.IntRange(0, 12), 1, 5).Draw(t, "sizes")
	var topics []string
	for i, n := range sizes {
		topics = append(topics, fmt.Sprint("t", i))
		c.topic(topics[i], n)
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "members") {
		owned := map[string][]int{}
		for _, topic := range append(topics, "gone") {
			owned[topic] = rapid.SliceOfN(rapid.IntRange(0, 14), 0, 6).Draw(t, "claims")
		}
		subscribed := topics
		if !sameTopics {
			subscribed = rapid.SliceOfNDistinct(rapid.SampledFrom(topics), 0, len(topics), rapid.ID[string]).Draw(t,
				"subscribed")
		}
		c.join(fmt.Sprint("m", i), rapid.Int32Range(0, 3).Draw(t, "generation"), owned, subscribed...)
	}
	return c, topics
}

func TestEveryPartitionGoesToExactlyOneSubscriber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, _ := drawCrowd(t, false)
		type place struct {
			topic string
			id    int
		}
		owner := map[place]string{}
		for _, m := range c.members {
			for topic, partitions := range c.share()[m.ID] {
				if !slices.Contains(m.Topics, topic) {
					t.Fatalf("%s got %s, to which it does not subscribe", m.ID, topic)
				}
				for _, p := range partitions {
					key := place{topic, p}
					if o, ok := owner[key]; ok {
						t.Fatalf("%s/%d went to %s and to %s", topic, p, o, m.ID)
					}
					owner[key] = m.ID
				}
			}
		}
		for _, p := range c.partitions {
			wanted := slices.ContainsFunc(c.members,
				func(m kafka.GroupMember) bool { return slices.Contains(m.Topics, p.Topic) })
			if _, ok := owner[place{p.Topic, p.ID}]; ok != wanted {
				t.Fatalf("%s/%d has an owner: %v, want %v", p.Topic, p.ID, ok, wanted)
			}
			delete(owner, place{p.Topic, p.ID})
		}
		if len(owner) > 0 {
			t.Fatalf("partitions that do not exist were given away: %v", owner)
		}
	})
}

func TestSharesDifferByOneAtTheMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		same := rapid.Bool().Draw(t, "same topics")
		c, topics := drawCrowd(t, same)
		shares := c.share()
		for _, topic := range topics {
			var n []int
			for _, m := range c.members {
				if slices.Contains(m.Topics, topic) {
					n = append(n, len(shares[m.ID][topic]))
				}
			}
			if len(n) > 0 && slices.Max(n)-slices.Min(n) > 1 {
				t.Fatalf("of %s the subscribers have %v", topic, n)
			}
		}
		var n []int
		for _, m := range c.members {
			n = append(n, total(shares[m.ID]))
		}
		if same && slices.Max(n)-slices.Min(n) > 1 {
			t.Fatalf("in all the members have %v", n)
		}
	})
}

func total(owned map[string][]int) int {
	n := 0
	for _, partitions := range owned {
		n += len(partitions)
	}
	return n
}

func TestTheOrderOfMembersAndPartitionsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, _ := drawCrowd(t, false)
		want := c.share()
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		r.Shuffle(len(c.members), func(i, j int) { c.members[i], c.members[j] = c.members[j], c.members[i] })
		r.Shuffle(len(c.partitions), func(i, j int) { c.partitions[i], c.partitions[j] = c.partitions[j], c.partitions[i] })
		if d := cmp.Diff(want, c.share()); d != "" {
			t.Fatal(d)
		}
	})
}

// again is the crowd of the next generation: who stays claims what it was given.
func (c *crowd) again(generation int32, given kafka.GroupMemberAssignments, stays func(id string) bool) *crowd {
	next := &crowd{partitions: c.partitions}
	for _, m := range c.members {
		if stays(m.ID) {
			next.join(m.ID, generation, given[m.ID], m.Topics...)
		}
	}
	return next
}

func TestNothingMovesWhileTheGroupStaysTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, _ := drawCrowd(t, false)
		given := c.share()
		next := c.again(10, given, func(string) bool { return true })
		if d := cmp.Diff(given, next.share()); d != "" {
			t.Fatal(d)
		}
	})
}

// moved counts the partitions that one of the members had and has no more.
func moved(before, after kafka.GroupMemberAssignments) int {
	n := 0
	for id, topics := range before {
		for topic, partitions := range topics {
			if _, stayed := after[id]; !stayed {
				continue
			}
			for _, p := range partitions {
				if !slices.Contains(after[id][topic], p) {
					n++
				}
			}
		}
	}
	return n
}

func TestOnlyWhatBalanceDemandsMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := rapid.IntRange(1, 8).Draw(t, "members")
		partitions := rapid.IntRange(0, 40).Draw(t, "partitions")
		c := &crowd{}
		c.topic("t", partitions)
		for i := range members {
			c.join(fmt.Sprint("m", i), 0, nil, "t")
		}
		before := c.share()

		// One leaves: the others keep all that they have.
		gone := fmt.Sprint("m", rapid.IntRange(0, members-1).Draw(t, "gone"))
		if members > 1 {
			after := c.again(1, before, func(id string) bool { return id != gone }).share()
			if n := moved(before, after); n > 0 {
				t.Fatalf("%s left, and %d partitions of others moved", gone, n)
			}
		}
		// One joins: only its share moves, and no more than a fair one.
		next := c.again(1, before, func(string) bool { return true })
		next.join("new", 0, nil, "t")
		after := next.share()
		if got, want := moved(before, after), len(after["new"]["t"]); got != want || want > partitions/(members+1)+1 {
			t.Fatalf("one joined: %d moved, it has %d of %d", got, want, partitions)
		}
	})
}

func TestAGroupOfSeveralTopicsMovesLittle(t *testing.T) {
	topics := []string{"main", "retry.10s", "retry.1m", "retry.10m"}
	c := &crowd{}
	c.topic("main", 12)
	for _, r := range topics[1:] {
		c.topic(r, 1)
	}
	for i := range 3 {
		c.join(fmt.Sprint("m", i), 0, nil, topics...)
	}
	before := c.share()
	for _, m := range c.members {
		if len(before[m.ID]["main"]) != 4 || total(before[m.ID]) != 5 {
			t.Fatalf("%s has %v", m.ID, before[m.ID])
		}
	}
	after := c.again(1, before, func(id string) bool { return id != "m1" }).share()
	if n := moved(before, after); n > 1 {
		t.Fatalf("%d partitions moved that were not the leaver's", n)
	}
}

func TestTheHigherGenerationHasWhatTwoClaim(t *testing.T) {
	c := &crowd{}
	c.topic("t", 1)
	c.join("a-slept", 4, map[string][]int{"t": {0}}, "t")
	c.join("b", 5, map[string][]int{"t": {0}}, "t")
	if got := c.share(); len(got["b"]["t"]) != 1 {
		t.Fatalf("given %v", got)
	}
}

func TestALeaderStaysTheLeaderWhenAStandbyJoins(t *testing.T) {
	for _, standby := range []string{"a", "z"} {
		c := &crowd{}
		c.topic("checkpoint", 1)
		c.join("m", 7, map[string][]int{"checkpoint": {0}}, "checkpoint")
		c.join(standby, 0, nil, "checkpoint")
		if got := c.share(); len(got["m"]["checkpoint"]) != 1 {
			t.Fatalf("%s joined, given %v", standby, got)
		}
	}
}

func TestAClaimThatCannotBeReadIsNone(t *testing.T) {
	c := &crowd{}
	c.topic("t", 2)
	c.join("a", 1, map[string][]int{"t": {0, 1}}, "t")
	c.join("b", 0, nil, "t")
	c.members[0].UserData = []byte("\x00\x01{")
	if got := c.share(); len(got["a"]["t"]) != 1 || len(got["b"]["t"]) != 1 {
		t.Fatalf("given %v", got)
	}
}

func TestAMemberClaimsWhatItWasGivenLast(t *testing.T) {
	b := &balancer{}
	b.remember(9, map[string][]int{"t": {3, 1}})
	data, err := b.UserData()
	must(t, err)
	if got, want := string(data), `{"generation":9,"owned":{"t":[3,1]}}`; got != want {
		t.Fatalf("claims %s, want %s", got, want)
	}
}

func TestAMissingTopicIsSaidOnce(t *testing.T) {
	var out strings.Builder
	b := &balancer{log: slog.New(slog.NewTextHandler(&out, nil))}
	c := &crowd{}
	c.join("a", 1, nil, "t", "u")
	c.join("b", 1, nil, "t", "u")
	for range 3 {
		b.AssignGroups(c.members, nil)
	}
	if n := strings.Count(out.String(), "level=WARN"); n != 1 || !strings.Contains(out.String(), `one_of="t u"`) {
		t.Fatal(out.String())
	}
	c.topic("t", 1)
	c.topic("u", 1)
	b.AssignGroups(c.members, c.partitions)
	b.AssignGroups(c.members, nil)
	if n := strings.Count(out.String(), "level=WARN"); n != 2 {
		t.Fatal(out.String())
	}
}
