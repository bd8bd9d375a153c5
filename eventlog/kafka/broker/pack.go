package broker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/pierrec/lz4/v4"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
)

// packer makes batches. It keeps its memory from one to the next, and belongs to one goroutine at a time.
type packer struct {
	plain []byte
	lz4   lz4.Compressor
}

// pack appends records to b as a batch of the format that unpack reads. It shares no memory with them.
func (p *packer) pack(b []byte, records []Record, compression kafka.Compression) ([]byte, error) {
	now := time.Now()
	first, last := timeOf(records[0], now), int64(0)
	p.plain = p.plain[:0]
	for i, r := range records {
		at := timeOf(r, now)
		last = max(last, at)
		p.plain = appendRecord(p.plain, r, at-first, int64(i))
	}
	size := len(p.plain)
	if compression != compress.None {
		size = size/3 + min(size, lz4Block) + 1<<10 // as a rule
	}
	start := len(b)
	b = grow(b, batchHead+batchFixed+size)
	b = b[:start+batchHead+batchFixed]
	clear(b[start:])
	head := b[start+batchHead:]
	binary.BigEndian.PutUint32(head, math.MaxUint32) // the leader's epoch: the broker writes it
	head[4] = 2                                      // format
	binary.BigEndian.PutUint16(head[9:], uint16(compression))
	binary.BigEndian.PutUint32(head[11:], uint32(len(records)-1))
	binary.BigEndian.PutUint64(head[15:], uint64(first))
	binary.BigEndian.PutUint64(head[23:], uint64(last))
	binary.BigEndian.PutUint64(head[31:], math.MaxUint64) // no producer: its id,
	binary.BigEndian.PutUint16(head[39:], math.MaxUint16) // epoch
	binary.BigEndian.PutUint32(head[41:], math.MaxUint32) // and sequence are -1
	binary.BigEndian.PutUint32(head[45:], uint32(len(records)))
	b, err := p.appendCompressed(b, compression)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(b[start+8:], uint32(len(b)-start-batchHead))
	head = b[start+batchHead:]
	binary.BigEndian.PutUint32(head[5:], crc32.Checksum(head[batchSummed:], crc32.MakeTable(crc32.Castagnoli)))
	if cap(p.plain) > keptPlain {
		p.plain = nil
	}
	return b, nil
}

// timeOf returns a record's time in milliseconds.
func timeOf(r Record, now time.Time) int64 {
	if r.Time.IsZero() {
		return now.UnixMilli()
	}
	return r.Time.UnixMilli()
}

// keptPlain bounds the memory that a packer keeps.
const keptPlain = 2 << 20

// appendRecord appends a record of a batch: https://kafka.apache.org/documentation/#record.
func appendRecord(b []byte, r Record, time, offset int64) []byte {
	size := 1 + varintLen(time) + varintLen(offset) + nullableLen(r.Key) + nullableLen(r.Value) + 1
	b = binary.AppendVarint(b, int64(size))
	b = append(b, 0) // attributes: none are in use
	b = binary.AppendVarint(b, time)
	b = binary.AppendVarint(b, offset)
	b = appendNullable(b, r.Key)
	b = appendNullable(b, r.Value)
	return append(b, 0) // no headers
}

func varintLen(v int64) int {
	var b [binary.MaxVarintLen64]byte
	return binary.PutVarint(b[:], v)
}

func nullableLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

// appendNullable appends bytes with their length before them. It keeps nil and empty apart: nil is Kafka's null, a
// tombstone in a compacted topic.
func appendNullable(b, p []byte) []byte {
	if p == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(p))), p...)
}

// appendCompressed appends what p holds plainly, compressed.
func (p *packer) appendCompressed(b []byte, compression kafka.Compression) ([]byte, error) {
	switch compression {
	case compress.None:
		return append(b, p.plain...), nil
	case compress.Lz4:
		return p.appendLz4(b)
	}
	codec := compression.Codec()
	if codec == nil {
		return nil, fmt.Errorf("compression %d is not known", compression)
	}
	buf := bytes.NewBuffer(b)
	w := codec.NewWriter(buf)
	_, err := w.Write(p.plain)
	if closed := w.Close(); err == nil {
		err = closed
	}
	return buf.Bytes(), err
}

// The frame of lz4 that Java's clients write: blocks of 64 KiB that can be unpacked each by itself, without checksums,
// for a batch has one. See https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md.
const (
	lz4Block = 64 << 10
	// lz4Head is the magic number, the flags (version 1, independent blocks), the size of blocks (4: 64 KiB), and the
	// second byte of the xxHash-32 of these two.
	lz4Head  = "\x04\x22\x4d\x18\x60\x40\x82"
	lz4End   = "\x00\x00\x00\x00"
	lz4Plain = 1 << 31 // in the size of a block: it is not compressed
)

func (p *packer) appendLz4(b []byte) ([]byte, error) {
	b = append(b, lz4Head...)
	for rest := p.plain; len(rest) > 0; {
		block := rest[:min(len(rest), lz4Block)]
		rest = rest[len(block):]
		head := len(b)
		b = append(grow(b, 4+lz4.CompressBlockBound(len(block))), 0, 0, 0, 0)
		// What does not become smaller, to which there would be no room, is stored as it is.
		n, err := p.lz4.CompressBlock(block, b[len(b):cap(b)])
		if err != nil {
			return nil, fmt.Errorf("lz4: %w", err)
		}
		if n == 0 || n >= len(block) {
			binary.LittleEndian.PutUint32(b[head:], uint32(len(block))|lz4Plain)
			b = append(b, block...)
			continue
		}
		binary.LittleEndian.PutUint32(b[head:], uint32(n))
		b = b[:len(b)+n]
	}
	return append(b, lz4End...), nil
}

// grow returns b with room for n more bytes.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return append(make([]byte, 0, 2*cap(b)+n), b...)
}
