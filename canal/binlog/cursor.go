package binlog

import (
	"encoding/binary"
	"fmt"
)

// damaged returns an error that wraps [ErrDamaged] and says of which event and why.
func damaged(t Type, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrDamaged, t, fmt.Sprintf(format, args...))
}

// cursor reads the fields of an event one after the other. A read beyond the end gives zeros and sets bad, so that a
// parser checks once, at its end; a loop must check as it goes.
type cursor struct {
	b   []byte
	bad bool
}

// rest returns what has not been read.
func (c *cursor) rest() []byte { return c.b }

// bytes reads n bytes; they alias the event.
func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad, c.b = true, nil
		return nil
	}
	s := c.b[:n:n]
	c.b = c.b[n:]
	return s
}

func (c *cursor) skip(n int) { c.bytes(n) }

func (c *cursor) u8() uint8 {
	s := c.bytes(1)
	if s == nil {
		return 0
	}
	return s[0]
}

func (c *cursor) u16() uint16 {
	s := c.bytes(2)
	if s == nil {
		return 0
	}
	return binary.LittleEndian.Uint16(s)
}

func (c *cursor) u32() uint32 {
	s := c.bytes(4)
	if s == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(s)
}

func (c *cursor) u64() uint64 {
	s := c.bytes(8)
	if s == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(s)
}

// uint reads a little-endian integer of n bytes, at most 8.
func (c *cursor) uint(n int) uint64 {
	var v uint64
	for i, b := range c.bytes(n) {
		v |= uint64(b) << (8 * i)
	}
	return v
}

// packed reads a length-encoded integer.
// Source: MySQL's client/server protocol, "Protocol::LengthEncodedInteger".
func (c *cursor) packed() uint64 {
	switch b := c.u8(); b {
	case 0xfc:
		return c.uint(2)
	case 0xfd:
		return c.uint(3)
	case 0xfe:
		return c.uint(8)
	case 0xfb, 0xff: // NULL and error markers: no lengths
		c.bad, c.b = true, nil
		return 0
	default:
		return uint64(b)
	}
}

// size reads a length-encoded integer that counts bytes or things of at least one byte each that follow: more than what
// is left is damage.
func (c *cursor) size() int {
	n := c.packed()
	if n > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return 0
	}
	return int(n)
}
