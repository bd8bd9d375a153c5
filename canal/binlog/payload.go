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

// payload unfolds TRANSACTION_PAYLOADs with one decoder and one buffer. Zero value: ready.
type payload struct {
	src  bytes.Reader
	zstd *zstd.Decoder
	buf  []byte
	head [HeaderSize]byte
	open bool // while events of one are handed out
	big  bool // the decoder has become too large to keep
}

// Payload takes the body of a TRANSACTION_PAYLOAD apart and calls each for every event in it, one after the other,
// without gathering them. Header and body are valid only during the call. An error of each ends it and is returned
// as it is.
func (d *Decoder) Payload(body []byte, each func(h Header, body []byte) error) error {
	p := &d.payload
	if p.open {
		return damaged(TypeTransactionPayload, "within another")
	}
	r, size, err := p.begin(body)
	if err != nil {
		return err
	}
	p.open = true
	defer p.end()
	if cap(p.buf) > keepBuffer {
		p.buf = nil
	}
	for {
		switch n, err := io.ReadFull(r, p.head[:]); {
		case err == io.EOF && (size == 0 || size == unknownSize):
			return nil
		case err != nil:
			return damaged(TypeTransactionPayload, "after %d bytes of an event: %v", n, err)
		}
		h, err := p.read(r, &size)
		if err != nil {
			return err
		}
		if err := each(h, p.buf[HeaderSize:]); err != nil {
			return err
		}
	}
}

const unknownSize = ^uint64(0)

// begin reads the fields and returns a reader of the events, and their length.
func (p *payload) begin(body []byte) (io.Reader, uint64, error) {
	compression, size, unfolded := uint64(compressionZstd), unknownSize, unknownSize
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
			unfolded = v.packed()
		}
		c.bad = c.bad || v.bad
	}
	data := c.rest()
	if c.bad || (size != unknownSize && size != uint64(len(data))) {
		return nil, 0, damaged(TypeTransactionPayload, "%d bytes of payload, its header says %d", len(data), size)
	}
	p.src.Reset(data)
	switch compression {
	case compressionNone:
		return &p.src, unfolded, nil
	case compressionZstd:
	default:
		return nil, 0, damaged(TypeTransactionPayload, "unknown compression %d", compression)
	}
	var frame zstd.Header
	if err := frame.Decode(data); err != nil {
		return nil, 0, damaged(TypeTransactionPayload, "%v", err)
	}
	p.big = frame.WindowSize > keepWindow
	if p.zstd == nil {
		var err error
		p.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, 0, err
		}
	}
	if err := p.zstd.Reset(&p.src); err != nil {
		return nil, 0, damaged(TypeTransactionPayload, "%v", err)
	}
	return p.zstd, unfolded, nil
}

// end makes ready for the next one.
func (p *payload) end() {
	p.open = false
	if p.big && p.zstd != nil {
		p.zstd.Close()
		p.zstd, p.big = nil, false
	}
}

// read reads the rest of the event whose header has been read, and takes its size from left.
func (p *payload) read(r io.Reader, left *uint64) (Header, error) {
	size := uint64(binary.LittleEndian.Uint32(p.head[9:]))
	if size < HeaderSize || size > maxEvent || size > *left {
		return Header{}, damaged(TypeTransactionPayload, "an event of %d bytes in it", size)
	}
	if *left != unknownSize {
		*left -= size
	}
	var err error
	p.buf, err = readSteps(r, append(p.buf[:0], p.head[:]...), int(size)-HeaderSize)
	if err != nil {
		return Header{}, damaged(TypeTransactionPayload, "an event of %d bytes in it: %v", size, err)
	}
	return ParseHeader(p.buf)
}
