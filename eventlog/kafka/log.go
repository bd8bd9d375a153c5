package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/eventlog/kafka/group"
	"github.com/freshet/freshet/eventlog/kafka/letters"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// Options configure a [Log]. The zero value of an optional field is the default that it names.
type Options struct {
	// Topic is the topic of invalidations. Required.
	Topic string
	// Group is the consumer group of the invalidators of one Redis. Required.
	Group string
	// Delays are the waits of parked keys, each with a topic of its own. Default: those of retry.Policy.
	Delays []time.Duration
	// SkipLost goes on with what there is where records were lost, instead of stopping the partition.
	SkipLost bool
	// Session is how long the brokers wait for a sign of life. Default [group.DefaultSession].
	Session time.Duration
	// Latency takes how long records were under way; nil: it is not measured.
	Latency *latency.Stages
	// Registerer takes the metrics; nil: they are registered nowhere.
	Registerer prometheus.Registerer
	// Log takes changes of state. Default slog.Default.
	Log *slog.Logger
	// Alarms hears what an operator must hear. Nil: it is logged.
	Alarms *alarm.Board
	// Doubts keeps which partitions are stopped, and which losses were passed over. Nil: they are logged, and
	// forgotten.
	Doubts *doubt.Book
}

var _ eventlog.Output = (*Log)(nil)

// Log is the invalidators' end of the event log in Kafka, for one process of a group.
type Log struct {
	client   *broker.Client
	o        Options
	letters  *letters.Store
	consumer *consumer.Consumer

	standby atomic.Bool
	missing atomic.Bool // a topic of the group is, so that the brokers share out nothing

	closing chan struct{} // closed when ends is set
	once    sync.Once
	ends    map[int]int64

	resting resting
	lead    func(ctx context.Context) error // nil: there is nothing to do once for the group
	worked  *worked                         // nil: nobody says on which Redis the work is done
	retries retries
	// listEvery is how often it is looked whether the group has topics that this member does not know. Default:
	// retriesEvery.
	listEvery time.Duration
}

// New returns a log. It does not connect yet.
func New(c *broker.Client, o Options) (*Log, error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	l := &Log{client: c, o: o, closing: make(chan struct{}), listEvery: retriesEvery}
	var err error
	l.letters, err = letters.New(c, letters.Options{
		Topic: o.Topic, Group: o.Group, Delays: o.Delays, Parse: parse, Registerer: o.Registerer, Log: o.Log,
		Alarms: o.Alarms, Doubts: o.Doubts,
	})
	if err != nil {
		return nil, err
	}
	l.consumer, err = consumer.New(c, consumer.Options{
		Names: broker.Names{Topic: o.Topic}, Group: o.Group, SkipLost: o.SkipLost, Bury: l.letters.Bury,
		Letters: l.deadLetters, Latency: o.Latency,
		Registerer: o.Registerer, Log: o.Log, Alarms: o.Alarms, Doubts: o.Doubts,
	})
	return l, err
}

func parse(data []byte) (*event.Batch, error) {
	b, _, err := record.Parse(data)
	return b, err
}

// deadLetters returns how many the group has, as far as this process knows.
func (l *Log) deadLetters() int {
	u, _ := l.letters.Held()
	return u.DeadLetters
}

// Letters are the keys in trouble. They can be used while Consume does not run, too.
func (l *Log) Letters() *letters.Store { return l.letters }

// Marks delivers the marks of all sources: the newest of each, for a slow receiver.
func (l *Log) Marks() <-chan event.Mark { return l.consumer.Marks() }

// FreshAsOf returns the newest moment of which all that the sources held is finished in the partitions that this
// process has; the zero time while it is not known.
func (l *Log) FreshAsOf() time.Time { return l.consumer.FreshAsOf() }

// Partitions implements [eventlog.Output].
func (l *Log) Partitions() []eventlog.PartitionState {
	lags := l.consumer.Lags()
	all := make([]eventlog.PartitionState, len(lags))
	for i, lag := range lags {
		all[i] = eventlog.PartitionState{Partition: lag.Partition, Records: lag.Records}
		if lag.Stopped != nil {
			all[i].Stopped = lag.Stopped
		}
	}
	return all
}

// Standby implements [eventlog.Output]: the group gives all partitions of the topic to its other members. Whether it
// does is known once it has shared them out.
func (l *Log) Standby() (standby, known bool) {
	standby = l.standby.Load() && !l.missing.Load()
	return standby, standby || len(l.consumer.Lags()) > 0
}

// CloseAt says that there is nothing to wait for at or after these offsets of the partitions: Consume returns once the
// group has finished all before them. Call it once.
func (l *Log) CloseAt(ends map[int]int64) {
	l.once.Do(func() {
		l.ends = ends
		l.consumer.StopAt(ends)
		close(l.closing)
	})
}

// Consume joins the group and runs handle for each partition of the topic that this process is given, and alongside
// them what parked keys and marks need, until ctx ends, which is no error; until the first of them fails; or until all
// is finished after [Log.CloseAt].
//
// A partition of which records are lost is stopped, and the others go on. The error is a [consumer.LostError] when that
// leaves nothing to do: all partitions of the topic are this process's and stopped, or after [Log.CloseAt] those that
// are not finished are.
func (l *Log) Consume(ctx context.Context, handle func(context.Context, eventlog.Partition) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var background errgroup.Group
	background.Go(func() error {
		defer stop() // without marks nothing would ever be finished
		return l.consumer.Run(ctx)
	})
	background.Go(func() error {
		l.letters.Run(ctx)
		return nil
	})
	background.Go(func() error {
		over, lost := l.awaitEnd(ctx)
		if over {
			stop()
		}
		return lost
	})
	if l.worked != nil {
		background.Go(func() error {
			l.worked.watch(ctx)
			return nil
		})
	}
	err := l.join(ctx, func(ctx context.Context, c *group.Assignment) error {
		defer l.takeOver(ctx, c)()
		if c.Topic != l.o.Topic {
			return l.letters.Serve(ctx, c)
		}
		serve := func(ctx context.Context) error { return l.serve(ctx, c, handle) }
		if c.Partition == 0 {
			return l.leading(ctx, serve)
		}
		return serve(ctx)
	})
	stop()
	return errors.Join(err, background.Wait())
}
