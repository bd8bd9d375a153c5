package invalidator

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// withReplica returns a master and a replica that has all.
func withReplica(t *testing.T) (master, replica *testbed.RedisServer) {
	t.Helper()
	master, replica = testbed.Redis(t), testbed.Redis(t)
	replica.Do(t, "replicaof", "127.0.0.1", master.Port)
	testbed.Eventually(t, 2*time.Minute, "the replica follows", func() bool {
		return infoField(t, replica.Client(), "master_link_status") == "up"
	})
	return master, replica
}

// sends returns what sends one key, or several, in one round trip, or a call of a script, and returns their error.
func sends(t *testing.T, s *Single) map[string]func() error {
	unlink := func(keys ...string) error {
		c := commandsOf(keys...)
		s.Unlink(t.Context(), c)
		for _, c := range c {
			if c.Err != nil {
				return c.Err
			}
		}
		return nil
	}
	b, err := write.New(write.Options{})
	testbed.Must(t, err)
	return map[string]func() error{
		"a delete": func() error { return unlink("a") },
		"deletes":  func() error { return unlink("a", "b") },
		"a script": func() error {
			c := b.Acquire(b.Lock("a", 0))
			s.Do(t.Context(), []*write.Call{c})
			return c.Err
		},
	}
}

func TestWhatReplicasDoNotHaveIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	master, replica := withReplica(t)
	s := single(t, SingleOptions{Address: master.Addr, WaitReplicas: 1, Timeout: 4 * time.Second})
	for name, send := range sends(t, s) {
		t.Run(name, func(t *testing.T) {
			testbed.Eventually(t, 2*time.Minute, "the replica acknowledges", func() bool { return send() == nil })
			// A delete that finds nothing is not replicated, and then there is nothing to wait for.
			master.Do(t, "mset", "a", "1", "b", "1")
			testbed.Must(t, replica.Pause())
			err := send()
			testbed.Must(t, replica.Resume())
			if err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") || retry.ClassifyRedis(err) != retry.Away {
				t.Errorf("while the replica hangs: %v", err)
			}
		})
	}
}

// The delete that finds the key is sent on one connection, and once more on another one, where it finds nothing. WAIT
// waits there for no write of that connection: Redis 7 waits all the same, Redis 8 and Valkey 9 do not. So one is
// made, with the key that this looks for.
func TestADeleteThatIsSentAgainIsWaitedFor(t *testing.T) {
	t.Parallel()
	master, replica := withReplica(t)
	another := func(slots bool) *Single {
		s := single(t, SingleOptions{Address: master.Addr, WaitReplicas: 1, Timeout: 4 * time.Second, KeyPrefix: "shop:"})
		s.slots.Store(slots)
		return s
	}
	for name, c := range map[string]struct {
		slots   bool
		written string
	}{
		"one server":        {false, "shop:freshet:wait"},
		"node of a cluster": {true, "shop:freshet:wait:{" + write.SlotTag(write.Names{}.Slot("a")) + "}"},
	} {
		t.Run(name, func(t *testing.T) {
			master.Do(t, "del", c.written)
			for key, send := range sends(t, another(c.slots)) {
				testbed.Eventually(t, 2*time.Minute, "the replica acknowledges "+key, func() bool { return send() == nil })
			}
			if ttl := master.Client().PTTL(t.Context(), c.written).Val(); ttl <= 0 || ttl > time.Minute {
				t.Errorf("%s is there for %s, want a minute at most", c.written, ttl)
			}
			master.Do(t, "mset", "a", "1", "b", "1")
			testbed.Must(t, replica.Pause())
			first, again := sends(t, another(c.slots))["deletes"](), sends(t, another(c.slots))["deletes"]()
			testbed.Must(t, replica.Resume())
			if first == nil || again == nil || !strings.Contains(again.Error(), "0 of 1 replicas") {
				t.Errorf("while the replica hangs: %v, and sent again: %v", first, again)
			}
		})
	}
}

// The user may not write the key: whether replicas have the delete is not known.
func TestAWaitWithoutAWriteBeforeItCountsForNothing(t *testing.T) {
	t.Parallel()
	master, _ := withReplica(t)
	master.Do(t, "acl", "setuser", "some", "on", ">secret", "~ok*", "+@all")
	s := single(t, SingleOptions{
		Address: master.Addr, Username: "some", Password: credential.Text("secret"), WaitReplicas: 1, Timeout: time.Minute,
	})
	c := commandsOf("ok")
	s.Unlink(t.Context(), c)
	err := c[0].Err
	if retry.ClassifyRedis(err) != retry.Away || !strings.Contains(err.Error(), "SET freshet:wait: NOPERM") {
		t.Errorf("%v", err)
	}
}

func TestAPromotedReplicaHasWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	master, replica := withReplica(t)
	s := single(t, SingleOptions{Address: master.Addr, WaitReplicas: 1, Timeout: time.Minute})
	master.Do(t, "set", "a", "1")
	testbed.Must(t, sends(t, s)["a delete"]())
	testbed.Must(t, master.Kill())
	if n := replica.Client().Exists(t.Context(), "a").Val(); n != 0 {
		t.Error("the replica has the key")
	}
}

// The user may not run WAIT, which is about all commands and none of them.
func TestAWaitThatIsRefusedParksNoKey(t *testing.T) {
	t.Parallel()
	master, _ := withReplica(t)
	master.Do(t, "acl", "setuser", "some", "on", ">secret", "~ok*", "+@all", "-wait")
	s := single(t, SingleOptions{
		Address: master.Addr, Username: "some", Password: credential.Text("secret"), WaitReplicas: 1, Timeout: time.Minute,
	})
	c := commandsOf("ok", "no", "ok")
	s.Unlink(t.Context(), c)
	for i, want := range []retry.Class{retry.Away, retry.Key, retry.Away} {
		if got := retry.ClassifyRedis(c[i].Err); got != want {
			t.Errorf("command %d: %v (%v), want %v", i, c[i].Err, got, want)
		}
	}
	if err := sends(t, s)["a script"](); retry.ClassifyRedis(err) != retry.Key { // it touches another key
		t.Errorf("the script's own refusal is lost: %v", err)
	}
}

// A slot is being moved, and its node still has a key of it. That the key of the WAIT is at the other node, or will be,
// does not mean that the first one is away.
func TestAWaitInASlotThatIsBeingMovedIsNoAbsence(t *testing.T) {
	t.Parallel()
	c := newLiveCluster(t, testbed.ClusterOptions{Masters: 3, Replicas: 1}, 1)
	const row = 1
	c.commit(row)
	c.caughtUp()
	slot, has, other := c.of(row)
	has.Do(t, "set", c.key(row), "old")
	has.Do(t, "del", write.Names{}.Waited(c.key(row)))
	c.cluster.BeginMove(t, slot, has, other)
	away, before := c.alarms.count(alarm.RedisAway), c.engine.Acknowledged()
	c.commit(row)
	testbed.Eventually(t, time.Minute, "the key is acknowledged", func() bool { return c.engine.Acknowledged() > before })
	if n := c.alarms.count(alarm.RedisAway) - away; n != 0 {
		t.Errorf("redis was said to be away %d times", n)
	}
	c.cluster.EndMove(t, slot, has, other)
	c.caughtUp()
}

// Deletes need no memory, and make room for others: the key before a WAIT must not hold them up.
func TestARedisWithoutMemoryTakesDeletesThatReplicasAreWaitedFor(t *testing.T) {
	t.Parallel()
	master, replica := withReplica(t)
	s := single(t, SingleOptions{Address: master.Addr, WaitReplicas: 1, Timeout: 4 * time.Second})
	send := sends(t, s)
	testbed.Eventually(t, 2*time.Minute, "the replica acknowledges", func() bool { return send["a delete"]() == nil })
	master.Do(t, "config", "set", "maxmemory-policy", "noeviction")
	master.Do(t, "config", "set", "maxmemory", "1")
	if err := master.Client().Set(t.Context(), "a", "1", 0).Err(); !redis.IsOOMError(err) {
		t.Fatalf("there is memory: %v", err)
	}
	b, err := write.New(write.Options{})
	testbed.Must(t, err)
	script := b.Release(b.Lock("a", 0))
	send["a script"] = func() error {
		s.Do(t.Context(), []*write.Call{script})
		return script.Err
	}
	for name, send := range send {
		if err := send(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		testbed.Must(t, replica.Pause())
		err := send()
		testbed.Must(t, replica.Resume())
		if err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("%s, while the replica hangs: %v", name, err)
		}
		testbed.Eventually(t, 2*time.Minute, "the replica acknowledges again", func() bool { return send() == nil })
	}
}
