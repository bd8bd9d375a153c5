package operate

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// checkActions tries the actions of the mappings, besides deletes, on a key that nobody has: scripts, and the commands
// inside them, need rights of their own. Without mappings, as in the file of an invalidator, all of them are tried.
func checkActions(ctx context.Context, c *config.Config, r *Report, s *redisServer) {
	wanted := actionsOf(c.Mappings)
	if len(c.Mappings) == 0 {
		wanted = []event.Action{
			event.ActionRebuild, event.ActionHash, event.ActionSet, event.ActionZSet, event.ActionExpire,
			event.ActionIncr,
		}
	}
	commands := commandsOf(c, wanted)
	if len(commands) == 0 {
		return
	}
	build, err := write.New(write.Options{Names: write.Names{Prefix: c.Redis.KeyPrefix}})
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	grade := Fail
	if len(c.Mappings) == 0 {
		grade = Warn // perhaps no reader asks for it
	}
	missing, unknown := missingCommands(ctx, s.rdb, commands, c.Redis.KeyPrefix)
	if len(unknown) > 0 {
		r.add(grade, fmt.Sprintf("redis %s does not know %s, in scripts neither: what needs them is not done", s.at,
			strings.Join(unknown, ", ")), "let Redis have them under these names (rename-command)")
	}
	if len(missing) > 0 {
		r.add(grade, fmt.Sprintf("redis %s: user %s may not run %s, in scripts neither", s.at, orDefaultUser(c),
			strings.Join(missing, ", ")),
			fmt.Sprintf("ACL SETUSER %s +%s", orDefaultUser(c), strings.Join(missing, " +")))
	}
	if len(missing)+len(unknown) > 0 {
		return
	}
	var may, mayNot []string
	var first error
	for _, a := range wanted {
		key := s.newKey()
		if key == "" {
			return
		}
		if err := tryAction(ctx, s.Single, build, key, a); err != nil {
			mayNot = append(mayNot, a.String())
			if first == nil {
				first = err
			}
			continue
		}
		may = append(may, a.String())
	}
	if len(may) > 0 {
		r.add(OK, "redis takes "+strings.Join(may, ", "), "")
	}
	if len(mayNot) == 0 {
		return
	}
	then, fix := "", fmt.Sprintf("ACL SETUSER %s +@read +@write +evalsha +script|load +time ~%s*", orDefaultUser(c),
		c.Redis.KeyPrefix)
	switch class := retry.ClassifyRedis(first); {
	case class == retry.Memory:
		grade, then, fix = Warn, ", so keys are deleted instead", retry.RedisAdvice(first)
	case class != retry.Key && !retry.IsDenied(first): // it is no matter of rights
		fix = retry.RedisAdvice(first)
	}
	r.add(grade, fmt.Sprintf("redis %s refuses %s%s: %v", s.at, strings.Join(mayNot, ", "), then, first), fix)
}

