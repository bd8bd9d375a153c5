package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/group"
	"github.com/freshet/freshet/retry"
)

// join is a member of the group until ctx ends or handle fails.
//
// The brokers share out nothing at all to a group of which a member names a topic that is not there. So when a retry
// topic of a delay that is not configured any more is deleted, as it may be once it is empty, this member joins again
// without it. It also joins again when there is another one, of a member whose configuration is newer: if that one
// goes, nobody else would try what it has parked.
func (l *Log) join(ctx context.Context, handle group.Handle) error {
	for {
		former, err := l.former(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		ours := append([]string{l.o.Topic}, l.letters.Topics()...)
		m, err := group.New(l.client, group.Options{
			ID: l.o.Group, Topics: append(former, ours...), Session: l.o.Session, Log: l.o.Log, Keep: true,
			On: l.worksOn,
			Generation: func(assigned map[string][]int) {
				l.standby.Store(len(assigned[l.o.Topic]) == 0)
				l.retries.again.Store(true)
			},
		})
		if err != nil {
			return err
		}
		membership, leave := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() {
			defer leave()
			l.watchTopics(membership, ours, former)
		})
		err = m.Run(membership, handle)
		leave()
		watching.Wait()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// former returns the retry topics of delays that are not configured any more. It waits while the brokers are away.
func (l *Log) former(ctx context.Context) (former []string, err error) {
	waiting := func(err error) { l.o.Log.Warn("kafka is away; trying again", "error", err) }
	err = broker.Insist(ctx, waiting, func() error {
		all, err := l.client.Topics(ctx)
		former = l.letters.Former(all)
		return err
	})
	return former, err
}

// topicsEvery is how often it is looked whether the group's topics are there. The client has the answer in memory.
const topicsEvery = 2 * time.Second

// watchTopics returns when a former topic is not there any more, or another one is, or ctx ends. When one is missing
// that is needed, nobody works until somebody has made it again.
func (l *Log) watchTopics(ctx context.Context, ours, former []string) {
	defer l.missing.Store(false)
	gone := func(topic string) bool {
		_, err := l.client.Partitions(ctx, topic)
		return broker.Classify(err) == broker.Missing
	}
	listed := time.Now()
	for retry.Beat(ctx, topicsEvery) == nil {
		if time.Since(listed) >= l.listEvery {
			listed = time.Now()
			if more, err := l.former(ctx); err == nil && slices.ContainsFunc(more, func(topic string) bool {
				return !slices.Contains(former, topic)
			}) {
				l.o.Log.Info("there are topics of delays that are not configured here: joining the group with them", "topics", more)
				return
			}
		}
		for _, topic := range former {
			if gone(topic) {
				l.o.Log.Info("a topic of a delay that is not configured any more is gone: joining the group without it", "topic",
					topic)
				return
			}
		}
		missing := false
		for _, topic := range ours {
			if gone(topic) {
				missing = true
				l.o.Alarms.Raise(alarm.KafkaAway,
					fmt.Sprintf("topic %s does not exist any more, so no invalidator of group %s is given "+
						"anything to do: create it again, see freshet check", topic, l.o.Group))
			}
		}
		l.missing.Store(missing)
	}
}
