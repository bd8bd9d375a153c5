package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/invalidator/hot"
	"github.com/freshet/freshet/invalidator/identity"
	"github.com/freshet/freshet/invalidator/rebuild"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/retry"
)

// letterStore is where either event log keeps the keys in trouble.
type letterStore interface {
	retry.Store
	operate.LetterStore
	Held() (retry.Held, error)
}

// deleting is the invalidator half: it keeps Redis fresh from the event log.
type deleting struct {
	*shared
	log     eventlog.Output
	letters letterStore
	// freshAsOf returns as of when everything that was committed is finished.
	freshAsOf func() time.Time
	engine    *invalidator.Engine
	// redis is the one server that is written to, or there is a cluster. named is either.
	redis   *invalidator.Single
	cluster *invalidator.Nodes
	named   fmt.Stringer
	// identity notices when Redis is not what it was.
	identity watching
	hot      *hot.Sketch
	// alongside are what runs as long as the engine.
	alongside []func(context.Context) error
}

// watching is an [identity.Watch], or one of a cluster.
type watching interface {
	Run(ctx context.Context) error
	Unheard() (since time.Time, why error)
	// With Kafka they are a kafka.Redis.
	On() string
	TakeOver(ctx context.Context, part, on string, at time.Time) error
}

// stamping says what Redis is stamped with, and where, and whether by this process: see [identity.Deps].
type stamping struct {
	place func() (string, bool)
	leads func() bool
	name  func(ctx context.Context) (string, error)
}

// newDeleting makes the engine and its Redis.
func (p *process) newDeleting(log eventlog.Output, letters letterStore, freshAsOf func() time.Time, s stamping,
) (*deleting, error) {
	c := p.config
	d := &deleting{shared: p.shared, log: log, letters: letters, freshAsOf: freshAsOf}
	deps := invalidator.Deps{
		Store: letters, Alarms: p.alarms, Latency: p.latency, Registerer: p.registry, Log: p.options.Log,
	}
	var err error
	if c.Redis.Mode == config.RedisCluster {
		err = d.connectCluster(p, s, &deps)
	} else {
		err = d.connect(p, s, &deps)
	}
	if err != nil {
		return nil, err
	}
	if d.hot, err = hot.New(hot.Options{}); err != nil {
		return nil, err
	}
	deps.Hot = d.hot
	queries, err := connect.Rebuilder(c, p.servers, func(o *rebuild.Options) { o.Registerer = p.registry })
	if err != nil {
		return nil, err
	}
	if queries != nil {
		p.later("queries", queries.Close)
		deps.Rebuilder = queries
		d.alongside = append(d.alongside, queries.Run)
	}
	d.engine, err = invalidator.New(deps, invalidator.Options{
		MaxInFlight: c.Invalidator.MaxInFlight, MaxPending: c.Invalidator.MaxPending, MaxMemory: c.Invalidator.MaxMemory,
		RateLimit: c.Invalidator.RateLimit, GentleRate: c.ScopeRate,
		KeyPrefix: c.Redis.KeyPrefix, Timeout: c.Redis.Timeout, ShortestD: shortestD(c.Mappings),
		Retry: retry.Policy{
			MaxAttempts: c.Retry.MaxAttempts, ParkAfter: c.Retry.ParkAfter, ParkDelays: c.Retry.ParkDelays,
			MinBackoff: c.Retry.MinBackoff, MaxBackoff: c.Retry.MaxBackoff,
		},
	})
	if err != nil {
		return nil, err
	}
	d.alongside = append(d.alongside, d.engine.Run, d.logHot, d.passMarks)
	return d, nil
}

// connect makes the connections to the one Redis server.
func (d *deleting) connect(p *process, s stamping, deps *invalidator.Deps) error {
	c := p.config
	var watch *identity.Watch
	client, err := connect.Redis(c, func(ctx context.Context, c *redis.Conn) error { return watch.Look(ctx, c) })
	if err != nil {
		return err
	}
	d.redis, d.named, deps.Redis = client, client, client
	p.later("redis", client.Close)
	looks := client.Looking()
	p.later("looks at redis", looks.Close)
	who, what := d.whoRedisWas(p, s)
	who.Redis, who.Moved = looks, func() { d.moved(client) }
	who.Answered = func() time.Time { return d.engine.Answered(client) }
	if watch, err = identity.New(who, what); err != nil {
		return err
	}
	d.identity = watch
	d.alongside = append(d.alongside, watch.Run)
	return nil
}

// connectCluster makes the connections to the nodes of a cluster.
func (d *deleting) connectCluster(p *process, s stamping, deps *invalidator.Deps) error {
	nodes, err := connect.Cluster(p.config)
	if err != nil {
		return err
	}
	d.cluster, d.named, deps.Cluster = nodes, nodes, nodes
	p.later("redis", nodes.Close)
	who, what := d.whoRedisWas(p, s)
	what.Address = nodes.String()
	watch, err := identity.NewCluster(who, what, d.masters)
	if err != nil {
		return err
	}
	nodes.Connected(func(ctx context.Context, address string, c *redis.Conn) error { return watch.Look(ctx, address, c) })
	d.identity = watch
	d.alongside = append(d.alongside, watch.Run)
	return nil
}

