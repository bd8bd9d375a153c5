package binlog

import (
	"math/bits"

	"github.com/freshet/freshet/event"
)

// Flags of MariaDB's GTID event.
// Source: MariaDB Knowledge Base, "GTID_EVENT".
const (
	mariaStandalone  = 1 << 0
	mariaGroupCommit = 1 << 1
	mariaDDL         = 1 << 5
	mariaPreparedXA  = 1 << 6
	mariaCompletedXA = 1 << 7
)

// ParseGTID reads the body of a GTID, GTID_TAGGED, ANONYMOUS_GTID or of MariaDB's GTID, as the header says.
func ParseGTID(h Header, body []byte) (g GTID, err error) {
	switch h.Type {
	case TypeMariaGTID:
		err = g.parseMariaDB(h, body)
	case TypeGTIDTagged:
		err = g.parseTagged(h, body)
	default:
		err = g.parse(h, body)
	}
	if err != nil {
		return GTID{}, err
	}
	return g, nil
}

// parse reads MySQL's GTID and ANONYMOUS_GTID.
// Source: MySQL's control_events.cpp (Gtid_event). MySQL 5.6 and 5.7 write less.
func (g *GTID) parse(h Header, body []byte) error {
	const (
		logicalClock  = 2
		stampSize     = 7
		ownStampFlag  = 1 << 55
		logicalLength = 16
	)
	c := cursor{b: body}
	c.skip(1) // flags: may have statements
	copy(g.GTID.UUID[:], c.bytes(16))
	g.GTID.Number = c.u64()
	if c.bad {
		return damaged(h.Type, "truncated")
	}
	if h.Type == TypeAnonymousGTID {
		g.GTID = event.GTID{}
	} else if err := checkGTID(h, g.GTID); err != nil {
		return err
	}
	if len(c.b) < 1+logicalLength+stampSize || c.u8() != logicalClock {
		return nil
	}
	c.skip(logicalLength)
	g.Committed = c.uint(stampSize)
	g.Original = g.Committed
	if g.Committed&ownStampFlag != 0 {
		g.Committed &^= ownStampFlag
		g.Original = c.uint(stampSize)
	}
	if c.bad {
		return damaged(h.Type, "truncated")
	}
	return nil
}

// checkGTID makes sure that what is read as a GTID is one: the servers number from 1 to 2^63-1.
func checkGTID(h Header, g event.GTID) error {
	if g.Number == 0 || g.Number > 1<<63-1 || (g.UUID == [16]byte{} && h.Type != TypeMariaGTID) {
		return damaged(h.Type, "not a GTID: %s", g)
	}
	return nil
}

// parseMariaDB reads MariaDB's GTID.
func (g *GTID) parseMariaDB(h Header, body []byte) error {
	c := cursor{b: body}
	g.GTID = event.GTID{Server: h.ServerID, Number: c.u64(), Domain: c.u32()}
	flags := c.u8()
	g.Standalone = flags&mariaStandalone != 0
	g.DDL = flags&mariaDDL != 0
	g.Prepared = flags&mariaPreparedXA != 0
	g.Completed = flags&mariaCompletedXA != 0
	if flags&mariaGroupCommit != 0 {
		c.skip(8)
	}
	if g.Prepared || g.Completed {
		format := c.u32()
		gtrid, bqual := int(c.u8()), int(c.u8())
		if gtrid > maxXIDPart || bqual > maxXIDPart {
			return damaged(h.Type, "an xid of %d and %d bytes; at most 64 each", gtrid, bqual)
		}
		g.XID = formatXID(format, c.bytes(gtrid), c.bytes(bqual))
	}
	if c.bad {
		return damaged(h.Type, "truncated")
	}
	return checkGTID(h, g.GTID)
}

// Fields of a GTID_TAGGED event.
// Source: MySQL's control_events.h (Gtid_event::define_fields).
const (
	taggedFlags = iota
	taggedUUID
	taggedNumber
	taggedTag
	taggedLastCommitted
	taggedSequence
	taggedCommitted
	taggedOriginal
	taggedKnown // from here on: not looked at
)

// parseTagged reads MySQL's GTID_TAGGED, which is a message in the format of mysql::serialization: a version, the
// size, the last field that must be understood, then fields that each begin with their number, in growing order; a
// field that is missing has its default.
// Source: MySQL Source Code Documentation, "Library mysql_serialization".
func (g *GTID) parseTagged(h Header, body []byte) error {
	s := serialized{cursor{b: body}}
	version, size, must := s.uint(), s.uint(), s.uint()
	if s.bad {
		return damaged(h.Type, "truncated")
	}
	// The fields that must be understood and are not looked at come after those that are: counts and versions.
	const lastKnown = 11 // commit_group_ticket
	if version != 1 || size != uint64(len(body)) || must > lastKnown+1 {
		return damaged(h.Type, "version %d, %d bytes of %d, fields to understand up to %d", version, size, len(body), must)
	}
	original := false
	for len(s.b) > 0 && !s.bad {
		field := s.uint()
		switch field {
		case taggedFlags:
			s.fixed(1, nil)
		case taggedUUID:
			s.fixed(16, g.GTID.UUID[:])
		case taggedNumber:
			g.GTID.Number = s.int()
		case taggedTag:
			g.GTID.Tag = string(s.bytes(int(min(s.uint(), 1<<16))))
		case taggedLastCommitted, taggedSequence:
			s.uint()
		case taggedCommitted:
			g.Committed = s.uint()
		case taggedOriginal:
			g.Original, original = s.uint(), true
		}
		if field >= taggedOriginal {
			break
		}
	}
	if s.bad {
		return damaged(h.Type, "truncated")
	}
	if !original {
		g.Original = g.Committed
	}
	return checkGTID(h, g.GTID)
}

// serialized reads the primitives of mysql::serialization.
type serialized struct{ cursor }

// uint reads an unsigned integer of 1 to 9 bytes: as many low one-bits as bytes follow the first, a zero bit, the
// value.
func (s *serialized) uint() uint64 {
	if len(s.b) == 0 {
		s.bad = true
		return 0
	}
	n := bits.TrailingZeros8(^s.b[0]) + 1
	if n == 9 { // all ones: the value is in the 8 bytes that follow
		s.skip(1)
		return s.u64()
	}
	return s.cursor.uint(n) >> n
}

// int reads a signed integer that is not negative; a negative one is damage.
func (s *serialized) int() uint64 {
	v := s.uint()
	if v&1 != 0 {
		s.bad = true
	}
	return v >> 1
}

// fixed reads n bytes, each of which is an unsigned integer, into dst, if that is not nil.
func (s *serialized) fixed(n int, dst []byte) {
	for i := range n {
		v := s.uint()
		if v > 0xff {
			s.bad = true
		}
		if s.bad {
			return
		}
		if dst != nil {
			dst[i] = byte(v)
		}
	}
}
