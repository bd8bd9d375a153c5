package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/group"
	"github.com/freshet/freshet/retry"
)

// When Redis fails over, the members of a group notice that one after the other. One that has not yet goes on deleting
// on the former Redis, and what it commits counts as finished for all. If it is killed then, nobody would know what the
// new Redis lacks. So each commit says on which Redis the work was done. The process that takes a partition
// over compares that with its own, and the leader waits until all say the same.

// Redis is what this process works on.
type Redis interface {
	// On returns the name of the Redis on which all was done that is finished, but for what is in doubt (see
	// [broker.WorkedOn]); "": it is not known. It must not block.
	On() string
	// TakeOver takes note of a partition whose last work was done on a Redis, and committed at a time. It records what may
	// be missing for that on the one that On names. What it has recorded is durable when it returns nil.
	TakeOver(ctx context.Context, partition, redis string, at time.Time) error
}

// WorkOn has the commits say on which Redis the work is done. It is called before [Log.Consume].
func (l *Log) WorkOn(r Redis) { l.redis = r }

// worksOn is [Redis.On].
func (l *Log) worksOn() string {
	if l.redis == nil {
		return ""
	}
	return l.redis.On()
}

// takeOverEach is how often it is looked whether this process has come to another Redis.
const takeOverEach = 2 * time.Second

// takeOver has the commits of an assignment say on which Redis the work is done, until ctx ends or the function is
// called that it returns. They say so once it is recorded what is missing there.
func (l *Log) takeOver(ctx context.Context, c *group.Assignment) (stop func()) {
	if l.redis == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var taking sync.WaitGroup
	taking.Go(func() {
		ours := c.On.Redis == "" // nobody has said it
		for failed := false; ; {
			on := l.redis.On()
			if on != "" && !ours {
				err := l.tookOver(ctx, c, on)
				if ours = err == nil; err != nil && !failed && ctx.Err() == nil {
					failed = true
					l.o.Log.Warn("it cannot be recorded yet what redis may lack of a partition's last work; trying again", "topic", c.Topic,
						"partition", c.Partition, "error", err)
				}
			}
			if on != "" && ours {
				c.TakeOver()
			}
			if retry.Sleep(ctx, takeOverEach) != nil {
				return
			}
		}
	})
	return func() {
		cancel()
		taking.Wait()
	}
}

// tookOver records what may be missing on the Redis that this process works on.
func (l *Log) tookOver(ctx context.Context, c *group.Assignment, on string) error {
	if c.On.Redis == on {
		return nil
	}
	return l.redis.TakeOver(ctx, topicPartition{c.Topic, c.Partition}.String(), c.On.Redis, c.On.At)
}
