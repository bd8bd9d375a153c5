package consumer

import (
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// newBackoff returns waits that notice the brokers' return within a second.
func newBackoff() retry.Backoff { return retry.Backoff{Max: 900 * time.Millisecond} }

// newLoop returns the attempts of one goroutine at one thing. None is ever the last.
func (c *Consumer) newLoop() *retry.Loop {
	return &retry.Loop{
		Backoff: newBackoff(), Reporter: c.reporter,
		Note: func(error, time.Duration) { c.metrics.retries.Inc() },
	}
}

// newReporter keeps many partitions from raising the same alarm many times.
func (c *Consumer) newReporter() *retry.Reporter {
	return broker.Reporter(
		func(err error) {
			c.o.Alarms.Raise(alarm.KafkaAway, err.Error()+
				"; the invalidator tries again until it can read on: nothing is lost as long"+
				" as the topic's retention lasts")
		},
		func(lasted time.Duration) {
			c.o.Log.Info("kafka answers again", "topic", c.o.Names.Topic, "group", c.o.Group, "after", lasted)
		},
	)
}
