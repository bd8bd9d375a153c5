package app

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/hot"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/invalidator/identity"
	"github.com/freshet/freshet/rebuild"
	"github.com/freshet/freshet/retry"
)

// output is the invalidator's end of an event log.
type output interface {
	Consume(ctx context.Context, handle func(context.Context, eventlog.Partition) error) error
	Marks() <-chan event.Mark
}

// buildInvalidator makes the engine and its Redis.
func (p *pipeline) buildInvalidator(store retry.Store) error {
	c := p.config
	redis, err := connect.Redis(c, func(info string, err error) { p.identity.Answered(info, err) })
	if err != nil {
		return err
	}
	p.later("redis", redis.Close)
	who := identity.Options{Address: c.Redis.Addresses[0], DB: c.Redis.DB, Prefix: c.Redis.KeyPrefix, Source: c.Source.Name}
	if c.EventLog.Kind == config.EventLogKafka {
		who.Source, who.Group = "", c.EventLog.Kafka.Group
	}
	p.identity, err = identity.New(identity.Deps{
		Ask: redis.Info, Facts: p.facts, Doubts: p.doubts, Alarms: p.alarms, Log: p.options.Log,
	}, who)
	if err != nil {
		return err
	}
	if p.hot, err = hot.New(hot.Options{}); err != nil {
		return err
	}
	d := invalidator.Deps{
		Redis: redis, Store: store, Alarms: p.alarms, Latency: p.latency, Hot: p.hot, Registerer: p.registry, Log: p.options.Log,
	}
	if p.queries, err = connect.Rebuilder(c, func(o *rebuild.Options) { o.Registerer = p.registry }); err != nil {
		return err
	}
	if p.queries != nil {
		p.later("queries", p.queries.Close)
		d.Rebuilder = p.queries
	}
	p.engine, err = invalidator.New(d, invalidator.Options{
		MaxInFlight: c.Invalidator.MaxInFlight, MaxPending: c.Invalidator.MaxPending, MaxMemory: c.Invalidator.MaxMemory,
		RateLimit: c.Invalidator.RateLimit, KeyPrefix: c.Redis.KeyPrefix, Timeout: c.Redis.Timeout, ShortestD: shortestD(c),
		Retry: retry.Policy{
			MaxAttempts: c.Retry.MaxAttempts, ParkAfter: c.Retry.ParkAfter, ParkDelays: c.Retry.ParkDelays,
			MinBackoff: c.Retry.MinBackoff, MaxBackoff: c.Retry.MaxBackoff,
		},
	})
	return err
}

// shortestD returns the shortest second delete of the mappings; 0 when none has any.
func shortestD(c *config.Config) (d time.Duration) {
	for _, m := range c.Mappings {
		if m.SecondDelete > 0 && (d == 0 || m.SecondDelete < d) {
			d = m.SecondDelete
		}
	}
	return d
}

// invalidate runs all that comes after the event log, until ctx ends or the log has been closed and all of it is
// finished. What stands beside runs as long.
func (p *pipeline) invalidate(ctx context.Context, log output, beside ...func(context.Context) error) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	consuming, fail := context.WithCancel(ctx)
	defer fail()
	var group errgroup.Group
	beside = append(beside, p.engine.Run, p.logHot, p.identity.Run)
	if p.queries != nil {
		beside = append(beside, p.queries.Run)
	}
	for _, f := range beside {
		group.Go(func() error {
			err := f(running)
			if err != nil {
				fail() // consuming on makes no sense without it
			}
			return err
		})
	}
	group.Go(func() error {
		for {
			select {
			case <-running.Done():
				return nil
			case m := <-log.Marks():
				p.engine.Mark(m)
			}
		}
	})
	err := log.Consume(consuming, p.engine.Serve)
	stop()
	return errors.Join(err, group.Wait())
}
