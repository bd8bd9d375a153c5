package operate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/invalidator/identity"
	"github.com/freshet/freshet/retry"
)

func checkRedis(ctx context.Context, c *config.Config, r *Report) {
	server, err := connect.Redis(c, nil)
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	defer server.Close()
	if c.Redis.Mode == config.RedisSentinel && !checkSentinels(ctx, c, r) {
		return
	}
	rdb := server.Client()
	if err := rdb.Ping(ctx).Err(); err != nil && !redis.IsPermissionError(err) {
		r.add(Fail, fmt.Sprintf("redis %s: %v", server, err),
			"is redis.addresses right, is the server up, and are redis.username and password?")
		return
	}
	at := server.String()
	// A key that nobody has, under the prefix that freshet uses: what is asked is whether we may. A user who may only
	// touch the keys of the mappings is refused this one, which is told of only where no mapping says which those are.
	probe := c.Redis.KeyPrefix + "freshet:check:" + rand.Text()
	if err := rdb.Unlink(ctx, probe).Err(); err != nil && !(len(c.Mappings) > 0 && refusedKey(err)) {
		r.add(Fail, fmt.Sprintf("redis %s refuses UNLINK: %v", at, err), mendUnlink(c, err))
		return
	}
	defer func() {
		checkActions(ctx, rdb, c, r)
		checkKeys(ctx, rdb, c, r)
	}()
	info, err := rdb.Info(ctx).Result() // several sections can be named from Redis 7 on only
	if err != nil {
		r.add(Warn, fmt.Sprintf("redis %s takes UNLINK, but not INFO: %v", at, err),
			fmt.Sprintf("ACL SETUSER %s %s", orDefaultUser(c), plainRights(c)))
		return
	}
	if c.EventLog.Kind == config.EventLogEmbedded {
		checkStamp(ctx, rdb, c, r)
	}
	v := fields(info)
	r.add(OK, fmt.Sprintf("redis %s is version %s, a %s, and takes UNLINK", at, v["redis_version"], v["role"]), "")
	checkReplicas(ctx, rdb, v["connected_slaves"], c, r)
	if policy := v["maxmemory_policy"]; policy == "noeviction" && v["maxmemory"] != "0" {
		r.add(Warn, "maxmemory_policy is noeviction: when Redis is full your fills fail; a cache wants to evict",
			"CONFIG SET maxmemory-policy allkeys-lru")
	}
	if message, advice := persistence(v,
		func(name string) string { return rdb.ConfigGet(ctx, name).Val()[name] }); message != "" {
		r.add(Warn, fmt.Sprintf("redis %s %s", at, message), advice)
	}
	if v["role"] == "slave" {
		r.add(Fail, fmt.Sprintf("redis %s is a replica", at), "give the address of its master, "+v["master_host"]+":"+
			v["master_port"])
	}
	if major, err := strconv.Atoi(strings.SplitN(v["redis_version"], ".", 2)[0]); err == nil && major < retry.OldestRedis {
		r.add(Fail, fmt.Sprintf("redis is older than %d.0", retry.OldestRedis), "upgrade it")
	}
}

// checkReplicas tries whether there are as many replicas as are waited for, and whether they may be.
func checkReplicas(ctx context.Context, rdb *redis.Client, connected string, c *config.Config, r *Report) {
	want := c.Redis.WaitReplicas
	if want == 0 {
		return
	}
	if err := rdb.Wait(ctx, 0, time.Millisecond).Err(); err != nil {
		r.add(Fail, fmt.Sprintf("redis.wait_replicas is %d, and redis %s refuses WAIT: %v", want, connect.RedisName(c), err),
			fmt.Sprintf("ACL SETUSER %s +wait, or remove redis.wait_replicas", orDefaultUser(c)))
	}
	if n, err := strconv.Atoi(connected); err == nil && n <= want {
		grade, what := Warn, "while one of them is away, nothing counts as acknowledged"
		if n < want {
			grade, what = Fail, "nothing will ever count as acknowledged"
		}
		r.add(grade, fmt.Sprintf("redis.wait_replicas is %d, and redis %s has %d replicas: %s", want, connect.RedisName(c), n,
			what), "name fewer than there are")
	}
}

// checkStamp tries whether Redis takes the stamp that says how old its data is.
func checkStamp(ctx context.Context, rdb *redis.Client, c *config.Config, r *Report) {
	if err := identity.Try(ctx, rdb, c.Redis.KeyPrefix); redis.IsPermissionError(err) {
		r.add(Warn, fmt.Sprintf("redis %s refuses the key %s…: %v; should it come back with older data, all keys will be forgotten, "+
			"and not only those that changed since", connect.RedisName(c), c.Redis.KeyPrefix+identity.StampKey, err),
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

func mendUnlink(c *config.Config, err error) string {
	switch {
	case redis.IsReadOnlyError(err):
		return "give the address of the master in redis.addresses"
	case redis.IsPermissionError(err):
		return fmt.Sprintf("ACL SETUSER %s %s ~%s*", orDefaultUser(c), plainRights(c), c.Redis.KeyPrefix)
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer within redis.timeout"
	}
	return ""
}

// refusedKey reports whether a command was refused for its keys or channels, and not for itself.
func refusedKey(err error) bool {
	return redis.IsPermissionError(err) && !strings.Contains(err.Error(), " run the ")
}

// plainRights are the commands of a freshet that only deletes.
func plainRights(c *config.Config) string {
	if c.Redis.DB != 0 {
		return "+ping +info +select +unlink"
	}
	return "+ping +info +unlink"
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
