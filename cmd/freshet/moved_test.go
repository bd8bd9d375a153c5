package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// replicate starts a replica of Redis, and waits until it has all.
func (s *site) replicate() *testbed.RedisServer {
	s.t.Helper()
	replica := testbed.Redis(s.t)
	replica.Do(s.t, "replicaof", "127.0.0.1", s.redis.Port)
	s.inSync(replica)
	return replica
}

// inSync waits until the replica has all that is in Redis.
func (s *site) inSync(replica *testbed.RedisServer) {
	s.t.Helper()
	testbed.Eventually(s.t, patience, "the replica has all", func() bool {
		there, err := replica.Client().Info(s.t.Context(), "replication").Result()
		here, hereErr := s.redis.Client().Info(s.t.Context(), "replication").Result()
		return err == nil && hereErr == nil && strings.Contains(there, "master_link_status:up") &&
			offset(there, "slave_repl_offset:") == offset(here, "master_repl_offset:")
	})
}

// offset returns what follows a name in INFO.
func offset(info, name string) string {
	_, rest, _ := strings.Cut(info, "\n"+name)
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

// runAtAnAddress runs freshet, for which Redis is at an address that can move.
func (s *site) runAtAnAddress() *proxy.Proxy {
	s.t.Helper()
	between := proxy.Start(s.t, s.redis.Addr)
	s.redisAt = []string{between.Addr()}
	s.run()
	return between
}

// A name, a virtual address or a managed primary endpoint moves, and the former server goes on answering on the
// connections that it has: it was cut off from the others, and does not know yet. What it acknowledges counts for
// nothing.
func TestDeletesFollowAnAddressThatMovesWhileTheFormerServerStillAnswers(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t))
	former := s.redis
	between := s.runAtAnAddress()
	for id := range 20 {
		s.cache(fmt.Sprintf("product:%d", id))
	}
	s.cache("other:1")
	s.stamped()
	next := s.replicate()
	next.Do(t, "replicaof", "no", "one") // it gets nothing more
	s.write(1)
	s.gone("product:1") // acknowledged by the one that will be left

	between.Aim(next.Addr)
	s.redis = next
	if !s.cached("product:1") {
		t.Fatal("the next server lacks the last delete, and has the key")
	}
	s.gone("product:1")
	s.write(2)
	s.gone("product:2")
	s.await("freshet is fresh again", func(st *app.Status) bool { return st.State == app.Fresh && len(st.Doubts) == 0 })
	for _, key := range []string{"product:3", "product:19", "other:1"} {
		s.kept(key)
	}
	testbed.Eventually(t, patience, "the former server is left", func() bool {
		return !strings.Contains(former.Client().ClientList(t.Context()).Val(), "cmd=unlink")
	})
}

// The sentinels promote a replica that lacks the last deletes.
func TestAFailoverBySentinelsLeavesNoKeyStale(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t))
	master, replica := s.redis, s.replicate()
	const name = "shop-cache"
	sentinels := testbed.Sentinels(t, testbed.SentinelOptions{Name: name, Master: master}, 3)
	for _, one := range sentinels {
		s.redisAt = append(s.redisAt, one.Addr)
	}
	testbed.Eventually(t, patience, "the sentinels know the replica", func() bool {
		for _, one := range sentinels {
			if of, err := one.Client().Replicas(t.Context(), name).Result(); err != nil || len(of) != 1 {
				return false
			}
		}
		return true
	})
	s.redisMore = ", mode: sentinel, master_name: " + name
	if said := s.ask("check"); !strings.Contains(said, "the sentinels say that the master "+name+" is at "+master.Addr) {
		t.Errorf("check says %s", said)
	}
	o := &older{site: s, freshet: s.run()}
	for id := range changed + untouched {
		s.cache(fmt.Sprintf("product:%d", id))
	}
	s.cache("other:1")
	s.stamped()
	if at := s.status().Redis.Address; at != name+" ("+master.Addr+")" {
		t.Errorf("the status says that redis is %s", at)
	}
	s.inSync(replica)
	testbed.Must(t, replica.Pause())
	o.change()
	testbed.Must(t, master.Kill())
	testbed.Must(t, replica.Resume())
	s.redis = replica
	testbed.Eventually(t, patience, "the replica is promoted", func() bool {
		return strings.Contains(replica.Client().Info(t.Context(), "replication").Val(), "role:master")
	})
	o.redone()
	s.write(changed)
	s.gone(fmt.Sprintf("product:%d", changed))
	if at := s.status().Redis.Address; at != name+" ("+replica.Addr+")" {
		t.Errorf("the status says that redis is %s", at)
	}
}

