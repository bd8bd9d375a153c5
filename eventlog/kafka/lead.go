package kafka

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
)

// Lead has f run by the one member of the group that has the first partition of the topic, for as long as it has it:
// what must be done once for a group. It is called before [Log.Consume], which waits for f when the partition goes, and
// ends if f fails.
func (l *Log) Lead(f func(ctx context.Context) error) { l.lead = f }

// leading runs serve, which works on the first partition, with what [Log.Lead] was given alongside.
func (l *Log) leading(ctx context.Context, serve func(context.Context) error) error {
	if l.lead == nil {
		return serve(ctx)
	}
	both, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.Go(func() error {
		err := l.lead(both)
		if err != nil {
			stop()
		}
		return err
	})
	err := serve(both)
	stop()
	return errors.Join(err, group.Wait())
}

// Unfinished returns those of the partitions that the group has not finished up to these ends, and why some of them do
// not go on. It asks the brokers for what the group has committed.
func (l *Log) Unfinished(ctx context.Context, ends map[int]int64) (left []int, stopped []error, err error) {
	committed, err := l.client.GroupOffsets(ctx, l.o.Group, l.o.Topic)
	if err != nil {
		return nil, nil, err
	}
	left, stopped = unfinished(l.o.Topic, l.o.Group, ends, committed)
	return left, stopped, nil
}

func unfinished(topic, group string, ends map[int]int64, committed map[int]broker.Committed,
) (left []int, stopped []error) {
	for p, end := range ends {
		c := committed[p]
		loss, what, is := consumer.StoppedBy(c.Metadata)
		if is { // also if its offset is beyond the end, as where the log was cut
			stopped = append(stopped, consumer.FoundBefore(loss, what, topic, p, group, c.Offset))
		}
		if is || c.Offset < end {
			left = append(left, p)
		}
	}
	slices.Sort(left)
	return left, stopped
}
