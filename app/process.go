package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/retry"
)

// shared is what both halves of a process are given.
type shared struct {
	config   *config.Config
	options  Options
	registry *prometheus.Registry
	alarms   *alarm.Board
	doubts   *doubt.Book
	// facts are kept where doubts are, and outlive a restart.
	facts doubt.SharedFacts
	// sharedFacts are the same with Kafka, where all processes read them; nil with the embedded log.
	sharedFacts doubt.SharedFacts
	// deaf returns since when it cannot be heard what is in doubt; zero: it can be. nil: nobody else says so.
	deaf    func() time.Time
	latency *latency.Stages
	tap     tap
	// servers are the source's, and which is read; nil in a configuration without a source.
	servers *canal.Servers
}

// source returns how to reach the source: all of a process ask the server that is read.
func (s *shared) source() canal.Options {
	o := connect.Source(s.config)
	o.Servers = s.servers
	return o
}

// process is everything that runs: two halves, of which one may stand for other processes, and what observes them.
type process struct {
	*shared
	started     time.Time
	reader      readerHalf
	invalidator invalidatorHalf
	// log is the event log's own part.
	log carrier
	// answers answers doubts; nil before it is made, and where nobody does.
	answers atomic.Pointer[answering]
	// warming carries out warm-ups; nil before it is made, and where nobody does.
	warming atomic.Pointer[warming]
	// observers run as long as there is anything to observe.
	observers []func(context.Context) error
	cleanup   []closer // last in, first out
}

// carrier is what an event log knows of its own servers.
type carrier interface {
	// Status fills in what keeps the process from them.
	Status(s *Status)
	// Ready says the same, by the status if it needs that.
	Ready(status func() Status) []admin.Check
}

type closer struct {
	name  string
	close func() error
}

