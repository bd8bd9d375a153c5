package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/alarm"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/leader"
	"github.com/freshet/freshet/eventlog/kafka/producer"
)

// flushGrace is how long a reader that is told to stop waits for the brokers to acknowledge what it has appended. What
// they have not is read again at the next start.
const flushGrace = 5 * time.Second

// buildKafka wires the event log in Kafka, or that end of it that the process has.
func (p *pipeline) buildKafka(ctx context.Context) error {
	c := p.config
	if err := p.hasItsPart(); err != nil {
		return err
	}
	client, err := connect.Kafka(c, p.registry, p.options.Log)
	if err != nil {
		return err
	}
	p.later("kafka", client.Close)
	p.kafka = client
	if err := p.buildKafkaDoubts(ctx, client); err != nil {
		return err
	}
	var log *kafka.Log
	if p.options.Role != Reader {
		log, err = kafka.New(client, kafka.Options{
			Topic: c.EventLog.Kafka.Topic, Group: c.EventLog.Kafka.Group, Delays: c.Retry.ParkDelays, SkipLost: p.options.SkipLost,
			Latency: p.latency, Registerer: p.registry, Log: p.options.Log, Alarms: p.alarms, Doubts: p.doubts,
		})
		if err != nil {
			return err
		}
		if err := p.buildInvalidator(log.Letters()); err != nil {
			return err
		}
		p.useKafka(client, log)
	}
	if p.options.Role == Invalidator {
		p.source = func(ctx context.Context, finish func(bool) error) error {
			return p.invalidateOnly(ctx, client, log, finish)
		}
		return nil
	}
	return p.buildReaders(client, log)
}

// buildKafkaDoubts makes the book of doubts over the topic that all processes share.
func (p *pipeline) buildKafkaDoubts(ctx context.Context, client *broker.Client) error {
	k, err := connect.Doubts(client, p.config, p.options.Role == Reader, p.alarms)
	if err != nil {
		return err
	}
	return p.buildDoubts(ctx, k)
}

// useKafka makes the invalidators' end of the log what comes after.
func (p *pipeline) useKafka(client *broker.Client, log *kafka.Log) {
	c := p.config
	p.letters, p.freshAsOf, p.spare = log.Letters(), log.FreshAsOf, log.Standby
	p.recordsBehind = func() map[int]int64 {
		behind := map[int]int64{}
		for _, l := range log.Lags() {
			behind[l.Partition] = l.Records
		}
		return behind
	}
	p.stopped = func() map[int]error {
		stopped := map[int]error{}
		for _, l := range log.Lags() {
			if l.Stopped != nil {
				stopped[l.Partition] = l.Stopped
			}
		}
		return stopped
	}
	p.usage = func() (int, int, error) {
		u, err := log.Letters().Usage()
		return u.Parked, u.DeadLetters, err
	}
	p.counted = func() bool {
		u, _ := log.Letters().Usage()
		return u.Counted
	}
	p.sink = func(ctx context.Context) error {
		if err := p.ensure(ctx, client, broker.InvalidatorTopics(connect.Topics(c), c.EventLog.Kafka.Group, c.Retry.ParkDelays, connect.Sizing(c))); err != nil {
			return err
		}
		return p.invalidate(ctx, log)
	}
}

// buildReaders makes the readers' end: this process reads while it is the leader of its source.
func (p *pipeline) buildReaders(client *broker.Client, log *kafka.Log) error {
	c := p.config
	failed, recovered := p.termTrouble()
	elected, err := leader.New(client, leader.Options{
		Names: connect.Topics(c), Source: c.Source.Name, Registerer: p.registry, Log: p.options.Log, Failed: failed, Recovered: recovered,
	})
	if err != nil {
		return err
	}
	p.leader = elected.Status
	if p.freshAsOf == nil {
		p.freshAsOf = func() time.Time {
			if r := p.reading.Load(); r != nil && elected.Leading() {
				return r.freshAsOf()
			}
			return time.Time{}
		}
	}
	p.source = func(ctx context.Context, finish func(bool) error) error {
		var done *term
		err := p.ensure(ctx, client, broker.ReaderTopics(connect.Topics(c), c.Source.Name, connect.Sizing(c)))
		if err == nil {
			leading, stop := context.WithCancel(ctx)
			err = elected.Run(leading, func(ctx context.Context, cp *leader.Checkpoint) error {
				t, err := p.readTerm(ctx, client, cp)
				if t.caughtUp {
					done = t
					stop() // also when another has just been chosen: there is nothing left to stand by for
				}
				return err
			})
			stop()
		}
		if done != nil && log != nil {
			log.CloseAt(done.ends)
		}
		return errors.Join(err, finish(done != nil))
	}
	return nil
}

// termGrace is how long a term cannot be taken, for a reason that passes by itself, before an operator hears of it.
const termGrace = 5 * time.Second

