package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/embedded"
	"github.com/freshet/freshet/eventlog/kafka/leader"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
)

// saved is where a reader's position is kept: the checkpoint of either event log.
type saved interface {
	canal.Checkpoint
	Current() event.Position
	Durable() event.Position
	Finished() event.Version
	Term() uint64
	Mappings() string
	SetMappings(hash string) error
	Run(ctx context.Context, ends <-chan event.End, o checkpoint.SaverOptions) error
}

// reading is one life of a reader: from the saved position on, until it is stopped. In one process there is one; with
// Kafka there is one for each time that this process becomes its source's leader.
type reading struct {
	*shared
	// registry is that of this reading: the metrics of one that is over are not shown.
	registry *prometheus.Registry
	// source and bind are what streams are made with. stream is the one that is read; another follows it after a gap.
	source canal.Options
	bind   canal.Bind
	stream atomic.Pointer[stream]
	reader *reader
	saved  saved
	log    eventlog.Input
	fresh  freshness

	definitions *definitions
	keys        *operate.Keys

	saver      errgroup.Group
	stopSaving context.CancelFunc
	// allSaved is closed when all that was appended is durable, and the position that says so is saved.
	allSaved chan struct{}
}

// newReading prepares a reader that goes on from a saved position. It asks the source for its tables once.
func (p *process) newReading(ctx context.Context, log eventlog.Input, at saved, xa xaStore) (*reading, error) {
	c := p.config
	r := &reading{shared: p.shared, registry: prometheus.NewRegistry(), saved: at, log: log, allSaved: make(chan struct{})}
	troubles := &troubles{alarms: p.alarms, doubts: p.doubts, source: c.Source.Name, heals: true}
	route, err := router.New(c.Mappings, router.Options{Reporter: troubles, Registerer: r.registry})
	if err != nil {
		return nil, err
	}
	troubles.mappings = route.Mappings()
	o := p.source()
	o.Term, o.UntilCaughtUp = at.Term(), p.options.UntilCaughtUp
	connect.Routed(&o, route)
	o.Alarms, o.Doubts, o.Logger, o.Registerer = p.alarms, p.doubts, p.options.Log, r.registry
	r.definitions = newDefinitions(p.facts, c.Source.Name, p.options.Log, route.Mappings())
	if err := r.definitions.load(ctx); err != nil {
		return nil, err
	}
	troubles.seen = r.definitions
	p.doubts.Describe(r.definitions.describe)
	if err := r.compareMappings(ctx, route, o, troubles); err != nil {
		return nil, err
	}
	r.keys = &operate.Keys{
		Mappings: route.Mappings(), Source: o, Prefix: c.Redis.KeyPrefix, Known: r.definitions.all,
	}
	o.FirstStart = p.onFirstStart(r.keys)
	r.source, r.bind = o, troubles.binding(route.Bind)
	r.reader = &reader{
		log: log, router: route, tap: &p.tap, fresh: &r.fresh, name: c.Source.Name, term: at.Term(),
		xa: &xaMemory{store: xa, alarms: p.alarms}, troubles: troubles, doubts: p.doubts, latency: p.latency,
	}
	return r, r.begin(nil)
}

// compareMappings holds the mappings against the live tables, and says so when they are not those that the checkpoint
// was written under. Mappings that are new to this checkpoint must fit; later, a table that was altered meanwhile stops
// only what it touches, with an alarm, because rows from before may be waiting in the binlog.
func (r *reading) compareMappings(ctx context.Context, route *router.Router, o canal.Options, t *troubles) error {
	hash, last := r.config.MappingsHash(), r.saved.Mappings()
	if err := r.fitTables(ctx, route, o, last != hash, t); err != nil || last == hash {
		return err
	}
	if last != "" {
		if err := r.doubtMappings(ctx, last); err != nil {
			return err
		}
	}
	return r.saved.SetMappings(hash)
}

