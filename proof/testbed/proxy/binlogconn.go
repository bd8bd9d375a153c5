package proxy

import (
	"bytes"
	"context"
	"sync/atomic"
)

// The commands of MySQL's protocol that matter here.
const (
	comQuery          = 0x03
	comBinlogDump     = 0x12
	comBinlogDumpGTID = 0x1e
)

const (
	sslRequest   = 32 // the length of the handshake packet that only asks for TLS
	packetHeader = 4
	maxPacket    = 1<<24 - 1 // a packet this long goes on in the next
	eventHeader  = 19
)

// binlogConn is one connection through the proxy.
type binlogConn struct {
	proxy *Binlog

	// Set by the direction to the server before it forwards the command; the other direction
	// sees the answer only afterwards.
	dump     atomic.Int64 // the number of this dump connection; 0 until it asks for a binlog
	semiSync atomic.Bool  // events have two more bytes in front
	opaque   atomic.Bool  // the connection has changed to TLS

	up   framer
	down framer

	// Of the direction to the client.
	buf    []byte
	connN  int
	heldAt *Event // the event after which the stream is held, while it is being delivered
}

// framer follows the packets in a stream of bytes that comes in pieces.
type framer struct {
	limit     int    // a packet this long goes on in the next
	head      []byte // the start of a packet, while it is too short to judge
	rest      int    // bytes of the packet that are still to come
	continued bool   // the next packet belongs to the one before
}

// take cuts from b the next piece that can be judged: the first bytes of a packet, at least
// want of its payload if it has so many, or the rest of one. first says which. nil means that
// more bytes are needed; they are kept.
func (f *framer) take(b []byte, want int) (piece, remaining []byte, first bool) {
	if f.rest > 0 {
		n := min(f.rest, len(b))
		f.rest -= n
		return b[:n], b[n:], false
	}
	if len(f.head) > 0 {
		b = append(f.head, b...)
		f.head = nil
	}
	if len(b) < packetHeader {
		f.head = bytes.Clone(b)
		return nil, nil, false
	}
	size := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	if need := packetHeader + min(want, size); len(b) < need {
		f.head = bytes.Clone(b)
		return nil, nil, false
	}
	n := min(packetHeader+size, len(b))
	f.rest = packetHeader + size - n
	first = !f.continued
	f.continued = size == f.limit
	return b[:n], b[n:], first
}

// binlogToServer is the direction to the server of a connection.
type binlogToServer binlogConn

// wantCommand is how many bytes of a command are looked at: enough for the statement that
// asks for semi-sync.
const wantCommand = 128

// pass forwards everything and notes what the client asks for.
func (c *binlogToServer) pass(_ context.Context, b []byte, out gated) error {
	for len(b) > 0 && !c.opaque.Load() {
		piece, rest, first := c.up.take(b, wantCommand)
		b = rest
		if len(piece) == 0 {
			continue
		}
		if first && len(piece) > packetHeader {
			(*binlogConn)(c).request(piece[3], piece[packetHeader:])
		}
		if _, err := out.Write(piece); err != nil {
			return err
		}
	}
	if len(b) == 0 {
		return nil
	}
	_, err := out.Write(b)
	return err
}

// request looks at the first bytes of what the client sends.
func (c *binlogConn) request(sequence byte, payload []byte) {
	switch {
	case sequence == 1 && len(payload) == sslRequest:
		c.opaque.Store(true)
	case sequence != 0: // a part of the handshake: commands start with number 0
	case payload[0] == comQuery:
		c.dump.Store(0)
		text := bytes.ToLower(payload[1:])
		if bytes.HasPrefix(text, []byte("set ")) &&
			(bytes.Contains(text, []byte("@rpl_semi_sync_slave")) || bytes.Contains(text, []byte("@rpl_semi_sync_replica"))) {
			c.semiSync.Store(true)
		}
	case payload[0] == comBinlogDump || payload[0] == comBinlogDumpGTID:
		c.dump.Store(int64(c.proxy.dumpStarts()))
	}
}

// binlogToClient is the direction to the client of a connection.
type binlogToClient binlogConn

// pass forwards everything before the dump, and then event by event as the hook says. Pieces
// that nothing holds up are written together.
func (c *binlogToClient) pass(ctx context.Context, b []byte, out gated) error {
	conn := (*binlogConn)(c)
	if c.opaque.Load() && len(c.down.head) == 0 {
		_, err := out.Write(b)
		return err
	}
	batch := batch{out: out, buf: c.buf[:0]}
	defer func() { c.buf = batch.buf }()
	for len(b) > 0 {
		piece, rest, first := c.down.take(b, 3+eventHeader)
		b = rest
		if len(piece) == 0 {
			continue
		}
		if c.dump.Load() == 0 {
			batch.add(piece)
			continue
		}
		if err := conn.deliver(ctx, piece, first, &batch); err != nil {
			return err
		}
	}
	return batch.flush()
}

// deliver passes one piece of a dump.
func (c *binlogConn) deliver(ctx context.Context, piece []byte, first bool, batch *batch) error {
	if first {
		if err := c.judge(ctx, piece[packetHeader:], batch); err != nil {
			return err
		}
	}
	batch.add(piece)
	if c.heldAt == nil || c.down.rest > 0 || c.down.continued {
		return nil
	}
	err := batch.flush() // what is reported as held has been delivered
	c.proxy.hold(*c.heldAt)
	c.heldAt = nil
	return err
}

// judge decides on the packet that starts with these bytes, and returns when it may pass.
func (c *binlogConn) judge(ctx context.Context, payload []byte, batch *batch) error {
	if err := c.proxy.await(ctx, batch.flush); err != nil {
		return err
	}
	e, ok := c.event(payload)
	if !ok {
		return nil
	}
	c.connN++
	e.Conn, e.ConnN = int(c.dump.Load()), c.connN
	verdict, err := c.proxy.judge(ctx, &e)
	if err != nil {
		return err
	}
	switch verdict {
	case HoldAfter:
		c.heldAt = &e
	case HoldBefore:
		if err := batch.flush(); err != nil {
			return err
		}
		c.proxy.hold(e)
		return c.proxy.await(ctx, batch.flush)
	}
	return nil
}

// event reads the header of the event in a packet; false if it is none that counts.
func (c *binlogConn) event(payload []byte) (Event, bool) {
	skip := 1
	if c.semiSync.Load() {
		skip = 3
	}
	if len(payload) < skip+eventHeader || payload[0] != 0 {
		return Event{}, false
	}
	e := parseEvent(payload[skip:])
	return e, e.Type != heartbeat && e.Type != heartbeatV2
}

// batch collects pieces, to write them together.
type batch struct {
	out gated
	buf []byte
}

func (b *batch) add(piece []byte) { b.buf = append(b.buf, piece...) }

func (b *batch) flush() error {
	if len(b.buf) == 0 {
		return nil
	}
	_, err := b.out.Write(b.buf)
	b.buf = b.buf[:0]
	return err
}
