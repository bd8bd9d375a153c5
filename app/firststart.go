package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
)

// The bounds of the look at Redis at a first start.
const (
	scanPage = 1000
	scanKeys = 100_000
	scanTime = 5 * time.Second
)

// firstStart looks whether Redis holds keys of the mappings already, since what was cached before is never deleted. If it
// does, that is a doubt; if it could not be seen, an alarm says so. An empty Redis is nobody's trouble.
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
	begins := "reading of source " + c.Source.Name + " begins at " + position + ", and there was no checkpoint"
	switch found, whole, err := holdsKeys(look, rdb, literals(c)); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		p.alarms.Raise(alarm.FirstStart, fmt.Sprintf("%s; whether redis %s holds keys of the mappings already could not be looked at (%v): "+
			"what was cached before is not touched, so clear it if it may be stale", begins, c.Redis.Addresses[0], err))
	case found:
		return p.doubts.Record(ctx, doubt.Doubt{
			Cause: alarm.FirstStart, Source: c.Source.Name, Group: p.group(), Subject: c.Redis.Addresses[0],
			Message: begins + "; redis " + c.Redis.Addresses[0] + " holds keys that begin as those of the mappings do, " +
				"and what was cached before is not touched: clear it if it may be stale",
		})
	case !whole:
		p.alarms.Raise(alarm.FirstStart, fmt.Sprintf("%s; among the first %d keys of redis %s there is none of the mappings, the others were not looked at: "+
			"what was cached before is not touched, so clear it if it may be stale", begins, scanKeys, c.Redis.Addresses[0]))
	}
	return nil
}

// group returns the group of invalidators that this process belongs to; "" with the embedded log.
func (p *shared) group() string {
	if p.config.EventLog.Kind != config.EventLogKafka {
		return ""
	}
	return p.config.EventLog.Kafka.Group
}

// literals returns what the keys that the mappings name begin with: the text before the first placeholder. What may begin
// with anything has an empty one.
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

// holdsKeys reports whether a Redis holds a key that begins with one of the prefixes, and whether all its keys were looked
// at. It looks at some hundred thousand at most.
func holdsKeys(ctx context.Context, rdb *redis.Client, prefixes []string) (found, whole bool, err error) {
	var cursor uint64
	for seen := 0; seen < scanKeys; {
		var keys []string
		if keys, cursor, err = rdb.Scan(ctx, cursor, "", scanPage).Result(); err != nil {
			return false, false, err
		}
		for _, k := range keys {
			for _, p := range prefixes {
				if strings.HasPrefix(k, p) {
					return true, true, nil
				}
			}
		}
		if cursor == 0 {
			return false, true, nil
		}
		seen += scanPage // as far as Redis has looked, whatever it returned
	}
	return false, false, nil
}
