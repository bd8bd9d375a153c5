package operate

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/proof/testbed"
)

// clusterConfig is a configuration with several actions for a cluster with these seeds.
func clusterConfig(t *testing.T, seeds ...string) *config.Config {
	t.Helper()
	c, err := config.Parse("freshet.yaml", fmt.Appendf(nil, `
source: {addresses: ["127.0.0.1:1"], user: freshet}
redis: {mode: cluster, addresses: ["%s"], username: some}
mappings:
  - table: shop.product
    keys: ["product:{id}"]
    rebuild: {from: row}
    hash: {key: "stock:{id}", field: count, value: "{count}"}
    stream: {key: changes}
`, strings.Join(seeds, `", "`)), CheckMappings)
	testbed.Must(t, err)
	c.Redis.Password, c.Redis.Timeout = config.NewSecret("secret"), 10*time.Second
	return c
}

// allow gives the user some every right on all nodes, and then these.
func allow(t *testing.T, cluster *testbed.RedisCluster, rights ...any) {
	t.Helper()
	for _, m := range cluster.Masters {
		m.Do(t, append([]any{"acl", "setuser", "some", "reset", "on", ">secret", "~*", "&*", "+@all"}, rights...)...)
	}
}

// found returns the findings of a grade about Redis.
func found(t *testing.T, c *config.Config, g Grade) string {
	t.Helper()
	var r Report
	checkRedis(t.Context(), c, nil, &r)
	var all []string
	for _, f := range r.Findings {
		if f.Grade == g {
			all = append(all, f.What+" -> "+f.Fix)
		}
	}
	return strings.Join(all, "\n")
}

// says fails the test unless the text has all of the words.
func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in: %s", w, text)
		}
	}
}

func TestCheckLooksAtEachNodeOfACluster(t *testing.T) {
	cluster := testbed.Cluster(t, testbed.ClusterOptions{Masters: 3})
	allow(t, cluster)
	var at []string
	for _, m := range cluster.Masters {
		at = append(at, m.Addr)
	}
	c := clusterConfig(t, at[0])
	ok := found(t, c, OK)
	says(t, ok, "the redis cluster has 3 masters with slots: ", "redis takes rebuild, hash")
	for _, addr := range at {
		says(t, ok, "redis "+addr+" is ")
	}
	if n := strings.Count(ok, "redis takes rebuild"); n != 1 {
		t.Errorf("what is so of all nodes is said %d times: %s", n, ok)
	}
	if bad := found(t, c, Fail) + found(t, c, Warn); bad != "" {
		t.Errorf("of a cluster in which nothing is wrong: %s", bad)
	}
	for _, m := range cluster.Masters {
		if n := m.Client().DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%d keys are left on %s", n, m.Addr)
		}
	}

	second := cluster.Masters[1]
	t.Run("rights", func(t *testing.T) {
		for _, x := range []struct{ right, says string }{
			{"-hset", "redis " + second.Addr + ": user some may not run hset, in scripts neither -> ACL SETUSER some +hset"},
			{"-unlink", "redis " + second.Addr + " refuses UNLINK"},
			{"-evalsha", "redis " + second.Addr + ": user some may not run evalsha"},
		} {
			second.Do(t, "acl", "setuser", "some", x.right)
			bad := found(t, c, Fail)
			says(t, bad, x.says)
			if strings.Contains(bad, at[0]) || strings.Contains(bad, at[2]) {
				t.Errorf("of one node: %s", bad)
			}
			allow(t, cluster)
		}
		second.Do(t, "acl", "setuser", "some", "resetkeys", "~freshet:*", "~product:*")
		says(t, found(t, c, Fail), "redis "+second.Addr+": user some may not touch the keys of", "ACL SETUSER some ~stock:*",
			"ACL SETUSER some ~changes")
		second.Do(t, "acl", "setuser", "some", "allkeys", "-asking")
		says(t, found(t, c, Warn), "redis "+second.Addr+": user some may not run asking", "ACL SETUSER some +asking")
		allow(t, cluster, "-cluster", "+cluster|nodes", "+cluster|slots")
		if cluster.Migrates(t) {
			says(t, found(t, c, Warn), "redis "+second.Addr+": user some may not run cluster|getslotmigrations",
				"ACL SETUSER some +cluster|getslotmigrations")
		}
		if bad := found(t, c, Fail); bad != "" {
			t.Errorf("with what asking for nodes takes: %s", bad)
		}
		allow(t, cluster, "-cluster")
		says(t, found(t, c, Fail), "NOPERM", "ACL SETUSER some +cluster|nodes +cluster|slots")
		allow(t, cluster)
	})
	t.Run("settings", func(t *testing.T) {
		second.Do(t, "config", "set", "maxmemory", "100mb")
		says(t, found(t, c, Warn), "redis "+second.Addr+": maxmemory_policy is noeviction")
		second.Do(t, "config", "set", "maxmemory", "0")
	})
	t.Run("seeds", func(t *testing.T) {
		says(t, found(t, clusterConfig(t, "127.0.0.1:1", at[2]), Warn), "redis 127.0.0.1:1: ",
			"name others in redis.addresses")
		says(t, found(t, clusterConfig(t, "127.0.0.1:1"), Fail), "redis 127.0.0.1:1: ")
		other := testbed.Cluster(t, testbed.ClusterOptions{Masters: 1})
		allow(t, other)
		says(t, found(t, clusterConfig(t, at[0], other.Masters[0].Addr), Fail), at[0]+" and "+other.Masters[0].Addr+
			" in redis.addresses are nodes of different clusters")
	})
	t.Run("one slot", func(t *testing.T) {
		tagged := clusterConfig(t, at[0])
		tagged.Redis.KeyPrefix = "{shop}:"
		says(t, found(t, tagged, Warn), "redis.key_prefix has a hash tag")
		if bad := found(t, tagged, Fail); bad != "" {
			t.Errorf("on a node that can have no key: %s", bad)
		}
	})
	t.Run("slots", func(t *testing.T) {
		slots := cluster.Slots(t, second)
		cluster.BeginMove(t, slots[0], second, cluster.Masters[0])
		says(t, found(t, c, Warn), "1 slots of the redis cluster are being moved")
		cluster.EndMove(t, slots[0], second, cluster.Masters[0])
		slots = slots[1:3]
		for _, m := range cluster.Masters {
			m.Do(t, "cluster", "delslots", slots[0], slots[1])
		}
		testbed.Eventually(t, time.Minute, "two slots are served by nobody", func() bool {
			return strings.Contains(found(t, c, Fail), "no node of the redis cluster serves 2 of its 16384 slots")
		})
	})
	t.Run("a node that is away", func(t *testing.T) {
		testbed.Must(t, second.Kill())
		c.Redis.Timeout = time.Second
		bad := found(t, c, Fail)
		says(t, bad, "redis "+second.Addr+": ", "the cluster gives this address for it")
	})
}

