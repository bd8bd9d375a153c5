package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// struckSentinels is a master with replicas, and sentinels that watch it, under load. They are struck again and again.
type struckSentinels struct {
	*struck
	master    *testbed.RedisServer
	replicas  []*testbed.RedisServer
	sentinels []*testbed.Sentinel
	between   []*proxy.Proxy // freshet asks the sentinels through these
}

const (
	// watchedAs is what the sentinels call the master.
	watchedAs = "shop-cache"
	// watcher is the user that sentinels and replicas log in as. Others have the default user.
	watcher, watcherPassword = "watcher", "hush-hush"
)

// Whatever strikes in whatever order, no value stays that is older than its row, whichever action it is of.
func TestWithSentinelsNoValueIsStaleAfterAnyStrikes(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, source *testbed.Server) {
		s := newStruckSentinels(t, source)
		s.strike(s.strikes(), s.settle)
	})
}

func newStruckSentinels(t *testing.T, source *testbed.Server) *struckSentinels {
	t.Helper()
	l := newBusySite(t, newSite(t, source))
	l.everyForm()
	s := &struckSentinels{}
	for range 3 {
		s.replicas = append(s.replicas, testbed.Redis(t, "--repl-diskless-sync-delay", "0",
			"--user", watcher, "on", ">"+watcherPassword, "~*", "&*", "+@all",
			"--masteruser", watcher, "--masterauth", watcherPassword))
	}
	s.master, s.replicas = s.replicas[0], s.replicas[1:]
	for _, r := range s.replicas {
		r.Do(t, "replicaof", "127.0.0.1", s.master.Port)
	}
	s.sentinels = testbed.Sentinels(t, testbed.SentinelOptions{
		Name: watchedAs, Master: s.master, MasterUser: watcher, MasterPassword: watcherPassword,
	}, 3)
	var addresses []string
	for _, one := range s.sentinels {
		addresses = append(addresses, one.Addr)
		s.between = append(s.between, proxy.Start(t, one.Addr))
		l.redisAt = append(l.redisAt, s.between[len(s.between)-1].Addr())
	}
	l.redisMore = ", mode: sentinel, master_name: " + watchedAs
	l.through(redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: watchedAs, SentinelAddrs: addresses, ContextTimeoutEnabled: true, DialerRetries: 1,
	}))
	s.struck = &struck{busySite: l}
	s.settle()
	s.struck = newStruck(t, l)
	return s
}

// strikes are what befalls the servers, the sentinels and freshet.
func (s *struckSentinels) strikes() map[string]func() {
	return map[string]func(){
		"the master is killed":                     s.killMaster,
		"the master hangs, and is replaced":        s.hangUntilReplaced,
		"the master hangs for a moment":            func() { s.hang(s.master) },
		"a failover by hand":                       s.failover,
		"the heirs lack deletes":                   s.laggingHeirs,
		"two masters":                              func() { s.partition(false) },
		"two masters, freshet at the former":       func() { s.partition(true) },
		"a sentinel is dead":                       s.withoutOneSentinel,
		"older data":                               func() { s.olderData(s.master) },
		"older data while freshet is down":         func() { s.olderDataUnseen(s.master) },
		"all come back with older data":            func() { s.allOlder(s.servers()...) },
		"the master forgets all":                   func() { s.master.Do(s.t, "flushall") },
		"freshet is killed":                        s.killFreshet,
		"keys are forgotten by hand":               s.forgetAll,
		"rows are read and changes are done again": s.walkAndRedo,
	}
}

func (s *struckSentinels) servers() []*testbed.RedisServer {
	return slices.Concat([]*testbed.RedisServer{s.master}, s.replicas)
}

// settle waits until all sentinels name one master, which has all others as replicas with all of its data, and takes
// them as they are.
func (s *struckSentinels) settle() {
	s.t.Helper()
	all := s.servers()
	testbed.Eventually(s.t, patience, "the sentinels agree, and the replicas are in sync", func() bool {
		at := s.named(s.sentinels[0])
		is := slices.IndexFunc(all, func(r *testbed.RedisServer) bool { return r.Addr == at })
		if is < 0 || !all[is].IsMaster(s.t.Context()) {
			return false
		}
		s.master, s.replicas = all[is], slices.Delete(slices.Clone(all), is, is+1)
		for _, one := range s.sentinels {
			if s.named(one) != at || !s.allWell(one) {
				return false
			}
		}
		for _, r := range s.replicas {
			info := r.Client().Info(s.t.Context(), "replication").Val()
			if !strings.Contains(info, fmt.Sprintf("master_port:%d\r", s.master.Port)) ||
				!strings.Contains(info, "master_link_status:up") {
				return false
			}
		}
		return s.master.Client().Do(s.t.Context(), "wait", len(s.replicas), 1000).Val() == int64(len(s.replicas))
	})
}

