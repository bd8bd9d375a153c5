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
func (l *Log) WorkOn(r Redis) { l.worked = &worked{Redis: r, changed: make(chan struct{})} }

// worksOn is [Redis.On].
func (l *Log) worksOn() string {
	if l.worked == nil {
		return ""
	}
	return l.worked.On()
}

// lookEach is how often it is looked whether this process has come to another Redis. It is also the pause after a
// partition could not be taken over.
const lookEach = 2 * time.Second

// worked is the Redis that this process works on. One goroutine looks whether it has come to another one, for all
// assignments: a process at rest is not woken for each of them.
type worked struct {
	Redis

	mu      sync.Mutex
	name    string        // when it was last looked
	changed chan struct{} // closed once there is another name
}

// watch looks for another name until ctx ends.
func (w *worked) watch(ctx context.Context) {
	for ctx.Err() == nil {
		w.mu.Lock()
		if on := w.On(); on != w.name {
			close(w.changed)
			w.name, w.changed = on, make(chan struct{})
		}
		w.mu.Unlock()
		_ = retry.Sleep(ctx, lookEach)
	}
}

// now returns the name, and what is closed once there is another one.
func (w *worked) now() (name string, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.name, w.changed
}

// takeOver has the commits of an assignment say on which Redis the work is done, until ctx ends or the function is
// called that it returns. They say so once it is recorded what is missing there.
func (l *Log) takeOver(ctx context.Context, c *group.Assignment) (stop func()) {
	if l.worked == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var taking sync.WaitGroup
	taking.Go(func() {
		ours := c.On.Redis == "" // nobody has said it
		for failed := false; ctx.Err() == nil; {
			on, changed := l.worked.now()
			if on != "" && !ours {
				err := l.tookOver(ctx, c, on)
				if ours = err == nil; !ours {
					if !failed && ctx.Err() == nil {
						l.o.Log.Warn("it cannot be recorded yet what redis may lack of a partition's last work; trying again", "topic", c.Topic,
							"partition", c.Partition, "error", err)
					}
					failed = true
					_ = retry.Sleep(ctx, lookEach)
					continue
				}
			}
			if on != "" {
				c.TakeOver()
			}
			select {
			case <-changed:
			case <-ctx.Done():
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
	return l.worked.TakeOver(ctx, topicPartition{c.Topic, c.Partition}.String(), c.On.Redis, c.On.At)
}
