package binlog

import "github.com/freshet/freshet/event"

// Checksum is the algorithm of the checksums at the end of events.
type Checksum uint8

// The algorithms of checksums. Any other one is refused.
const (
	ChecksumNone  Checksum = 0
	ChecksumCRC32 Checksum = 1
)

// Format is what a FORMAT_DESCRIPTION event says of the events that follow it.
type Format struct {
	// ServerVersion is the version of the server that wrote the binlog file, as it prints it.
	ServerVersion string
	Flavor        event.Flavor
	Checksum      Checksum
	// Created is when the file was made at a start of the server, in seconds since 1970; 0 for a file that
	// continues another.
	Created uint32
	// headers are the lengths of the post-headers by type; 0 where the server does not name the type.
	headers [256]uint8
}