// With either mistake some keys work at most, and the fix is known.
func TestCheckFindsTheWrongModeForACluster(t *testing.T) {
	cluster, single := testbed.Cluster(t, testbed.ClusterOptions{Masters: 2}), testbed.Redis(t)
	allow(t, cluster)
	c := clusterConfig(t, single.Addr)
	c.Redis.Username, c.Redis.Password = "", config.Secret{}
	says(t, found(t, c, Fail), single.Addr, "set redis.mode to single, or name nodes of a cluster in redis.addresses")
	for _, m := range cluster.Masters {
		for _, info := range []string{"+info", "-info"} {
			allow(t, cluster, info)
			c := clusterConfig(t, m.Addr)
			c.Redis.Mode = config.RedisSingle
			seen := func() string { return found(t, c, Fail) }
			if info == "-info" {
				// Only a key of another node shows it.
				testbed.Eventually(t, time.Minute, "a key of another node is tried", func() bool { return seen() != "" })
			}
			want := "redis " + m.Addr + " is a node of a Redis Cluster -> set redis.mode to cluster, and name some of its nodes " +
				"in redis.addresses"
			testbed.Eventually(t, time.Minute, want, func() bool { return slices.Contains(strings.Split(seen(), "\n"), want) })
		}
	}
}

func TestCheckSaysWhyNoNodeOfAClusterIsFound(t *testing.T) {
	c := clusterConfig(t, "127.0.0.1:1")
	says(t, mendSeed(c, noMasters("seed:1", &invalidator.Layout{})), "CLUSTER MEET")
	err := noMasters("seed:1", &invalidator.Layout{Portless: 3})
	says(t, err.Error(), "seed:1 says of 3 masters with slots that they have the port 0")
	says(t, mendSeed(c, err), "tls-cluster", "cluster-announce-port")

	closes, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := closes.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	says(t, found(t, clusterConfig(t, closes.Addr().String()), Fail), "set redis.tls.mode to verify")
	testbed.Must(t, closes.Close())
	<-done
}
