package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router/keyspace"
)

// The bounds of the look at Redis at a first start: how many keys are asked for at once, and how long it takes at most,
// which is enough for some million keys.
const (
	scanPage = 1000
	scanTime = 5 * time.Second
)

// onFirstStart returns what is called before reading begins where there was no position; nil: nobody looks.
func (p *process) onFirstStart(keys *operate.Keys) func(ctx context.Context, position string) error {
	if p.forgets() && p.config.EventLog.Kind == config.EventLogKafka {
		return p.forgetEverywhere
	}
	return p.invalidator.FirstStart(keys)
}

// forgets reports whether keys that were cached before a first start are forgotten.
func (p *shared) forgets() bool { return p.config.OnFirstStart == config.FirstStartInvalidate }

// forgetEverywhere has each group of invalidators forget what was cached before. A reader cannot look at their Redis.
func (p *shared) forgetEverywhere(ctx context.Context, position string) error {
	name := p.config.Source.Name
	return p.doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.FirstStart, Source: name, Asked: true,
		Message: "reading of source " + name + " begins at " + position + ", and there was no checkpoint; what was cached " +
			"before, in the redis of any group, is forgotten",
	})
}

// firstStart looks whether Redis holds keys of the mappings already, since what was cached before is never deleted,
// unless that is asked for. If it does, or if not all keys could be looked at, that is a doubt. It cannot be looked at
// later: by then readers will have cached others. An empty Redis is nobody's trouble.
func (p *shared) firstStart(ctx context.Context, position string, of *operate.Keys) error {
	c := p.config
	redis, closeRedis, err := connect.Searched(c)
	if err != nil {
		return err
	}
	defer closeRedis()
	keys, err := of.All(ctx)
	if err != nil {
		keys, err = of.Unasked() // more are blind then, and one doubt too many is better than none
	}
	look, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	address, found := connect.RedisName(c), false
	if err == nil {
		found, err = holdsKeys(look, redis, keys, of.Prefix)
	}
	what := "redis " + address + " holds keys that the mappings can have made"
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
	then := "what was cached before is not touched, so clear it if it may be stale"
	if p.forgets() {
		then = "what was cached before is forgotten"
	}
	return p.doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.FirstStart, Source: c.Source.Name, Group: p.group(), Subject: address, Asked: p.forgets(),
		Message: "reading of source " + c.Source.Name + " begins at " + position + ", and there was no checkpoint; " + what +
			": " + then,
	})
}

// group returns the group of invalidators that this process belongs to; "" with the embedded log.
func (p *shared) group() string {
	if p.config.EventLog.Kind != config.EventLogKafka {
		return ""
	}
	return p.config.EventLog.Kafka.Group
}

// errChanged says that keys may have been missed.
var errChanged = errors.New("it became another server, or slots were moved, meanwhile")

// holdsKeys reports whether a Redis holds a key that the mappings can have made. Of a template that is blind, every key
// counts that begins as its keys do.
func holdsKeys(ctx context.Context, rdb scope.Redis, keys *keyspace.Keyspace, prefix string) (found bool, err error) {
	was, err := rdb.Server(ctx)
	if err != nil {
		return false, err
	}
	var begins []string
	for _, b := range keys.Blind() {
		text, _ := b.Action.Key.Constant()
		begins = append(begins, prefix+text)
	}
	for cursor := uint64(0); ; {
		page, next, err := rdb.Scan(ctx, cursor, "", scanPage)
		if err != nil {
			return false, err
		}
		for _, k := range page {
			keys.Match(k, func(*keyspace.Target) { found = true })
			if found || slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(k, b) }) {
				return true, nil
			}
		}
		if cursor = next; cursor > 0 {
			continue
		}
		if is, err := rdb.Server(ctx); err != nil || is != was {
			return false, cmp.Or(err, errChanged)
		}
		return false, nil
	}
}