// named returns where a sentinel says that the master is.
func (s *struckSentinels) named(by *testbed.Sentinel) string {
	return strings.Join(by.Client().GetMasterAddrByName(s.t.Context(), watchedAs).Val(), ":")
}

// allWell reports whether a sentinel finds that the master and all replicas are alive.
func (s *struckSentinels) allWell(by *testbed.Sentinel) bool {
	of, err := by.Client().Replicas(s.t.Context(), watchedAs).Result()
	well := slices.DeleteFunc(of, func(r map[string]string) bool { return r["flags"] != "slave" })
	return err == nil && len(well) == len(s.replicas) &&
		by.Client().Master(s.t.Context(), watchedAs).Val()["flags"] == "master"
}

// awaitHeir waits until a replica has the master's place.
func (s *struckSentinels) awaitHeir() {
	s.t.Helper()
	testbed.Eventually(s.t, patience, "a replica takes over", func() bool {
		return slices.ContainsFunc(s.replicas, func(r *testbed.RedisServer) bool {
			return r.IsMaster(s.t.Context()) && slices.ContainsFunc(s.sentinels, func(one *testbed.Sentinel) bool {
				return s.named(one) == r.Addr
			})
		})
	})
}

func (s *struckSentinels) killMaster() {
	testbed.Must(s.t, s.master.Kill())
	s.changeAll()
	s.awaitHeir()
	s.pass(3 * time.Second)
	testbed.Must(s.t, s.master.Start(s.t.Context()))
}

// hangUntilReplaced has the former master come back as a master, until the sentinels notice.
func (s *struckSentinels) hangUntilReplaced() {
	testbed.Must(s.t, s.master.Pause())
	s.changeAll()
	s.awaitHeir()
	s.changeAll()
	testbed.Must(s.t, s.master.Resume())
	s.pass(2 * time.Second)
	s.changeAll()
}

func (s *struckSentinels) failover() {
	testbed.Eventually(s.t, patience, "a sentinel begins a failover", func() bool {
		return s.sentinels[s.chance.IntN(3)].Client().Failover(s.t.Context(), watchedAs).Err() == nil
	})
	s.changeAll()
	s.awaitHeir()
}

func (s *struckSentinels) laggingHeirs() {
	for _, r := range s.replicas {
		testbed.Must(s.t, r.Pause())
	}
	s.master.Do(s.t, "client", "kill", "type", "replica") // what is on the way is lost, too
	s.changeAll()
	s.pass(3 * time.Second)
	testbed.Must(s.t, s.master.Kill())
	for _, r := range s.replicas {
		testbed.Must(s.t, r.Resume())
	}
	s.awaitHeir()
	testbed.Must(s.t, s.master.Start(s.t.Context()))
}

// partition cuts the master off from the sentinels and the replicas, but from no client. So there are two masters.
// Freshet may be on the side of the former one.
func (s *struckSentinels) partition(cutOff bool) {
	if cutOff {
		for _, p := range s.between {
			p.Cut()
		}
	}
	former := s.master
	former.Do(s.t, "acl", "setuser", watcher, "-@all")
	former.Do(s.t, "client", "kill", "type", "replica")
	s.changeAll()
	s.awaitHeir()
	s.changeAll()
	s.pass(3 * time.Second)
	if !former.IsMaster(s.t.Context()) {
		s.t.Error("the former master knows that it is none")
	}
	former.Do(s.t, "acl", "setuser", watcher, "+@all")
	if cutOff {
		for _, p := range s.between {
			testbed.Must(s.t, p.Resume())
		}
	}
	s.changeAll()
}

// withoutOneSentinel has a failover that a sentinel hears of later.
func (s *struckSentinels) withoutOneSentinel() {
	dead := s.sentinels[s.chance.IntN(len(s.sentinels))]
	testbed.Must(s.t, dead.Kill())
	s.killMaster()
	testbed.Must(s.t, dead.Start(s.t.Context()))
}
