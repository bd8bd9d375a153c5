package binlog

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Fields before the payload of a TRANSACTION_PAYLOAD, and the algorithms.
// Source: MySQL's codecs/binary.h (Transaction_payload), compression/base.h.
const (
	payloadEnd          = 0
	payloadSize         = 1
	payloadCompression  = 2
	payloadUncompressed = 3

	compressionZstd = 0
	compressionNone = 255
)

const (
	// maxWindow is the largest window of a zstd frame that is unfolded: that of the highest level. A decoder needs that
	// much memory.
	maxWindow = 128 << 20
	// keepWindow is the largest window for which the decoder is kept: that of levels up to 19.
	keepWindow = 8 << 20
)

// Payload is a TRANSACTION_PAYLOAD that is being taken apart: one event after the other, without gathering them. A
// [Decoder] has one, with one decompressor and one buffer. It can be left at any event and continued later. Zero value:
// ready.
type Payload struct {
	src  bytes.Reader
	zstd *zstd.Decoder
	// events is where the events are read from, and left how many bytes of them there are.
	events io.Reader
	left   uint64
	buf    []byte
	head   [HeaderSize]byte
	open   bool // from begin until the last event has been taken, or Close
	big    bool // the decompressor has become too large to keep
}

// Payload begins to take the body of a TRANSACTION_PAYLOAD apart. The body must stay as it is until the last event has
// been taken, or [Payload.Close]; so long, TABLE_MAPs and rows events that the decoder is given are those of the
// payload.
func (d *Decoder) Payload(body []byte) (*Payload, error) {
	p := &d.payload
	if p.open {
		return nil, damaged(TypeTransactionPayload, "within another")
	}
	if err := p.begin(body); err != nil {
		return nil, err
	}
	if cap(p.buf) > keepBuffer {
		p.buf = nil
	}
	p.open = true
	return p, nil
}

// Next returns the next event, whose header and body are valid until the next call; [io.EOF] after the last one. An
// error closes the payload.
func (p *Payload) Next() (h Header, body []byte, err error) {
	if !p.open {
		return Header{}, nil, io.EOF
	}
	if h, err = p.read(); err != nil {
		p.Close()
		return Header{}, nil, err
	}
	return h, p.buf[HeaderSize:], nil
}

// Each calls f with each event that is left, until f fails, and closes the payload. It returns f's error, or its own.
func (p *Payload) Each(f func(h Header, body []byte) error) error {
	defer p.Close()
	for {
		h, body, err := p.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = f(h, body)
		}
		if err != nil {
			return err
		}
	}
}

// Close ends the payload, wherever it is, and frees what is too large to keep. After the last event it does nothing.
func (p *Payload) Close() {
	p.open = false
	if p.big && p.zstd != nil {
		p.zstd.Close()
		p.zstd, p.big = nil, false
	}
}

const unknownSize = ^uint64(0)

// begin reads the fields, and makes ready for the events.
func (p *Payload) begin(body []byte) error {
	compression, size := uint64(compressionZstd), unknownSize
	p.left = unknownSize
	c := cursor{b: body}
	for {
		field := c.u8()
		if field == payloadEnd || c.bad {
			break
		}
		v := cursor{b: c.bytes(c.size())}
		switch field {
		case payloadSize:
			size = v.packed()
		case payloadCompression:
			compression = v.packed()
		case payloadUncompressed:
			p.left = v.packed()
		}
		c.bad = c.bad || v.bad
	}
	data := c.rest()
	if c.bad || (size != unknownSize && size != uint64(len(data))) {
		return damaged(TypeTransactionPayload, "%d bytes of payload, its header says %d", len(data), size)
	}
	p.src.Reset(data)
	switch compression {
	case compressionNone:
		p.events = &p.src
		return nil
	case compressionZstd:
	default:
		return damaged(TypeTransactionPayload, "unknown compression %d", compression)
	}
	var frame zstd.Header
	if err := frame.Decode(data); err != nil {
		return damaged(TypeTransactionPayload, "%v", err)
	}
	p.big = frame.WindowSize > keepWindow
	if p.zstd == nil {
		var err error
		p.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return err
		}
	}
	if err := p.zstd.Reset(&p.src); err != nil {
		return damaged(TypeTransactionPayload, "%v", err)
	}
	p.events = p.zstd
	return nil
}

// read reads the next event into buf.
func (p *Payload) read() (Header, error) {
	switch n, err := io.ReadFull(p.events, p.head[:]); {
	case err == io.EOF && (p.left == 0 || p.left == unknownSize):
		return Header{}, io.EOF
	case err != nil:
		return Header{}, damaged(TypeTransactionPayload, "after %d bytes of an event: %v", n, err)
	}
	size := uint64(binary.LittleEndian.Uint32(p.head[9:]))
	if size < HeaderSize || size > maxEvent || size > p.left {
		return Header{}, damaged(TypeTransactionPayload, "an event of %d bytes in it", size)
	}
	if p.left != unknownSize {
		p.left -= size
	}
	var err error
	p.buf, err = readSteps(p.events, append(p.buf[:0], p.head[:]...), int(size)-HeaderSize)
	if err != nil {
		return Header{}, damaged(TypeTransactionPayload, "an event of %d bytes in it: %v", size, err)
	}
	return ParseHeader(p.buf)
}
