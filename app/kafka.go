package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/app/connect"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// buildKafka wires the event log in Kafka, or that end of it that the process has.
func (p *process) buildKafka() error {
	c := p.config
	if err := p.hasItsPart(); err != nil {
		return err
	}
	client, err := connect.Kafka(c, p.registry, p.options.Log)
	if err != nil {
		return err
	}
	p.later("kafka", client.Close)
	doubts, err := connect.Doubts(client, c, p.options.Role == Reader, p.alarms)
	if err != nil {
		return err
	}
	if err := p.buildDoubts(doubts); err != nil {
		return err
	}
	group := c.EventLog.Kafka.Group
	if p.options.Role == Reader {
		group = ""
	}
	p.doubts.Share(doubts, group)
	p.sharedFacts, p.deaf = doubts, doubts.Deaf
	b := &brokers{shared: p.shared, client: client}
	p.log = b
	if p.options.Role == Reader {
		others := &otherInvalidators{finished: make(chan struct{})}
		reader, err := p.newElected(b, others.finishAt)
		if err != nil {
			return err
		}
		others.freshAsOf = reader.freshAsOf
		p.reader, p.invalidator = reader, others
		return nil
	}
	log, err := p.buildConsumer(b)
	if err != nil {
		return err
	}
	if p.options.Role == Invalidator {
		p.reader = &otherReaders{brokers: b, finishAt: log.CloseAt}
		return nil
	}
	p.reader, err = p.newElected(b, log.CloseAt)
	return err
}

// buildConsumer makes the invalidator half.
func (p *process) buildConsumer(b *brokers) (*kafka.Log, error) {
	c := p.config
	log, err := kafka.New(b.client, kafka.Options{
		Topic: c.EventLog.Kafka.Topic, Group: c.EventLog.Kafka.Group, Delays: c.Retry.ParkDelays,
		SkipLost: p.options.SkipLost || c.OnGap == config.GapInvalidate,
		Latency:  p.latency, Registerer: p.registry, Log: p.options.Log, Alarms: p.alarms, Doubts: p.doubts,
	})
	if err != nil {
		return nil, err
	}
	g := p.newGroupAnswers(log, b)
	d, err := p.newDeleting(log, log.Letters(), log.FreshAsOf, stamping{g.place, g.leads.Load, b.stampName})
	if err != nil {
		return nil, err
	}
	log.WorkOn(d.identity)
	p.invalidator = &consuming{deleting: d, brokers: b, answers: g}
	return log, p.buildGroupAnswers(g, d, log)
}

// consuming is the invalidator half over Kafka, whose topics have to be there first.
type consuming struct {
	*deleting
	brokers *brokers
	answers *groupAnswers
}

// Status implements invalidatorHalf.
func (c *consuming) Status(s *Status) {
	c.deleting.Status(s)
	s.late = c.answers.late()
}

// Run implements invalidatorHalf.
func (c *consuming) Run(ctx context.Context) error {
	k := c.config.EventLog.Kafka
	if err := c.brokers.ensure(ctx,
		broker.InvalidatorTopics(connect.Topics(c.config), k.Group, c.config.Retry.ParkDelays,
			connect.Sizing(c.config))); err != nil {
		return err
	}
	return c.deleting.Run(ctx)
}

// hasItsPart reports whether the configuration has what the process is to do.
func (p *process) hasItsPart() error {
	problem := func(what, do string) error {
		return spec.Problems{{Pos: spec.Pos{File: p.config.File}, What: what, Do: do}}
	}
	switch role := p.options.Role; {
	case role != Invalidator && !p.config.HasSource():
		return problem("there is no source to read", "write source and mappings, or use `freshet invalidator`")
	case role != Invalidator && len(p.config.Mappings) == 0:
		return problem("there are no mappings", "write mappings, or use `freshet invalidator`")
	case role != Reader && !p.config.HasRedis():
		return problem("there is no redis to keep fresh", "write redis, or use `freshet reader`")
	}
	return nil
}

// brokers are what the process knows of Kafka's servers. It is the carrier of an event log in Kafka.
type brokers struct {
	*shared
	client *broker.Client
}

// ends returns the end of each partition of the topic as it is now. While the brokers are away it tries again until ctx
// ends, which is no error.
func (b *brokers) ends(ctx context.Context) (map[int]int64, error) {
	topic := b.config.EventLog.Kafka.Topic
	ends := map[int]int64{}
	err := b.insist(ctx, func() error {
		n, err := b.client.Partitions(ctx, topic)
		for i := range n {
			if ends[i], err = b.client.End(ctx, topic, i); err != nil {
				return err
			}
		}
		if broker.Classify(err) == broker.Missing {
			return nil // it is just being made, and empty
		}
		return err
	})
	if ctx.Err() != nil {
		return nil, nil
	}
	return ends, err
}

// stampName returns the name of the group's stamp: two groups of the same name, on two clusters, may share a Redis for
// a while.
func (b *brokers) stampName(ctx context.Context) (string, error) {
	k := b.config.EventLog.Kafka
	id, err := b.client.ClusterID(ctx, k.Topic)
	return k.Group + "@" + id, err
}

// ensure waits for the brokers and sees to it that topics are there, and are as they must be.
func (b *brokers) ensure(ctx context.Context, topics []broker.Topic) error {
	var warnings []broker.Finding
	err := b.insist(ctx, func() (err error) {
		if err = b.client.Ensure(ctx, topics, b.config.EventLog.Kafka.CreateTopics); err == nil {
			warnings, err = b.client.Fit(ctx, topics)
		}
		return err
	})
	if ctx.Err() != nil {
		return nil
	}
	for _, w := range warnings {
		b.options.Log.Warn("a kafka topic is not as it should be", "finding", w.What, "do", w.Fix)
	}
	return err
}

// insist repeats what fails while the brokers are away.
func (b *brokers) insist(ctx context.Context, do func() error) error {
	return broker.Insist(ctx, func(err error) {
		b.alarms.Raise(alarm.KafkaAway, fmt.Sprintf("%v; trying again forever, nothing is lost", err))
	}, do)
}

// Status implements carrier.
func (b *brokers) Status(s *Status) { s.kafka = b.client.Trouble() }

// Ready implements carrier.
func (b *brokers) Ready(status func() Status) []admin.Check {
	check := admin.Check{Name: "eventlog"}
	switch s := status(); {
	case !b.client.Answered():
		check.Err = fmt.Errorf("no broker of %s has answered yet", strings.Join(b.config.EventLog.Kafka.Brokers, ", "))
	case s.heldUpByKafka():
		check.Err = s.kafka
	case s.joining:
		check.Err = errors.New("joining the consumer group")
	}
	return []admin.Check{check}
}