// doubtMappings records the doubts about keys that the mappings of the last start, whose hash is given, did not name,
// and about those that only they named.
func (r *reading) doubtMappings(ctx context.Context, last string) error {
	source := r.config.Source.Name
	former, err := operate.KeptMappings(ctx, r.facts, source)
	if err != nil {
		return err
	}
	if config.MappingsHash(former) != last { // an earlier version of freshet kept none
		return r.doubts.Record(ctx, doubt.Doubt{
			Cause: alarm.MappingsChanged, Source: source,
			Message: "the mappings have changed since the last start: they apply to changes from the saved position on; " +
				"keys that only the old mappings named are not deleted any more, and keys that only the new ones name were " +
				"not deleted for changes before it: clear both",
		})
	}
	for _, d := range changedMappings(source, config.DifferenceOf(former, r.config.Mappings)) {
		if err := r.doubts.Record(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// changedMappings returns what is in doubt when mappings have changed. What only the new ones name can be answered; of
// what only the former ones named, freshet knows nothing any more.
func changedMappings(source string, d *config.Difference) (all []doubt.Doubt) {
	if len(d.Changed) > 0 {
		is := doubt.Doubt{Cause: alarm.MappingsChanged, Source: source, Templates: d.Changed}.Named()
		is.Message = fmt.Sprintf("the mappings have changed since the last start: what %s name was not kept fresh in this way "+
			"before, so keys may be stale; have them forgotten: `freshet doubts answer %s`", spec.Names(d.Changed), is.ID)
		all = append(all, is)
	}
	for _, table := range d.Tables() {
		all = append(all, doubt.Doubt{
			Cause: alarm.MappingsChanged, Source: source, Subject: "no mapping any more", Tables: []string{table},
			Templates: d.Gone[table],
			Message: fmt.Sprintf("the mappings have changed since the last start: for changes of %s, keys of %s are not deleted "+
				"any more; if programs still read them, delete them, then dismiss this", table, spec.Names(d.Gone[table])),
		})
	}
	return all
}

// inspect returns the definitions of the mapped tables as they are.
func (r *reading) inspect(ctx context.Context) ([]*event.Table, error) {
	s, err := canal.Inspect(ctx, r.keys.Source)
	if err != nil {
		return nil, err
	}
	return s.Tables, nil
}

// fitTables looks whether the mappings fit the tables as they are now. A source that cannot be asked is left to canal,
// which tries again forever.
func (r *reading) fitTables(ctx context.Context, route *router.Router, o canal.Options, must bool, t *troubles) error {
	var tables []*event.Table
	found, err := lasting(ctx, must, func() ([]router.Misfit, error) {
		s, err := canal.Inspect(ctx, o)
		if err != nil {
			return nil, err
		}
		tables = s.Tables
		r.definitions.addAll(tables)
		return route.Unfit(tables), nil
	})
	if err != nil {
		r.options.Log.Warn("the mapped tables cannot be looked at", "error", err)
		return nil
	}
	if must {
		var problems spec.Problems
		for _, f := range found {
			problems = append(problems, f.Problem)
		}
		if len(problems) > 0 {
			return problems
		}
		return nil
	}
	return t.fitAll(ctx, tables, found)
}

// fitLooks is how often tables are looked at before what does not fit counts, and fitPause how long lies between.
const (
	fitLooks = 4
	fitPause = 500 * time.Millisecond
)

// lasting returns those of the problems that a look finds which the next ones find too: while DDL is under way, a
// table, or a column, may be missing for a moment. A caller that waits for an answer gets the first.
func lasting[P error](ctx context.Context, once bool, look func() ([]P, error)) ([]P, error) {
	found, err := look()
	for n := 1; n < fitLooks && !once && err == nil && len(found) > 0; n++ {
		if retry.Sleep(ctx, fitPause) != nil {
			return nil, ctx.Err()
		}
		var now []P
		if now, err = look(); err != nil {
			if ctx.Err() == nil {
				return found, nil // better a doubt too many than none
			}
			return nil, err
		}
		still := map[string]bool{}
		for _, p := range now {
			still[p.Error()] = true
		}
		found = slices.DeleteFunc(found, func(p P) bool { return !still[p.Error()] })
	}
	return found, err
}

// read reads until ctx ends, the source is caught up with, or something fails. Then it closes the log; what becomes
// durable of it is saved until [reading.saveLast].
func (r *reading) read(ctx context.Context) (caughtUp bool, err error) {
	at := r.saved.Durable()
	r.options.Log.Info("reading", "source", r.config.Source.Name, "position", at.String(), "term", r.saved.Term(),
		"mappings", len(r.config.Mappings))
	saving, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stopSaving = stop
	r.saver.Go(func() error {
		defer close(r.allSaved)
		return r.saved.Run(saving, r.log.Durable(), r.saverOptions())
	})
	err = r.readStreams(ctx)
	// Asked before the log is closed: with nothing left to do its other end is finished at once, which ends ctx.
	caughtUp = err == nil && ctx.Err() == nil
	r.log.Close()
	return caughtUp, err
}

// saveLast saves the position once more, when nothing more will become durable.
func (r *reading) saveLast() error {
	r.stopSaving() // the last ends are there, and the saver takes them before it goes
	return r.saver.Wait()
}

func (r *reading) saverOptions() checkpoint.SaverOptions {
	return checkpoint.SaverOptions{
		Advanced: r.fresh.finish,
		Reporter: &retry.Reporter{
			Failed: func(err error) {
				if errors.Is(err, leader.ErrDeposed) {
					return // its successor saves now, and the term ends
				}
				if errors.Is(err, embedded.ErrRemoved) {
					r.alarms.Raise(alarm.StoreFailed, "the position cannot be saved, and the next start would not know it: "+
						err.Error())
					return
				}
				r.alarms.Raise(alarm.StoreFailed, "the position cannot be saved: "+err.Error()+
					"; nothing is lost, but a restart would repeat all work since the last save: look at "+placeOfCheckpoint(r.config))
			},
			Recovered: func(time.Duration) { r.options.Log.Info("the position is saved again") },
		},
	}
}

// placeOfCheckpoint says where to look when a position cannot be saved.
func placeOfCheckpoint(c *config.Config) string {
	if c.EventLog.Kind == config.EventLogKafka {
		return "the brokers"
	}
	return "the disk of eventlog.dir"
}

// finished returns up to which version everything is finished; the zero version while that is not known.
func (r *reading) finished() event.Version { return r.saved.Finished() }

// freshAsOf returns as of when all that was committed is finished, or with Kafka, is in the topic.
func (r *reading) freshAsOf() time.Time {
	return r.fresh.at()
}

// status fills in what the reading knows.
func (r *reading) status(s *Status) {
	source, current, durable := r.stats(), r.saved.Current(), r.saved.Durable()
	s.Source = &SourceStatus{
		Name: r.config.Source.Name, Address: r.servers.Current(), Flavor: current.Flavor, Server: source.Server,
		Connected: source.Connected, Position: written(source.File, source.Pos),
		Apart: source.Apart, Unheard: source.Unheard, FillFrom: source.Fills,
	}
	s.Checkpoint = &CheckpointStatus{
		Position: durable.String(), File: written(durable.File, durable.Pos), Epoch: durable.Epoch, Term: r.saved.Term(),
		Committed: durable.Committed,
	}
	s.Rows, s.began = source.Rows, true
}

// written returns a place in a binlog as file:position; "" for none.
func written(file string, pos uint64) string {
	if file == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", file, pos)
}

// connected says what keeps the reading from the source; nil: nothing.
func (r *reading) connected() error {
	if r.stats().Connected {
		return nil
	}
	return r.notConnected()
}

func (s *shared) notConnected() error {
	return fmt.Errorf("%s is not connected", s.servers.Current())
}
