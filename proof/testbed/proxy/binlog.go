package proxy

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
)

// Event is the header of one binlog event on its way to a client.
type Event struct {
	N         int  // its number, from 1, over all dump connections since the start or Restart
	ConnN     int  // its number on this connection, from 1
	Conn      int  // the number of the dump connection, from 1
	Type      byte // as in the binlog: 2 QUERY, 16 XID, 19 TABLE_MAP, 30 WRITE_ROWS, …
	Timestamp uint32
	ServerID  uint32
	Size      uint32
	LogPos    uint32 // where the next event starts, modulo 2³²; may be 0
	Flags     uint16
}

// Artificial says if the server made the event up for this connection, as the ROTATE and the
// FORMAT_DESCRIPTION at its start.
func (e Event) Artificial() bool {
	const rotate, formatDescription, artificial = 4, 15, 0x20
	return e.Flags&artificial != 0 || e.LogPos == 0 && (e.Type == rotate || e.Type == formatDescription)
}

// Verdict says what to do with an event.
type Verdict uint8

const (
	// Deliver lets the event pass.
	Deliver Verdict = iota
	// HoldAfter lets the event pass and nothing that follows it.
	HoldAfter
	// HoldBefore holds the event and what follows.
	HoldBefore
)

// heartbeats are sent when nothing else is, so that counting them would make numbers depend on time.
const (
	heartbeat   = 27
	heartbeatV2 = 41
)

// Binlog is a proxy in front of a MySQL or MariaDB server which counts the binlog events that
// pass, and can hold the stream at any of them. Connections that ask for no binlog pass
// untouched. Heartbeats pass, are not counted, and are held with the rest. Without TLS and
// without the compressed protocol.
type Binlog struct {
	*Proxy

	mu      sync.Mutex // guards what follows
	hook    func(Event) Verdict
	n       int
	conns   int
	held    chan Event    // capacity 1: the event at which the stream was held
	holding chan struct{} // nil while events pass; closed by Release
}

// NewBinlog starts a counting proxy in front of the database server at target (host:port).
func NewBinlog(target string) (*Binlog, error) {
	p := &Binlog{held: make(chan Event, 1)}
	var err error
	p.Proxy, err = newProxy(target, true, func() (stream, stream) {
		c := &binlogConn{proxy: p, up: framer{limit: maxPacket}, down: framer{limit: maxPacket}}
		return (*binlogToServer)(c), (*binlogToClient)(c)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// StartBinlog starts a counting proxy that ends with the test.
func StartBinlog(t testing.TB, target string) *Binlog {
	t.Helper()
	return forTest(t, NewBinlog, target)
}

// OnEvent has hook asked about every event before it is delivered. The hook may block, which
// holds up its connection only; a hold applies to all. nil lets all pass.
func (p *Binlog) OnEvent(hook func(Event) Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// HoldAfter delivers the next n events that count and nothing after them, on any connection,
// until Release. It starts counting again. The last event delivered comes on Held; for n = 0 the
// first that was kept back.
//
// When a client was killed, call Reset first: what was kept back for it would count.
func (p *Binlog) HoldAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n = 0
	p.hook = func(e Event) Verdict {
		switch {
		case e.N < n:
			return Deliver
		case e.N == n:
			return HoldAfter
		}
		return HoldBefore // on another connection; or n is 0
	}
}

// Held receives the event at which the stream was held, once it has been delivered (HoldAfter)
// or been kept back (HoldBefore).
func (p *Binlog) Held() <-chan Event { return p.held }

// Release lets events pass again and forgets the hook and an event that was not taken from
// Held. Connections that were held go on with what was kept back.
func (p *Binlog) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = nil
	if p.holding != nil {
		close(p.holding)
		p.holding = nil
	}
	select {
	case <-p.held:
	default:
	}
}

// Restart counts events from 1 again.
func (p *Binlog) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n = 0
}

// Events returns how many events have been counted.
func (p *Binlog) Events() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// Dumps returns how many binlog dumps clients have asked for.
func (p *Binlog) Dumps() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns
}

// dumpStarts gives a dump connection its number.
func (p *Binlog) dumpStarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns++
	return p.conns
}

// judge counts an event and asks the hook. It fails if the connection is closed: what is still
// on the way to a client that is gone must not count after a Reset.
func (p *Binlog) judge(ctx context.Context, e *Event) (Verdict, error) {
	p.mu.Lock()
	if err := ctx.Err(); err != nil {
		p.mu.Unlock()
		return HoldBefore, err
	}
	p.n++
	e.N = p.n
	hook := p.hook
	p.mu.Unlock()
	if hook == nil {
		return Deliver, nil
	}
	return hook(*e), nil
}

// hold keeps back all events from here on, at event e unless another was first.
func (p *Binlog) hold(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holding != nil {
		return
	}
	p.holding = make(chan struct{})
	select {
	case p.held <- e:
	default: // an older one was not taken
	}
}

// await returns when events may pass. If it has to wait, it calls flush first.
func (p *Binlog) await(ctx context.Context, flush func() error) error {
	for {
		p.mu.Lock()
		holding := p.holding
		p.mu.Unlock()
		if holding == nil {
			return ctx.Err()
		}
		if err := flush(); err != nil {
			return err
		}
		select {
		case <-holding:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// parseEvent reads an event's header, of 19 bytes.
func parseEvent(b []byte) Event {
	return Event{
		Timestamp: binary.LittleEndian.Uint32(b),
		Type:      b[4],
		ServerID:  binary.LittleEndian.Uint32(b[5:]),
		Size:      binary.LittleEndian.Uint32(b[9:]),
		LogPos:    binary.LittleEndian.Uint32(b[13:]),
		Flags:     binary.LittleEndian.Uint16(b[17:]),
	}
}