// commandsOf returns the commands that the actions and notices of the mappings need, each once.
func commandsOf(c *config.Config, actions []event.Action) []string {
	query, publish, stream := len(c.Mappings) == 0, len(c.Mappings) == 0, len(c.Mappings) == 0
	var all []string
	for i := range c.Mappings {
		m := &c.Mappings[i]
		query = query || m.Rebuild != nil && m.Rebuild.Query.Value != ""
		publish = publish || m.Publish != nil
		stream = stream || m.Stream != nil
		if m.Hash != nil {
			all = append(all, "hdel")
		}
	}
	if publish {
		all = append(all, "publish")
	}
	if stream {
		all = append(all, "xadd")
	}
	for _, a := range actions {
		all = append(all, write.Commands(a, query)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// missingCommands tries each command on a key that nobody has, and returns those that the user may not run, and those
// that nobody may, since Redis does not know them by that name. Scripts cannot be asked: they go on without a command
// that was refused, by deleting what they cannot write.
func missingCommands(ctx context.Context, rdb *redis.Client, commands []string, prefix string,
) (missing, unknown []string) {
	key := prefix + probeKey + rand.Text()
	trials := trials(key)
	replies, _ := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each reply has its own error
		for _, c := range append(slices.Clone(commands), "unlink") {
			pipe.Do(ctx, trials[c]...)
		}
		return nil
	})
	for i, c := range commands {
		// A right to a key or channel is another matter, see checkKeys: this key is not one of the mappings'.
		switch err := replies[i].Err(); {
		case retry.IsUnknownCommand(err):
			unknown = append(unknown, c)
		case redis.IsPermissionError(err) && !refusedKey(err):
			missing = append(missing, c)
		}
	}
	return missing, unknown
}

// trials returns for every command how it is tried: with arguments enough that Redis looks at the user's rights. What
// it answers then does not matter. Nobody listens to a channel of that name.
func trials(key string) map[string][]any {
	return map[string][]any{
		"del": {"del", key}, "evalsha": {"evalsha", strings.Repeat("0", 40), "1", key}, "exists": {"exists", key},
		"get": {"get", key}, "hdel": {"hdel", key, "f"}, "hexists": {"hexists", key, "f"}, "hget": {"hget", key, "f"},
		"hlen": {"hlen", key}, "hscan": {"hscan", key, "0"}, "hmget": {"hmget", key, "f"},
		"mget": {"mget", key}, "mset": {"mset", key, "1"},
		"hset": {"hset", key, "f", "1"}, "incr": {"incr", key},
		"persist": {"persist", key}, "pexpire": {"pexpire", key, "1000"}, "pttl": {"pttl", key},
		"publish": {"publish", key, "1"},
		"rename":  {"rename", key, key}, "scan": {"scan", "0", "match", key, "count", "1"},
		"sadd": {"sadd", key, "m"}, "script|load": {"script", "load", "return 1"},
		"set": {"set", key, "1", "px", "1000"}, "srem": {"srem", key, "m"}, "time": {"time"}, "unlink": {"unlink", key},
		"xadd": {"xadd", key, "*", "f", "1"}, "zadd": {"zadd", key, "1", "m"}, "zrem": {"zrem", key, "m"},
	}
}

// actionsOf returns the actions of the mappings that are more than deletes, each once.
func actionsOf(mappings []spec.Mapping) []event.Action {
	var has [event.ActionIncr + 1]bool
	for i := range mappings {
		m := &mappings[i]
		has[event.ActionRebuild] = has[event.ActionRebuild] || m.Rebuild != nil
		has[event.ActionHash] = has[event.ActionHash] || m.Hash != nil && m.Hash.Value.Value != ""
		has[event.ActionSet] = has[event.ActionSet] || m.Set != nil
		has[event.ActionZSet] = has[event.ActionZSet] || m.ZSet != nil
		has[event.ActionExpire] = has[event.ActionExpire] || m.Expire != nil
		has[event.ActionIncr] = has[event.ActionIncr] || m.Incr.Value != ""
	}
	var all []event.Action
	for a, is := range has {
		if is {
			all = append(all, event.Action(a))
		}
	}
	return all
}

// tryAction does to a key that nobody has what the action does, and deletes it again.
func tryAction(ctx context.Context, single *invalidator.Single, build *write.Builder, key string, a event.Action,
) error {
	build.Reset()
	it := write.Item{
		Key: key, Action: a, Intent: event.IntentPut, Source: "check",
		Effect: &event.Effect{TTL: time.Minute, In: time.Minute, As: event.FormString}, Now: time.Now(),
	}
	switch a {
	case event.ActionRebuild:
		it.Fields = event.AppendField(nil, "1")
	case event.ActionHash, event.ActionZSet:
		it.Fields = event.AppendField(event.AppendField(nil, "1"), "1")
	case event.ActionSet:
		it.Fields = event.AppendField(nil, "1")
	}
	calls := build.Append(nil, &it)
	single.Do(ctx, calls)
	_, err := build.Outcome(&it, calls)
	last := []*write.Call{build.Fallback(&it)}
	single.Do(ctx, last)
	if err == nil {
		err = last[0].Err
	}
	return err
}
