package binlog

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"io"
)

const (
	// maxEvent bounds what a compressed part may claim to unfold to.
	// Source: MySQL's binlog_event.h (max_log_event_size); MariaDB's slave_max_allowed_packet has the same maximum.
	maxEvent = 1 << 30
	// keepBuffer is how much of a grown buffer is kept for the next event.
	keepBuffer = 1 << 20
	// readStep is how much is read ahead into a buffer whose final size is only claimed.
	readStep = 64 << 10
)

// inflater unfolds what MariaDB compresses with zlib, in buffers that are used again. Zero value: ready.
type inflater struct {
	src  bytes.Reader
	zlib io.ReadCloser
	raw  io.ReadCloser
	buf  []byte
}

// block unfolds a compressed QUERY or the rows of a compressed rows event: a byte with the algorithm (only zlib, 0, is
// known) and the length of the length, the length, the highest byte first, and the data. What it returns is valid
// until the next call.
// Source: MariaDB Knowledge Base, "QUERY_COMPRESSED_EVENT".
func (f *inflater) block(t Type, b []byte) ([]byte, error) {
	c := cursor{b: b}
	head := c.u8()
	if head&0xf0 != 0x80 {
		return nil, damaged(t, "unknown compression %#x", head)
	}
	size, ok := bigEndian(c.bytes(int(head & 7)))
	if c.bad || !ok || size > maxEvent {
		return nil, damaged(t, "truncated, or more than 1 GiB")
	}
	if cap(f.buf) > keepBuffer {
		f.buf = nil
	}
	var err error
	f.buf, err = f.unfold(f.buf[:0], c.rest(), int(size), false)
	if err != nil {
		return nil, damaged(t, "%v", err)
	}
	return f.buf, nil
}

// column appends to dst a value of a COMPRESSED column. The first byte has the algorithm in its high half (0: none, 8:
// zlib); for zlib, the low half has the length of the length, and a bit that says that there is no zlib header.
// Source: MariaDB's field_comp.cc.
func (f *inflater) column(dst, b []byte) ([]byte, bool) {
	if len(b) == 0 { // an empty string is stored as nothing
		return dst, true
	}
	head := b[0]
	switch head >> 4 {
	case 0:
		return append(dst, b[1:]...), true
	case 8:
		c := cursor{b: b[1:]}
		size, ok := bigEndian(c.bytes(int(head & 7)))
		if c.bad || !ok || size > maxEvent {
			return dst, false
		}
		out, err := f.unfold(dst, c.rest(), int(size), head&8 != 0)
		return out, err == nil
	}
	return dst, false
}

// unfold appends the size bytes that src unfolds to. It allocates as they come, not as they are claimed.
func (f *inflater) unfold(dst, src []byte, size int, raw bool) ([]byte, error) {
	r, err := f.reader(src, raw)
	if err != nil {
		return dst, err
	}
	if dst, err = readSteps(r, dst, size); err != nil {
		return dst, err
	}
	// What follows must be the end: it also checks zlib's own checksum.
	var more [1]byte
	if n, err := r.Read(more[:]); n != 0 || err != io.EOF {
		return dst, io.ErrUnexpectedEOF
	}
	return dst, nil
}

func (f *inflater) reader(src []byte, raw bool) (io.Reader, error) {
	f.src.Reset(src)
	if raw {
		if f.raw == nil {
			f.raw = flate.NewReader(&f.src)
			return f.raw, nil
		}
		return f.raw, f.raw.(flate.Resetter).Reset(&f.src, nil)
	}
	if f.zlib == nil {
		var err error
		f.zlib, err = zlib.NewReader(&f.src)
		if err != nil {
			f.zlib = nil
		}
		return f.zlib, err
	}
	return f.zlib, f.zlib.(zlib.Resetter).Reset(&f.src, nil)
}

// readSteps appends size bytes of r to dst in steps, so that a claimed size alone allocates little.
func readSteps(r io.Reader, dst []byte, size int) ([]byte, error) {
	for size > 0 {
		step := min(size, readStep)
		n := len(dst)
		if cap(dst)-n < step {
			dst = append(dst, make([]byte, step)...)[:n]
		}
		m, err := io.ReadFull(r, dst[n:n+step])
		dst = dst[:n+m]
		if err != nil {
			return dst, err
		}
		size -= step
	}
	return dst, nil
}

// bigEndian reads an unsigned integer of 1 to 8 bytes, the highest first.
func bigEndian(b []byte) (uint64, bool) {
	var v uint64
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v, len(b) > 0
}
