package binlog

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/freshet/freshet/event"
)

// Checksum is the algorithm of the checksums at the end of events.
type Checksum uint8

// The algorithms of checksums. Any other one is refused.
const (
	ChecksumNone  Checksum = 0
	ChecksumCRC32 Checksum = 1

	// checksumUndefined is what a server writes that does not know what it forwards: no checksums.
	checksumUndefined Checksum = 255
)

const checksumSize = 4

// Format is what a FORMAT_DESCRIPTION event says of the events that follow it.
type Format struct {
	// ServerVersion is the version of the server that wrote the binlog file, as it prints it.
	ServerVersion string
	Flavor        event.Flavor
	Checksum      Checksum
	// Created is when the file was made at a start of the server, in seconds since 1970; 0 for a file that
	// continues another.
	Created uint32
	// shortIDs: table ids have 4 bytes, not 6 (MySQL before 5.1.4 and what it replicated).
	shortIDs bool
}

// parseFormat reads the body of a FORMAT_DESCRIPTION, which ends with its own checksum where the server knows
// checksums, whether they are on or not. Source: MySQL's control_events.h (Format_description_event).
func parseFormat(body []byte) (*Format, error) {
	c := cursor{b: body}
	version := c.u16()
	server := c.bytes(50)
	f := &Format{Created: c.u32()}
	headerLen := c.u8()
	if c.bad {
		return nil, damaged(TypeFormatDescription, "truncated")
	}
	if version != 4 || headerLen != HeaderSize {
		return nil, damaged(TypeFormatDescription,
			"binlog version %d with headers of %d bytes; only version 4 with %d is known",
			version, headerLen, HeaderSize)
	}
	if i := bytes.IndexByte(server, 0); i >= 0 {
		server = server[:i]
	}
	f.ServerVersion = string(server)
	f.Flavor = event.MySQL
	if strings.Contains(strings.ToLower(f.ServerVersion), "mariadb") {
		f.Flavor = event.MariaDB
	}
	headers := c.rest()
	if knowsChecksums(f.ServerVersion, f.Flavor) {
		n := len(headers) - 1 - checksumSize
		if n < 0 {
			return nil, damaged(TypeFormatDescription, "truncated")
		}
		f.Checksum = Checksum(headers[n])
		headers = headers[:n]
	}
	switch f.Checksum {
	case ChecksumNone, ChecksumCRC32:
	case checksumUndefined:
		f.Checksum = ChecksumNone
	default:
		return nil, damaged(TypeFormatDescription, "unknown checksum algorithm %d", f.Checksum)
	}
	if i := int(TypeTableMap) - 1; i < len(headers) {
		f.shortIDs = headers[i] == 6
	}
	return f, nil
}

// knowsChecksums reports whether a server of this version ends its FORMAT_DESCRIPTION with the checksum algorithm.
// Source: MySQL 5.6.1 and MariaDB 5.3.0 introduced checksums.
func knowsChecksums(version string, flavor event.Flavor) bool {
	var v [3]int
	for i, part := range strings.SplitN(version, ".", 3) {
		digits := part
		if j := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' }); j >= 0 {
			digits = part[:j]
		}
		v[i], _ = strconv.Atoi(digits) // no digits, no number: an ancient version
	}
	first := [3]int{5, 6, 1}
	if flavor == event.MariaDB {
		first = [3]int{5, 3, 0}
	}
	for i := range v {
		if v[i] != first[i] {
			return v[i] > first[i]
		}
	}
	return true
}

// checksummer computes CRC32s. Zero value: ready.
type checksummer struct{ block [smallEvent]byte }

const (
	// smallEvent is up to how many bytes an event is put into whole blocks for its checksum.
	smallEvent = 512
	// crcBlock is what processors add to a CRC32 at once, and crcLeast the least that package crc32 gives them.
	crcBlock, crcLeast = 16, 64
)

// right reports whether the event ends with the right CRC32.
func (s *checksummer) right(ev []byte) bool {
	n := len(ev) - checksumSize
	return n >= HeaderSize && s.sum(ev[:n]) == binary.LittleEndian.Uint32(ev[n:])
}

// sum returns the CRC32 of at least four bytes. What is left over of whole blocks costs package crc32 as much as the
// rest of a small event, of which a small transaction has five. So zeros are put before it: while the register of a CRC
// is zero they do not change it. Its first value, all ones, is the same as inverting the first four bytes; Update
// inverts what it is given, and begins with zero.
func (s *checksummer) sum(p []byte) uint32 {
	if len(p) > smallEvent {
		return crc32.ChecksumIEEE(p)
	}
	b := s.block[:max((len(p)+crcBlock-1)&^(crcBlock-1), crcLeast)]
	zeros := len(b) - len(p)
	clear(b[:zeros])
	copy(b[zeros:], p)
	first := b[zeros : zeros+4]
	binary.LittleEndian.PutUint32(first, ^binary.LittleEndian.Uint32(first))
	return crc32.Update(^uint32(0), crc32.IEEETable, b)
}
