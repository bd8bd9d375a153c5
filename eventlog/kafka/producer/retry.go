package producer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// newLoop returns the attempts at one thing, of which those that fail are counted by class. None is ever the last:
// whatever the brokers say, somebody may fix it while we wait (an ACL, a password, a replica), and what we hold is
// nowhere else but in the binlog.
func (p *Producer) newLoop(failures *prometheus.CounterVec) *retry.Loop {
	return &retry.Loop{Backoff: p.o.Backoff, Reporter: p.reporter, Note: func(err error, _ time.Duration) {
		failures.WithLabelValues(broker.Classify(err).String()).Inc()
	}}
}

// newReporter keeps a dozen partitions from saying the same a dozen times.
func (p *Producer) newReporter() *retry.Reporter {
	return broker.Reporter(
		func(err error) {
			p.o.Alarms.Raise(alarm.KafkaAway, err.Error()+
				"; the reader tries again until the brokers take it, and reads no further once its buffer is full: nothing is lost")
		},
		func(lasted time.Duration) {
			p.o.Log.Info("kafka takes records again", "source", p.o.Source, "topic", p.o.Topics.Topic, "after", lasted)
		},
	)
}
