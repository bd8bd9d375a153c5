package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/eventlog"
)

// DefaultBuffer is the default of [LogOptions].Buffer.
const DefaultBuffer = 4

// LogOptions configure a [Log]. The zero value of each field means its default.
type LogOptions struct {
	// Buffer is how many batches may wait between Append and Fetch. Default 4: enough to keep both sides busy.
	// What bounds the work in flight are the invalidator's caps, beyond which it does not fetch.
	Buffer int
	// Latency gets how long batches wait to be taken, and to be fetched. Its maker registers it; nil: not measured.
	Latency *latency.Stages
	// Registerer takes the log's metrics; nil: they are registered nowhere.
	Registerer prometheus.Registerer
}

// Errors of a log.
var (
	// ErrClosed: a batch was appended after [Log.Close].
	ErrClosed = errors.New("the event log is closed")
	// ErrConsumed: [Log.Consume] was called a second time.
	ErrConsumed = errors.New("the embedded event log was consumed before")
)

// Log is the event log of one process, for one source and with one partition. It is an [eventlog.Input] and an
// [eventlog.Output]. One goroutine at a time appends and one fetches; all other methods may be called from anywhere.
type Log struct {
	queue   queue
	pending pending
	metrics *logMetrics
	latency *latency.Stages

	markMu sync.Mutex // one sender at a time into marks
	marks  chan event.Mark
}

var (
	_ eventlog.Input  = (*Log)(nil)
	_ eventlog.Output = (*Log)(nil)
)

// NewLog returns an empty log.
func NewLog(o LogOptions) (*Log, error) {
	o.Buffer = orDefault(o.Buffer, DefaultBuffer)
	if o.Buffer < 1 {
		return nil, fmt.Errorf("event log: a buffer of %d batches", o.Buffer)
	}
	if o.Latency == nil {
		o.Latency = latency.New()
	}
	l := &Log{
		queue:   queue{most: o.Buffer, space: newWakeup(), data: newWakeup()},
		pending: pending{ends: make(chan event.End, 1)},
		metrics: newLogMetrics(),
		latency: o.Latency,
		marks:   make(chan event.Mark, 1),
	}
	if err := l.metrics.register(o.Registerer, l); err != nil {
		return nil, fmt.Errorf("event log: metrics: %w", err)
	}
	return l, nil
}

// Append implements [eventlog.Input]. After [Log.Close] it returns [ErrClosed].
func (l *Log) Append(ctx context.Context, b *event.Batch) error {
	begin := time.Now()
	b = b.Clone()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		now := time.Now()
		pushed, err := l.queue.push(b, now)
		if err != nil {
			return err
		}
		if pushed {
			l.metrics.batches.Inc()
			l.latency.Append.Observe(now.Sub(begin), now)
			return nil
		}
		select {
		case <-l.queue.space:
		case <-ctx.Done():
		}
	}
}

// Close ends the log: no batch is taken any more, and Fetch returns [io.EOF] after those that were. Marks still pass,
// since what is unfinished waits for them. The channel of Durable is closed once everything is committed, or once
// Consume has returned. Close may be called more than once.
func (l *Log) Close() {
	l.pending.close(l.queue.close())
}

// Mark implements [eventlog.Input]. The newest mark replaces one that nobody has taken.
func (l *Log) Mark(m event.Mark) {
	l.markMu.Lock()
	defer l.markMu.Unlock()
	offer(l.marks, m, func(event.Mark) event.Mark { return m })
}

// Marks implements [eventlog.Output]. The channel is never closed.
func (l *Log) Marks() <-chan event.Mark { return l.marks }

// Partitions implements [eventlog.Output]: there are no records to count.
func (*Log) Partitions() []eventlog.PartitionState { return nil }

// Standby implements [eventlog.Output]: there are no other processes.
func (*Log) Standby() (standby, known bool) { return false, true }

// Durable implements [eventlog.Input]: an end is durable once its batch and all before it are committed.
func (l *Log) Durable() <-chan event.End { return l.pending.ends }

// Consume implements [eventlog.Output] with one partition, on the caller's goroutine. It may be called once: what was
// fetched and not committed exists nowhere else but in the binlog, so a second consumer would pass over it.
func (l *Log) Consume(ctx context.Context, handle func(context.Context, eventlog.Partition) error) error {
	if !l.pending.begin() {
		return ErrConsumed
	}
	defer l.pending.end()
	err := handle(ctx, (*onlyPartition)(l))
	if err != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// onlyPartition is the log as its one consumer sees it.
type onlyPartition Log

// token names a batch by its number in the order of Append, from 1.
type token struct {
	eventlog.Issued
	log *Log
	n   uint64
}

// ID implements [eventlog.Partition].
func (p *onlyPartition) ID() int { return 0 }

// Fetch implements [eventlog.Partition].
func (p *onlyPartition) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		b, n, closed := p.queue.pop()
		if b.Batch != nil {
			now := time.Now()
			p.latency.Fetch.Observe(now.Sub(b.pushed), now)
			p.pending.add(n, b.End)
			return b.Batch, token{log: (*Log)(p), n: n}, nil
		}
		if closed {
			return nil, nil, io.EOF
		}
		select {
		case <-p.queue.data:
		case <-ctx.Done():
		}
	}
}

// Commit implements [eventlog.Partition]. A token that was committed before, or is older than one that was, changes
// nothing. A token of another log is a fault of the program, and panics.
func (p *onlyPartition) Commit(t eventlog.Token) {
	mine, ok := t.(token)
	if !ok || mine.log != (*Log)(p) {
		panic(fmt.Sprintf("event log: a token of another log (%T)", t))
	}
	p.pending.commit(mine.n)
}

// wakeup wakes the one who waits, or is about to: with room for one it is never lost and never waits itself. Who is
// woken looks again, so one that comes for nothing does no harm.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

func (w wakeup) raise() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// queue is the bounded buffer between Append and Fetch.
type queue struct {
	most int
	// space is raised when there is room or the queue was closed, data when there is a batch or it was closed.
	space, data wakeup

	mu      sync.Mutex
	batches []queued
	pushed  uint64 // number of the last batch pushed
	closed  bool
}

// queued is a batch, and when it was pushed.
type queued struct {
	*event.Batch
	pushed time.Time
}

// push takes b unless the queue is full.
func (q *queue) push(b *event.Batch, now time.Time) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, ErrClosed
	}
	if len(q.batches) == q.most {
		return false, nil
	}
	q.batches = append(q.batches, queued{b, now})
	q.pushed++
	q.data.raise()
	return true, nil
}

// pop returns the oldest batch and its number; none when there is none.
func (q *queue) pop() (b queued, n uint64, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batches) == 0 {
		return queued{}, 0, q.closed
	}
	b = q.batches[0]
	n = q.pushed - uint64(len(q.batches)) + 1
	q.batches = slices.Delete(q.batches, 0, 1)
	q.space.raise()
	return b, n, false
}

// close returns the number of the last batch.
func (q *queue) close() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.space.raise()
	q.data.raise()
	return q.pushed
}

// len returns how many batches wait.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.batches)
}
