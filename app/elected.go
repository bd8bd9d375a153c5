package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/leader"
	"github.com/freshet/freshet/eventlog/kafka/producer"
	"github.com/freshet/freshet/retry"
)

// flushGrace is how long a reader that is told to stop waits for the brokers to acknowledge what it has appended. What
// they have not is read again at the next start.
const flushGrace = 5 * time.Second

// elected is the reader half over Kafka: it reads while this process is the leader of its source's readers.
type elected struct {
	*brokers
	process  *process
	leader   *leader.Leader
	finishAt func(ends map[int]int64)
	// reading is the one that is under way, or was; nil before the first.
	reading atomic.Pointer[reading]
}

func (p *process) newElected(b *brokers, finishAt func(ends map[int]int64)) (*elected, error) {
	c := p.config
	e := &elected{brokers: b, process: p, finishAt: finishAt}
	var err error
	e.leader, err = leader.New(b.client, leader.Options{
		Names: connect.Topics(c), Source: c.Source.Name, Registerer: p.registry, Log: p.options.Log,
		Reporter: e.termReporter(),
	})
	return e, err
}

// Run implements readerHalf.
func (e *elected) Run(ctx context.Context) (caughtUp bool, err error) {
	if err := e.ensure(ctx, broker.ReaderTopics(connect.Topics(e.config), e.config.Source.Name,
		connect.Sizing(e.config))); err != nil {
		return false, err
	}
	var done *term
	leading, stop := context.WithCancel(ctx)
	defer stop()
	var watch errgroup.Group
	watch.Go(func() error {
		defer stop() // if it has found anything, there is nothing to lead
		return e.watchKin(leading)
	})
	err = e.leadOn(leading, func(ctx context.Context, cp *leader.Checkpoint) error {
		t, err := e.readTerm(ctx, cp)
		if t.caughtUp {
			done = t
			stop() // also when another has just been chosen: there is nothing left to stand by for
		}
		return err
	})
	stop()
	err = errors.Join(err, watch.Wait())
	if done == nil {
		return false, err
	}
	e.finishAt(done.ends)
	return true, err
}

// Close implements readerHalf: each term has saved its own position.
func (*elected) Close() error { return nil }

// termReporter reports that a term as leader cannot be taken. Until one is, nobody reads the source, although its
// readers' group has chosen this process.
func (e *elected) termReporter() *retry.Reporter {
	return broker.Reporter(func(err error) {
		e.alarms.Raise(alarm.KafkaAway,
			fmt.Sprintf("source %s is not read, since this reader cannot take over its checkpoint: %v; "+
				"trying again forever, nothing is lost as long as the source keeps its binlog", e.config.Source.Name, err))
	}, nil)
}

// term is how a term as leader ended.
type term struct {
	caughtUp bool
	ends     map[int]int64
}

// readTerm reads the source for one term as its leader, until ctx ends or the source is caught up with.
func (e *elected) readTerm(ctx context.Context, cp *leader.Checkpoint) (*term, error) {
	t := &term{}
	out, err := producer.New(e.client, producer.Options{
		Topics: connect.Topics(e.config), Source: e.config.Source.Name, Term: cp.Term(), Heads: cp.Heads(),
		Latency: e.latency, Registerer: e.registry, Keep: e.keepSpread,
		Log: e.options.Log, Alarms: e.alarms, Doubts: e.doubts,
	})
	if err != nil {
		return t, err
	}
	r, err := e.process.newReading(ctx, out, cp, keptXA{cp.Stash()})
	if err == nil {
		err = r.keepMappings(ctx)
	}
	if err != nil {
		return t, failure(ctx, err)
	}
	r.definitions.ask = r.inspect
	cp.FollowHeads(out.Heads)
	e.reading.Store(r)
	reading, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	producing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var producers errgroup.Group
	producers.Go(func() error {
		err := out.Run(producing)
		fail(err) // reading on makes no sense without it
		return err
	})
	var sharing errgroup.Group
	sharing.Go(func() error { return r.share(reading) })
	sharing.Go(func() error { return r.definitions.run(reading) })
	sharing.Go(func() error { return r.healAll(reading) })
	caughtUp, err := r.read(reading)
	enough := ctx.Done() // a reader that has caught up waits for as long as nobody stops it
	if !caughtUp {
		patience := flushGrace
		if errors.Is(context.Cause(ctx), leader.ErrDeposed) {
			patience = 0 // nothing can be saved any more; the successor reads it again
		}
		grace, cancel := context.WithTimeout(producing, patience)
		defer cancel()
		enough = grace.Done()
	}
	select {
	case <-r.allSaved: // all is acknowledged, and the position that says so is written
		t.caughtUp = caughtUp
	case <-enough:
	}
	t.ends = maps.Collect(slices.All(out.Ends()))
	stop()
	fail(nil)
	return t, errors.Join(err, producers.Wait(), r.saveLast(), sharing.Wait())
}

// keepSpread keeps over how many partitions the keys are spread, before any is: else it could not be known which keys
// lost records were about.
func (e *elected) keepSpread(ctx context.Context, partitions int, ends func(context.Context) ([]int64, error)) error {
	return operate.KeepSpread(ctx, e.sharedFacts, e.config.Source.Name, partitions, ends)
}

// freshAsOf returns as of when all that was committed is in the topic; zero where this process does not lead.
func (e *elected) freshAsOf() time.Time {
	if r := current(e.leader.Status(), e.reading.Load()); r != nil {
		return r.freshAsOf()
	}
	return time.Time{}
}

// current returns the reading of a process that stands so in its group; nil while it does not lead, or has just been
// chosen: a standby that led once is not disconnected, and does not lag.
func current(s leader.Status, last *reading) *reading {
	if !s.Leading {
		return nil
	}
	return last
}

// Status implements readerHalf.
func (e *elected) Status(s *Status) {
	st := e.leader.Status()
	s.Standby, s.joining, s.began = !st.Leading, !st.Leading && !st.Standby, e.reading.Load() != nil
	s.Source = &SourceStatus{Name: e.config.Source.Name, Address: e.servers.Current()}
	if r := current(st, e.reading.Load()); r != nil {
		r.status(s)
	}
}

// Ready implements readerHalf.
func (e *elected) Ready() []admin.Check {
	check := admin.Check{Name: "source"}
	switch st := e.leader.Status(); {
	case !st.Leading && !st.Standby:
		check.Err = errors.New("it is not known which reader leads: joining their consumer group")
	case !st.Leading:
	case e.reading.Load() == nil:
		check.Err = e.notConnected()
	default:
		check.Err = e.reading.Load().connected()
	}
	return []admin.Check{check}
}

// Metrics implements readerHalf.
func (e *elected) Metrics() prometheus.Gatherers {
	if r := current(e.leader.Status(), e.reading.Load()); r != nil {
		return r.metrics()
	}
	return nil
}

// Stats implements readerHalf.
func (e *elected) Stats() canal.Stats {
	if r := e.reading.Load(); r != nil {
		return r.stats()
	}
	return canal.Stats{}
}
