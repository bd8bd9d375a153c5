package app

import (
	"context"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/doubts"
)

// buildKafkaDoubts makes the book of doubts over the topic that all processes share.
func (p *pipeline) buildKafkaDoubts(ctx context.Context, client *broker.Client) error {
	k, err := p.kafkaDoubts(client)
	if err != nil {
		return err
	}
	return p.buildDoubts(ctx, k)
}

// kafkaDoubts returns the keeper of the doubts that concern this process.
func (p *pipeline) kafkaDoubts(client *broker.Client) (*doubts.Keeper, error) {
	c := p.config
	return doubts.New(client, doubts.Options{
		Topic: names(c).Doubts(), Concerns: p.concerns, Alarms: p.alarms,
		Ensure: func(ctx context.Context) error {
			return client.Ensure(ctx, []broker.Topic{broker.DoubtsTopic(names(c), sizing(c))}, c.EventLog.Kafka.CreateTopics)
		},
	})
}

// concerns reports whether a doubt is one of this process: those of a source are its readers' and all invalidators', those
// of a group are its invalidators'.
func (p *pipeline) concerns(d *doubt.Doubt) bool {
	if d.Group != "" {
		return p.options.Role != Reader && d.Group == p.config.EventLog.Kafka.Group
	}
	return d.Source == "" || p.options.Role != Reader || d.Source == p.config.Source.Name
}
