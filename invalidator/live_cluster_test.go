package invalidator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
)

// dialing makes a connection to where the caller says, or one that fails at its first use: a pool that cannot dial
// tries by itself, and logs it.
func (e *endpoint) dialing(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := e.dial(ctx, network, addr)
	if err != nil {
		return failedConn{err: err}, nil
	}
	return c, nil
}

// clusterD is the second delete of the tests on a real cluster: readers keep to it.
const clusterD = time.Second

// liveCluster is an engine on a real cluster, a table that changes, and readers that fill the cache from it.
type liveCluster struct {
	*live
	cluster *testbed.RedisCluster
	client  *redis.ClusterClient

	load   sync.WaitGroup
	stop   context.CancelFunc
	lasts  context.Context
	values [clusterRows]atomic.Int64 // of each row
	mu     sync.Mutex                // orders changes and their batches
	filled atomic.Int64              // by readers
}

const clusterRows = 200

func newLiveCluster(t *testing.T, o testbed.ClusterOptions, replicas int) *liveCluster {
	t.Helper()
	return newLiveClusterWith(t, o, replicas, Options{})
}

func newLiveClusterWith(t *testing.T, o testbed.ClusterOptions, replicas int, options Options) *liveCluster {
	t.Helper()
	options.ShortestD = clusterD
	c := &liveCluster{
		live:    &live{T: t, log: newFakeLog(), store: &memStore{}, alarms: &alarms{}, served: make(chan error, 1), pos: 4},
		cluster: testbed.Cluster(t, o),
	}
	c.client = c.cluster.Client(newEndpoint(&SingleOptions{Timeout: clusterD}).dialing)
	t.Cleanup(func() { testbed.Must(t, c.client.Close()) })
	// Of the seeds one is not there.
	nodes, err := NewNodes(ClusterOptions{
		Seeds: []string{"127.0.0.1:1", c.cluster.Masters[0].Addr, c.cluster.Masters[1].Addr},
		Node:  SingleOptions{WaitReplicas: replicas},
	})
	testbed.Must(t, err)
	t.Cleanup(func() { testbed.Must(t, nodes.Close()) })
	c.engine = start(t, Deps{
		Cluster: nodes, Store: c.store, Alarms: c.alarms, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, options)
	caughtUp(c.engine)
	ctx, stop := context.WithCancel(context.Background())
	go func() { c.served <- c.engine.Serve(ctx, c.log) }()
	t.Cleanup(func() {
		stop()
		testbed.Must(t, <-c.served)
	})
	c.lasts, c.stop = context.WithCancel(t.Context())
	t.Cleanup(func() {
		c.stop()
		c.load.Wait()
	})
	return c
}

// key is that of a row: a third of them are rebuilt, and some have a hash tag.
func (c *liveCluster) key(row int) string {
	if row%5 == 0 {
		return fmt.Sprintf("{tag:%d}:row", row)
	}
	return fmt.Sprintf("row:%d", row)
}

// commit changes rows.
func (c *liveCluster) commit(rows ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pos++
	var things []thing
	for _, row := range rows {
		value := c.values[row].Add(1)
		what := thing{c.key(row), event.ActionDelete, event.IntentForget, nil, nil}
		if row%3 == 0 {
			what = thing{
				c.key(row), event.ActionRebuild, event.IntentPut, &event.Effect{As: event.FormString},
				[]string{strconv.FormatInt(value, 10)},
			}
		}
		things = append(things, what)
	}
	c.log.batches <- batchOfThings(origin(c.pos, clusterD), things...)
	c.engine.Mark(markAt(c.pos))
	c.fetched++
}

// fill is one reader: what it has read is in the cache before D is over, or never.
func (c *liveCluster) fill(row int, rest time.Duration) {
	ctx, cancel := context.WithTimeout(c.lasts, clusterD*3/4)
	defer cancel()
	value := c.values[row].Load()
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		return
	}
	if c.client.SetNX(ctx, c.key(row), value, 0).Err() == nil {
		c.filled.Add(1)
	}
}

