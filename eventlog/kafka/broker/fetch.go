package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// fetchVersion is the version of the fetch request that we speak: brokers have known it since 2.3.
const fetchVersion = 11

// maxAnswer is the size up to which an answer of a broker is believed. A fetch is answered with its maxBytes, or with
// one batch of whatever size the topic allows.
const maxAnswer = 1 << 30

// fetch is a request for the records of one partition that reads its answer itself. The library's own does not say
// how far the batches of an answer reach, so that one that ends in a control batch, or that compaction has emptied,
// would be fetched for ever; it hides a batch whose checksum is wrong behind the one before; and it copies more.
// See https://kafka.apache.org/protocol#The_Messages_Fetch.
type fetch struct {
	topic     string
	partition int32
	offset    int64
	maxBytes  int32
	wait      time.Duration
	clientID  string
	version   int16
}

// fetched is the answer.
type fetched struct {
	throttle      time.Duration
	code          kafka.Error
	highWatermark int64
	logStart      int64
	batches       []byte
}

// ApiKey returns the number of Fetch.
func (*fetch) ApiKey() protocol.ApiKey { return protocol.Fetch }

// ApiKey returns the number of Fetch.
func (*fetched) ApiKey() protocol.ApiKey { return protocol.Fetch }

// Prepare is told the version that both sides know.
func (f *fetch) Prepare(version int16) { f.version = version }

// Required says that RawExchange is used.
func (*fetch) Required(map[protocol.ApiKey]int16) bool { return true }

// Broker returns the leader of the partition.
func (f *fetch) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	like := fetchapi.Request{Topics: []fetchapi.RequestTopic{{
		Topic: f.topic, Partitions: []fetchapi.RequestPartition{{Partition: f.partition}},
	}}}
	return like.Broker(cluster)
}

// RawExchange sends the request and reads the answer.
func (f *fetch) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if f.version < fetchVersion {
		return nil, saidNo{kafka.UnsupportedVersion, fmt.Sprintf("the broker knows version %d of fetch requests, not %d", f.version, fetchVersion)}
	}
	if _, err := rw.Write(f.request()); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(rw, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxAnswer {
		return nil, fmt.Errorf("an answer of %d bytes is none", size)
	}
	answer := make([]byte, size)
	if _, err := io.ReadFull(rw, answer); err != nil {
		return nil, err
	}
	return parseFetched(answer, f.partition)
}

// request returns the bytes of the request.
func (f *fetch) request() []byte {
	b := make([]byte, 4, 128+len(f.topic)+len(f.clientID))
	str := func(s string) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	i32 := func(v int32) { b = binary.BigEndian.AppendUint32(b, uint32(v)) }
	i64 := func(v int64) { b = binary.BigEndian.AppendUint64(b, uint64(v)) }
	b = binary.BigEndian.AppendUint16(b, uint16(protocol.Fetch))
	b = binary.BigEndian.AppendUint16(b, fetchVersion)
	i32(correlation)
	str(f.clientID)
	i32(-1) // replica id: a consumer
	i32(int32(f.wait.Milliseconds()))
	i32(1) // min bytes
	i32(f.maxBytes)
	b = append(b, 0) // read uncommitted: a foreign open transaction must not hold us up
	i32(0)           // no fetch session: id 0,
	i32(-1)          // epoch -1
	i32(1)           // one topic
	str(f.topic)
	i32(1) // one partition
	i32(f.partition)
	i32(-1) // the leader's epoch: whichever
	i64(f.offset)
	i64(-1) // log start offset: followers only
	i32(f.maxBytes)
	i32(0)  // forgotten topics
	str("") // rack
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// correlation numbers our requests; there is never more than one under way on a connection.
const correlation = 0x66726573

var errShort = errors.New("the answer is shorter than it says")

// parseFetched reads the answer up to the batches.
func parseFetched(answer []byte, partition int32) (*fetched, error) {
	r := reader{b: answer}
	if id := r.i32(); id != correlation {
		return nil, fmt.Errorf("the answer is to request %d, not to %d", id, correlation)
	}
	f := &fetched{throttle: time.Duration(r.i32()) * time.Millisecond}
	f.code = kafka.Error(r.i16())
	r.i32() // session
	for range r.count(6) {
		r.skip(int(r.i16())) // topic
		for range r.count(38) {
			index, code := r.i32(), r.i16()
			high, _, start := r.i64(), r.i64(), r.i64()
			if aborted := r.i32(); aborted > 0 {
				r.skip(16 * int(aborted))
			}
			r.i32() // preferred replica
			size := r.i32()
			batches := r.take(max(int(size), 0))
			if index == partition {
				f.highWatermark, f.logStart, f.batches = high, start, batches
				if code != 0 {
					f.code = kafka.Error(code)
				}
			}
		}
	}
	if r.failed {
		return nil, errShort
	}
	return f, nil
}

// reader takes big-endian numbers off bytes. It fails once and for all at the end.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.b, r.failed = nil, true
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) skip(n int) { r.take(n) }

func (r *reader) i16() int16 {
	if p := r.take(2); p != nil {
		return int16(binary.BigEndian.Uint16(p))
	}
	return 0
}

func (r *reader) i32() int32 {
	if p := r.take(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

func (r *reader) i64() int64 {
	if p := r.take(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

// count reads the length of an array of things that are at least size bytes long each.
func (r *reader) count(size int) int {
	n := int(r.i32())
	if n < 0 || n > len(r.b)/size {
		r.failed = r.failed || n > 0
		return 0
	}
	return n
}

// varint reads a zigzag number.
func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.b, r.failed = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}
