package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/eventlog/kafka/leader"
	"github.com/freshet/freshet/eventlog/kafka/producer"
	"github.com/freshet/freshet/hot"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/invalidator/identity"
	"github.com/freshet/freshet/latency"
	"github.com/freshet/freshet/rebuild"
)

// Halted reports whether an error of Run says that freshet must not simply be started again: the position is lost, or
// records of the event log are, and somebody has to decide first.
func Halted(err error) bool {
	var records *consumer.LostError
	var position *leader.LostError
	return errors.Is(err, canal.ErrHalt) || errors.Is(err, producer.ErrTopicChanged) ||
		errors.As(err, &records) || errors.As(err, &position)
}

// Role is the part of the path that a process runs.
type Role int

// The roles. With the embedded event log there is only the whole.
const (
	// Whole reads the source and keeps Redis fresh.
	Whole Role = iota
	// Reader reads the source into the event log.
	Reader
	// Invalidator keeps Redis fresh from the event log.
	Invalidator
)

// String returns the role as the command that runs it is called.
func (r Role) String() string { return [...]string{"run", "reader", "invalidator"}[r] }

// Options are what Run can be told beside the configuration.
type Options struct {
	// Role is the part of the path to run. Default Whole.
	Role Role
	// Log takes the log. Default slog.Default().
	Log *slog.Logger
	// Version is freshet's own, for the status.
	Version string
	// UntilCaughtUp ends Run once everything that the source held at the start is finished, final deletes included.
	UntilCaughtUp bool
	// SkipLost goes on where records of the event log were lost, from what is left of them. Kafka only.
	SkipLost bool
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

// pipeline is everything that runs.
type pipeline struct {
	config  *config.Config
	options Options
	started time.Time

	registry *prometheus.Registry
	alarms   *alarm.Board
	doubts   *doubt.Book
	// facts are kept where doubts are, and outlive a restart.
	facts   doubt.Facts
	latency *latency.Stages
	admin   *admin.Server
	tap     tap
	// letters are the keys in trouble, engine what deletes keys, and hot knows which change most; nil in a process that
	// only reads.
	letters operate.LetterStore
	usage   func() (parked, dead int, err error)
	// counted reports whether usage knows of all dead letters; nil where it always does.
	counted func() bool
	engine  *invalidator.Engine
	// identity notices when Redis is not what it was.
	identity *identity.Watch
	hot      *hot.Sketch
	// queries read the values of keys that are rebuilt by query; nil without such mappings.
	queries *rebuild.Runner
	// reading is the life of the reader that is under way, or was; nil before the first.
	reading   atomic.Pointer[reading]
	firstByte time.Time
	// leader says whether this process leads the readers of its source; nil where it always does. spare reports whether
	// other processes have all partitions of the event log; nil where they cannot.
	leader func() leader.Status
	spare  func() bool
	// kafka are the brokers; nil with the embedded log.
	kafka *broker.Client

	// source runs what comes before the event log, and finish when nothing more will be put into it; sink runs what
	// comes after, nil in a process that only reads.
	source func(ctx context.Context, finish func(caughtUp bool) error) error
	sink   func(ctx context.Context) error
	// recordsBehind returns how many records of each partition are not finished; nil where the event log counts none.
	recordsBehind func() map[int]int64
	// stopped returns the partitions of this process that are read no further, and why; nil where there cannot be any.
	stopped func() map[int]error
	// freshAsOf returns as of when everything that was committed is finished.
	freshAsOf func() time.Time

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
	p := &pipeline{config: c, options: o, started: time.Now(), registry: prometheus.NewRegistry(), latency: latency.New()}
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
		return p, p.buildKafka(ctx)
	}
	return p, p.buildEmbedded(ctx)
}

// doubtKeeper keeps doubts and facts: the store, or the topic.
type doubtKeeper interface {
	doubt.Keeper
	doubt.Facts
}

// buildDoubts makes the book of doubts. What is kept in the store is read at once, what is in Kafka when the brokers answer.
func (p *pipeline) buildDoubts(ctx context.Context, k doubtKeeper) (err error) {
	if p.doubts, err = doubt.New(k, p.alarms, p.registry); err != nil {
		return err
	}
	p.facts = k
	if _, later := k.(doubt.Follower); later {
		return nil
	}
	return p.doubts.Load(ctx)
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
	tail, hottest := p.tail, p.hotKeys
	switch p.options.Role {
	case Invalidator:
		tail = nil
	case Reader:
		hottest = nil
	}
	p.admin, err = admin.New(admin.Deps{
		Live:    func() error { return nil },
		Ready:   p.ready,
		Status:  func() any { return p.status() },
		Tail:    tail,
		Hot:     hottest,
		Letters: storeLetters{p},
		Doubts:  operate.Book(func() *doubt.Book { return p.doubts }),
		Metrics: prometheus.GathererFunc(p.gather),
		Log:     p.options.Log,
	}, admin.Options{Listen: c.Listen, MetricsListen: c.MetricsListen, Token: c.Token.Reveal(), TLS: tls})
	if err == nil {
		p.later("the listeners", p.admin.Close) // in case that what follows fails, so that they are never run
	}
	return err
}

// gather returns the metrics of the process and of the reading that is under way. Those of a former term are of no use any
// more: a standby that led once is not disconnected, and does not lag.
func (p *pipeline) gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{p.registry}
	if r := p.reading.Load(); r != nil && (p.leader == nil || p.leader().Leading) {
		all = append(all, r.registry)
	}
	return all.Gather()
}

// run runs everything and stops it from the source to the sink: canal, log, engine, the last save of the position,
// HTTP.
func (p *pipeline) run(ctx context.Context) (Summary, error) {
	// What comes after the reader outlives ctx, so that it can finish what is in flight.
	after := context.WithoutCancel(ctx)
	serving, stopServing := context.WithCancel(after)
	defer stopServing()
	reading, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var serve, sink errgroup.Group
	if p.admin != nil {
		serve.Go(func() error {
			err := p.admin.Run(serving)
			fail(err)
			return err
		})
	}
	serve.Go(func() error { return p.doubts.Run(serving) })
	invalidating, stopInvalidating := context.WithCancel(after)
	defer stopInvalidating()
	if p.sink != nil {
		sink.Go(func() error {
			err := p.sink(invalidating)
			fail(err) // reading on makes no sense without it
			return err
		})
	}
	p.options.Log.Info("freshet started", "version", p.options.Version, "role", p.options.Role.String())

	caughtUp := false
	err := p.source(reading, func(done bool) error {
		caughtUp = done
		if !done {
			stopInvalidating()
		} else {
			// The rest is finished in full, unless somebody has had enough.
			defer context.AfterFunc(ctx, stopInvalidating)()
		}
		return sink.Wait()
	})
	sum := p.summary()
	sum.CaughtUp = caughtUp && ctx.Err() == nil && err == nil
	stopServing()
	err = errors.Join(err, serve.Wait())
	p.options.Log.Info("freshet stopped", "rows", sum.Rows, "keys", sum.Keys)
	return sum, err
}

func (p *pipeline) summary() Summary {
	var sum Summary
	if r := p.reading.Load(); r != nil {
		s := r.canal.Stats()
		sum.Rows, p.firstByte = s.Rows, s.FirstByte
	}
	if p.engine != nil {
		sum.Keys = p.engine.Acknowledged()
	}
	if !p.firstByte.IsZero() {
		sum.Duration = time.Since(p.firstByte)
	}
	return sum
}
