package replay

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	headerSize    = 19
	typeRotate    = 4
	typeFormat    = 15
	typeHeartbeat = 27
	// flagArtificial marks events that are in no file. Source: MySQL's binlog_event.h (LOG_EVENT_ARTIFICIAL_F).
	flagArtificial = 0x20
)

// event makes one that is in no file.
func (r *Recording) event(kind byte, position uint32, flags uint16, body []byte) []byte {
	size := headerSize + len(body)
	if r.sums {
		size += 4
	}
	b := make([]byte, headerSize, size)
	b[4] = kind
	binary.LittleEndian.PutUint32(b[5:], 1)
	binary.LittleEndian.PutUint32(b[9:], uint32(size))
	binary.LittleEndian.PutUint32(b[13:], position)
	binary.LittleEndian.PutUint16(b[17:], flags)
	return r.sum(append(b, body...))
}

// sum adds the checksum, if events have one.
func (r *Recording) sum(b []byte) []byte {
	if !r.sums {
		return b
	}
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// rotate says which file follows, and from where.
func (r *Recording) rotate(from uint64) []byte {
	return r.event(typeRotate, 0, flagArtificial, append(binary.LittleEndian.AppendUint64(nil, from), r.Name...))
}

// heartbeat says that all of the file was sent.
func (r *Recording) heartbeat() []byte {
	return r.event(typeHeartbeat, uint32(r.Size), 0, []byte(r.Name))
}

// artificial is an event without its position.
func (r *Recording) artificial(b []byte) []byte {
	out := append([]byte(nil), b...)
	binary.LittleEndian.PutUint32(out[13:], 0)
	if r.sums {
		return r.sum(out[:len(out)-4])
	}
	return out
}