// Two invalidators of a group notice at different times that the address leads elsewhere, as if one had cached a name.
// Meanwhile that one deletes keys on the server that the other has left. It may be killed before it notices.
func TestAroundKafkaNoKeyIsStaleIfOneInvalidatorFollowsAnAddressLate(t *testing.T) {
	t.Parallel()
	for name, end := range testbed.SomeOf(t, map[string]func(o *olderGroup, late *site, between *proxy.Proxy){
		"it comes":     func(o *olderGroup, _ *site, between *proxy.Proxy) { between.Aim(o.redis.Addr) },
		"it is killed": func(o *olderGroup, late *site, _ *proxy.Proxy) { o.running[late].Kill9() },
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, testbed.MySQL(t)).around(t, testbed.SharedKafka(t))
			o := &olderGroup{
				older: &older{site: s}, reader: s.part("reader"),
				members: []*site{s.part("invalidator"), s.part("invalidator")}, running: map[*site]*testbed.Running{},
			}
			between := map[*site]*proxy.Proxy{}
			for _, m := range o.members {
				between[m] = proxy.Start(t, s.redis.Addr)
				m.redisAt = []string{between[m].Addr()}
			}
			o.launch(o.reader)
			o.startMembers()
			for id := range changed + untouched {
				s.cache(fmt.Sprintf("product:%d", id))
			}
			s.stamped()
			former, next := s.redis, s.replicate()
			next.Do(t, "replicaof", "no", "one")
			leader, late := o.leads()
			between[leader].Aim(next.Addr)
			leader.redis, o.redis = next, next
			leader.await("it has answered, and waits for the other one", func(st *app.Status) bool {
				return slices.ContainsFunc(st.Doubts, func(d doubt.Doubt) bool {
					return d.Cause == alarm.RedisChanged && strings.Contains(d.Answer, "works on the same redis")
				})
			})
			for id := range changed {
				s.write(id)
			}
			keys := func(on *testbed.RedisServer) []string { return on.Client().Keys(t.Context(), "product:*").Val() }
			testbed.Eventually(t, patience, "all keys are deleted, on one of them", func() bool {
				here := keys(next)
				both := 0
				for _, key := range keys(former) {
					if slices.Contains(here, key) {
						both++
					}
				}
				return both == untouched
			})
			if here, there := len(keys(next)), len(keys(former)); here <= untouched || there <= untouched {
				t.Fatalf("%d keys are left on the next server, %d on the former one: they did not share the deletes", here, there)
			}
			if st := leader.status(); st.State == app.Fresh {
				t.Errorf("the state is %s: %s", st.State, st.Sentence)
			}
			end(o, late, between[late])
			for id := range changed {
				o.gone(fmt.Sprintf("product:%d", id))
			}
			if n := o.left(); n != untouched {
				t.Errorf("%d keys are left, want %d", n, untouched)
			}
			leader.await("it is fresh again", func(st *app.Status) bool {
				return st.State == app.Fresh && len(st.Doubts) == 0
			})
		})
	}
}

// What is deleted over connections of before may be deleted on a server that nobody reads from any more.
func TestTheStateIsNotFreshWhileNoNewConnectionToRedisComesAbout(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t))
	between := s.runAtAnAddress()
	s.unheard(between)
	between.Aim(s.redis.Addr)
	s.await("freshet is fresh again", func(st *app.Status) bool { return st.State == app.Fresh })
}

// unheard has the address of Redis lead nowhere, while the connections that there are go on, until freshet says that it
// does not know where it leads.
func (s *site) unheard(between *proxy.Proxy) {
	s.t.Helper()
	// So much at once that there are connections enough for all that comes later.
	s.source.Exec(s.t, "INSERT INTO shop.product (id, price) WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 "+
		"FROM n WHERE id < 1000) SELECT id, 1 FROM n", "INSERT INTO shop.product SELECT 1000 * a.id + b.id, 1 FROM "+
		"shop.product a, shop.product b WHERE a.id <= 50")
	s.stamped()
	nowhere := testbed.FreeAddress(s.t)
	between.Aim(nowhere)
	s.await("freshet says that it does not know", func(st *app.Status) bool {
		// On a busy machine one of the connections may time out. Then redis is away, and freshet needs new ones.
		if away := st.Redis != nil && !st.Redis.Up; away {
			between.Aim(s.redis.Addr)
		} else {
			between.Aim(nowhere)
		}
		return st.State == app.Doubtful && strings.Contains(st.Sentence, "whether redis "+between.Addr()+" is still the same")
	})
}