// termTrouble returns who is told of attempts to take a term as leader that fail, and of the one that succeeds in the
// end. Until then nobody reads the source, although its readers' group has chosen this process.
func (p *pipeline) termTrouble() (failed func(error), recovered func()) {
	var mu sync.Mutex
	var since time.Time
	failed = func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if since.IsZero() {
			since = time.Now()
		}
		if broker.Classify(err) == broker.Transient && time.Since(since) < termGrace {
			return
		}
		p.alarms.Raise(alarm.KafkaAway, fmt.Sprintf("source %s is not read, since this reader cannot take over its checkpoint: %v; "+
			"trying again for ever, nothing is lost as long as the source keeps its binlog", p.config.Source.Name, err))
	}
	recovered = func() {
		mu.Lock()
		defer mu.Unlock()
		since = time.Time{}
	}
	return failed, recovered
}

// term is how a term as leader ended.
type term struct {
	caughtUp bool
	ends     map[int]int64
}

// readTerm reads the source for one term as its leader, until ctx ends or the source is caught up with.
func (p *pipeline) readTerm(ctx context.Context, client *broker.Client, cp *leader.Checkpoint) (*term, error) {
	t := &term{}
	out, err := producer.New(client, producer.Options{
		Topics: connect.Topics(p.config), Source: p.config.Source.Name, Term: cp.Term(), Heads: cp.Heads(), Latency: p.latency, Registerer: p.registry,
		Log: p.options.Log, Alarms: p.alarms, Doubts: p.doubts,
	})
	if err != nil {
		return t, err
	}
	r, err := p.newReading(ctx, out, cp, leaderXA{cp})
	if err != nil {
		return t, err
	}
	cp.FollowHeads(out.Heads)
	p.reading.Store(r)
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
	err = r.run(reading, func(caughtUp bool, saved <-chan struct{}) error {
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
		case <-saved: // all is acknowledged, and the position that says so is written
			t.caughtUp = caughtUp
		case <-enough:
		}
		t.ends = ends(out)
		stop()
		return producers.Wait()
	})
	return t, err
}

func ends(p *producer.Producer) map[int]int64 { return maps.Collect(slices.All(p.Ends())) }

// invalidateOnly stands in the place of the reader where there is none: it waits, or with UntilCaughtUp closes the log
// at what it holds now.
func (p *pipeline) invalidateOnly(ctx context.Context, client *broker.Client, log *kafka.Log, finish func(bool) error) error {
	if !p.options.UntilCaughtUp {
		<-ctx.Done()
		return finish(false)
	}
	topic := p.config.EventLog.Kafka.Topic
	ends := map[int]int64{}
	err := p.insist(ctx, func() error {
		n, err := client.Partitions(ctx, topic)
		for i := range n {
			if ends[i], err = client.End(ctx, topic, i); err != nil {
				return err
			}
		}
		if broker.Classify(err) == broker.Missing {
			return nil // it is just being made, and empty
		}
		return err
	})
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, finish(false))
	}
	p.firstByte = time.Now()
	log.CloseAt(ends)
	return finish(true)
}

// hasItsPart reports whether the configuration has what the process is to do.
func (p *pipeline) hasItsPart() error {
	problem := func(what, do string) error {
		return config.Problems{{Pos: config.Pos{File: p.config.File}, What: what, Do: do}}
	}
	switch role := p.options.Role; {
	case role != Invalidator && !p.config.HasSource():
		return problem("there is no source to read", "write source and mappings, or use `freshet invalidator`")
	case role != Reader && !p.config.HasRedis():
		return problem("there is no redis to keep fresh", "write redis, or use `freshet reader`")
	}
	return nil
}

// ensure waits for the brokers and sees to it that topics are there, and are as they must be.
func (p *pipeline) ensure(ctx context.Context, client *broker.Client, topics []broker.Topic) error {
	var warnings []broker.Finding
	err := p.insist(ctx, func() (err error) {
		if err = client.Ensure(ctx, topics, p.config.EventLog.Kafka.CreateTopics); err == nil {
			warnings, err = client.Fit(ctx, topics)
		}
		return err
	})
	if ctx.Err() != nil {
		return nil
	}
	for _, w := range warnings {
		p.options.Log.Warn("a kafka topic is not as it should be", "finding", w.What, "do", w.Mend)
	}
	return err
}

// insist repeats what fails while the brokers are away.
func (p *pipeline) insist(ctx context.Context, do func() error) error {
	return broker.Insist(ctx, func(err error) {
		p.alarms.Raise(alarm.KafkaAway, fmt.Sprintf("%v; trying again for ever, nothing is lost", err))
	}, do)
}

// leaderXA keeps the keys of prepared XA transactions in the checkpoint topic.
type leaderXA struct{ *leader.Checkpoint }

// Begin implements xaStore.
func (s leaderXA) Begin(xid string, first event.Version) xaStash { return s.Stash(xid, first) }
