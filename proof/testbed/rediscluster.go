package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// ClusterOptions say what a Redis Cluster begins with.
type ClusterOptions struct {
	// Masters is how many masters share the slots, and Replicas how many replicas each has.
	Masters, Replicas int
	// Valkey has servers that move slots by themselves: [RedisCluster.Migrate].
	Valkey bool
	// Args are further arguments of every server.
	Args []string
}

// RedisCluster is a running Redis Cluster.
type RedisCluster struct {
	// Masters had the slots at first, in that order; Replicas has those of the first master, then of the second.
	Masters, Replicas []*RedisServer

	args    []string
	valkey  bool
	members []*RedisServer
}

// clusterSlots is how many slots a cluster has.
const clusterSlots = 1 << 14

// Cluster starts a Redis Cluster that fails over soon after a master is dead. It ends with the test.
func Cluster(t testing.TB, o ClusterOptions) *RedisCluster {
	t.Helper()
	c := &RedisCluster{valkey: o.Valkey, args: append([]string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-allow-replica-migration", "no",
		"--repl-diskless-sync-delay", "0",
	}, o.Args...)}
	for range o.Masters {
		c.Masters = append(c.Masters, c.start(t))
	}
	for i, m := range c.Masters {
		m.Do(t, "cluster", "addslotsrange", i*clusterSlots/o.Masters, (i+1)*clusterSlots/o.Masters-1)
		m.Do(t, "cluster", "set-config-epoch", i+1)
	}
	for _, m := range c.Masters {
		c.meet(t, m)
	}
	for _, m := range c.Masters {
		for range o.Replicas {
			c.Replicas = append(c.Replicas, c.AddReplica(t, m))
		}
	}
	c.Await(t)
	return c
}

func (c *RedisCluster) start(t testing.TB) *RedisServer {
	t.Helper()
	return forTest(t, StartRedis, Options{Args: c.args, Valkey: c.valkey})
}

// meet has another server and those that are in the cluster get to know each other.
func (c *RedisCluster) meet(t testing.TB, s *RedisServer) {
	t.Helper()
	c.members = slices.DeleteFunc(c.members, func(o *RedisServer) bool { return o.client.Ping(t.Context()).Err() != nil })
	id := s.NodeID(t)
	Eventually(t, readyTimeout, "the nodes of the cluster know each other", func() bool {
		known := s.client.ClusterNodes(t.Context()).Val()
		return !slices.ContainsFunc(c.members, func(o *RedisServer) bool {
			if strings.Contains(known, o.NodeID(t)) && strings.Contains(o.client.ClusterNodes(t.Context()).Val(), id) {
				return false
			}
			s.Do(t, "cluster", "meet", "127.0.0.1", o.Port, o.BusPort)
			return true
		})
	})
	c.members = append(c.members, s)
}

// Add starts a server that becomes a master without slots.
func (c *RedisCluster) Add(t testing.TB) *RedisServer {
	t.Helper()
	s := c.start(t)
	c.meet(t, s)
	c.Await(t)
	return s
}

// AddReplica starts a replica of a master, and waits until it has its data.
func (c *RedisCluster) AddReplica(t testing.TB, master *RedisServer) *RedisServer {
	t.Helper()
	s := c.Add(t)
	Eventually(t, readyTimeout, "a replica of the cluster follows its master", func() bool {
		info := s.Client().Info(t.Context(), "replication").Val()
		if !strings.Contains(info, "role:slave") { // asked again, it would begin its link again
			_ = s.Client().ClusterReplicate(t.Context(), master.NodeID(t)).Err() // it may not know the master yet
		}
		return strings.Contains(info, "master_link_status:up")
	})
	return s
}

// Await waits until all servers that run find that the cluster works.
func (c *RedisCluster) Await(t testing.TB) {
	t.Helper()
	Eventually(t, readyTimeout, "the cluster works", func() bool {
		return !slices.ContainsFunc(c.members, func(s *RedisServer) bool {
			info, err := s.Client().ClusterInfo(t.Context()).Result()
			return err == nil && !strings.Contains(info, "cluster_state:ok")
		})
	})
}

// NodeID returns by which name the cluster knows the server.
func (s *RedisServer) NodeID(t testing.TB) string {
	t.Helper()
	id, err := s.client.ClusterMyID(t.Context()).Result()
	Must(t, err)
	return id
}

// IsMaster reports whether the server says that it is a master.
func (s *RedisServer) IsMaster(ctx context.Context) bool {
	return strings.Contains(s.client.Info(ctx, "replication").Val(), "role:master")
}

// BeginMove has a slot be moved from one server to another: new keys are made at the other, those that are there stay.
func (c *RedisCluster) BeginMove(t testing.TB, slot int, from, to *RedisServer) {
	t.Helper()
	to.Do(t, "cluster", "setslot", slot, "importing", from.NodeID(t))
	from.Do(t, "cluster", "setslot", slot, "migrating", to.NodeID(t))
}

// MoveKeys moves the keys of a slot that is being moved.
func (c *RedisCluster) MoveKeys(t testing.TB, slot int, from, to *RedisServer) {
	t.Helper()
	for {
		keys, err := from.client.ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
		Must(t, err)
		if len(keys) == 0 {
			return
		}
		words := []any{"migrate", "127.0.0.1", to.Port, "", 0, 60_000, "replace", "keys"}
		for _, k := range keys {
			words = append(words, k)
		}
		from.Do(t, words...)
	}
}

