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

// parseFormat reads the body of a FORMAT_DESCRIPTION, which ends with its own checksum where the server knows checksums,
// whether they are on or not.
// Source: MySQL's control_events.h (Format_description_event).
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
		return nil, damaged(TypeFormatDescription, "binlog version %d with headers of %d bytes; only version 4 with %d is known",
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

// hasChecksum reports whether the event ends with the right CRC32.
func hasChecksum(ev []byte) bool {
	n := len(ev) - checksumSize
	return n >= HeaderSize && crc32.ChecksumIEEE(ev[:n]) == binary.LittleEndian.Uint32(ev[n:])
}
