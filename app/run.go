package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/embedded"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
)

// ErrHalted is what Run's error is when freshet must not simply be started again: somebody has to decide first.
var ErrHalted = canal.ErrHalt

// Options are what Run can be told beside the configuration.
type Options struct {
	// Log takes the log. Default slog.Default().
	Log *slog.Logger
	// Version is freshet's own, for the status.
	Version string
	// UntilCaughtUp ends Run once everything that the source held at the start is finished, final deletes included.
	UntilCaughtUp bool
}

// Summary is what Run has done.
type Summary struct {
	// CaughtUp is true when Run ended because everything was finished.
	CaughtUp bool
	// Rows are the row changes of mapped tables, Keys those that Redis acknowledged.
	Rows, Keys uint64
	// Duration is from the first byte of the binlog to the last acknowledgement.
	Duration time.Duration
}

// Run keeps the cache fresh until ctx ends, which is no error.
func Run(ctx context.Context, c *config.Config, o Options) (Summary, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	p, err := build(ctx, c, o)
	if err != nil {
		return Summary{}, errors.Join(err, p.close())
	}
	sum, err := p.run(ctx)
	return sum, errors.Join(err, p.close())
}

// pipeline is everything that runs, in the order of a change's path.
type pipeline struct {
	config  *config.Config
	options Options
	started time.Time

	registry *prometheus.Registry
	alarms   *alarm.Board
	store    *embedded.Store
	canal    *canal.Canal
	reader   *reader
	log      *embedded.Log
	redis    *invalidator.Single
	engine   *invalidator.Engine
	admin    *admin.Server
	fresh    freshness
	tap      tap

	cleanup []closer // last in, first out
}

type closer struct {
	name  string
	close func() error
}

func (p *pipeline) close() error {
	if p == nil {
		return nil
	}
	var errs []error
	for i := len(p.cleanup) - 1; i >= 0; i-- {
		if err := p.cleanup[i].close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", p.cleanup[i].name, err))
		}
	}
	return errors.Join(errs...)
}

func (p *pipeline) later(name string, f func() error) { p.cleanup = append(p.cleanup, closer{name, f}) }

// build makes the pipeline. What it returns is to be closed even when it fails.
func build(ctx context.Context, c *config.Config, o Options) (*pipeline, error) {
	p := &pipeline{config: c, options: o, started: time.Now(), registry: prometheus.NewRegistry()}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	if p.alarms, err = alarm.New(o.Log, p.registry); err != nil {
		return p, err
	}
	if err := p.buildAdmin(); err != nil {
		return p, err
	}
	if p.store, err = embedded.Open(c.EventLog.Dir, embedded.Options{Registerer: p.registry}); err != nil {
		return p, err
	}
	p.later("the store", p.store.Close)
	if err := p.compareMappings(ctx); err != nil {
		return p, err
	}
	if err := p.buildInvalidator(); err != nil {
		return p, err
	}
	return p, p.buildReader(ctx)
}

// compareMappings holds the mappings against the live tables, and says so when they are not those that the checkpoint
// was written under. Mappings that are new to this store must fit; later, a table that was altered meanwhile stops
// only what it touches, with an alarm, because rows from before may be waiting in the binlog.
func (p *pipeline) compareMappings(ctx context.Context) error {
	cp, hash := p.store.Checkpoint(), p.config.MappingsHash()
	last := cp.Mappings()
	if err := p.fitTables(ctx, last != hash); err != nil || last == hash {
		return err
	}
	if last != "" {
		p.alarms.Raise(alarm.MappingsChanged, "the mappings have changed since the last start: they apply to changes from the saved position on; "+
			"keys that only the old mappings named are not deleted any more, and keys that only the new ones name were not deleted for changes before it")
	}
	return cp.SetMappings(hash)
}

