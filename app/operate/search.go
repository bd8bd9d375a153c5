package operate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

// checkSearch tries whether keys can be looked for: that is how doubts are answered. Deletes do without.
func checkSearch(ctx context.Context, c *config.Config, r *Report, s *redisServer) {
	wanted := []string{"scan"}
	if len(c.Mappings) == 0 || slices.ContainsFunc(c.Mappings, func(m spec.Mapping) bool {
		return m.Hash != nil && strings.Contains(m.Hash.Field.Value, "{")
	}) {
		wanted = append(wanted, "hscan")
	}
	key := c.Redis.KeyPrefix + probeKey
	trials := trials(key)
	var missing []string
	var why error
	for _, name := range wanted {
		err := s.rdb.Do(ctx, trials[name]...).Err()
		if err == nil || refusedKey(err) || !retry.IsBarred(err) {
			continue
		}
		missing = append(missing, name)
		why = err
	}
	if len(missing) == 0 {
		return
	}
	const then = "keys cannot be looked for, so doubts are not answered, and `freshet invalidate` takes the names of keys alone"
	if redis.IsPermissionError(why) {
		what := fmt.Sprintf("redis %s: user %s may not run %s: %s", s.at, orDefaultUser(c), strings.Join(missing, ", "), then)
		r.add(Warn, what, fmt.Sprintf("ACL SETUSER %s +%s", orDefaultUser(c), strings.Join(missing, " +")))
		return
	}
	r.add(Warn, fmt.Sprintf("redis %s has no command %s: %s", s.at, strings.Join(missing, ", "), then),
		"do not rename or disable it (rename-command)")
}

// searchable fails if Redis refuses what it takes to look for keys. A pass over Redis would ask again and again.
func searchable(ctx context.Context, c *config.Config, r scope.Redis, parts []*keyspace.Keyspace) error {
	_, _, err := r.Scan(ctx, 0, router.EscapeGlob(c.Redis.KeyPrefix+probeKey), 1)
	if err == nil && slices.ContainsFunc(parts, func(k *keyspace.Keyspace) bool {
		return slices.ContainsFunc(k.Targets(), func(t *keyspace.Target) bool {
			if t.Action.Kind != event.ActionHash {
				return false
			}
			_, one := t.Action.Field.Constant()
			return !one
		})
	}) {
		_, _, err = r.Fields(ctx, c.Redis.KeyPrefix+probeKey, 0, 1)
	}
	switch {
	case err == nil || refusedKey(err):
		return nil
	case redis.IsPermissionError(err):
		return fmt.Errorf("redis %s does not let keys be looked for: %w; ACL SETUSER %s +scan +hscan +dbsize",
			connect.RedisName(c), err, orDefaultUser(c))
	}
	return fmt.Errorf("redis %s does not let keys be looked for: %w", connect.RedisName(c), err)
}
