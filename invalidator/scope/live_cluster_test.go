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

// moving is a cluster in which something happens before a page is read.
type moving struct {
	*Cluster
	before func(cursor uint64)
}

// Scan implements [Redis].
func (m *moving) Scan(ctx context.Context, cursor uint64, glob string, count int64) ([]string, uint64, error) {
	m.before(cursor)
	return m.Cluster.Scan(ctx, cursor, glob, count)
}

// A slot goes to a node that the pass has searched, from one that it has not: what it holds is found all the same.
func TestAScopeFindsKeysOfAllMastersWhileSlotsMove(t *testing.T) {
	t.Parallel()
	cluster := testbed.Cluster(t, testbed.ClusterOptions{Masters: 3})
	nodes, err := invalidator.NewNodes(invalidator.ClusterOptions{Seeds: []string{cluster.Masters[1].Addr}})
	testbed.Must(t, err)
	t.Cleanup(func() { testbed.Must(t, nodes.Close()) })
	l := newLive(t, setting{cluster: nodes, server: cluster.Masters[0]})
	client := cluster.Client(nil)
	t.Cleanup(func() { testbed.Must(t, client.Close()) })
	const keys = 600
	for i := range keys {
		testbed.Must(t, client.Set(t.Context(), fmt.Sprintf("product:%d", i), "old", 0).Err())
	}
	first, last := cluster.Masters[0], cluster.Masters[2]
	late, slot := "", 0
	for i := 0; late == ""; i++ {
		key := fmt.Sprintf("product:%d", i)
		slot = int(client.ClusterKeySlot(t.Context(), key).Val())
		if slices.Contains(cluster.Slots(t, last), slot) {
			late = key
		}
	}
	second, moved := false, false
	l.began = func(n int) {
		if n == 2 { // the second pass, after the probe
			testbed.Must(t, client.Set(t.Context(), late, "by a slow reader", 0).Err())
			second = true
		}
	}
	l.searched = &moving{Cluster: &Cluster{Masters: nodes.Masters}, before: func(cursor uint64) {
		if second && !moved && cursor>>ordinalShift == 1 {
			moved = true
			cluster.Move(t, last, first, slot)
		}
	}}
	done := l.start(&Task{Keys: product(t, ""), Source: "s", At: place(10), Newest: l.newest}, Options{Rate: 100_000})
	l.mark(10)
	l.ended(done)
	for i := range keys {
		if err := client.Get(t.Context(), fmt.Sprintf("product:%d", i)).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("product:%d: %v", i, err)
		}
	}
	if !moved {
		t.Error("no slot has moved")
	}
}
