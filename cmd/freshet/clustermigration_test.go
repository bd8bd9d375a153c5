package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// migrations are what befalls slots that a server moves by itself, where it can.
func (s *struckCluster) migrations() map[string]func() {
	if !s.cluster.Migrates(s.t) {
		s.t.Logf("%s does not know CLUSTER MIGRATESLOTS: no strike has slots moved by it", s.cluster.Masters[0].Version)
		return nil
	}
	s.t.Logf("%s knows CLUSTER MIGRATESLOTS: strikes have slots moved by it", s.cluster.Masters[0].Version)
	return map[string]func(){
		"slots are migrated, and back":     s.migrate,
		"a migration is cancelled":         s.cancelMigration,
		"who gives slots is killed":        func() { s.killMigrating(true) },
		"who takes slots is killed":        func() { s.killMigrating(false) },
		"freshet is killed in a migration": s.killFreshetMigrating,
		"who gives slots hangs":            func() { s.hangMigrating(true) },
		"who takes slots hangs":            func() { s.hangMigrating(false) },
	}
}

// movers chooses two masters, and slots of the first with keys in them.
func (s *struckCluster) movers() (from, to int, slots []int) {
	from = s.chance.IntN(len(s.cluster.Masters))
	to = (from + 1 + s.chance.IntN(len(s.cluster.Masters)-1)) % len(s.cluster.Masters)
	slots = s.slotsWithKeys(from)
	s.t.Logf("%d slots of %s go to %s", len(slots), s.cluster.Masters[from].Addr, s.cluster.Masters[to].Addr)
	return from, to, slots
}

// slotsWithKeys returns some of the slots of a master that have keys.
func (s *struckCluster) slotsWithKeys(n int) (slots []int) {
	from := s.cluster.Masters[n]
	has := s.cluster.Slots(s.t, from)
	keys := []string{"prices", "board", "ids"}
	for id := range busyRows {
		keys = append(keys, fmt.Sprint("asked:", id), clusterKeys(id)[id%2])
	}
	s.chance.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, key := range keys {
		slot := int(from.Client().ClusterKeySlot(s.t.Context(), key).Val())
		if len(slots) < 8 && slices.Contains(has, slot) && !slices.Contains(slots, slot) {
			slots = append(slots, slot)
		}
	}
	return slots
}

// halfWay begins to migrate slots, and returns at some moment of it: as a rule one at which it is held up, or when they
// have just been taken.
func (s *struckCluster) halfWay(from, to *testbed.RedisServer, slots []int) (release func()) {
	s.t.Helper()
	stages := []testbed.Stage{testbed.Streaming, testbed.Granted, "taken", "any"}
	stage := stages[s.chance.IntN(len(stages))]
	s.t.Log("it is at the stage ", stage)
	switch stage {
	case "any":
		s.cluster.BeginMigration(s.t, from, to, slots...)
		s.pass(150 * time.Millisecond)
	case "taken":
		s.cluster.BeginMigration(s.t, from, to, slots...)
		s.cluster.AwaitTaken(s.t, to, slots...)
	default:
		release = s.cluster.HoldMigrations(s.t, stage, from, to)
		s.cluster.BeginMigration(s.t, from, to, slots...)
		s.cluster.AwaitStage(s.t, stage, from)
		return release
	}
	return func() {}
}

// migrate moves slots to another master and back, again and again, while rows change.
func (s *struckCluster) migrate() {
	giver, taker, slots := s.movers()
	s.thereAndBack(s.cluster.Masters[giver], s.cluster.Masters[taker], slots)
}

func (s *struckCluster) thereAndBack(from, to *testbed.RedisServer, slots []int) {
	for range 2 + 2*s.chance.IntN(4) {
		s.changeAll()
		s.cluster.Migrate(s.t, from, to, slots...)
		from, to = to, from
		if s.chance.IntN(2) == 0 {
			s.pass(1500 * time.Millisecond)
		}
	}
}

// cancelMigration ends a migration half-way, or too late. Sometimes it is begun again.
func (s *struckCluster) cancelMigration() {
	giver, taker, slots := s.movers()
	from, to := s.cluster.Masters[giver], s.cluster.Masters[taker]
	release := s.halfWay(from, to, slots)
	s.changeAll()
	s.pass(time.Second)
	ended := s.cluster.CancelMigrations(s.t, from)
	s.t.Log("it is ended before it is done: ", ended)
	release()
	s.changeAll()
	if ended && s.chance.IntN(2) == 0 {
		s.cluster.Migrate(s.t, from, to, slots...)
	}
}

// killMigrating kills the giver of slots, or their taker. Its replica has its place then.
func (s *struckCluster) killMigrating(gives bool) {
	giver, taker, slots := s.movers()
	from, to := s.cluster.Masters[giver], s.cluster.Masters[taker]
	killed, heir := to, s.cluster.Replicas[taker]
	if gives {
		killed, heir = from, s.cluster.Replicas[giver]
	}
	release := s.halfWay(from, to, slots)
	if s.chance.IntN(2) == 0 {
		s.changeAll()
		s.pass(time.Second)
	}
	testbed.Must(s.t, killed.Kill())
	s.changeAll()
	testbed.Eventually(s.t, patience, "the replica takes over", func() bool { return heir.IsMaster(s.t.Context()) })
	s.changeAll()
	testbed.Must(s.t, killed.Start(s.t.Context())) // it is held up no more
	release()
}