// The next server begins with nothing, and readers fill it. freshet cannot look at it yet, and goes on deleting on the
// former one over the connections that it has.
func TestARedisThatBeganWhileTheFormerOneStillAnsweredIsInDoubt(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t))
	former := s.redis
	between := s.runAtAnAddress()
	s.unheard(between)
	s.cache("product:1")
	next := testbed.Redis(t)
	s.redis = next
	s.cache("product:1")
	s.cache("other:1")
	// By now it has been there for longer than its uptime, in whole seconds, may be wrong.
	testbed.Eventually(t, patience, "the next server has been there for some seconds", func() bool {
		at, err := strconv.Atoi(offset(next.Client().Info(t.Context(), "server").Val(), "uptime_in_seconds:"))
		return err == nil && at >= 3
	})
	s.write(1)
	s.await("it is deleted on the former one", func(st *app.Status) bool {
		n, err := former.Client().Exists(t.Context(), "product:1").Result()
		return err == nil && n == 0 && st.InFlight+st.Pending == 0
	})
	if !s.cached("product:1") {
		t.Fatal("it was deleted on the next one")
	}
	between.Aim(next.Addr)
	s.gone("product:1")
	s.await("freshet is fresh again", func(st *app.Status) bool { return st.State == app.Fresh && len(st.Doubts) == 0 })
	s.kept("other:1")
}

// The sentinel that answers may be cut off with a former master, while the others have made another server the master.
func TestTheStateIsNotFreshWhileMostSentinelsAreSilent(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MySQL(t))
	const name = "shop-cache"
	sentinels := testbed.Sentinels(t, testbed.SentinelOptions{Name: name, Master: s.redis}, 3)
	for _, one := range sentinels {
		s.redisAt = append(s.redisAt, one.Addr)
	}
	s.redisMore = ", mode: sentinel, master_name: " + name
	s.run()
	s.stamped()
	for _, one := range sentinels[:2] {
		testbed.Must(t, one.Pause())
	}
	s.await("freshet says that it does not know", func(st *app.Status) bool {
		return st.State == app.Doubtful && strings.Contains(st.Sentence, "2 of 3 sentinels do not answer")
	})
	s.cache("product:1")
	s.write(1) // it works on all the same
	s.gone("product:1")
	for _, one := range sentinels[:2] {
		testbed.Must(t, one.Resume())
	}
	s.await("freshet is fresh again", func(st *app.Status) bool { return st.State == app.Fresh })
}

func TestANameThatNoSentinelKnowsIsSaid(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	sentinels := testbed.Sentinels(t, testbed.SentinelOptions{Name: "shop", Master: s.redis}, 1)
	s.redisAt = []string{sentinels[0].Addr}
	s.redisMore = ", mode: sentinel, master_name: store"
	r := s.start("check")
	code, said := r.Wait(t, patience), r.Stdout()+r.Stderr()
	if code != exitFailed || !strings.Contains(said, "No such master with that name") {
		t.Errorf("exit code %d: %s", code, said)
	}
	s.start("run")
	s.await("freshet says what is wrong", func(st *app.Status) bool {
		return st.Redis != nil && !st.Redis.Up && strings.Contains(st.Redis.Sentence, "set redis.master_name")
	})
}

func TestNothingCountsThatTheReplicasDoNotHave(t *testing.T) {
	t.Parallel()
	s := newSite(t, testbed.MariaDB(t))
	replica := s.replicate()
	s.redisMore = ", wait_replicas: 1"
	s.run()
	testbed.Must(t, replica.Pause())
	s.cache("product:1")
	s.write(1)
	s.await("redis counts as away", func(st *app.Status) bool {
		return !st.Redis.Up && strings.Contains(st.Redis.Sentence, "0 of 1 replicas have acknowledged it")
	})
	testbed.Must(t, replica.Resume())
	s.await("freshet is fresh", func(st *app.Status) bool { return st.State == app.Fresh && st.Redis.Up })
	s.inSync(replica)
	if n := replica.Client().Exists(t.Context(), "product:1").Val(); n != 0 {
		t.Error("the replica still has the key")
	}
}
