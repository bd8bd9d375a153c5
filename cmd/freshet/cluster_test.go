package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/invalidator/identity"
	"github.com/freshet/freshet/proof/testbed"
)

// clusterSite is a site under load whose Redis is a cluster.
type clusterSite struct {
	*busySite
	cluster *testbed.RedisCluster
}

func newClusterSite(t *testing.T, source *testbed.Server, o testbed.ClusterOptions) *clusterSite {
	t.Helper()
	s := &clusterSite{busySite: newBusySite(t, newSite(t, source)), cluster: testbed.Cluster(t, o)}
	// Of the seeds one is not there.
	s.redisAt = []string{"127.0.0.1:1", s.cluster.Masters[0].Addr, s.cluster.Masters[1].Addr}
	s.redisMore = ", mode: cluster"
	s.mappings = fmt.Sprintf(`
  - {table: shop.product, keys: ["product:{id}"], second_delete: %[1]s}
  - table: shop.product
    keys: ["price:{id}"]
    rebuild: {from: row, as: string, value: "{price}"}
    second_delete: %[1]s
`, busyD)
	var seeds []string
	for _, m := range slices.Concat(s.cluster.Masters, s.cluster.Replicas) {
		seeds = append(seeds, m.Addr)
	}
	s.through(redis.NewClusterClient(&redis.ClusterOptions{Addrs: seeds, ContextTimeoutEnabled: true, DialerRetries: 1}))
	return s
}

// ownerIn returns the slot of a key, and which of the masters has it.
func ownerIn(t *testing.T, c *testbed.RedisCluster, key string) (slot, master int) {
	t.Helper()
	slot = int(c.Masters[0].Client().ClusterKeySlot(t.Context(), key).Val())
	return slot, slices.IndexFunc(c.Masters, func(m *testbed.RedisServer) bool {
		return slices.Contains(c.Slots(t, m), slot)
	})
}

// clusterKeys are the keys of a product.
func clusterKeys(id int) []string {
	return []string{fmt.Sprint("product:", id), fmt.Sprint("price:", id)}
}

// strike has slots move, kills a master for good until its replica has its place, and stops another for a while.
func (s *clusterSite) strike(by ...*site) {
	t, c := s.t, s.cluster
	s.finished(by...)
	for id := range 20 {
		slot := int(c.Masters[0].Client().ClusterKeySlot(t.Context(), clusterKeys(id)[id%2]).Val())
		if slices.Contains(c.Slots(t, c.Masters[0]), slot) {
			c.Move(t, c.Masters[0], c.Masters[2], slot)
		}
	}
	killed, heir := c.Masters[1], c.Replicas[1]
	testbed.Must(t, killed.Kill())
	testbed.Eventually(t, patience, "the replica takes over", func() bool { return heir.IsMaster(t.Context()) })
	testbed.Must(t, killed.Start(t.Context()))
	c.Await(t)
	s.finished(by...)

	stopped := c.Masters[2]
	testbed.Must(t, stopped.Pause())
	by[0].await("a node is away", func(st *app.Status) bool { return !st.Redis.Up })
	testbed.Must(t, stopped.Resume())
	c.Await(t)
	s.finished(by...)
}

func TestOnAClusterNoKeyIsStaleWhateverHappensToItsNodes(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newClusterSite(t, source, testbed.ClusterOptions{Masters: 3, Replicas: 1})
		r := s.run()
		s.startLoad()
		s.strike(s.site)
		s.stopLoad(s.site)
		if code := r.Stop(t, patience); code != exitDone {
			t.Errorf("exit code %d", code)
		}
	})
}

func TestAroundKafkaNoKeyOfAClusterIsStale(t *testing.T) {
	t.Parallel()
	s := newClusterSite(t, testbed.MariaDB(t, "--binlog-row-metadata=FULL"),
		testbed.ClusterOptions{Masters: 3, Replicas: 1})
	s.site = s.around(t, testbed.SharedKafka(t))
	reader, members := s.part("reader"), []*site{s.part("invalidator"), s.part("invalidator")}
	reader.start("reader")
	for _, m := range members {
		m.start("invalidator")
	}
	for _, p := range slices.Concat(members, []*site{reader}) {
		p.awaitFresh()
	}
	s.startLoad()
	s.strike(members...)
	s.stopLoad(members...)
}