// whoRedisWas is what all that watches Redis works with.
func (d *deleting) whoRedisWas(p *process, s stamping) (identity.Deps, identity.Options) {
	c := p.config
	what := identity.Options{
		Address: connect.RedisName(c), DB: c.Redis.DB, Prefix: c.Redis.KeyPrefix,
		Source: c.Source.Name, Window: c.Redis.FailoverWindow,
	}
	if c.EventLog.Kind == config.EventLogKafka {
		what.Source, what.Group = "", c.EventLog.Kafka.Group
	}
	return identity.Deps{
		Place: s.place, Leads: s.leads, Name: s.name,
		Facts: p.facts, Doubts: p.doubts, Alarms: p.alarms, Log: p.options.Log,
	}, what
}

// masters are those of the cluster, as the engine has them: what a former owner of a slot acknowledges after a master
// is listed with it finishes nothing.
func (d *deleting) masters() (members []identity.Member) {
	masters, owner := d.engine.Masters()
	for _, m := range masters {
		member := identity.Member{ID: m.ID, Address: m.Address, Redis: m.Looking}
		for slot, n := range owner {
			if n >= 0 && n == m.Ordinal {
				member.Slots.Add(uint16(slot))
			}
		}
		if node := m.Node; node != nil {
			member.Moved, member.Answered = func() { d.moved(node) }, func() time.Time { return d.engine.Answered(node) }
		}
		members = append(members, member)
	}
	return members
}

// searched is Redis as a scope sees it.
func (d *deleting) searched() scope.Redis {
	if d.cluster != nil {
		return &scope.Cluster{Masters: d.cluster.Masters}
	}
	return scope.Single{Client: d.redis.Client()}
}

// moved leaves the server that Redis, or a node of it, was.
func (d *deleting) moved(was *invalidator.Single) {
	was.Leave()
	d.engine.Moved(was)
}

// shortestD returns the shortest second delete of the mappings; 0 when none has any.
func shortestD(mappings []spec.Mapping) (d time.Duration) {
	for _, m := range mappings {
		if m.SecondDelete > 0 && (d == 0 || m.SecondDelete < d) {
			d = m.SecondDelete
		}
	}
	return d
}

// Run implements invalidatorHalf.
func (d *deleting) Run(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	consuming, fail := context.WithCancel(ctx)
	defer fail()
	var group errgroup.Group
	for _, run := range d.alongside {
		group.Go(func() error {
			err := run(running)
			if err != nil {
				fail() // consuming on makes no sense without it
			}
			return err
		})
	}
	err := d.log.Consume(consuming, d.engine.Serve)
	stop()
	return errors.Join(err, group.Wait())
}

func (d *deleting) passMarks(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-d.log.Marks():
			if m.Source == d.config.Source.Name && d.servers != nil {
				d.servers.Follow(m.Server)
			}
			d.engine.Mark(m)
		}
	}
}

// Acknowledged implements invalidatorHalf.
func (d *deleting) Acknowledged() uint64 { return d.engine.Acknowledged() }

// Letters implements invalidatorHalf.
func (d *deleting) Letters() operate.LetterStore { return d.letters }

// FirstStart implements invalidatorHalf.
func (d *deleting) FirstStart(keys *operate.Keys) func(context.Context, string) error {
	return func(ctx context.Context, position string) error { return d.firstStart(ctx, position, keys) }
}

// Status implements invalidatorHalf.
func (d *deleting) Status(s *Status) {
	s.FreshAsOf = d.freshAsOf()
	engine := d.engine.Snapshot()
	s.Redis = &RedisStatus{Address: d.named.String(), Up: engine.RedisUp, Sentence: engine.Redis}
	if d.cluster != nil {
		s.Redis.Nodes, s.Redis.Unserved = d.engine.NodeStatus()
	}
	s.unheard, s.unheardWhy = d.identity.Unheard()
	s.Keys, s.waiting = d.Acknowledged(), engine.Waiting
	s.RateLimited, s.RebuildQueue = engine.RateLimited, engine.RebuildQueue
	s.InFlight, s.Pending, s.OldestUnfinished = engine.InFlight, engine.Pending, engine.OldestUnfinished.Seconds()
	s.LatencyP50, s.LatencyP99 = engine.Latency.P50.Seconds(), engine.Latency.P99.Seconds()
	for _, part := range engine.Partitions {
		s.Partitions = append(s.Partitions, PartitionStatus{
			ID: part.ID, Lag: part.Lag.Seconds(), InFlight: part.InFlight, Pending: part.Pending, Idle: part.Idle,
		})
	}
	s.addPartitions(d.log.Partitions())
	if standby, known := d.log.Standby(); len(s.Partitions) == 0 {
		s.spare, s.joining = standby, s.joining || !known
	}
	var held retry.Held
	held, s.unreadable = d.letters.Held()
	s.Parked, s.DeadLetters, s.uncounted = held.Parked, held.DeadLetters, !held.Counted
	s.Hot = d.hotNow(hotTables)
	s.behindAfter = behindAfter(d.config, d.engine.LongestD())
}

// Ready implements invalidatorHalf.
func (d *deleting) Ready() []admin.Check {
	redis := admin.Check{Name: "redis"}
	if s := d.engine.Snapshot(); !s.RedisUp {
		redis.Err = errors.New(s.Redis)
	}
	return []admin.Check{redis}
}
