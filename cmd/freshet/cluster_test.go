package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// clusterSite is a site whose Redis is a cluster, with a load on it.
type clusterSite struct {
	*site
	cluster *testbed.RedisCluster
	client  *redis.ClusterClient

	load   sync.WaitGroup
	lasts  context.Context
	stop   context.CancelFunc
	filled atomic.Int64 // by readers
	hot    int          // so many of the products are changed by the load
}

// clusterRows is how many products change, and clusterD the second delete: readers keep to it.
const (
	clusterRows = 150
	clusterD    = time.Second
)

func newClusterSite(t *testing.T, source *testbed.Server, o testbed.ClusterOptions) *clusterSite {
	t.Helper()
	s := &clusterSite{site: newSite(t, source), cluster: testbed.Cluster(t, o), hot: clusterRows}
	// Of the seeds one is not there.
	s.redisAt = []string{"127.0.0.1:1", s.cluster.Masters[0].Addr, s.cluster.Masters[1].Addr}
	s.redisMore = ", mode: cluster"
	s.mappings = fmt.Sprintf(`
  - {table: shop.product, keys: ["product:{id}"], second_delete: %[1]s}
  - table: shop.product
    keys: ["price:{id}"]
    rebuild: {from: row, as: string, value: "{price}"}
    second_delete: %[1]s
`, clusterD)
	for id := range clusterRows {
		s.write(id)
	}
	var seeds []string
	for _, m := range slices.Concat(s.cluster.Masters, s.cluster.Replicas) {
		seeds = append(seeds, m.Addr)
	}
	s.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: seeds, ContextTimeoutEnabled: true, DialerRetries: 1})
	t.Cleanup(func() { testbed.Must(t, s.client.Close()) })
	s.lasts, s.stop = context.WithCancel(t.Context())
	t.Cleanup(func() {
		s.stop()
		s.load.Wait()
	})
	return s
}

// clusterKeys are the keys of a product.
func clusterKeys(id int) []string {
	return []string{fmt.Sprint("product:", id), fmt.Sprint("price:", id)}
}

// startLoad has products change and readers read until stopLoad.
func (s *clusterSite) startLoad() {
	s.load.Go(func() {
		for s.lasts.Err() == nil {
			_, err := s.source.DB().ExecContext(s.lasts, "UPDATE shop.product SET price = price + 1 WHERE id IN (?, ?)",
				rand.IntN(s.hot), rand.IntN(s.hot))
			if err != nil && s.lasts.Err() == nil {
				s.t.Error(err)
				return
			}
			rest(s.lasts, 10*time.Millisecond)
		}
	})
	for range 6 {
		s.load.Go(func() {
			for s.lasts.Err() == nil {
				s.fill(rand.IntN(clusterRows))
			}
		})
	}
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// fill is one reader: what it has read is in the cache before D is over, or never.
func (s *clusterSite) fill(id int) {
	ctx, cancel := context.WithTimeout(s.lasts, clusterD*3/4)
	defer cancel()
	price, err := s.price(ctx, id)
	if err != nil {
		return
	}
	rest(ctx, time.Duration(rand.Int64N(int64(clusterD/2))))
	for _, key := range clusterKeys(id) {
		if s.client.SetNX(ctx, key, price, 0).Err() == nil {
			s.filled.Add(1)
		}
	}
}

func (s *clusterSite) price(ctx context.Context, id int) (price string, err error) {
	err = s.source.DB().QueryRowContext(ctx, "SELECT price FROM shop.product WHERE id = ?", id).Scan(&price)
	return price, err
}

// finished waits until all that is committed now is finished.
func (s *clusterSite) finished(by ...*site) {
	s.t.Helper()
	now := time.Now()
	for _, p := range by {
		p.await("all is finished", func(st *app.Status) bool { return st.State == app.Fresh && st.FreshAsOf.After(now) })
	}
}

// stopLoad ends the load, waits until all changes are finished, and compares what is cached with the rows.
func (s *clusterSite) stopLoad(by ...*site) {
	s.t.Helper()
	s.stop()
	s.load.Wait()
	s.finished(by...)
	if s.filled.Load() == 0 {
		s.t.Error("no reader has filled anything")
	}
	held := 0
	for id := range clusterRows {
		want, err := s.price(s.t.Context(), id)
		testbed.Must(s.t, err)
		for _, key := range clusterKeys(id) {
			got, err := s.client.Get(s.t.Context(), key).Result()
			switch {
			case errors.Is(err, redis.Nil):
			case err != nil:
				s.t.Errorf("%s: %v", key, err)
			case got != want:
				s.t.Errorf("%s holds %s, its row %s", key, got, want)
			default:
				held++
			}
		}
	}
	if held == 0 {
		s.t.Error("nothing is cached, so nothing is shown")
	}
	for _, p := range by {
		if st := p.status(); st == nil || st.Parked+st.DeadLetters != 0 {
			s.t.Errorf("keys in trouble: %+v", st)
		}
	}
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
				for id := range clusterRows {
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
					for id := range clusterRows {
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
