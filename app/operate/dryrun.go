package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router"
)

// Cached is what a scope would forget.
type Cached struct {
	// Keys are how many keys there are, a field of a hash being one; by the patterns of the mappings' tables.
	Keys map[string]int
	// Examples are some of the keys, as they stand in Redis but for redis.key_prefix.
	Examples []string
	// Blind are the templates whose keys cannot be looked for, each in a sentence.
	Blind []string
}

// maxExamples bounds [Cached].Examples.
const maxExamples = 20

// DryRun looks which keys a scope would forget, and forgets none. It asks the source for its tables and goes through
// Redis once, as slowly as a scope does; p says how far it is.
func DryRun(ctx context.Context, c *config.Config, s admin.Scope, p *scope.Progress) (*Cached, error) {
	d, err := Invalidations{Config: c}.doubt(s)
	if err != nil {
		return nil, err
	}
	route, err := router.New(c.Mappings, router.Options{})
	if err != nil {
		return nil, err
	}
	o, err := connect.Source(c)
	if err != nil {
		return nil, err
	}
	o.Wanted, o.WantedFolded = route.Wants, route.WantsFolded
	all := Keys{Mappings: route.Mappings(), Source: o, Prefix: c.Redis.KeyPrefix}
	keys, err := all.InDoubt(ctx, d)
	if err != nil {
		return nil, err
	}
	found := &Cached{Keys: map[string]int{}}
	for _, b := range keys.Blind() {
		found.Blind = append(found.Blind, b.String())
	}
	if len(keys.Targets()) == 0 {
		return found, nil
	}
	options, err := connect.RedisOptions(c)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("redis %s: %w", c.Redis.Addresses[0], err)
	}
	look, err := scope.New(scope.Deps{
		Redis: scope.Single{Client: client}, Serve: found.take, Log: slog.New(slog.DiscardHandler),
	}, scope.Options{Rate: math.MaxInt, Prefix: c.Redis.KeyPrefix})
	if err != nil {
		return nil, err
	}
	t := scope.Task{Keys: keys, Progress: p}
	Narrow(&t, &d)
	return found, look.Look(ctx, t)
}

// take counts what a pass hands out.
func (f *Cached) take(ctx context.Context, p eventlog.Partition) error {
	f.Examples = nil
	clear(f.Keys)
	for {
		b, token, err := p.Fetch(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		p.Commit(token)
		for i := range b.Len() {
			f.Keys[b.Of(i).Table]++
			if len(f.Examples) < maxExamples {
				f.Examples = append(f.Examples, b.Key(i))
			}
		}
	}
}