// startLoad has rows change and readers read until stopLoad.
func (c *liveCluster) startLoad() {
	for range 2 {
		c.load.Go(func() {
			for c.lasts.Err() == nil {
				c.commit(rand.IntN(clusterRows), rand.IntN(clusterRows))
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	for range 6 {
		c.load.Go(func() {
			for c.lasts.Err() == nil {
				c.fill(rand.IntN(clusterRows), time.Duration(rand.Int64N(int64(clusterD/2))))
			}
		})
	}
}

// stopLoad ends the load, waits until all changes are finished, and compares what is cached with the rows.
func (c *liveCluster) stopLoad() {
	c.Helper()
	c.stop()
	c.load.Wait()
	c.caughtUp()
	if c.filled.Load() == 0 {
		c.Error("no reader has filled anything")
	}
	for row := range clusterRows {
		want := strconv.FormatInt(c.values[row].Load(), 10)
		testbed.Eventually(c, time.Minute, "the cluster answers", func() bool {
			got, err := c.client.Get(c.Context(), c.key(row)).Result()
			if err == nil && got != want {
				c.Errorf("%s holds %s, its row %s", c.key(row), got, want)
			}
			return err == nil || errors.Is(err, redis.Nil)
		})
	}
	if parked, dead := c.store.counts(); parked+dead != 0 {
		c.Errorf("%d parked, %d dead", parked, dead)
	}
}

// caughtUp waits until all changes so far are finished.
func (c *liveCluster) caughtUp() {
	c.Helper()
	c.mu.Lock()
	n := c.fetched
	c.mu.Unlock()
	testbed.Eventually(c, 3*time.Minute, "all changes are finished", func() bool { return c.log.watermark() >= n })
}

// of returns the slot of a row's key, the node that has it, and another node.
func (c *liveCluster) of(row int) (slot int, has, other *testbed.RedisServer) {
	return c.slotOf(int(write.Names{}.Slot(c.key(row))))
}

// slotOf returns a slot, the node that has it, and another node.
func (c *liveCluster) slotOf(slot int) (is int, has, other *testbed.RedisServer) {
	for _, m := range c.cluster.Masters {
		if slices.Contains(c.cluster.Slots(c, m), slot) {
			has = m
		} else {
			other = m
		}
	}
	return slot, has, other
}

func TestSlotsMoveWhileKeysChange(t *testing.T) {
	t.Parallel()
	c := newLiveCluster(t, testbed.ClusterOptions{Masters: 3}, 0)
	c.startLoad()
	c.caughtUp()
	added := c.cluster.Add(t)
	for row := range 30 {
		slot, has, other := c.of(row)
		if row%2 == 0 {
			other = added
		}
		if has == nil || slices.Contains(c.cluster.Slots(t, added), slot) {
			continue
		}
		c.cluster.Move(t, has, other, slot)
	}
	c.caughtUp()
	// A node that goes gives its slots back first.
	for _, slot := range c.cluster.Slots(t, added) {
		c.cluster.Move(t, added, c.cluster.Masters[0], slot)
	}
	c.cluster.Forget(t, added, c.cluster.Masters...)
	testbed.Must(t, added.Kill())
	c.stopLoad()
	if n := len(c.engine.topology.Load().nodes); n != 3 {
		t.Errorf("%d nodes", n)
	}
}

func TestASlotThatIsBeingMovedServesItsKeys(t *testing.T) {
	t.Parallel()
	c := newLiveCluster(t, testbed.ClusterOptions{Masters: 3}, 0)
	c.commit(1)
	c.caughtUp()
	slot, has, other := c.of(1)
	has.Do(t, "set", c.key(1), "old")
	c.cluster.BeginMove(t, slot, has, other)
	for _, there := range []bool{true, false} {
		if there {
			c.cluster.MoveKeys(t, slot, has, other)
		}
		before := c.engine.Acknowledged()
		c.commit(1)
		testbed.Eventually(t, time.Minute, "the key is deleted", func() bool { return c.engine.Acknowledged() > before })
		if n := len(other.Client().ClusterGetKeysInSlot(t.Context(), slot, 10).Val()); n != 0 {
			t.Errorf("%d keys are at the node that takes the slot", n)
		}
	}
	// Other keys, whose changes come later, have their final delete.
	waiting := c.fetched
	for row := range 2 {
		before := c.engine.Acknowledged()
		c.commit(10 + row)
		testbed.Eventually(t, time.Minute, "another key is deleted", func() bool { return c.engine.Acknowledged() > before })
		testbed.Must(t, c.client.Set(t.Context(), c.key(10+row), "old", 0).Err())
		testbed.Eventually(t, time.Minute, "another key is deleted again",
			func() bool { return errors.Is(c.client.Get(t.Context(), c.key(10+row)).Err(), redis.Nil) })
	}
	if c.log.watermark() >= waiting {
		t.Error("finished while the slot is being moved")
	}
	c.cluster.EndMove(t, slot, has, other)
	c.caughtUp()
}

func TestMastersFailOverWhileKeysChange(t *testing.T) {
	t.Parallel()
	c := newLiveCluster(t, testbed.ClusterOptions{Masters: 3, Replicas: 1}, 1)
	c.startLoad()
	c.caughtUp()
	c.cluster.Failover(t, c.cluster.Masters[0], c.cluster.Replicas[0])
	c.caughtUp()
	killed, heir := c.cluster.Masters[1], c.cluster.Replicas[1]
	testbed.Must(t, killed.Kill())
	testbed.Eventually(t, 2*time.Minute, "the replica takes over", func() bool { return heir.IsMaster(t.Context()) })
	testbed.Must(t, killed.Start(t.Context()))
	c.cluster.Await(t)
	c.stopLoad()
}

// Nobody takes over, and the cluster serves the slots of the others.
func TestANodeThatIsAwayStopsItsOwnKeysOnly(t *testing.T) {
	t.Parallel()
	c := newLiveCluster(t, testbed.ClusterOptions{
		Masters: 3, Args: []string{"--cluster-require-full-coverage", "no"},
	}, 0)
	c.commit(1)
	c.caughtUp()
	_, away, _ := c.of(1)
	var others []int
	for row := 2; len(others) < 10; row++ {
		if _, has, _ := c.of(row); has != away {
			others = append(others, row)
			testbed.Must(t, c.client.Set(t.Context(), c.key(row), "old", 0).Err())
		}
	}
	testbed.Must(t, away.Kill())
	c.commit(1)
	c.commit(others...)
	for _, row := range others {
		testbed.Eventually(t, time.Minute, "the keys of other nodes are served", func() bool {
			got, err := c.client.Get(t.Context(), c.key(row)).Result()
			return errors.Is(err, redis.Nil) || err == nil && got != "old"
		})
	}
	if c.log.watermark() >= c.fetched {
		t.Error("everything is finished though a node is away")
	}
	testbed.Eventually(t, time.Minute, "a node is said to be away", func() bool {
		s := c.engine.Snapshot()
		return !s.RedisUp && strings.Contains(s.Redis, "1 of 3 nodes are away") && strings.Contains(s.Redis, away.Addr)
	})
	testbed.Must(t, away.Start(t.Context()))
	c.caughtUp()
}

// By default a cluster that lacks a node serves nothing at all.
func TestAClusterThatIsDownIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := newLiveCluster(t, testbed.ClusterOptions{Masters: 3}, 0)
	c.startLoad()
	c.caughtUp()
	killed := c.cluster.Masters[2]
	testbed.Must(t, killed.Kill())
	testbed.Eventually(t, time.Minute, "the cluster is down", func() bool {
		return strings.Contains(c.cluster.Masters[0].Client().ClusterInfo(t.Context()).Val(), "cluster_state:fail")
	})
	testbed.Must(t, killed.Start(t.Context()))
	c.cluster.Await(t)
	c.stopLoad()
}