// fitTables looks whether the mappings fit the tables as they are now. A source that cannot be asked is left to canal,
// which tries again for ever.
func (p *pipeline) fitTables(ctx context.Context, must bool) error {
	o, err := sourceOptions(p.config)
	if err != nil {
		return err
	}
	route, err := router.New(routerMappings(p.config.Mappings), router.Options{})
	if err != nil {
		return err
	}
	o.Wanted = route.Wants
	s, err := canal.Inspect(ctx, o)
	if err != nil {
		p.options.Log.Warn("the mapped tables cannot be looked at", "error", err)
		return nil
	}
	var problems config.Problems
	for _, f := range unfit(route, s.Tables) {
		if !must {
			p.alarms.Raise(alarm.MappingUnfit, f.Error())
			continue
		}
		problems = append(problems, config.Problem{Pos: config.Pos(f.Pos), What: f.What, Do: f.Do})
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

func (p *pipeline) buildInvalidator() error {
	c := p.config
	tls, err := c.Redis.TLS.Client()
	if err != nil {
		return fmt.Errorf("redis.tls: %w", err)
	}
	p.redis, err = invalidator.NewSingle(invalidator.SingleOptions{
		Address: c.Redis.Addresses[0], Username: c.Redis.Username, Password: c.Redis.Password.Reveal(), DB: c.Redis.DB,
		Timeout: c.Redis.Timeout, TLS: tls,
	})
	if err != nil {
		return err
	}
	p.later("redis", p.redis.Close)
	if p.log, err = embedded.NewLog(embedded.LogOptions{Registerer: p.registry}); err != nil {
		return err
	}
	p.engine, err = invalidator.New(invalidator.Deps{
		Redis: p.redis, Store: p.store, Alarms: p.alarms, Registerer: p.registry, Log: p.options.Log,
	}, invalidator.Options{
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

func (p *pipeline) buildReader(ctx context.Context) error {
	c := p.config
	route, err := router.New(routerMappings(c.Mappings), router.Options{Reporter: reporter{p.alarms}, Registerer: p.registry})
	if err != nil {
		return err
	}
	term, err := p.store.Checkpoint().NextTerm()
	if err != nil {
		return err
	}
	p.reader = &reader{
		ctx: ctx, log: p.log, router: route, tap: &p.tap, fresh: &p.fresh, source: c.Source.Name, term: term,
		xa: &xaMemory{store: p.store}, alarms: p.alarms,
	}
	o, err := sourceOptions(c)
	if err != nil {
		return err
	}
	o.Term, o.UntilCaughtUp, o.Wanted = term, p.options.UntilCaughtUp, route.Wants
	o.Alarms, o.Logger, o.Registerer = p.alarms, p.options.Log, p.registry
	if p.canal, err = canal.New(o, p.reader, p.store.Checkpoint()); err != nil {
		return err
	}
	p.reader.handover = p.canal.Handover
	return nil
}

// sourceOptions says in canal's words how to reach the source.
func sourceOptions(c *config.Config) (canal.Options, error) {
	tls, err := c.Source.TLS.Client()
	if err != nil {
		return canal.Options{}, fmt.Errorf("source.tls: %w", err)
	}
	o := canal.Options{
		Source: c.Source.Name, Address: c.Source.Addresses[0], User: c.Source.User, Password: c.Source.Password.Reveal(),
		TLS: tls, TLSOptional: c.Source.TLS.Mode == config.TLSPreferred, ServerID: c.Source.ServerID,
		Start: c.Source.Start.String(), Heartbeat: c.Source.Heartbeat,
	}
	if tls != nil && tls.ServerName == "" {
		tls.ServerName, _, _ = net.SplitHostPort(o.Address)
	}
	if c.Source.Flavor != config.FlavorAuto {
		o.Flavor = event.Flavor(c.Source.Flavor)
	}
	return o, nil
}

// reporter raises the router's troubles as alarms.
type reporter struct{ alarms *alarm.Board }

// Report implements router.Reporter.
func (r reporter) Report(t router.Trouble, message string) {
	kind := alarm.ColumnAbsent
	switch t {
	case router.KeyTooLong:
		kind = alarm.KeyTooLong
	case router.PredicateFailed:
		kind = alarm.PredicateFailed
	}
	r.alarms.Raise(kind, message)
}

func (p *pipeline) buildAdmin() error {
	c := p.config.Admin
	if c.Listen == "" && c.MetricsListen == "" {
		return nil
	}
	tls, err := c.TLS.Server()
	if err != nil {
		return fmt.Errorf("admin.tls: %w", err)
	}
	p.admin, err = admin.New(admin.Deps{
		Live:    func() error { return nil },
		Ready:   p.ready,
		Status:  func() any { return p.status() },
		Tail:    p.tail,
		Letters: storeLetters{p},
		Metrics: p.registry,
		Log:     p.options.Log,
	}, admin.Options{Listen: c.Listen, MetricsListen: c.MetricsListen, Token: c.Token.Reveal(), TLS: tls})
	if err == nil {
		p.later("the listeners", p.admin.Close) // in case that what follows fails, so that they are never run
	}
	return err
}

// run runs everything and stops it from the source to the sink: canal, log, engine, the last save of the position,
// HTTP.
func (p *pipeline) run(ctx context.Context) (Summary, error) {
	// What comes after canal outlives ctx, so that it can finish what is in flight.
	after := context.WithoutCancel(ctx)
	serving, stopServing := context.WithCancel(after)
	defer stopServing()
	var http errgroup.Group
	reading, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	p.reader.ctx = reading
	if p.admin != nil {
		http.Go(func() error {
			err := p.admin.Run(serving)
			fail(err)
			return err
		})
	}
	invalidating, stopInvalidating := context.WithCancel(after)
	defer stopInvalidating()
	var sink errgroup.Group
	sink.Go(func() error {
		err := p.invalidate(invalidating)
		fail(err) // reading on makes no sense without it
		return err
	})
	p.options.Log.Info("freshet started", "version", p.options.Version, "source", p.config.Source.Name,
		"position", strconv.Quote(p.position()), "mappings", len(p.config.Mappings))

	err := p.canal.Run(reading)
	caughtUp := err == nil && reading.Err() == nil
	p.log.Close()
	if !caughtUp {
		stopInvalidating()
	} else {
		// The rest is finished in full, unless somebody has had enough.
		defer context.AfterFunc(ctx, stopInvalidating)()
	}
	err = errors.Join(err, sink.Wait())
	sum := p.summary()
	sum.CaughtUp = caughtUp && ctx.Err() == nil && err == nil
	stopServing()
	err = errors.Join(err, http.Wait())
	p.options.Log.Info("freshet stopped", "rows", sum.Rows, "keys", sum.Keys)
	return sum, err
}

// invalidate runs all that comes after the event log, until ctx ends or the log has been closed and all of it is
// finished.
func (p *pipeline) invalidate(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var beside errgroup.Group
	beside.Go(func() error { return p.engine.Run(running) })
	beside.Go(func() error {
		for {
			select {
			case <-running.Done():
				return nil
			case m := <-p.log.Marks():
				p.engine.Mark(m)
			}
		}
	})
	var saver errgroup.Group
	saver.Go(func() error {
		return p.store.Checkpoint().Run(running, p.log.Durable(), embedded.SaverOptions{
			Failed: func(err error) {
				p.alarms.Raise(alarm.StoreFailed, "the position cannot be saved: "+err.Error()+
					"; nothing is lost, but a restart would repeat all work since the last save: look at the disk of eventlog.dir")
			},
			Recovered: func() { p.options.Log.Info("the position is saved again") },
		})
	})
	err := p.log.Consume(ctx, p.engine.Serve)
	// Nothing is committed any more: the last ends are there, and the saver takes them before it goes.
	stop()
	return errors.Join(err, beside.Wait(), saver.Wait())
}

func (p *pipeline) position() string {
	at := p.store.Checkpoint().Position()
	return at.String()
}

func (p *pipeline) summary() Summary {
	s := p.canal.Stats()
	sum := Summary{Rows: s.Rows, Keys: p.engine.Acknowledged()}
	if !s.FirstByte.IsZero() {
		sum.Duration = time.Since(s.FirstByte)
	}
	return sum
}
