package operate

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/lint"
)

// keyTrial is a command that touches one key or channel, as the mappings' actions would.
type keyTrial struct {
	args []any
	// touched is what the command touches, in words, and rule the ACL rule that allows it.
	touched, rule string
}

// checkKeys looks whether the user may touch what the mappings touch: an example for each of their templates, and the
// keys that freshet keeps next to it. It asks within a transaction that is discarded: Redis refuses what a user may not
// do when it is queued, and does nothing of what is
// (https://redis.io/docs/latest/develop/using-commands/transactions/).
func checkKeys(ctx context.Context, c *config.Config, r *Report, rdb *redis.Client, at string) {
	if len(c.Mappings) == 0 {
		return
	}
	trials, err := keyTrials(c)
	if err != nil {
		r.add(Fail, err.Error(), "")
		return
	}
	user := orDefaultUser(c)
	conn := rdb.Conn() // all on one connection: another would carry them out
	defer conn.Close()
	if err := conn.Do(ctx, "multi").Err(); err != nil {
		what, fix := fmt.Sprintf("redis %s: whether user %s may touch the keys of the mappings was not tried: %v", at, user,
			err), ""
		if redis.IsPermissionError(err) {
			fix = fmt.Sprintf("ACL SETUSER %s +multi +discard", user)
		}
		r.add(Warn, what, fix)
		return
	}
	replies, _ := conn.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each reply has its own error
		for _, t := range trials {
			pipe.Do(ctx, t.args...)
		}
		pipe.Do(ctx, "discard")
		return nil
	})
	refused := map[string]bool{}
	for i, t := range trials {
		err := replies[i].Err()
		elsewhere, _ := retry.IsRedirection(err)
		switch {
		case err == nil || refused[t.rule]:
		case elsewhere && c.Redis.Mode == config.RedisCluster: // a node looks at the rights first
		case refusedKey(err):
			refused[t.rule] = true
			r.add(Fail, fmt.Sprintf("redis %s: user %s may not touch %s", at, user, t.touched),
				fmt.Sprintf("ACL SETUSER %s %s", user, t.rule))
		case !redis.IsPermissionError(err): // of commands, missingCommands tells
			grade := Fail
			if retry.ClassifyRedis(err) == retry.Memory { // freshet deletes what it cannot write
				grade = Warn
			}
			r.add(grade, fmt.Sprintf("redis %s: whether user %s may touch %s could not be tried: %v", at, user, t.touched, err),
				retry.RedisAdvice(err))
			return
		}
	}
	if len(refused) == 0 {
		r.add(OK, fmt.Sprintf("redis user %s may touch what the mappings name", user), "")
	}
}

// keyTrials returns the trials of all mappings. A key is tried with the commands that are sent for it: those inside a
// script are allowed what the script's keys are.
func keyTrials(c *config.Config) ([]keyTrial, error) {
	route, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		return nil, err
	}
	prefix := router.EscapeGlob(c.Redis.KeyPrefix)
	names := write.Names{Prefix: c.Redis.KeyPrefix}
	var all []keyTrial
	for _, t := range lint.Touches(route) {
		where := fmt.Sprintf("%q (%s), such as %s", t.Template, t.Pos, t.Example)
		key, rule := names.Key(t.Example), "~"+prefix+t.Pattern
		switch {
		case t.Channel:
			all = append(all, keyTrial{[]any{"publish", t.Example, "1"}, "the channels of " + where, "&" + t.Pattern})
			continue
		case t.Stream:
			all = append(all, keyTrial{[]any{"xadd", key, "*", "key", "1"}, "the streams of " + where, rule})
			continue
		case t.Action == event.ActionDelete:
			all = append(all, keyTrial{[]any{"unlink", key}, "the keys of " + where, rule})
			continue
		case t.Action == event.ActionHash:
			all = append(all, keyTrial{[]any{"hdel", key, "1"}, "the keys of " + where, rule})
		default:
			all = append(all, keyTrial{[]any{"evalsha", noScript, "1", key}, "the keys of " + where, rule})
		}
		own := names.Version(t.Example)
		all = append(all, keyTrial{[]any{"evalsha", noScript, "1", own}, "freshet's own keys, such as " + own, "~" + prefix +
			"freshet:*"})
	}
	return all, nil
}

// noScript is the name of no script.
const noScript = "0000000000000000000000000000000000000000"
