package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/group"
	"github.com/freshet/freshet/eventlog/kafka/record"
	"github.com/freshet/freshet/retry"
)

// assignedPartition is an assigned partition. It implements [eventlog.Partition].
type assignedPartition struct {
	c          *Consumer
	assignment *group.Assignment
	id         int
	what       string          // topic/partition, for people
	ctx        context.Context // the assignment's
	feed       *feed           // what is fetched ahead

	// What belongs to Fetch: the rest of a chunk, the offset after all that was handed out, and what was seen there.
	records []broker.Record
	next    int64 // after the chunk
	at      int64
	ahead   chain
	parser  record.Parser
	lost    error

	// What Fetch, Commit and observers share.
	mu         sync.Mutex
	begun      bool   // it is known where to read
	pending    []step // handed out and not finished, in order
	handed     uint64 // how many steps there have been
	finished   int64  // everything below is
	behind     chain  // as of finished
	start, end int64  // of the log, as last heard
	heard      time.Time
	loss       *LostError // nothing more is read: records are lost; nil: none are
	stuck      time.Time  // when the record was written that nobody here can read; zero: none
}

// step is a record between Fetch and Commit.
type step struct {
	n    uint64 // its number, from 1; offsets may begin again when the log was created again
	next int64  // the offset after it
	time time.Time
	done bool

	source string // whose link moves with it; "": nobody's
	link   link
	buried bool // it could not be read; source is whose it may have been
	jumped bool // records before it are lost
}

// token names a record to its partition.
type token struct {
	eventlog.Issued
	p *assignedPartition
	n uint64
}

// begin finds out where to read.
func (p *assignedPartition) begin() (int64, error) {
	from, err := p.locate(p.assignment.Offset)
	known := p.foundBefore(from)
	if err == nil && known != nil && from == p.assignment.Offset {
		err = p.c.lost(p.ctx, known)
	}
	if err != nil {
		p.stop(err)
		return 0, err
	}
	strange := known == nil && from == p.assignment.Offset && from > 0 && !signed(p.assignment.Metadata)
	if strange {
		if err := p.doubtStrange(); err != nil {
			return 0, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.next, p.finished, p.begun = from, from, from, true
	switch {
	case from != p.assignment.Offset:
		// The group begins here. It is written down, so that it is still known when the log no longer begins here.
		p.assignment.Rewind(from, p.behind.encode())
	case known != nil, strange:
		// It was stopped here, or set to here, and begins again with what is left, of which nothing was seen before.
		p.assignment.Rewind(from, p.behind.encode())
	default:
		p.ahead = parseChain(p.assignment.Metadata)
		p.behind = p.ahead.clone()
	}
	p.ahead.whole = from == 0 && p.assignment.Offset <= 0 && known == nil
	return from, nil
}

// ID implements [eventlog.Partition].
func (p *assignedPartition) ID() int { return p.id }

// Fetch implements [eventlog.Partition]. The error is a [*LostError] when records are gone, [io.EOF] when everything
// below the end that StopAt set was fetched, or that of a context that ended: its own, or the assignment's.
func (p *assignedPartition) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if err := p.ctx.Err(); err != nil {
			return nil, nil, err
		}
		stop, changed := p.c.stop.at(p.id)
		switch {
		case p.lost != nil:
			p.stop(p.lost)
			return nil, nil, p.lost
		case len(p.records) > 0 && p.records[0].Offset > p.at:
			p.pass(p.records[0].Offset)
			continue
		case p.at >= stop:
			return nil, nil, io.EOF
		case len(p.records) > 0:
			r := p.records[0]
			b, t, err := p.take(ctx, &r)
			if err != nil {
				p.stop(err)
				return nil, nil, err
			}
			p.records[0] = broker.Record{} // not to keep it
			p.records, p.at = p.records[1:], r.Offset+1
			if b != nil {
				return b, t, nil
			}
			continue
		case p.next > p.at:
			p.pass(p.next)
			continue
		}
		if c, ok := p.c.fetcher.take(p.feed); ok {
			p.open(c)
			continue
		}
		select {
		case <-p.feed.more:
		case <-changed:
		case <-ctx.Done():
		case <-p.ctx.Done():
		}
	}
}

// open makes a chunk the one that is handed out.
func (p *assignedPartition) open(c chunk) {
	if p.lost = c.lost; c.lost != nil {
		return
	}
	if c.jumped {
		p.ahead = chain{}
		p.at = c.from
		p.push(step{next: c.from, done: true, jumped: true})
	}
	p.records, p.next = c.records, c.next
}

// take makes a batch of a record. It returns none for one that was buried.
func (p *assignedPartition) take(ctx context.Context, r *broker.Record) (*event.Batch, eventlog.Token, error) {
	b, h, err := p.parser.Parse(r.Value)
	s := step{next: r.Offset + 1, time: r.Time}
	switch {
	case errors.Is(err, record.ErrUnknownFormat):
		return nil, nil, p.holdUp(ctx, r, err)
	case err != nil:
		s.source = suspect(r)
		if err := p.bury(ctx, r, s.source == "", err); err != nil {
			return nil, nil, err
		}
		p.ahead.bury(s.source)
		s.done, s.buried = true, true
		p.push(s)
		return nil, nil, nil
	}
	l, moves, missing := p.ahead.check(&h, b.Last)
	if missing != nil {
		if err := p.missing(r, missing); err != nil {
			return nil, nil, err
		}
	}
	if moves {
		p.ahead.move(h.Source, l)
		s.source, s.link = h.Source, l
	}
	b.Leftover = h.Term < l.term
	now := time.Now()
	p.c.o.Latency.Fetch.Observe(max(now.Sub(r.Time), 0), now)
	p.c.metrics.records.Inc()
	p.c.metrics.invalidations.Add(float64(b.Len()))
	return b, token{p: p, n: p.push(s)}, nil
}

