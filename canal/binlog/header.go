package binlog

import (
	"encoding/binary"
	"fmt"
)

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

// ParseHeader reads the header of an event. [Decoder.Split] does it too; this is for who only steps over events.
func ParseHeader(ev []byte) (Header, error) {
	if len(ev) < HeaderSize || uint64(binary.LittleEndian.Uint32(ev[9:])) != uint64(len(ev)) {
		return Header{}, badHeader(ev)
	}
	return Header{
		Timestamp: binary.LittleEndian.Uint32(ev),
		Type:      Type(ev[4]),
		ServerID:  binary.LittleEndian.Uint32(ev[5:]),
		Size:      binary.LittleEndian.Uint32(ev[9:]),
		LogPos:    binary.LittleEndian.Uint32(ev[13:]),
		Flags:     binary.LittleEndian.Uint16(ev[17:]),
	}, nil
}

func badHeader(ev []byte) error {
	if len(ev) < HeaderSize {
		return fmt.Errorf("%w: %d bytes are less than a header", ErrDamaged, len(ev))
	}
	return damaged(Type(ev[4]), "its header says %d bytes, it has %d", binary.LittleEndian.Uint32(ev[9:]), len(ev))
}

// Ignorable returns nil if a reader of rows may pass over the event unread: its type is known to change nothing, or the
// server flagged it so. Else it returns an error that names the type: what follows the event could not be trusted.
func (h Header) Ignorable() error {
	if h.Type.Handling() == Skip || h.Flags&FlagIgnorable != 0 {
		return nil
	}
	return fmt.Errorf("unsupported binlog event %s (number %d, from server %d): it may change rows in a way that cannot "+
		"be followed",
		h.Type, uint8(h.Type), h.ServerID)
}
