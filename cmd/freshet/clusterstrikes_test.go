package main

import (
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// struckCluster is a cluster under load that is struck again and again.
type struckCluster struct {
	*struck
	cluster *testbed.RedisCluster
}

// Whatever strikes in whatever order, no value stays that is older than its row, whichever action it is of. The cluster
// is one of Redis, or of Valkey, which moves slots by itself: chance decides, unless somebody has named the servers.
func TestOnAClusterNoKeyIsStaleAfterAnyStrikes(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		o := testbed.ClusterOptions{Masters: 3, Replicas: 1}
		o.Valkey = os.Getenv(testbed.EnvRedisHome) == "" && testbed.Seeded(t).IntN(2) == 0
		site := newClusterSite(t, source, o)
		site.everyForm()
		s := &struckCluster{struck: newStruck(t, site.busySite), cluster: site.cluster}
		s.strike(s.strikes(), s.settle)
	})
}

// strikes are what befalls a cluster and freshet, as far as its servers can. Each strikes one of the masters, and
// leaves a cluster that works.
func (s *struckCluster) strikes() map[string]func() {
	one := func(strike func(n int)) func() {
		return func() {
			n := s.chance.IntN(len(s.cluster.Masters))
			s.t.Logf("at %s", s.cluster.Masters[n].Addr)
			strike(n)
		}
	}
	master := func(strike func(*testbed.RedisServer)) func() {
		return one(func(n int) { strike(s.cluster.Masters[n]) })
	}
	strikes := map[string]func(){
		"a failover by hand":                one(s.failover),
		"an heir that lacks deletes":        one(s.laggingHeir),
		"older data":                        master(s.olderData),
		"older data while freshet is down":  master(s.olderDataUnseen),
		"freshet is killed":                 s.killFreshet,
		"slots move, and freshet is killed": one(s.moveSlots),
		"a master hangs":                    master(s.hang),
		"a master forgets all":              master(func(m *testbed.RedisServer) { m.Do(s.t, "flushall") }),
		"all masters come back with older data": func() {
			s.allOlder(slices.Concat(s.cluster.Masters, s.cluster.Replicas)...)
		},
		"keys are forgotten by hand":               s.forgetAll,
		"rows are read and changes are done again": s.walkAndRedo,
	}
	maps.Copy(strikes, s.migrations())
	return strikes
}

// settle waits until the cluster works and each master has a replica with all of its data, and takes them as they are.
func (s *struckCluster) settle() {
	s.t.Helper()
	c := s.cluster
	c.Await(s.t)
	for n := range c.Masters {
		testbed.Eventually(s.t, patience, "a master and its replica are in sync", func() bool {
			if !c.Masters[n].IsMaster(s.t.Context()) && c.Replicas[n].IsMaster(s.t.Context()) {
				c.Masters[n], c.Replicas[n] = c.Replicas[n], c.Masters[n]
			}
			return c.Masters[n].IsMaster(s.t.Context()) && !c.Replicas[n].IsMaster(s.t.Context()) &&
				c.Masters[n].Client().Do(s.t.Context(), "wait", 1, 1000).Val() == int64(1)
		})
	}
}

func (s *struckCluster) failover(n int) {
	// An election soon after another can be won with the votes of that one, and is lost again at once.
	rest(s.t.Context(), 4*time.Second)
	s.cluster.Failover(s.t, s.cluster.Masters[n], s.cluster.Replicas[n])
}

func (s *struckCluster) laggingHeir(n int) {
	master, heir := s.cluster.Masters[n], s.cluster.Replicas[n]
	testbed.Must(s.t, heir.Pause())
	master.Do(s.t, "client", "kill", "type", "replica") // what is on the way is lost, too
	s.changeAll()
	s.pass(3 * time.Second)
	testbed.Must(s.t, master.Kill())
	testbed.Must(s.t, heir.Resume())
	testbed.Eventually(s.t, patience, "the replica takes over", func() bool { return heir.IsMaster(s.t.Context()) })
	testbed.Must(s.t, master.Start(s.t.Context()))
}

// moveSlots moves slots with keys in them to another master. Freshet is killed when they are half-way, or has the move
// end before it is.
func (s *struckCluster) moveSlots(n int) {
	c := s.cluster
	from, to := c.Masters[n], c.Masters[(n+1)%len(c.Masters)]
	slots := s.slotsWithKeys(n)
	for _, slot := range slots {
		c.BeginMove(s.t, slot, from, to)
	}
	for _, slot := range slots[:len(slots)/2] {
		c.MoveKeys(s.t, slot, from, to)
	}
	early := s.chance.IntN(2) == 0
	if early {
		s.freshet.Kill9()
		s.changeAll()
	}
	for _, slot := range slots {
		c.EndMove(s.t, slot, from, to)
	}
	if !early {
		s.freshet.Kill9()
	}
	s.freshet = s.start("run")
}