// missing says that records before this one are lost.
func (p *assignedPartition) missing(r *broker.Record, b *Break) error {
	p.mu.Lock()
	e := &LostError{
		Loss: Broken, Topic: p.assignment.Topic, Partition: p.id, Group: p.c.o.Group, Offset: r.Offset,
		Start: p.start, End: p.end, Break: b,
	}
	p.mu.Unlock()
	return p.c.lost(p.ctx, e)
}

// holdUp waits for the end of a context: a record that only a newer freshet can read must not be passed over, and this
// one will not learn to read it. Other partitions go on.
func (p *assignedPartition) holdUp(ctx context.Context, r *broker.Record, err error) error {
	p.mu.Lock()
	p.stuck = r.Time
	p.mu.Unlock()
	again := time.NewTicker(retry.Quiet)
	defer again.Stop()
	for {
		p.c.o.Alarms.Raise(alarm.RecordUnreadable, fmt.Sprintf("%s at offset %d: %v: the partition waits there: upgrade the"+
			" invalidators first, then the readers", p.what, r.Offset, err))
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Canceled
		case <-p.ctx.Done():
			return context.Canceled
		}
	}
}

// maxForeign is how many dead letters there may be for a record that is none of freshet's to become another one.
// A program that takes the topic for its own would fill that of the dead letters as well.
const maxForeign = 1000

// bury keeps a record that cannot be read, durably, so that it may be passed over. It tries until a context ends.
func (p *assignedPartition) bury(ctx context.Context, r *broker.Record, foreign bool, cause error) error {
	if foreign && p.c.o.Letters() >= maxForeign {
		p.c.metrics.buried.Inc()
		p.c.o.Alarms.Raise(alarm.RecordUnreadable,
			fmt.Sprintf("records in %s are none of freshet's, the last at offset %d; they are passed"+
				" over, and no longer kept, since there are %d dead letters already: see to it that nobody else produces to the topic, then"+
				" freshet dlq purge", p.what, r.Offset, maxForeign))
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	loop := p.c.newLoop()
	defer loop.Stop()
	if err := loop.Do(ctx, func() error { return p.c.o.Bury(ctx, p.assignment.Topic, p.id, *r, cause) }); err != nil {
		return context.Canceled
	}
	p.c.metrics.buried.Inc()
	p.c.o.Alarms.Raise(alarm.RecordUnreadable, fmt.Sprintf("a record in %s cannot be read; it was put whole among the"+
		" dead letters and passed over, and the keys that it names may stay stale: see freshet dlq list", p.what))
	return nil
}

// pass passes over offsets that hold no record: markers of transactions, and what compaction has removed. They are
// finished with what lies before them. Were they not, a partition that ends in one would never be.
func (p *assignedPartition) pass(to int64) {
	p.at = to
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.pending); n > 0 {
		p.pending[n-1].next = to
		return
	}
	p.finished = to
	p.assignment.Commit(to, p.behind.encode())
}

// push adds a step and returns its number.
func (p *assignedPartition) push(s step) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handed++
	s.n = p.handed
	p.pending = append(p.pending, s)
	if s.done {
		p.advance()
	}
	return s.n
}

// Commit implements [eventlog.Partition]. It also works after the assignment's context has ended, until the generation
// has. A token of another partition is a fault of the program, and panics.
func (p *assignedPartition) Commit(t eventlog.Token) {
	mine, ok := t.(token)
	if !ok || mine.p != p {
		panic(fmt.Sprintf("kafka: %s: a token of another partition (%T)", p.what, t))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.pending {
		if p.pending[i].n > mine.n {
			break
		}
		p.pending[i].done = true
	}
	p.advance()
}

// advance moves over what is finished without a gap, and commits it. The caller holds the lock.
func (p *assignedPartition) advance() {
	n, rewind := 0, false
	for n < len(p.pending) && p.pending[n].done {
		s := &p.pending[n]
		switch {
		case s.jumped:
			p.behind, rewind = chain{}, true
		case s.buried:
			p.behind.bury(s.source)
		case s.source != "":
			p.behind.move(s.source, s.link)
		}
		p.finished = s.next
		n++
	}
	switch p.pending = p.pending[n:]; {
	case n == 0:
	case rewind:
		p.assignment.Rewind(p.finished, p.behind.encode())
	case p.loss != nil && len(p.pending) == 0:
		p.writeLoss()
	default:
		p.assignment.Commit(p.finished, p.behind.encode())
	}
}

// observe takes note of where the log begins and ends.
func (p *assignedPartition) observe(start, end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start, p.end, p.heard = start, end, time.Now()
}
