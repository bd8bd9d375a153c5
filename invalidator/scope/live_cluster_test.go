package scope

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/proof/testbed"
)

// moving is a cluster in which something happens before a page is read, and after it.
type moving struct {
	*Cluster
	before, after func(cursor uint64)
}

// Scan implements [Redis].
func (m *moving) Scan(ctx context.Context, cursor uint64, glob string, count int64) ([]string, uint64, error) {
	m.before(cursor)
	if m.after != nil {
		defer m.after(cursor)
	}
	return m.Cluster.Scan(ctx, cursor, glob, count)
}

// searched is a cluster with products in it that is searched.
type searched struct {
	*live
	cluster *testbed.RedisCluster
	nodes   *invalidator.Nodes
	client  *redis.ClusterClient
}

const searchedKeys = 600

func newSearched(t *testing.T) *searched {
	t.Helper()
	cluster := testbed.Cluster(t, testbed.ClusterOptions{Masters: 3})
	nodes, err := invalidator.NewNodes(invalidator.ClusterOptions{Seeds: []string{cluster.Masters[1].Addr}})
	testbed.Must(t, err)
	t.Cleanup(func() { testbed.Must(t, nodes.Close()) })
	s := &searched{newLive(t, setting{cluster: nodes, server: cluster.Masters[0]}), cluster, nodes, cluster.Client(nil)}
	t.Cleanup(func() { testbed.Must(t, s.client.Close()) })
	for i := range searchedKeys {
		testbed.Must(t, s.client.Set(t.Context(), fmt.Sprintf("product:%d", i), "old", 0).Err())
	}
	return s
}

// keyOf returns a key of a master, and its slot.
func (s *searched) keyOf(t *testing.T, m *testbed.RedisServer) (key string, slot int) {
	t.Helper()
	has := s.cluster.Slots(t, m)
	for i := 0; ; i++ {
		key = fmt.Sprintf("product:%d", i)
		if slot = int(s.client.ClusterKeySlot(t.Context(), key).Val()); slices.Contains(has, slot) {
			return key, slot
		}
	}
}

// searchAll has the scope search until it is over, and checks that no key is left.
func (s *searched) searchAll(t *testing.T) {
	t.Helper()
	done := s.start(&Task{Keys: product(t, ""), Source: "s", At: place(10), Newest: s.newest}, Options{Rate: 100_000})
	s.mark(10)
	s.ended(done)
	for i := range searchedKeys {
		if err := s.client.Get(t.Context(), fmt.Sprintf("product:%d", i)).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("product:%d: %v", i, err)
		}
	}
}

// A slot goes to a node that the pass has searched, from one that it has not: what it holds is found all the same.
func TestAScopeFindsKeysOfAllMastersWhileSlotsMove(t *testing.T) {
	t.Parallel()
	s := newSearched(t)
	first, last := s.cluster.Masters[0], s.cluster.Masters[2]
	late, slot := s.keyOf(t, last)
	second, moved := false, false
	s.began = func(n int) {
		if n == 2 { // the second pass, after the probe
			testbed.Must(t, s.client.Set(t.Context(), late, "by a slow reader", 0).Err())
			second = true
		}
	}
	s.live.searched = &moving{Cluster: &Cluster{Masters: s.nodes.Masters}, before: func(cursor uint64) {
		if second && !moved && cursor>>ordinalShift == 1 {
			moved = true
			s.cluster.Move(t, last, first, slot)
		}
	}}
	s.searchAll(t)
	if !moved {
		t.Error("no slot has moved")
	}
}

// A slot is elsewhere just while its node is searched: all slots are where they were when the pass looks again.
func TestAScopeFindsKeysOfASlotThatWasElsewhereForAMoment(t *testing.T) {
	t.Parallel()
	s := newSearched(t)
	first, last := s.cluster.Masters[0], s.cluster.Masters[2]
	_, slot := s.keyOf(t, last)
	pass := 0
	s.began = func(n int) { pass = n }
	elsewhere := func(cursor uint64) bool { return pass <= 2 && cursor>>ordinalShift == 2 }
	s.live.searched = &moving{
		Cluster: &Cluster{Masters: s.nodes.Masters},
		before: func(cursor uint64) {
			if elsewhere(cursor) {
				s.cluster.Move(t, last, first, slot)
			}
		},
		after: func(cursor uint64) {
			if elsewhere(cursor) {
				s.cluster.Move(t, first, last, slot)
			}
		},
	}
	s.searchAll(t)
	if pass <= 2 {
		t.Errorf("it was over after %d passes", pass)
	}
}
