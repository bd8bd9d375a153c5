package canal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/event"
)

// Canal reads the committed row changes of one source, from a checkpoint on, forever.
type Canal struct {
	o          Options
	sink       Sink
	checkpoint Checkpoint
	vis        *visibility
	m          *metrics
	n          counters

	running atomic.Bool
	loop    *loop // only for the goroutine of Run

	mu    sync.Mutex
	first time.Time // when the first byte of a dump came

	// hangUp ends the dump that is being read, so that another is begun; nil before the first one.
	hangUp atomic.Pointer[context.CancelFunc]
}

// New returns a canal that hands what it reads to sink, and begins where checkpoint says.
func New(o Options, sink Sink, checkpoint Checkpoint) (*Canal, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if sink == nil || checkpoint == nil {
		return nil, errors.New("canal: a sink and a checkpoint are needed")
	}
	c := &Canal{o: o, sink: sink, checkpoint: checkpoint, vis: newVisibility(o.Heartbeat)}
	c.m, err = newMetrics(o.Registerer, &c.n, o.Heartbeat, c.vis.waiting)
	if err != nil {
		return nil, fmt.Errorf("canal: %w", err)
	}
	return c, nil
}

// Run reads until ctx ends, or with [Options].UntilCaughtUp until everything that the source held at the start has
// been handed over and is visible to everybody. It then returns nil, after a last [Sink.Flush].
//
// A lost connection is made anew, forever, with an alarm. Run fails with the sink's error; with an error that is
// [retry.ErrHalt] when somebody must decide how to go on; with the server's refusal when it refuses who we are at the
// first connection; and when the source's gtid_mode has changed, after which a new Canal goes on. It must be called
// once only.
func (c *Canal) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("canal: Run was called twice")
	}
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	var heartbeat sync.WaitGroup
	defer heartbeat.Wait()
	defer cancel()

	l, err := newLoop(ctx, c)
	if err != nil {
		return err
	}
	c.loop = l
	l.started = func(h *heart) {
		heartbeat.Go(func() { h.run(ctx) })
		if !c.o.UntilCaughtUp { // a run that ends by itself does not last until anything is purged
			heartbeat.Go(func() { c.watchRetention(ctx) })
		}
	}
	err = l.run(ctx)
	if errors.Is(err, errCaughtUp) {
		if err = c.flush(); err == nil {
			err = c.vis.settled(ctx)
		}
	}
	if outer.Err() != nil {
		// Stopped: what was gathered is handed on, if the sink still takes it.
		if err = c.flush(); errors.Is(err, outer.Err()) || errors.Is(err, context.Cause(outer)) {
			return nil
		}
	}
	return plainSinkError(err)
}

// flush asks the sink to hand on what it has gathered.
func (c *Canal) flush() error {
	if err := c.sink.Flush(); err != nil {
		return &sinkError{err}
	}
	return nil
}

// Handover is to be called by the sink, on the canal's goroutine, before it hands on a batch of invalidations: last
// is the highest version in it. It returns for how long all changes in the batch have been known to be visible to
// everybody, or [event.Unknown]; a mark will cover them once they are.
func (c *Canal) Handover(last event.Version) time.Duration {
	if c.loop == nil {
		return event.Unknown
	}
	return c.vis.handover(c.loop.claim(last))
}

// Stats is what a canal has done and how it stands.
type Stats struct {
	// Connected says whether the binlog connection stands.
	Connected bool `json:"connected"`
	// Server and Epoch are those of the stream.
	Server string `json:"server"`
	Epoch  uint32 `json:"epoch"`
	// File and Pos are up to where everything has been handed over.
	File string `json:"file"`
	Pos  uint64 `json:"pos"`
	// Events, Transactions and Bytes count what was read; Rows are the row changes of mapped tables, an UPDATE of
	// one row being one.
	Events       uint64 `json:"events"`
	Transactions uint64 `json:"transactions"`
	Rows         uint64 `json:"rows"`
	Bytes        uint64 `json:"bytes"`
	// FirstByte is when the first byte of a dump came; zero before.
	FirstByte time.Time `json:"first_byte"`
	// Committed is when the last transaction was committed, by the source's clock; zero: none yet.
	Committed time.Time `json:"committed"`
	// Lag is how far we are behind: 0 when all that the source held at the last heartbeat has been read.
	Lag time.Duration `json:"lag"`
	// Unvouched counts batches that the source has not yet said to be visible.
	Unvouched int `json:"unvouched"`
}

// Stats may be called by any goroutine.
func (c *Canal) Stats() Stats {
	s := Stats{
		Connected: c.n.connected.Load(), Events: c.n.events.Load(), Transactions: c.n.transactions.Load(),
		Rows: c.n.rows.Load(), Bytes: c.n.received.Load(), Lag: c.n.lag(time.Now(), c.o.Heartbeat),
	}
	if ns := c.n.committed.Load(); ns != 0 {
		s.Committed = time.Unix(0, ns)
	}
	c.vis.mu.Lock()
	s.Server, s.Epoch = c.vis.server, c.vis.epoch
	s.File, s.Pos, s.Unvouched = c.vis.read.file, c.vis.read.pos, len(c.vis.queue)
	c.vis.mu.Unlock()
	c.mu.Lock()
	s.FirstByte = c.first
	c.mu.Unlock()
	return s
}

// sinkError carries an error of the sink through the loop, past everything that makes connections anew.
type sinkError struct{ err error }

func (e *sinkError) Error() string { return e.err.Error() }
func (e *sinkError) Unwrap() error { return e.err }

// plainSinkError returns an error of the sink as the sink returned it.
func plainSinkError(err error) error {
	if se := (*sinkError)(nil); errors.As(err, &se) {
		return se.err
	}
	return err
}

// errCaughtUp ends the loop when everything that was asked for has been read.
var errCaughtUp = errors.New("caught up")
