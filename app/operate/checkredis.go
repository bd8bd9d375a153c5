package operate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/invalidator/identity"
	"github.com/freshet/freshet/retry"
)

// redisServer is one server that freshet would write to: the only one, or a master of a cluster.
type redisServer struct {
	*invalidator.Single
	rdb *redis.Client
	at  string // its address
	// newKey returns a key that nobody has, without redis.key_prefix; "": none can be on this server.
	newKey func() string
}

// probeKey begins the keys that are tried. They are under the prefix that freshet uses itself.
const probeKey = "freshet:check:"

// checkRedis looks at Redis, and at what is cached there. tables are those of the source, as far as they are known.
func checkRedis(ctx context.Context, c *config.Config, tables []*event.Table, r *Report) {
	cached := newSample(c, tables)
	before := len(r.Findings)
	defer func() {
		if r.service {
			inService(r.Findings[before:])
		}
	}()
	if c.Redis.Mode == config.RedisCluster {
		checkCluster(ctx, c, cached, r)
		return
	}
	server, err := connect.Redis(c, nil)
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	defer server.Close()
	if c.Redis.Mode == config.RedisSentinel && !checkSentinels(ctx, c, r) {
		return
	}
	if checkServer(ctx, c, r, &redisServer{
		server, server.Client(), server.String(), func() string { return probeKey + rand.Text() },
	}) {
		cached.take(ctx, server.Client())
		cached.report(c, r)
	}
}

// checkServer reports whether the server could be asked all.
func checkServer(ctx context.Context, c *config.Config, r *Report, s *redisServer) bool {
	if err := s.rdb.Ping(ctx).Err(); err != nil && !redis.IsPermissionError(err) {
		r.add(Fail, fmt.Sprintf("redis %s: %v", s, err), mendPing(c, err))
		return false
	}
	s.at = s.String() // with sentinels it is known by now
	// A key that nobody has: what is asked is whether we may. A user who may only touch the keys of the mappings is
	// refused this one, which is reported only where no mapping says which those are.
	if key := s.newKey(); key != "" {
		err := s.rdb.Unlink(ctx, c.Redis.KeyPrefix+key).Err()
		if elsewhere, _ := retry.IsRedirection(err); elsewhere && c.Redis.Mode != config.RedisCluster {
			isNode(s, r)
			return false
		}
		if err != nil && !(len(c.Mappings) > 0 && refusedKey(err)) {
			r.add(Fail, fmt.Sprintf("redis %s refuses UNLINK: %v", s.at, err), mendUnlink(c, err))
			return false
		}
	}
	checkProduct(ctx, r, s)
	if !checkInfo(ctx, c, r, s) {
		return false
	}
	checkActions(ctx, c, r, s)
	checkSearch(ctx, c, r, s)
	checkKeys(ctx, c, r, s.rdb, s.at)
	return true
}

// isNode says that a server is part of a cluster, and is spoken to as if it were not.
func isNode(s *redisServer, r *Report) {
	r.add(Fail, fmt.Sprintf("redis %s is a node of a Redis Cluster", s.at),
		"set redis.mode to cluster, and name some of its nodes in redis.addresses")
}

// checkInfo looks at what the server says of itself, and reports whether it makes sense to ask for more.
func checkInfo(ctx context.Context, c *config.Config, r *Report, s *redisServer) bool {
	info, err := s.rdb.Info(ctx).Result() // several sections can be named from Redis 7 on only
	if err != nil {
		r.add(Warn, fmt.Sprintf("redis %s takes UNLINK, but not INFO: %v", s.at, err),
			fmt.Sprintf("ACL SETUSER %s %s", orDefaultUser(c), plainRights(c)))
		return true
	}
	v := fields(info)
	if v["cluster_enabled"] == "1" && c.Redis.Mode != config.RedisCluster {
		isNode(s, r)
		return false
	}
	checkStamp(ctx, c, r, s)
	product, version := redisProduct(v)
	r.add(OK, fmt.Sprintf("redis %s is %s %s, a %s, and takes UNLINK%s", s.at, product, version, v["role"],
		untried(product, version)), "")
	checkReplicas(ctx, c, r, s, v["connected_slaves"])
	if policy := v["maxmemory_policy"]; policy == "noeviction" && v["maxmemory"] != "0" {
		r.add(Warn, fmt.Sprintf("redis %s: maxmemory_policy is noeviction: when Redis is full your fills fail; a cache wants "+
			"to evict", s.at), "CONFIG SET maxmemory-policy allkeys-lru")
	}
	if message, advice := persistence(v,
		func(name string) string { return s.rdb.ConfigGet(ctx, name).Val()[name] }); message != "" {
		r.add(Warn, fmt.Sprintf("redis %s %s", s.at, message), advice)
	}
	if v["role"] == "slave" {
		r.add(Fail, fmt.Sprintf("redis %s is a replica", s.at), "give the address of its master, "+v["master_host"]+":"+
			v["master_port"])
	}
	if major, err := strconv.Atoi(strings.SplitN(v["redis_version"], ".", 2)[0]); err == nil && major < retry.OldestRedis {
		r.add(Fail, fmt.Sprintf("redis %s is older than %d.0", s.at, retry.OldestRedis), "upgrade it")
	}
	return true
}

