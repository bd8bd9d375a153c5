package connect

import (
	"context"

	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/doubts"
)

// Doubts returns the keeper of the doubts that concern a process, in the topic that all processes share. readsOnly says
// that it deletes no keys.
func Doubts(client *broker.Client, c *config.Config, readsOnly bool, alarms *alarm.Board) (*doubts.Keeper, error) {
	return doubts.New(client, doubts.Options{
		Topic: Topics(c).Doubts(), Alarms: alarms,
		Concerns: func(d *doubt.Doubt) bool { return concerns(c, readsOnly, d) },
		Ensure: func(ctx context.Context) error {
			return client.Ensure(ctx, []broker.Topic{broker.DoubtsTopic(Topics(c), Sizing(c))}, c.EventLog.Kafka.CreateTopics)
		},
	})
}

// concerns reports whether a doubt is one of this process: those of a source are its readers' and all invalidators',
// those of a group are its invalidators'.
func concerns(c *config.Config, readsOnly bool, d *doubt.Doubt) bool {
	if d.Group != "" {
		return !readsOnly && d.Group == c.EventLog.Kafka.Group
	}
	return d.Source == "" || !readsOnly || d.Source == c.Source.Name
}
