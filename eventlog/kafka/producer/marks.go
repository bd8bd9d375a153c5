package producer

import (
	"context"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/asof"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// marks is the newest mark, and since when all that the source held is in the log. The ledger's lock guards it.
type marks struct {
	newest event.Mark
	given  bool
	// state rises with everything that is worth telling; produced is the state that the brokers have acknowledged.
	state, produced uint64
	// complete: the brokers have a mark that was made when nothing more could become durable.
	complete bool
	// moments wait for the batch that was appended last before them, and those before it, to be durable.
	moments asof.List[uint64]
	// ends are the offsets after all that was durable when the last of them was reached.
	ends []int64
}

// note takes a mark, when the batches up to appended were handed over.
func (m *marks) note(mark event.Mark, appended uint64) {
	m.newest, m.given = mark, true
	m.state++
	if mark.Read {
		m.moments.Add(mark.Made, appended)
	}
}

// reached takes how far all is durable, with the offsets after it, and reports whether that is worth telling.
func (m *marks) reached(durable uint64, offsets []int64) bool {
	if !m.moments.Finish(func(upTo uint64) bool { return upTo <= durable }) {
		return false
	}
	m.ends = append([]int64(nil), offsets...)
	m.state++
	return true
}

// told reports, once nothing more can become durable, whether nobody needs to be told more than they were.
func (m *marks) told() bool {
	return !m.given || !m.moments.Waits() && (m.complete || m.produced == m.state)
}

// mark takes a mark. Before the partitions are known there are no offsets, so its moment waits until they are.
func (l *ledger) mark(m event.Mark) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks.note(m, l.appended)
	if l.partitions != nil {
		l.marks.reached(l.durable, l.offsets)
	}
	l.marked.raise()
}

// due returns the mark to produce, if there is one that the brokers do not have, and what to tell delivered then.
func (l *ledger) due() (_ record.Mark, _ delivery, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.marks
	if !m.given || m.produced == m.state {
		return record.Mark{}, delivery{}, false
	}
	last := l.closed && len(l.entries) == 0
	return record.Mark{Mark: m.newest, AsOf: m.moments.At(), Ends: m.ends}, delivery{m.state, last}, true
}

// delivery is the state that a mark tells, and whether no batch will change it any more.
type delivery struct {
	state uint64
	last  bool
}

// delivered enters that the brokers have a mark.
func (l *ledger) delivered(d delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks.produced = d.state
	l.marks.complete = l.marks.complete || d.last
	l.finish()
}

// asOf returns as of when all that the source held is acknowledged.
func (l *ledger) asOf() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.marks.moments.At()
}

// runMarks produces marks until ctx ends, the newest only: one that comes while another waits for the brokers takes
// its place.
//
// An attempt that timed out may still arrive, after the mark that took its place. It carries a lower version and an
// older moment, and each reader of marks keeps the newest of each source, so nothing goes back.
func (p *Producer) runMarks(ctx context.Context) error {
	loop := p.newLoop(p.metrics.marks.retries)
	topic := p.o.Topics.Marks()
	for ctx.Err() == nil {
		m, d, ok := p.ledger.due()
		if !ok {
			select {
			case <-p.ledger.marked:
			case <-ctx.Done():
			}
			continue
		}
		// The memory is new each time: an attempt that timed out may still be read by the connection that it was for.
		mark := []broker.Record{{Key: []byte(m.Source), Value: m.Append(nil)}}
		if err := p.client.ProduceAll(ctx, topic, []broker.ProduceTo{{Records: mark}})[0].Err; err != nil {
			_ = loop.Wait(ctx, err) // it ends early with ctx only
			continue
		}
		loop.Succeeded()
		p.metrics.marks.produced.Inc()
		p.ledger.delivered(d)
	}
	return nil
}
