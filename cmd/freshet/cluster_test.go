package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app"
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
	for name, down := range map[string]bool{"running": false, "down": true} {
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
