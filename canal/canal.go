package canal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Canal reads the committed row changes of one source, from a checkpoint on, forever: one stream, with one connection
// that carries it and one that asks what is visible. A process can have several.
type Canal struct {
	o          Options
	bind       Bind
	checkpoint Checkpoint
	vis        *visibility
	m          *metrics
	n          counters

	loop *loop // only for the goroutine that calls Next

	mu    sync.Mutex
	first time.Time // when the first byte of a dump came
	// lacking is what the binlog was known to lack when that was last looked at.
	lacking map[string]bool
	// lacks are the doubts about that.
	lacks postponed

	// reading gets the heartbeat once reading has begun; capacity 1.
	reading chan *heart
	lag     behind
	// cut ends the dump that is being read, so that another is begun; nil before the first one.
	cut atomic.Pointer[context.CancelFunc]
}

// New returns a canal that begins where checkpoint says, and decodes the columns that bind asks for.
func New(o Options, bind Bind, checkpoint Checkpoint) (*Canal, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if bind == nil || checkpoint == nil {
		return nil, errors.New("canal: a Bind and a Checkpoint are needed")
	}
	c := &Canal{o: o, bind: bind, checkpoint: checkpoint, reading: make(chan *heart, 1)}
	c.vis = newVisibility(o.Heartbeat, o.FillLag)
	c.vis.unknown = len(o.FillFrom) > 0
	if c.loop, err = newLoop(c); err != nil {
		return nil, err
	}
	c.m, err = newMetrics(o.Registerer, &c.n, o.Heartbeat, c.vis.unconfirmed)
	if err != nil {
		return nil, fmt.Errorf("canal: %w", err)
	}
	return c, nil
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
	// Apart is the address of another server of the source on which is written what does not come to this one; "": none
	// is known.
	Apart string `json:"apart,omitempty"`
	// Unheard is why no new connection to the source has come about for some time; "": one has.
	Unheard string `json:"unheard,omitempty"`
	// Unconfirmed counts batches that the source, or a fill server, has not yet said to be visible.
	Unconfirmed int `json:"unconfirmed"`
	// Fills are the servers that the application fills its cache from (source.fill_from), in the order in which they were
	// found.
	Fills []FillServer `json:"fill_from,omitempty"`
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
	s.Apart, s.Unheard = c.vis.apart, c.vis.unheard
	s.File, s.Pos, s.Unconfirmed = c.vis.read.file, c.vis.read.pos, len(c.vis.queue)
	for _, f := range c.vis.fills {
		s.Fills = append(s.Fills, f.stats(c.vis.seen))
	}
	c.vis.mu.Unlock()
	c.mu.Lock()
	s.FirstByte = c.first
	c.mu.Unlock()
	return s
}
