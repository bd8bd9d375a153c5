package binlog

// HeaderSize is the length of an event's header in bytes.
const HeaderSize = 19

// Flags of an event's header.
// Source: MySQL's binlog_event.h (LOG_EVENT_*_F).
const (
	// FlagArtificial marks an event that is not in the binlog file: the sender made it up.
	FlagArtificial uint16 = 0x20
	// FlagIgnorable marks an event that a reader who does not know its type may ignore.
	FlagIgnorable uint16 = 0x80
)

// Header is the beginning of every event.
type Header struct {
	// Timestamp is in seconds since 1970; 0 in artificial events.
	Timestamp uint32
	// ServerID is the server_id of the server where the event was first written.
	ServerID uint32
	// Size is the length of the whole event in bytes, header and checksum included.
	Size uint32
	// LogPos is the position of the next event in the binlog file, modulo 4 GiB. 0 in artificial events, inside a
	// TRANSACTION_PAYLOAD, and inside transactions of MariaDB 11.4 and later.
	LogPos uint32
	Flags  uint16
	Type   Type
}