func (p *process) close() error {
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

func (p *process) later(name string, f func() error) { p.cleanup = append(p.cleanup, closer{name, f}) }

// build makes the process. The caller must close it even when build fails.
func build(ctx context.Context, c *config.Config, o Options) (*process, error) {
	p := &process{
		started: time.Now(),
		shared:  &shared{config: c, options: o, registry: prometheus.NewRegistry(), latency: latency.New()},
	}
	if c.HasSource() {
		p.servers = canal.NewServers(c.Source.Addresses...)
	}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	if p.alarms, err = alarm.New(o.Log, p.registry); err != nil {
		return p, err
	}
	if err := p.registerMetrics(); err != nil {
		return p, err
	}
	if err := p.buildAdmin(); err != nil {
		return p, err
	}
	if c.EventLog.Kind == config.EventLogKafka {
		return p, p.buildKafka()
	}
	return p, p.buildEmbedded(ctx)
}

// doubtKeeper keeps doubts and facts: the store, or the topic.
type doubtKeeper interface {
	doubt.Keeper
	doubt.SharedFacts
}

// buildDoubts makes the book of doubts.
func (p *process) buildDoubts(k doubtKeeper) (err error) {
	p.facts = k
	if p.doubts, err = doubt.New(k, p.alarms, p.registry); err != nil {
		return err
	}
	p.observers = append(p.observers, p.doubts.Run)
	if p.config.OnGap == config.GapInvalidate {
		p.doubts.Describe(func(d *doubt.Doubt) { d.Asked = d.Asked || d.Cause == alarm.RecordsLost })
	}
	return nil
}

func (p *process) buildAdmin() error {
	c := p.config.Admin
	if c.Listen == "" && c.MetricsListen == "" {
		return nil
	}
	tls, err := c.TLS.Server("admin.tls", p.certificateRead())
	if err != nil {
		return err
	}
	// The listeners are opened before the halves are made, and answer when those run.
	d := admin.Deps{
		Live:    func() error { return nil },
		Ready:   p.ready,
		Status:  func() any { return p.status() },
		Letters: operate.Box(func() operate.LetterStore { return p.invalidator.Letters() }),
		Doubts:  operate.Book(func() *doubt.Book { return p.doubts }),
		Metrics: prometheus.GathererFunc(p.gather),
		Log:     p.options.Log,
	}
	if p.options.Role != Invalidator {
		d.Tail = p.tail
	}
	byHand := operate.Invalidations{
		Book: func() *doubt.Book { return p.doubts }, Config: p.config,
		Facts: func() doubt.SharedFacts { return p.sharedFacts },
	}
	if p.options.Role != Reader {
		d.Hot, byHand.Forget = func() any { return p.invalidator.Hot() }, p.forget
	} else {
		byHand.NoRedis = true
	}
	d.Invalidations, d.Warming = byHand, p
	server, err := admin.New(d, admin.Options{
		Listen: c.Listen, MetricsListen: c.MetricsListen, Token: c.Token.Reveal(),
		TLS: tls,
	})
	if err != nil {
		return err
	}
	p.observers = append(p.observers, server.Run)
	p.later("the listeners", server.Close) // in case that what follows fails, so that they are never run
	return nil
}

// certificateRead returns what says whether the files of the listeners' certificate can be read.
func (p *process) certificateRead() func(error) {
	log := p.options.Log
	loop := retry.Loop{Reporter: &retry.Reporter{
		Failed: func(err error) {
			log.Warn("the listeners go on with the certificate of before: its files cannot be read", "error", err)
		},
		Recovered: func(time.Duration) { log.Info("the files of the listeners' certificate can be read again") },
	}}
	return func(err error) {
		if err != nil {
			loop.Failed(err)
			return
		}
		loop.Succeeded()
	}
}

// forget has keys forgotten that an operator names.
func (p *process) forget(ctx context.Context, keys []string) (int, error) {
	a := p.answers.Load()
	if a == nil {
		return 0, errors.New("freshet is starting: try again in a moment")
	}
	return a.forget(ctx, keys)
}

// Warm implements admin.Warming.
func (p *process) Warm(ctx context.Context, of admin.WarmUp) (string, error) {
	w, err := p.warmed()
	if err != nil {
		return "", err
	}
	return w.Warm(ctx, of)
}

// CancelWarmUp implements admin.Warming.
func (p *process) CancelWarmUp(ctx context.Context, id string) error {
	w, err := p.warmed()
	if err != nil {
		return err
	}
	return w.CancelWarmUp(ctx, id)
}

// warmed returns what carries out warm-ups.
func (p *process) warmed() (*warming, error) {
	if p.options.Role == Reader {
		return nil, admin.NotHere("a reader has no redis that it could fill: ask an invalidator of the group whose redis is meant, " +
			"or `freshet run`")
	}
	w := p.warming.Load()
	if w == nil {
		return nil, errors.New("freshet is starting: try again in a moment")
	}
	return w, nil
}

// gather returns the metrics of the process and of the reading that is under way.
func (p *process) gather() ([]*dto.MetricFamily, error) {
	return append(prometheus.Gatherers{p.registry}, p.reader.Metrics()...).Gather()
}

// run runs everything and stops it from the source to Redis: canal, log, engine, the last save of the position, HTTP.
func (p *process) run(ctx context.Context) (Summary, error) {
	// What comes after the reader outlives ctx, so that it can finish what is in flight.
	after := context.WithoutCancel(ctx)
	observing, stopObserving := context.WithCancel(after)
	defer stopObserving()
	reading, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var observers, invalidators errgroup.Group
	for _, run := range p.observers {
		observers.Go(func() error {
			err := run(observing)
			fail(err)
			return err
		})
	}
	invalidating, stopInvalidating := context.WithCancel(after)
	defer stopInvalidating()
	invalidators.Go(func() error {
		err := p.invalidator.Run(invalidating)
		fail(err) // reading on makes no sense without it
		return err
	})
	p.options.Log.Info("freshet started", "version", p.options.Version, "role", p.options.Role.String())

	caughtUp, err := p.reader.Run(reading)
	if !caughtUp {
		stopInvalidating()
	} else {
		// The rest is finished in full, unless somebody has had enough.
		defer context.AfterFunc(ctx, stopInvalidating)()
	}
	err = errors.Join(err, invalidators.Wait(), p.reader.Close())
	sum := p.summary()
	sum.CaughtUp = caughtUp && ctx.Err() == nil && err == nil
	stopObserving()
	err = errors.Join(err, observers.Wait())
	p.options.Log.Info("freshet stopped", "rows", sum.Rows, "keys", sum.Keys)
	return sum, err
}

func (p *process) summary() Summary {
	read := p.reader.Stats()
	sum := Summary{Rows: read.Rows, Keys: p.invalidator.Acknowledged()}
	if !read.FirstByte.IsZero() {
		sum.Duration = time.Since(read.FirstByte)
	}
	return sum
}
