package consumer

import (
	"context"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

const (
	// fetchBytes is what one fetch may bring, as the brokers store it, and what it should bring once unpacked. A
	// record that is larger comes whole.
	fetchBytes = 512 << 10
	// leastBytes is how far the former is lowered when records are compressed well.
	leastBytes = 32 << 10
)

// chunk is what one fetch brought.
type chunk struct {
	records []broker.Record
	// from is the first offset that the chunk stands for, next the one behind the last.
	from, next int64
	// jumped: what lay before from was lost and is passed over.
	jumped bool
	// lost ends the partition.
	lost error
}

// fetch is a partition's fetch loop. At most three fetches are in memory: one that is being handed out, one that
// waits, and one under way. It ends with the partition's context, or with a loss.
func (p *partition) fetch(next int64) {
	t := p.c.newTrouble("fetch " + p.what)
	ask, jumped := fetchBytes/4, false
	for p.ctx.Err() == nil {
		f, err := p.c.client.Fetch(p.ctx, p.claim.Topic, p.id, next, ask, poll)
		switch {
		case err == nil:
			t.over()
			p.observe(f.LogStart, f.HighWatermark)
		case p.ctx.Err() != nil:
			return
		case broker.Classify(err) == broker.OutOfRange:
			from, lost := p.locate(next)
			switch {
			case lost != nil:
				p.hand(chunk{lost: lost})
				return
			case from == next:
				t.wait(p.ctx, err) // the brokers do not agree yet
			default:
				next, jumped = from, true
			}
		default:
			t.wait(p.ctx, err)
			continue
		}
		ask = adapt(ask, f.Records) // before they are handed over
		if f.Next > next || jumped {
			if !p.hand(chunk{records: f.Records, from: next, next: f.Next, jumped: jumped}) {
				return
			}
		}
		next, jumped = f.Next, false
	}
}

// adapt returns how much to ask for next: what is compressed well takes many times its size in memory.
func adapt(ask int, records []broker.Record) int {
	n := 0
	for i := range records {
		n += len(records[i].Key) + len(records[i].Value)
	}
	switch {
	case n > fetchBytes*3/2:
		return max(ask/2, leastBytes)
	case n < fetchBytes/2:
		return min(ask*2, fetchBytes)
	}
	return ask
}

// hand hands a chunk over and reports whether it was taken.
func (p *partition) hand(c chunk) bool {
	select {
	case p.chunks <- c:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// locate compares an offset (-1: there is none) with what the partition holds, and returns where to read: the offset,
// or where the log begins when records are lost and may be passed over. The error is a [*LostError] or the context's.
//
// That the log ends before the offset is believed only when it has been so for a while: a broker that has just become
// the leader may not know yet how far all replicas are.
func (p *partition) locate(offset int64) (int64, error) {
	t := p.c.newTrouble("look at " + p.what)
	var since time.Time
	for p.ctx.Err() == nil {
		start, end, err := p.c.client.Range(p.ctx, p.claim.Topic, p.id)
		if err != nil {
			t.wait(p.ctx, err)
			continue
		}
		t.over()
		p.observe(start, end)
		lost := &LostError{
			Topic: p.claim.Topic, Partition: p.id, Group: p.c.o.Group, Offset: offset, Start: start, End: end,
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
			if time.Since(since) < grace {
				t.pause(p.ctx)
				continue
			}
		}
		lost.Until = p.oldest(start, end)
		if err := p.c.lost(lost); err != nil {
			return 0, err
		}
		return start, nil
	}
	return 0, p.ctx.Err()
}

// oldest returns when the record at the beginning of the log was written, if that can be told.
func (p *partition) oldest(start, end int64) time.Time {
	if start >= end {
		return time.Time{}
	}
	f, err := p.c.client.Fetch(p.ctx, p.claim.Topic, p.id, start, leastBytes, poll)
	if err != nil || len(f.Records) == 0 {
		return time.Time{}
	}
	return f.Records[0].Time
}

// lost counts a loss. It returns it, unless losses are passed over; then an operator is told.
func (c *Consumer) lost(e *LostError) error {
	c.metrics.losses.WithLabelValues(string(e.Loss)).Inc()
	if !c.o.SkipLost {
		return e
	}
	c.raiseLost(e)
	return nil
}

// pause waits a little, without there being any trouble.
func (t *trouble) pause(ctx context.Context) { _ = t.backoff.Wait(ctx) }
