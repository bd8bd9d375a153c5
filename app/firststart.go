package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
)

// The bounds of the look at Redis at a first start: how many keys are asked for at once, and how long it takes at most,
// which is enough for some million keys.
const (
	scanPage = 1000
	scanTime = 5 * time.Second
)

// firstStart looks whether Redis holds keys of the mappings already, since what was cached before is never deleted. If
// it does, or if not all keys could be looked at, that is a doubt. It cannot be looked at later: by then readers will
// have cached others. An empty Redis is nobody's trouble.
func (p *shared) firstStart(ctx context.Context, position string) error {
	c := p.config
	look, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	options, err := connect.RedisOptions(c)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	address := c.Redis.Addresses[0]
	found, err := holdsKeys(look, rdb, literals(c))
	what := "redis " + address + " holds keys that begin as those of the mappings do"
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && look.Err() != nil:
		what = fmt.Sprintf("whether redis %s holds keys of the mappings already could not be seen in %s", address, scanTime)
	case err != nil:
		what = fmt.Sprintf("whether redis %s holds keys of the mappings already could not be looked at (%v)", address, err)
	case !found:
		return nil
	}
	return p.doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.FirstStart, Source: c.Source.Name, Group: p.group(), Subject: address,
		Message: "reading of source " + c.Source.Name + " begins at " + position + ", and there was no checkpoint; " + what +
			": what was cached before is not touched, so clear it if it may be stale",
	})
}

// group returns the group of invalidators that this process belongs to; "" with the embedded log.
func (p *shared) group() string {
	if p.config.EventLog.Kind != config.EventLogKafka {
		return ""
	}
	return p.config.EventLog.Kafka.Group
}

// literals returns what the keys that the mappings name begin with: the text before the first placeholder. What may
// begin with anything has an empty one.
func literals(c *config.Config) []string {
	var out []string
	for _, m := range c.Mappings {
		keys := append([]spec.Text(nil), m.Keys...)
		if m.Hash != nil {
			keys = append(keys, m.Hash.Key)
		}
		if m.Set != nil {
			keys = append(keys, m.Set.Key)
		}
		if m.ZSet != nil {
			keys = append(keys, m.ZSet.Key)
		}
		if m.Expire != nil {
			keys = append(keys, m.Expire.Keys...)
		}
		if m.Incr.Value != "" {
			keys = append(keys, m.Incr) // what is cached under its generation is stale if the counter should have been raised
		}
		for _, k := range keys {
			out = append(out, c.Redis.KeyPrefix+literal(k.Value))
		}
	}
	return out
}

// literal returns the text of a template before its first placeholder.
func literal(template string) string {
	var b strings.Builder
	for i := 0; i < len(template); i++ {
		double := i+1 < len(template) && template[i+1] == template[i]
		switch {
		case template[i] == '{' && !double:
			return b.String()
		case (template[i] == '{' || template[i] == '}') && double:
			i++
		}
		b.WriteByte(template[i])
	}
	return b.String()
}

// holdsKeys reports whether a Redis holds a key that begins with one of the prefixes.
func holdsKeys(ctx context.Context, rdb *redis.Client, prefixes []string) (bool, error) {
	for cursor := uint64(0); ; {
		keys, next, err := rdb.Scan(ctx, cursor, "", scanPage).Result()
		if err != nil {
			return false, err
		}
		for _, k := range keys {
			for _, p := range prefixes {
				if strings.HasPrefix(k, p) {
					return true, nil
				}
			}
		}
		if cursor = next; cursor == 0 {
			return false, nil
		}
	}
}