// A replica that lacks the last deletes takes the place of its master, while freshet runs or while it does not.
func TestOnAClusterAPromotedReplicaThatLacksDeletesLeavesNoStaleKey(t *testing.T) {
	t.Parallel()
	for name, down := range testbed.SomeOf(t, map[string]bool{"running": false, "down": true}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			either(t, func(t *testing.T, source *testbed.Server) {
				s := newClusterSite(t, source, testbed.ClusterOptions{Masters: 3, Replicas: 1})
				r := s.run()
				s.finished(s.site)
				master, heir := s.cluster.Masters[1], s.cluster.Replicas[1]
				for id := range busyRows {
					for _, key := range clusterKeys(id) {
						testbed.Must(t, s.client.Set(t.Context(), key, "old", 0).Err())
					}
				}
				testbed.Eventually(t, patience, "the replica has all", func() bool {
					return master.Do(t, "wait", 1, 1000) == int64(1)
				})
				testbed.Must(t, heir.Pause())
				master.Do(t, "client", "kill", "type", "replica") // what is on the way is lost, too
				source.Exec(t, "UPDATE shop.product SET price = price + 1")
				s.finished(s.site)
				if down {
					r.Stop(t, patience)
				}
				testbed.Must(t, master.Kill())
				testbed.Must(t, heir.Resume())
				testbed.Eventually(t, patience, "the replica takes over", func() bool { return heir.IsMaster(t.Context()) })
				if down {
					if heir.Client().DBSize(t.Context()).Val() == 0 {
						t.Error("the replica lacks nothing")
					}
					s.run()
				}
				s.cluster.Await(t)
				testbed.Eventually(t, patience, "no key is of before", func() bool {
					for id := range busyRows {
						for _, key := range clusterKeys(id) {
							if s.client.Get(t.Context(), key).Val() == "old" {
								return false
							}
						}
					}
					return true
				})
				s.finished(s.site)
			})
		})
	}
}

// A master that has given a slot away comes back with data of before, and the slot comes back as well. Nobody could
// delete the old keys of that slot meanwhile.
func TestOnAClusterASlotThatComesBackBringsNoStaleKey(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newClusterSite(t, source, testbed.ClusterOptions{Masters: 3})
		s.run()
		s.finished(s.site)
		const id = 7
		key := fmt.Sprint("product:", id)
		testbed.Must(t, s.client.Set(t.Context(), key, "old", 0).Err())
		slot, has := ownerIn(t, s.cluster, key)
		former, owner := s.cluster.Masters[has], s.cluster.Masters[(has+1)%3]
		testbed.Eventually(t, patience, "the master was looked at: slots that it gave away before are not known", func() bool {
			stamps, err := former.Client().Keys(t.Context(), "*"+identity.StampKey+"*").Result()
			return err == nil && len(stamps) > 0
		})
		former.Do(t, "save")
		s.cluster.Move(t, former, owner, slot)
		s.write(id)
		testbed.Eventually(t, patience, "the key is deleted at the new owner", func() bool {
			n, err := owner.Client().Exists(t.Context(), key).Result()
			return err == nil && n == 0
		})
		s.finished(s.site)
		testbed.Must(t, former.Kill())
		testbed.Must(t, former.Start(t.Context()))
		s.cluster.Await(t)
		s.await("that the data is older is noticed", func(st *app.Status) bool {
			return len(st.Doubts)+len(st.EndedDoubts) > 0
		})
		s.finished(s.site)
		if n := former.Do(t, "cluster", "countkeysinslot", slot); n == int64(0) {
			if !s.cluster.Migrates(t) {
				t.Fatal("the former owner has no old key")
			}
			t.Logf("%s has deleted what it read back of slots that are another's, as Valkey 9 does", former.Version)
		}
		s.cluster.Move(t, owner, former, slot)
		testbed.Eventually(t, patience, "the old key is deleted", func() bool {
			n, err := former.Client().Exists(t.Context(), key).Result()
			return err == nil && n == 0
		})
		s.finished(s.site)
	})
}
