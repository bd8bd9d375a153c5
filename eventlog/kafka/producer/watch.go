package producer

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/retry"
)

// mostDoubt is how many times in a row the topic must have fewer partitions than it had to be believed: a broker that
// has not heard of new ones yet says so for a moment.
const mostDoubt = 3

// watch opens the partitions of the topic, then those that are added, and keeps known who leads them.
func (p *Producer) watch(ctx context.Context, g *errgroup.Group) error {
	leaders := p.leaders(ctx)
	n := len(leaders)
	p.open(ctx, g, 0, leaders)
	for fewer := 0; retry.Beat(ctx, p.o.Refresh) == nil; {
		leaders, err := p.client.Leaders(ctx, p.o.Topics.Topic)
		now := len(leaders)
		switch {
		case err != nil:
			fewer = 0 // who produces tells of trouble
		case now == n:
			fewer = 0
			p.lanes.lead(ctx, g, leaders)
		case now > n:
			fewer = 0
			p.o.Log.Info("partitions were added to the topic: switching to them once what is on its way is acknowledged",
				"topic", p.o.Topics.Topic, "from", n, "to", now)
			p.drain(ctx)
			p.open(ctx, g, n, leaders)
			n = now
		default:
			if fewer++; fewer == mostDoubt {
				return fmt.Errorf("%w: %s had %d partitions and has %d now, so it was deleted and made again; what was in it and "+
					"nobody had read is gone: %s",
					ErrTopicChanged, p.o.Topics.Topic, n, now, afterLoss)
			}
		}
	}
	return nil
}

// leaders asks who leads the partitions until it is told, or ctx ends.
func (p *Producer) leaders(ctx context.Context) []int {
	var leaders []int
	err := p.newLoop(p.metrics.retries).Do(ctx, func() (err error) {
		leaders, err = p.client.Leaders(ctx, p.o.Topics.Topic)
		if err == nil && len(leaders) == 0 {
			err = fmt.Errorf("kafka: topic %s has no partitions", p.o.Topics.Topic)
		}
		return err
	})
	if err != nil {
		return nil // ctx has ended
	}
	return leaders
}

// drain lets nothing in and waits until everything is acknowledged: a key may move to another partition, and what is
// older must be in its old one by then, on every attempt.
func (p *Producer) drain(ctx context.Context) {
	for !p.ledger.hold() {
		select {
		case <-p.ledger.drained:
		case <-ctx.Done():
			return
		}
	}
}

// keep has it kept that keys are spread over n partitions. It fails only with ctx.
func (p *Producer) keep(ctx context.Context, n int) error {
	if p.o.Keep == nil || n == 0 {
		return ctx.Err()
	}
	return p.newLoop(p.metrics.retries).Do(ctx, func() error {
		return p.o.Keep(ctx, n, func(ctx context.Context) (ends []int64, err error) {
			for id := 0; id < n && err == nil; id++ {
				var end int64
				end, err = p.client.End(ctx, p.o.Topics.Topic, id)
				ends = append(ends, end)
			}
			return ends, err
		})
	})
}

// open opens the partitions from first on and lets batches in.
func (p *Producer) open(ctx context.Context, g *errgroup.Group, first int, leaders []int) {
	var more []*sendQueue
	if p.keep(ctx, len(leaders)) != nil {
		return // ctx has ended
	}
	loop := p.newLoop(p.metrics.retries)
	for id := first; id < len(leaders); {
		end, err := p.client.End(ctx, p.o.Topics.Topic, id)
		if err != nil {
			if loop.Wait(ctx, err) != nil {
				return
			}
			continue
		}
		loop.Succeeded()
		if head := p.o.Heads[id]; end == 0 && !head.IsZero() {
			// A term that noticed this while it ran stopped, so that somebody decides. This one was started since.
			err := p.o.Doubts.Record(ctx, doubt.Doubt{
				Cause: alarm.RecordsLost, Source: p.o.Source, Subject: fmt.Sprintf("%s/%d", p.o.Topics.Topic, id),
				Message: fmt.Sprintf("partition %d of %s is empty, although source %s has written to it before: the topic was "+
					"deleted and made again; what "+
					"was in it and no invalidator had read is gone, and its keys may be stale", id, p.o.Topics.Topic, p.o.Source),
			})
			if err != nil {
				return // ctx has ended
			}
		}
		more = append(more, &sendQueue{
			id: id, loop: p.newLoop(p.metrics.retries), head: p.o.Heads[id], end: end,
			most: p.o.MaxRecord,
		})
		id++
	}
	if ctx.Err() != nil {
		return
	}
	p.lanes.add(ctx, g, more, leaders)
	p.ledger.grow(more)
}
