package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// struck is a cluster under load, and freshet on it, that are struck again and again.
type struck struct {
	*clusterSite
	chance  *rand.Rand
	freshet *testbed.Running
	began   time.Time
}

// strikes are what befalls a cluster and freshet. Each is given one of the masters, and leaves a cluster that works.
var strikes = map[string]func(s *struck, n int){
	"a failover by hand":                       (*struck).failover,
	"an heir that lacks deletes":               (*struck).laggingHeir,
	"older data":                               (*struck).olderData,
	"older data while freshet is down":         (*struck).olderDataUnseen,
	"freshet is killed":                        (*struck).killFreshet,
	"slots move, and freshet is killed":        (*struck).moveSlots,
	"a master hangs":                           (*struck).hang,
	"a master forgets all":                     func(s *struck, n int) { s.cluster.Masters[n].Do(s.t, "flushall") },
	"all masters come back with older data":    (*struck).allOlder,
	"keys are forgotten by hand":               func(s *struck, _ int) { s.ask("invalidate", "--all", "--wait") },
	"rows are read and changes are done again": (*struck).walkAndRedo,
}

// Whatever strikes in whatever order, no key stays that is older than its row.
func TestOnAClusterNoKeyIsStaleAfterAnyStrikes(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := &struck{
			clusterSite: newClusterSite(t, source, testbed.ClusterOptions{Masters: 3, Replicas: 1}), chance: testbed.Seeded(t),
		}
		s.hot = clusterRows / 2 // a later change of the same row would delete what is stale
		s.freshet, s.began = s.run(), time.Now()
		s.startLoad()
		names := make([]string, 0, len(strikes))
		for name := range strikes {
			names = append(names, name)
		}
		slices.Sort(names)
		for range testbed.Cut(1, 30) {
			s.fillUp()
			name, n := names[s.chance.IntN(len(names))], s.chance.IntN(3)
			t.Logf("%s, at %s", name, s.cluster.Masters[n].Addr)
			strikes[name](s, n)
			s.settle()
		}
		s.finished(s.site)
		s.fillUp()
		s.stop()
		s.load.Wait()
		// Nobody fills the cache any more: what is stale stays so, unless freshet deletes it. It notices who Redis is a
		// moment after that has changed.
		testbed.Eventually(t, patience, "no key is stale", func() bool { return len(s.stale()) == 0 })
		s.client.ReloadState(t.Context())
		s.stopLoad(s.site)
	})
}

// fillUp waits until readers have filled most of the cache.
func (s *struck) fillUp() {
	s.t.Helper()
	testbed.Eventually(s.t, patience, "readers fill the cache", func() bool {
		held := 0
		for id := range clusterRows {
			for _, key := range clusterKeys(id) {
				held += int(s.client.Exists(s.t.Context(), key).Val())
			}
		}
		return held >= clusterRows
	})
}

// stale returns the keys that are not as their rows, or that cannot be read.
func (s *struck) stale() (keys []string) {
	for id := range clusterRows {
		want, err := s.price(s.t.Context(), id)
		testbed.Must(s.t, err)
		for _, key := range clusterKeys(id) {
			if got := s.client.Get(s.t.Context(), key); got.Val() != want && got.Val() != "" {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// settle waits until the cluster works and each master has a replica with all of its data, and takes them as they are.
func (s *struck) settle() {
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
	s.await("freshet answers", func(*app.Status) bool { return true })
	s.pass(2 * time.Second)
}

// pass lets the load go on for up to a while.
func (s *struck) pass(most time.Duration) { rest(s.lasts, time.Duration(s.chance.Int64N(int64(most)))) }

// changeAll changes all rows.
func (s *struck) changeAll() { s.source.Exec(s.t, "UPDATE shop.product SET price = price + 1") }

func (s *struck) killFreshet(int) {
	s.freshet.Kill9()
	s.changeAll()
	s.freshet = s.start("run")
}

func (s *struck) failover(n int) {
	// An election soon after another can be won with the votes of that one, and is lost again at once.
	rest(s.lasts, 4*time.Second)
	s.cluster.Failover(s.t, s.cluster.Masters[n], s.cluster.Replicas[n])
}

func (s *struck) laggingHeir(n int) {
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

func (s *struck) olderData(n int) {
	s.cluster.Masters[n].Do(s.t, "save")
	s.pass(3 * time.Second)
	s.changeAll()
	s.pass(3 * time.Second)
	s.again(s.cluster.Masters[n])
}

func (s *struck) olderDataUnseen(n int) {
	s.cluster.Masters[n].Do(s.t, "save")
	s.changeAll()
	s.pass(3 * time.Second)
	s.freshet.Kill9()
	s.again(s.cluster.Masters[n])
	s.freshet = s.start("run")
}

func (s *struck) allOlder(int) {
	all := slices.Concat(s.cluster.Masters, s.cluster.Replicas)
	for _, m := range all {
		m.Do(s.t, "save")
	}
	s.changeAll()
	s.pass(3 * time.Second)
	s.again(all...)
}

// again kills servers, and starts them with what they have saved.
func (s *struck) again(servers ...*testbed.RedisServer) {
	for _, m := range servers {
		testbed.Must(s.t, m.Kill())
	}
	for _, m := range servers {
		testbed.Must(s.t, m.Start(s.t.Context()))
	}
}

// moveSlots moves slots with keys in them to another master. Freshet is killed when they are half-way, or has the move
// end before it is.
func (s *struck) moveSlots(n int) {
	c := s.cluster
	from, to := c.Masters[n], c.Masters[(n+1)%len(c.Masters)]
	has := c.Slots(s.t, from)
	var slots []int
	for id := range clusterRows {
		slot := int(from.Client().ClusterKeySlot(s.t.Context(), clusterKeys(id)[id%2]).Val())
		if len(slots) < 8 && slices.Contains(has, slot) && !slices.Contains(slots, slot) {
			slots = append(slots, slot)
		}
	}
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

// hang has a master be silent for less than it takes to replace it.
func (s *struck) hang(n int) {
	testbed.Must(s.t, s.cluster.Masters[n].Pause())
	s.changeAll()
	s.pass(time.Second)
	testbed.Must(s.t, s.cluster.Masters[n].Resume())
}

func (s *struck) walkAndRedo(int) {
	s.warm("shop.product", "")
	s.ask("redo", "--since", s.began.Format(time.RFC3339), "--wait")
}