// hangMigrating has the giver of slots, or their taker, be silent for less than it takes to replace it.
func (s *struckCluster) hangMigrating(gives bool) {
	giver, taker, slots := s.movers()
	from, to := s.cluster.Masters[giver], s.cluster.Masters[taker]
	release := s.halfWay(from, to, slots)
	if gives {
		s.hang(from)
	} else {
		s.hang(to)
	}
	release()
	s.changeAll()
	s.cluster.EndMigration(s.t, from, to, slots...)
}

func (s *struckCluster) killFreshetMigrating() {
	giver, taker, slots := s.movers()
	from, to := s.cluster.Masters[giver], s.cluster.Masters[taker]
	release := s.halfWay(from, to, slots)
	s.freshet.Kill9()
	s.changeAll()
	release()
	if s.chance.IntN(2) == 0 {
		s.cluster.EndMigration(s.t, from, to, slots...)
	}
	s.freshet = s.start("run")
	s.cluster.EndMigration(s.t, from, to, slots...)
}

// newMigratingSite is a site with freshet and a cluster whose servers move slots by themselves.
func newMigratingSite(t *testing.T, source *testbed.Server) *clusterSite {
	t.Helper()
	s := newClusterSite(t, source, testbed.ClusterOptions{Masters: 3, Valkey: true})
	s.run()
	s.finished(s.site)
	return s
}

// A search looks at one master after the other. It must not miss keys whose slots migrate there and back meanwhile.
func TestOnAClusterAllKeysAreForgottenWhileSlotsMigrate(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newMigratingSite(t, source)
		c := s.cluster
		const ownerless = 200 // so many keys are of no row that there is
		key := func(id int) string { return fmt.Sprint("product:", busyRows+id) }
		from, to := c.Masters[0], c.Masters[1]
		has := c.Slots(t, from)
		var slots []int
		for id := range ownerless {
			testbed.Must(t, s.client.Set(t.Context(), key(id), "old", 0).Err())
			slot := int(from.Client().ClusterKeySlot(t.Context(), key(id)).Val())
			if slices.Contains(has, slot) && !slices.Contains(slots, slot) {
				slots = append(slots, slot)
			}
		}
		forgets := s.start("invalidate", "--all", "--wait")
		for range 4 {
			c.Migrate(t, from, to, slots...)
			from, to = to, from
		}
		if code := forgets.Wait(t, patience); code != exitDone {
			t.Errorf("invalidate ends with %d: %s", code, forgets.Stderr())
		}
		for id := range ownerless {
			if got, err := orNone(s.client.Get(t.Context(), key(id)).Result()); got != "" || err != nil {
				t.Errorf("%s is %q after all was forgotten, %v", key(id), got, err)
			}
		}
	})
}

// The taker of slots hears so late that it may have them that their giver has given up, and has acknowledged deletes
// since. They are lost once the slots are taken.
func TestOnAClusterSlotsThatAreTakenLateLeaveNoStaleKey(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newMigratingSite(t, source)
		c := s.cluster
		const id = 7
		key := fmt.Sprint("product:", id)
		slot, has := ownerIn(t, c, key)
		from, to := c.Masters[has], c.Masters[(has+1)%3]
		line := proxy.Start(t, to.Addr)
		_, port, err := net.SplitHostPort(line.Addr())
		testbed.Must(t, err)
		through, err := strconv.Atoi(port)
		testbed.Must(t, err)

		// A giver that hangs up before it has read all that the taker said resets the connection. Then the taker gives up.
		taken := false
		for attempt := 0; !taken && attempt < 10; attempt++ {
			testbed.Must(t, s.client.Set(t.Context(), key, "old", 0).Err())
			// Only the migration goes through the line.
			release := c.HoldMigrations(t, testbed.Streaming, from, to)
			c.Announce(t, to, through, from)
			c.BeginMigration(t, from, to, slot)
			c.AwaitStage(t, testbed.Streaming, from)
			c.Announce(t, to, 0, c.Masters[(has+2)%3])
			c.Announce(t, to, 0, from)
			s.await("freshet knows where the taker is", func(st *app.Status) bool {
				isTaker := func(n invalidator.NodeStatus) bool { return n.Address == to.Addr }
				return st.Redis.Up && slices.ContainsFunc(st.Redis.Nodes, isTaker)
			})
			from.Do(t, "config", "set", "cluster-manual-failover-timeout", 2000) // it waits for twice that
			line.Delay(time.Second)
			release()
			c.AwaitStage(t, testbed.Granted, from)
			line.Stall(proxy.Both)
			c.AwaitStage(t, testbed.Failed, from)

			s.write(id)
			testbed.Eventually(t, patience, "the giver has deleted the key", func() bool {
				n, err := from.Client().Exists(t.Context(), key).Result()
				return err == nil && n == 0
			})
			s.finished(s.site)
			line.Delay(0)
			testbed.Must(t, line.Resume())
			taken = c.Takes(t, to, slot)
		}
		if !taken {
			t.Fatal("the taker gave up each time")
		}
		testbed.Eventually(t, patience, "the old key is deleted", func() bool {
			n, err := to.Client().Exists(t.Context(), key).Result()
			return err == nil && n == 0
		})
		s.await("that was in doubt", func(st *app.Status) bool { return len(st.Doubts)+len(st.EndedDoubts) > 0 })
		s.finished(s.site)
	})
}
