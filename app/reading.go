package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/embedded"
	"github.com/freshet/freshet/eventlog/kafka/leader"
	"github.com/freshet/freshet/router"
)

// saved is where a reader's position is kept: the checkpoint of either event log.
type saved interface {
	canal.Checkpoint
	Current() event.Position
	Durable() event.Position
	Term() uint64
	Mappings() string
	SetMappings(hash string) error
	Run(ctx context.Context, ends <-chan event.End, o checkpoint.SaverOptions) error
}

// input is the reader's end of an event log.
type input interface {
	appender
	// Durable delivers how far the source need not be read again; it is closed when no more will come.
	Durable() <-chan event.End
	// Close says that no more is appended.
	Close()
}

// reading is one life of a reader: from the saved position on, until it is stopped. In one process there is one; with
// Kafka there is one for each time that this process becomes its source's leader.
type reading struct {
	config   *config.Config
	alarms   *alarm.Board
	doubts   *doubt.Book
	logger   *slog.Logger
	registry *prometheus.Registry

	canal *canal.Canal
	sink  *reader
	saved saved
	log   input
	fresh freshness
}

// newReading prepares a reader that goes on from a saved position. It asks the source for its tables once.
func (p *pipeline) newReading(ctx context.Context, log input, at saved, xa xaStore) (*reading, error) {
	c := p.config
	r := &reading{config: c, alarms: p.alarms, doubts: p.doubts, logger: p.options.Log, registry: prometheus.NewRegistry(), saved: at, log: log}
	troubles := &troubles{alarms: p.alarms, doubts: p.doubts, source: c.Source.Name}
	route, err := router.New(connect.Mappings(c.Mappings), router.Options{Reporter: troubles, Registerer: r.registry})
	if err != nil {
		return nil, err
	}
	o, err := connect.Source(c)
	if err != nil {
		return nil, err
	}
	o.Term, o.UntilCaughtUp = at.Term(), p.options.UntilCaughtUp
	o.Wanted, o.WantedFolded = route.Wants, route.WantsFolded
	o.Alarms, o.Doubts, o.Logger, o.Registerer = p.alarms, p.doubts, p.options.Log, r.registry
	if p.engine != nil {
		o.FirstStart = p.firstStart
	}
	if err := r.compareMappings(ctx, route, o); err != nil {
		return nil, err
	}
	r.sink = &reader{
		log: log, router: route, tap: &p.tap, fresh: &r.fresh, source: c.Source.Name, term: at.Term(),
		xa: &xaMemory{store: xa, alarms: p.alarms}, troubles: troubles, doubts: p.doubts, latency: p.latency,
	}
	if r.canal, err = canal.New(o, r.sink, at); err != nil {
		return nil, err
	}
	r.sink.handover = r.canal.Handover
	return r, nil
}

// compareMappings holds the mappings against the live tables, and says so when they are not those that the checkpoint
// was written under. Mappings that are new to this checkpoint must fit; later, a table that was altered meanwhile stops
// only what it touches, with an alarm, because rows from before may be waiting in the binlog.
func (r *reading) compareMappings(ctx context.Context, route *router.Router, o canal.Options) error {
	hash, last := r.config.MappingsHash(), r.saved.Mappings()
	if err := r.fitTables(ctx, route, o, last != hash); err != nil || last == hash {
		return err
	}
	if last != "" {
		err := r.doubts.Record(ctx, doubt.Doubt{
			Cause: alarm.MappingsChanged, Source: r.config.Source.Name,
			Message: "the mappings have changed since the last start: they apply to changes from the saved position on; " +
				"keys that only the old mappings named are not deleted any more, and keys that only the new ones name were not deleted for changes before it: " +
				"clear both",
		})
		if err != nil {
			return err
		}
	}
	return r.saved.SetMappings(hash)
}

// fitTables looks whether the mappings fit the tables as they are now. A source that cannot be asked is left to canal,
// which tries again for ever.
func (r *reading) fitTables(ctx context.Context, route *router.Router, o canal.Options, must bool) error {
	s, err := canal.Inspect(ctx, o)
	if err != nil {
		r.logger.Warn("the mapped tables cannot be looked at", "error", err)
		return nil
	}
	var problems config.Problems
	for _, f := range route.Unfit(s.Tables) {
		if !must {
			if err := r.doubts.Record(ctx, unfitDoubt(r.config.Source.Name, f.Error())); err != nil {
				return err
			}
			continue
		}
		problems = append(problems, config.Problem{Pos: config.Pos(f.Pos), What: f.What, Do: f.Do})
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// run reads until ctx ends, the source is caught up with, or something fails. Then it closes the log and calls settle,
// which returns when nothing more will become durable; saved is closed before that if all has become durable and is
// saved. The position is saved once more after settle.
func (r *reading) run(ctx context.Context, settle func(caughtUp bool, saved <-chan struct{}) error) error {
	r.logger.Info("reading", "source", r.config.Source.Name, "position", r.position(), "term", r.saved.Term(), "mappings", len(r.config.Mappings))
	saving, stopSaving := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSaving()
	saved := make(chan struct{})
	var saver errgroup.Group
	saver.Go(func() error {
		defer close(saved)
		return r.saved.Run(saving, r.log.Durable(), r.saverOptions())
	})
	r.sink.ctx = ctx
	err := r.canal.Run(ctx)
	// Asked before the log is closed: with nothing left to do its other end is finished at once, which ends ctx.
	caughtUp := err == nil && ctx.Err() == nil
	r.log.Close()
	err = errors.Join(err, settle(caughtUp, saved))
	// The last ends are there, and the saver takes them before it goes.
	stopSaving()
	return errors.Join(err, saver.Wait())
}

func (r *reading) saverOptions() checkpoint.SaverOptions {
	return checkpoint.SaverOptions{
		Advanced: r.fresh.finish,
		Failed: func(err error) {
			if errors.Is(err, leader.ErrDeposed) {
				return // its successor saves now, and the term ends
			}
			if errors.Is(err, embedded.ErrRemoved) {
				r.alarms.Raise(alarm.StoreFailed, "the position cannot be saved, and the next start would not know it: "+err.Error())
				return
			}
			r.alarms.Raise(alarm.StoreFailed, "the position cannot be saved: "+err.Error()+
				"; nothing is lost, but a restart would repeat all work since the last save: look at "+placeOfCheckpoint(r.config))
		},
		Recovered: func() { r.logger.Info("the position is saved again") },
	}
}

// placeOfCheckpoint says where to look when a position cannot be saved.
func placeOfCheckpoint(c *config.Config) string {
	if c.EventLog.Kind == config.EventLogKafka {
		return "the brokers"
	}
	return "the disk of eventlog.dir"
}

func (r *reading) position() string {
	at := r.saved.Durable()
	return at.String()
}

// freshAsOf returns as of when all that was committed is finished, or with Kafka, is in the topic.
func (r *reading) freshAsOf() time.Time {
	return r.fresh.at()
}