// EndMove gives a slot to the server that it is being moved to, and waits until all masters know that.
func (c *RedisCluster) EndMove(t testing.TB, slot int, from, to *RedisServer) {
	t.Helper()
	for {
		// A key that was made there meanwhile is moved as well.
		c.MoveKeys(t, slot, from, to)
		c.awaitEpochs(t)
		to.Do(t, "cluster", "setslot", slot, "node", to.NodeID(t))
		err := from.client.Do(t.Context(), "cluster", "setslot", slot, "node", to.NodeID(t)).Err()
		if err == nil {
			c.awaitOwner(t, slot, to)
			return
		}
		var answered redis.Error
		if !errors.As(err, &answered) || !strings.Contains(err.Error(), "keys for hash slot") {
			t.Fatalf("testbed: slot %d: %v", slot, err)
		}
	}
}

// awaitEpochs waits until each master knows the present epochs of all others. One that is given a slot raises its own
// only above those that it knows: a message which the former owner sent before, with a higher one, would take the slot
// back. Then each of the two believes for good that the other has it.
func (c *RedisCluster) awaitEpochs(t testing.TB) {
	t.Helper()
	Eventually(t, readyTimeout, "all masters know each other's epochs", func() bool {
		known, own := []map[string]string{}, map[string]string{}
		for _, s := range c.members {
			if !s.IsMaster(t.Context()) {
				continue
			}
			epochs := map[string]string{}
			for line := range strings.Lines(s.client.ClusterNodes(t.Context()).Val()) {
				f := strings.Fields(line) // id, address, flags, its master, ping, pong, epoch, …
				epochs[f[0]] = f[6]
				if strings.Contains(f[2], "myself") {
					own[f[0]] = f[6]
				}
			}
			known = append(known, epochs)
		}
		return !slices.ContainsFunc(known, func(epochs map[string]string) bool {
			for id, epoch := range own {
				if epochs[id] != epoch {
					return true
				}
			}
			return false
		})
	})
}

// awaitOwner tells masters of a slot's new owner until all of them agree, as redis-cli does.
func (c *RedisCluster) awaitOwner(t testing.TB, slot int, to *RedisServer) {
	t.Helper()
	id := to.NodeID(t)
	Eventually(t, readyTimeout, "all masters know who has the slot", func() bool {
		return !slices.ContainsFunc(c.members, func(s *RedisServer) bool {
			if !s.IsMaster(t.Context()) || s.ownerOf(t.Context(), slot) == id {
				return false
			}
			_ = s.client.Do(t.Context(), "cluster", "setslot", slot, "node", id).Err() // it may not know that one yet
			return true
		})
	})
}

// ownerOf returns the name of the node that has a slot, as the server knows it; "": none.
func (s *RedisServer) ownerOf(ctx context.Context, slot int) string {
	for _, r := range s.client.ClusterSlots(ctx).Val() {
		if r.Start <= slot && slot <= r.End && len(r.Nodes) > 0 {
			return r.Nodes[0].ID
		}
	}
	return ""
}

// Move moves slots with their keys, while clients go on.
func (c *RedisCluster) Move(t testing.TB, from, to *RedisServer, slots ...int) {
	t.Helper()
	for _, slot := range slots {
		c.BeginMove(t, slot, from, to)
		c.EndMove(t, slot, from, to)
	}
}

// Failover has a replica take the place of its master, which is alive and agrees, and follows it then.
func (c *RedisCluster) Failover(t testing.TB, master, replica *RedisServer) {
	t.Helper()
	Eventually(t, readyTimeout, "the replica takes over", func() bool {
		if replica.IsMaster(t.Context()) {
			return true
		}
		_ = replica.client.ClusterFailover(t.Context()).Err() // it is refused while one is under way
		return false
	})
	Eventually(t, readyTimeout, "the former master follows",
		func() bool {
			return strings.Contains(master.client.Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
}

// Slots returns the slots that a server says it has.
func (c *RedisCluster) Slots(t testing.TB, s *RedisServer) (slots []int) {
	t.Helper()
	all, err := s.client.ClusterSlots(t.Context()).Result()
	Must(t, err)
	id := s.NodeID(t)
	for _, r := range all {
		if len(r.Nodes) > 0 && r.Nodes[0].ID == id {
			for n := r.Start; n <= r.End; n++ {
				slots = append(slots, n)
			}
		}
	}
	return slots
}

// Forget has all servers but one forget that one, which has no slots any more.
func (c *RedisCluster) Forget(t testing.TB, gone *RedisServer, left ...*RedisServer) {
	t.Helper()
	for _, s := range left {
		s.Do(t, "cluster", "forget", gone.NodeID(t))
	}
}

// Client returns a client of the whole cluster, which makes its connections with dial; nil: as usual. The caller closes
// it.
func (c *RedisCluster) Client(dial func(ctx context.Context, network, addr string) (net.Conn, error),
) *redis.ClusterClient {
	var addresses []string
	for _, s := range slices.Concat(c.Masters, c.Replicas) {
		addresses = append(addresses, s.Addr)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses, Dialer: dial})
}

// String names the cluster.
func (c *RedisCluster) String() string { return fmt.Sprintf("cluster of %s", c.Masters[0].Addr) }
