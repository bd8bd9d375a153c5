package group

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go"
)

// protocol names the way in which partitions are shared. All members of a group must offer it.
const protocol = "freshet-sticky"

// balancer shares partitions among members. One member, the group's leader, computes it for all; it is a function of
// what the members say, whatever their order.
//
// Of each topic every subscriber gets the same number, or one more. Who gets one more is chosen topic by topic, the
// largest topic first, among those with the fewest partitions so far, so that members with the same topics also
// differ by one at the most in all. Within that, everybody keeps what they had: the ownership, which each member sends
// when it joins, says what that was and since which generation. When two have the same partition, the higher
// generation has it: the other one slept through a rebalance.
type balancer struct {
	log *slog.Logger

	mu  sync.Mutex
	has ownership
	// lacking says that topics were missing when partitions were last shared out here, until somebody asks.
	lacking bool

	missing string // the topics that were said to be missing; the goroutine's that joins
}

var _ kafka.GroupBalancer = (*balancer)(nil)

// ownership is what a member says when it joins, as JSON.
type ownership struct {
	// Generation is the last generation that the member was part of; 0 when there was none.
	Generation int32 `json:"generation"`
	// Owned are the partitions that it was given then.
	Owned map[string][]int `json:"owned,omitempty"`
}

// remember says what this member has from now on.
func (b *balancer) remember(generation int32, owned map[string][]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.has = ownership{Generation: generation, Owned: owned}
}

// ProtocolName implements [kafka.GroupBalancer].
func (b *balancer) ProtocolName() string { return protocol }

// UserData implements [kafka.GroupBalancer].
func (b *balancer) UserData() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return json.Marshal(b.has)
}

// AssignGroups implements [kafka.GroupBalancer].
func (b *balancer) AssignGroups(in []kafka.GroupMember, partitions []kafka.Partition) kafka.GroupMemberAssignments {
	members := make([]*sharer, len(in))
	for i, m := range in {
		s := &sharer{id: m.ID, topics: m.Topics, given: map[string][]int{}}
		// An ownership that cannot be read is none: the member then just keeps nothing.
		_ = json.Unmarshal(m.UserData, &s.has)
		members[i] = s
	}
	topics := map[string][]int{}
	for _, p := range partitions {
		topics[p.Topic] = append(topics[p.Topic], p.ID)
	}
	b.look(members, topics)
	share(members, topics)
	out := kafka.GroupMemberAssignments{}
	for _, m := range members {
		out[m.id] = m.given // also when empty: a member that is not named is sent something that cannot be read
	}
	return out
}

// look says when topics are missing. The library then knows of no partition at all, also of the topics that are there.
func (b *balancer) look(members []*sharer, topics map[string][]int) {
	var missing []string
	for _, m := range members {
		for _, t := range m.topics {
			if len(topics[t]) == 0 {
				missing = append(missing, t)
			}
		}
	}
	slices.Sort(missing)
	now := strings.Join(slices.Compact(missing), " ")
	if now != b.missing && now != "" {
		b.log.Warn("nothing is shared out while a topic of the consumer group is missing; create it", "one_of", now)
	}
	b.missing = now
	b.mu.Lock()
	b.lacking = now != ""
	b.mu.Unlock()
}

// lacked reports, once, that this member has shared out partitions while topics were missing.
func (b *balancer) lacked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	lacking := b.lacking
	b.lacking = false
	return lacking
}

// sharer is a member while partitions are shared out.
type sharer struct {
	id     string
	topics []string
	has    ownership
	given  map[string][]int
	total  int
}

// share gives each partition of the topics to one of the members that subscribe to it.
func share(members []*sharer, topics map[string][]int) {
	slices.SortFunc(members, func(a, b *sharer) int { return cmp.Compare(a.id, b.id) })
	names := make([]string, 0, len(topics))
	for t, partitions := range topics {
		slices.Sort(partitions)
		topics[t] = slices.Compact(partitions)
		names = append(names, t)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(topics[b]), len(topics[a])), cmp.Compare(a, b))
	})
	for _, t := range names {
		var subscribers []*sharer
		for _, m := range members {
			if slices.Contains(m.topics, t) {
				subscribers = append(subscribers, m)
			}
		}
		if len(subscribers) > 0 {
			shareTopic(subscribers, t, topics[t])
		}
	}
}

// shareTopic shares one topic among its subscribers.
func shareTopic(members []*sharer, topic string, partitions []int) {
	held, free := holders(members, topic, partitions)
	least, more := len(partitions)/len(members), len(partitions)%len(members)
	order := slices.Clone(members)
	slices.SortStableFunc(order, func(a, b *sharer) int {
		return cmp.Or(cmp.Compare(a.total, b.total),
			cmp.Compare(min(len(held[b]), least+1), min(len(held[a]), least+1)))
	})
	quota := map[*sharer]int{}
	for i, m := range order {
		quota[m] = least
		if i < more {
			quota[m]++
		}
	}
	for _, m := range members {
		if keep := held[m]; len(keep) > quota[m] {
			held[m] = keep[:quota[m]]
			free = append(free, keep[quota[m]:]...)
		}
	}
	slices.Sort(free)
	for _, m := range members {
		n := quota[m] - len(held[m])
		got := append(held[m], free[:n]...)
		free = free[n:]
		if len(got) > 0 {
			slices.Sort(got)
			m.given[topic] = got
			m.total += len(got)
		}
	}
}

// holders returns who has which partitions of a topic by what it says, and the partitions that nobody has.
func holders(members []*sharer, topic string, partitions []int) (map[*sharer][]int, []int) {
	owned := map[int]*sharer{}
	for _, m := range members {
		for _, p := range m.has.Owned[topic] {
			if o := owned[p]; o == nil || o.has.Generation < m.has.Generation {
				owned[p] = m
			}
		}
	}
	held := map[*sharer][]int{}
	var free []int
	for _, p := range partitions {
		if m := owned[p]; m != nil {
			held[m] = append(held[m], p)
		} else {
			free = append(free, p)
		}
	}
	return held, free
}
