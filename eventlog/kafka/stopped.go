package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/consumer"
	"github.com/freshet/freshet/eventlog/kafka/group"
)

// serve works on a partition of the topic until ctx ends. If records of it are lost, what lies before them is finished,
// and then it rests: it stays this member's, so that it does not go from one to the next and stop them all.
func (l *Log) serve(
	ctx context.Context, c *group.Assignment, handle func(context.Context, eventlog.Partition) error,
) error {
	p, err := l.consumer.Partition(ctx, c)
	var lost *consumer.LostError
	switch {
	case err == nil:
		u := &untilLost{Partition: p, log: l}
		if err := handle(ctx, u); err != nil || u.lost == nil {
			return err
		}
		lost = u.lost
	case errors.As(err, &lost):
		if err := l.tell(ctx, lost); err != nil {
			return err
		}
	default:
		return err
	}
	return l.rest(ctx, lost)
}

// untilLost is a partition that ends where records are lost, so that its worker finishes what lies before.
type untilLost struct {
	eventlog.Partition
	log  *Log
	lost *consumer.LostError // Fetch's, and read when all is over
}

// Fetch implements [eventlog.Partition].
func (u *untilLost) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	b, t, err := u.Partition.Fetch(ctx)
	if errors.As(err, &u.lost) {
		if err := u.log.tell(ctx, u.lost); err != nil {
			return nil, nil, err
		}
		return nil, nil, io.EOF
	}
	return b, t, err
}

// FreshAsOf is the partition's own.
func (u *untilLost) FreshAsOf() time.Time {
	if p, ok := u.Partition.(interface{ FreshAsOf() time.Time }); ok {
		return p.FreshAsOf()
	}
	return time.Time{}
}

// tell records that a partition is stopped. It returns once that is durable, or with ctx's error.
func (l *Log) tell(ctx context.Context, lost *consumer.LostError) error {
	return l.o.Doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.RecordsLost, Group: lost.Group, Subject: fmt.Sprintf("%s/%d", lost.Topic, lost.Partition),
		Message: lost.Error(), Lost: lost.Records(),
	})
}

// rest keeps a stopped partition until ctx ends. It fails if no partition of the topic is left to work on.
func (l *Log) rest(ctx context.Context, lost *consumer.LostError) error {
	resting := l.resting.add(lost)
	defer l.resting.remove(lost)
	if n, err := l.client.Partitions(ctx, l.o.Topic); err == nil && resting >= n && ctx.Err() == nil {
		return fmt.Errorf("all %d partitions of topic %s are stopped: %w", n, l.o.Topic, lost)
	}
	<-ctx.Done()
	return nil
}

// resting are the partitions of this process that are stopped, and finished up to there.
type resting struct {
	mu   sync.Mutex
	lost map[int]*consumer.LostError
}

// add returns how many there are then.
func (r *resting) add(e *consumer.LostError) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost == nil {
		r.lost = map[int]*consumer.LostError{}
	}
	r.lost[e.Partition] = e
	return len(r.lost)
}

func (r *resting) remove(e *consumer.LostError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lost, e.Partition)
}

// among returns why those of some partitions rest that do.
func (r *resting) among(partitions []int) (lost []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range partitions {
		if e := r.lost[p]; e != nil {
			lost = append(lost, e)
		}
	}
	return lost
}

// elsewhere are partitions that other members have stopped. Only [Log.awaitEnd] asks for them.
type elsewhere struct {
	log   *Log
	since map[int]time.Time // since when it looks so
	lost  map[int]error
}

// look takes what the group has committed. A partition without a commit is stopped if its log has been deleted from.
func (e *elsewhere) look(ctx context.Context, partitions []int, committed map[int]broker.Committed) {
	ours := map[int]bool{}
	for _, lag := range e.log.consumer.Lags() {
		ours[lag.Partition] = true
	}
	lost := map[int]error{}
	for _, p := range partitions {
		c, begun := committed[p]
		loss, what, stopped := consumer.StoppedBy(c.Metadata)
		if !begun {
			start, _, err := e.log.client.Range(ctx, e.log.o.Topic, p)
			loss, what, stopped = consumer.Uncommitted, "the group has no committed offset", err == nil && start > 0
		}
		if stopped && !ours[p] {
			lost[p] = consumer.FoundBefore(loss, what, e.log.o.Topic, p, e.log.o.Group, c.Offset)
		}
	}
	for p := range e.since {
		if lost[p] == nil {
			delete(e.since, p)
		}
	}
	for p := range lost {
		if e.since[p].IsZero() {
			e.since[p] = time.Now()
		}
	}
	e.lost = lost
}

// among returns why those of some partitions are stopped that have been for a while.
func (e *elsewhere) among(partitions []int) (lost []error) {
	for _, p := range partitions {
		if err := e.lost[p]; err != nil && time.Since(e.since[p]) >= believed {
			lost = append(lost, err)
		}
	}
	return lost
}
