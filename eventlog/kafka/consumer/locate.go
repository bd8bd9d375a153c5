package consumer

import (
	"context"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// locate compares an offset (-1: there is none) with what the partition holds, and returns where to read: the offset,
// or where the log begins when records are lost and may be passed over. The error is a [*LostError] or the context's.
//
// That the log ends before the offset is believed only when it has been so for a while: a broker that has just become
// the leader may not know yet how far all replicas are.
func (p *assignedPartition) locate(offset int64) (int64, error) {
	loop, agree := p.c.newLoop(), newBackoff()
	defer loop.Stop()
	var since time.Time
	for p.ctx.Err() == nil {
		start, end, err := p.c.cluster.Range(p.ctx, p.assignment.Topic, p.id)
		if err != nil {
			_ = loop.Wait(p.ctx, err)
			continue
		}
		loop.Succeeded()
		p.observe(start, end)
		lost := &LostError{
			Topic: p.assignment.Topic, Partition: p.id, Group: p.c.o.Group, Offset: offset, Start: start, End: end,
		}
		switch {
		case offset >= start && offset <= end:
			return offset, nil
		case offset < 0 && start == 0:
			return 0, nil
		case offset < 0:
			lost.Loss = Uncommitted
		case offset < start:
			lost.Loss = Expired
		default:
			lost.Loss = Truncated
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) < broker.Grace { // a leader that has moved knows it by then
				_ = agree.Wait(p.ctx)
				continue
			}
		}
		lost.Until = p.oldest(start, end)
		if err := p.c.lost(p.ctx, lost); err != nil {
			return 0, err
		}
		return start, nil
	}
	return 0, p.ctx.Err()
}

// oldest returns when the record at the beginning of the log was written, if that can be known.
func (p *assignedPartition) oldest(start, end int64) time.Time {
	if start >= end {
		return time.Time{}
	}
	from := []broker.FetchFrom{{Partition: p.id, Offset: start, MaxBytes: leastBytes}}
	f := p.c.cluster.FetchAll(p.ctx, p.assignment.Topic, from, leastBytes, poll)[0]
	if f.Err != nil || len(f.Records) == 0 {
		return time.Time{}
	}
	return f.Records[0].Time
}

// lost counts a loss. It returns it, unless losses are passed over; then it is a doubt, durable when lost returns nil.
func (c *Consumer) lost(ctx context.Context, e *LostError) error {
	c.metrics.losses.WithLabelValues(string(e.Loss)).Inc()
	if !c.o.SkipLost {
		return e
	}
	return c.doubtLost(ctx, e)
}