// checkReplicas tries whether there are as many replicas as are waited for, and whether they may be.
func checkReplicas(ctx context.Context, c *config.Config, r *Report, s *redisServer, connected string) {
	want := c.Redis.WaitReplicas
	if want == 0 {
		return
	}
	if err := s.rdb.Wait(ctx, 0, time.Millisecond).Err(); err != nil {
		r.add(Fail, fmt.Sprintf("redis.wait_replicas is %d, and redis %s refuses WAIT: %v", want, s.at, err),
			fmt.Sprintf("ACL SETUSER %s +wait, or remove redis.wait_replicas", orDefaultUser(c)))
	}
	// What the write's answer is else says nothing: in a cluster the key may be another node's.
	key := invalidator.WaitedKey(c.Redis.KeyPrefix)
	if err := s.rdb.SetXX(ctx, key, 1, time.Minute).Err(); redis.IsPermissionError(err) {
		r.add(Fail, fmt.Sprintf("redis.wait_replicas is %d, and redis %s refuses SET %s, which is written before each WAIT: %v",
			want, s.at, key, err),
			fmt.Sprintf("ACL SETUSER %s +set ~%sfreshet:*, or remove redis.wait_replicas", orDefaultUser(c), c.Redis.KeyPrefix))
	}
	if n, err := strconv.Atoi(connected); err == nil && n <= want {
		grade, what := Warn, "while one of them is away, nothing counts as acknowledged"
		if n < want {
			grade, what = Fail, "nothing will ever count as acknowledged"
		}
		r.add(grade, fmt.Sprintf("redis.wait_replicas is %d, and redis %s has %d replicas: %s", want, s.at, n, what), "name fewer than there are")
	}
}

// checkStamp tries whether Redis takes the stamp that says how old its data is.
func checkStamp(ctx context.Context, c *config.Config, r *Report, s *redisServer) {
	if err := identity.Try(ctx, s.rdb, c.Redis.KeyPrefix); redis.IsPermissionError(err) {
		r.add(Warn, fmt.Sprintf("redis %s refuses the key %s…: %v; should it come back with older data, all keys will be forgotten, "+
			"and not only those that changed since", s.at, c.Redis.KeyPrefix+identity.StampKey, err),
			fmt.Sprintf("ACL SETUSER %s +get +set +eval +evalsha ~%sfreshet:*", orDefaultUser(c), c.Redis.KeyPrefix))
	}
}

// persistence says what a restart of Redis would bring back, from its INFO and from setting, which returns "" for what
// may not be asked (CONFIG is refused on managed services); "" if nothing.
func persistence(info map[string]string, setting func(name string) string) (message, advice string) {
	const noticed = "freshet notices a restart, and does the changes since again; for a mere cache turn it off: "
	switch save := setting("save"); {
	case info["run_id"] == "" || info["uptime_in_seconds"] == "":
		return "does not say in INFO who it is: a restart from an old snapshot, or a failover, will not be noticed",
			"let its INFO through"
	case info["aof_enabled"] == "1":
		return "keeps an append-only file: a restart brings back what was written, but for up to a second of the last " +
				"deletes",
			noticed + "CONFIG SET appendonly no"
	case save != "":
		return fmt.Sprintf("saves snapshots (save %q): a restart brings back keys that were deleted since the last one",
				save),
			noticed + `CONFIG SET save ""`
	}
	return "", ""
}

func mendPing(c *config.Config, err error) string {
	if advice := mendReply(c, err); advice != "" {
		return advice
	}
	switch c.Redis.Mode {
	case config.RedisSentinel:
		return "the sentinels give this address for it: can it be reached from here (else see replica-announce-ip in its " +
			"settings), is it up, and are redis.username and password right?"
	case config.RedisCluster:
		return "the cluster gives this address for it: can it be reached from here (else see cluster-announce-ip, or " +
			"cluster-announce-hostname), is it up, and are redis.username and password right?"
	}
	return "is redis.addresses right, is the server up, and are redis.username and password?"
}

// mendReply says what an error tells of a server that was found; "": nothing.
func mendReply(c *config.Config, err error) string {
	if advice := retry.RedisAdvice(err); advice != "" {
		return advice
	}
	secure := c.Redis.TLS.Client("") != nil
	if secure && errors.Is(err, context.DeadlineExceeded) {
		return "does it speak TLS at this address, as redis.tls says, and is it up?"
	}
	if !secure && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
		return "it closes the connection, as a server does that wants TLS: set redis.tls.mode to verify"
	}
	return ""
}

func mendUnlink(c *config.Config, err error) string {
	switch {
	case redis.IsReadOnlyError(err):
		return "give the address of the master in redis.addresses"
	case redis.IsPermissionError(err):
		return fmt.Sprintf("ACL SETUSER %s %s ~%s*", orDefaultUser(c), plainRights(c), c.Redis.KeyPrefix)
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer within redis.timeout"
	}
	return retry.RedisAdvice(err)
}

// refusedKey reports whether a command was refused for its keys or channels, and not for itself.
func refusedKey(err error) bool {
	return redis.IsPermissionError(err) && !strings.Contains(err.Error(), " run the ")
}

// plainRights are the commands of a freshet that only deletes.
func plainRights(c *config.Config) string {
	switch {
	case c.Redis.Mode == config.RedisCluster:
		return "+ping +info +unlink +scan +dbsize +asking " + clusterRights
	case c.Redis.DB != 0:
		return "+ping +info +select +unlink +scan +dbsize"
	}
	return "+ping +info +unlink +scan +dbsize"
}

func orDefaultUser(c *config.Config) string {
	if c.Redis.Username == "" {
		return "default"
	}
	return c.Redis.Username
}

// fields takes INFO's lines apart.
func fields(info string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}
