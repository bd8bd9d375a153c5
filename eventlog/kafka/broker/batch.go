package broker

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/segmentio/kafka-go/compress"
)

// The layout of a batch: https://kafka.apache.org/documentation/#recordbatch.
const (
	batchHead   = 12 // base offset and length
	batchFixed  = 49 // what the length counts before the records
	batchSummed = 9  // of these, what the checksum leaves out: leader epoch, magic, checksum

	appendTime = 1 << 3 // attribute: the time is the broker's
	control    = 1 << 5 // attribute: the records are markers of transactions

	// maxBatch is the size up to which a batch is unpacked: far more than topics allow, far less than a damaged or
	// hostile one could ask for.
	maxBatch = 256 << 20
)

// errCorrupt is what damaged batches are: [Corrupt].
var errCorrupt = errors.New("the batch is damaged")

// unpacker takes batches apart. It keeps its memory from one to the next, and belongs to one goroutine at a time.
type unpacker struct{ plain bytes.Buffer }

// unpack appends the records of an answer from an offset on to f, and moves f.Next after the batches, whatever they
// hold. A batch that the answer holds in part only is left for the next. A damaged one is an error only if no batch
// came before it; it will be first in the next answer.
func (u *unpacker) unpack(f *Fetched, answer []byte, offset int64) error {
	for first := true; len(answer) >= batchHead; first = false {
		r := reader{b: answer}
		base, size := r.i64(), int(r.i32())
		if size > len(r.b) {
			if first {
				return fmt.Errorf("%w: %d bytes of %d came", errCorrupt, len(r.b), size)
			}
			return nil
		}
		next, err := u.batch(f, r.b[:max(size, 0)], base, offset)
		if err != nil {
			if first {
				return fmt.Errorf("%w: at offset %d: %w", errCorrupt, base, err)
			}
			return nil
		}
		f.Next = max(f.Next, next)
		answer = answer[batchHead+size:]
	}
	return nil
}

// batch appends the records of a batch from an offset on, and returns the offset after the batch.
func (u *unpacker) batch(f *Fetched, b []byte, base, offset int64) (int64, error) {
	if len(b) < batchFixed {
		return 0, errors.New("it is too short")
	}
	r := reader{b: b}
	r.i32() // leader epoch
	if magic := r.take(1)[0]; magic != 2 {
		return 0, fmt.Errorf("it is in message format %d; freshet reads that of Kafka 0.11 and later, 2", magic)
	}
	if sum := uint32(r.i32()); sum != crc32.Checksum(b[batchSummed:], crc32.MakeTable(crc32.Castagnoli)) {
		return 0, errors.New("its checksum does not fit")
	}
	attributes, last := r.i16(), r.i32()
	firstTime, maxTime := r.i64(), r.i64()
	r.skip(8 + 2 + 4) // producer
	count := int(r.i32())
	next := base + int64(last) + 1
	if last < 0 || count < 0 {
		return 0, errors.New("it has a negative count")
	}
	if attributes&control != 0 || next <= offset {
		return next, nil
	}
	records := r.b
	if codec := compress.Compression(attributes & 7); codec == compress.None {
		records = bytes.Clone(records) // the answer holds other partitions', too
	} else {
		var err error
		if records, err = u.decompress(codec, records); err != nil {
			return 0, err
		}
	}
	before := len(f.Records)
	r = reader{b: records}
	for range count {
		rec, ok := record(&r, base, firstTime)
		if !ok {
			f.Records = f.Records[:before]
			return 0, errors.New("a record in it is cut off")
		}
		if attributes&appendTime != 0 {
			rec.Time = time.UnixMilli(maxTime)
		}
		if rec.Offset >= offset && rec.Offset < next {
			f.Records = append(f.Records, rec)
		}
	}
	return next, nil
}

// record takes a record off r. Its key and value lie in r's memory.
func record(r *reader, base, firstTime int64) (Record, bool) {
	size := r.varint()
	if size < 0 || size > int64(len(r.b)) {
		return Record{}, false
	}
	one := reader{b: r.take(int(size))}
	one.skip(1) // attributes: none are in use
	rec := Record{Time: time.UnixMilli(firstTime + one.varint())}
	rec.Offset = base + one.varint()
	rec.Key = one.nullable()
	rec.Value = one.nullable() // headers follow, which are nothing to us
	return rec, !one.failed
}

// nullable takes bytes with their length before them; null is nil.
func (r *reader) nullable() []byte {
	n := r.varint()
	if n < 0 || r.failed {
		return nil
	}
	if n > int64(len(r.b)) {
		r.b, r.failed = nil, true
		return nil
	}
	p := r.take(int(n))
	return p[:len(p):len(p)]
}

// decompress returns what was compressed, in memory of its own of just that size: how much it is going to be is not
// known before.
func (u *unpacker) decompress(codec compress.Compression, b []byte) ([]byte, error) {
	c := codec.Codec()
	if c == nil {
		return nil, fmt.Errorf("its compression %d is not known", codec)
	}
	d := c.NewReader(bytes.NewReader(b))
	defer func() { _ = d.Close() }()
	u.plain.Reset()
	n, err := u.plain.ReadFrom(io.LimitReader(d, maxBatch+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("its compression is damaged: %w", err)
	case n > maxBatch:
		return nil, fmt.Errorf("it holds more than %d bytes", maxBatch)
	}
	out := bytes.Clone(u.plain.Bytes())
	if u.plain.Cap() > keptPlain {
		u.plain = bytes.Buffer{}
	}
	return out, nil
}
