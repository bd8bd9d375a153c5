package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// errShort is an answer that is not what it should be.
var errShort = errors.New("the answer is shorter than it says")

// request is a request under construction.
type request struct{ b []byte }

// newRequest begins a request with its header, version 1, with room for a body of about size bytes.
func newRequest(key protocol.ApiKey, version int16, clientID string, size int) *request {
	w := &request{b: make([]byte, 0, 128+size)}
	w.begin(key, version, clientID)
	return w
}

// begin begins a request again.
func (w *request) begin(key protocol.ApiKey, version int16, clientID string) {
	w.b = append(w.b[:0], 0, 0, 0, 0) // the size, which is known in the end
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(key))
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(version))
	w.i32(correlation)
	w.str(clientID)
}

func (w *request) i32(v int32) { w.b = binary.BigEndian.AppendUint32(w.b, uint32(v)) }

func (w *request) i64(v int64) { w.b = binary.BigEndian.AppendUint64(w.b, uint64(v)) }

func (w *request) str(s string) {
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(len(s)))
	w.b = append(w.b, s...)
}

// correlation numbers our requests; there is never more than one under way on a connection.
const correlation = 0x66726573

// maxAnswer is the size up to which an answer of a broker is believed. A fetch is answered with its maxBytes, or with
// one batch of whatever size the topic allows.
const maxAnswer = 1 << 30

// exchange sends a request and returns the answer after its header.
func exchange(rw io.ReadWriter, w *request) ([]byte, error) {
	binary.BigEndian.PutUint32(w.b, uint32(len(w.b)-4))
	if _, err := rw.Write(w.b); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(rw, head[:]); err != nil {
		return nil, err
	}
	size, id := binary.BigEndian.Uint32(head[:]), binary.BigEndian.Uint32(head[4:])
	switch {
	case id != correlation:
		return nil, fmt.Errorf("the answer is to request %d, not to %d", id, correlation)
	case size < 4 || size > maxAnswer:
		return nil, fmt.Errorf("an answer of %d bytes is none", size)
	}
	answer := make([]byte, size-4)
	_, err := io.ReadFull(rw, answer)
	return answer, err
}

// leader returns the broker that leads a partition.
func leader(cluster protocol.Cluster, topic string, partition int32) (protocol.Broker, error) {
	like := fetchapi.Request{Topics: []fetchapi.RequestTopic{{
		Topic: topic, Partitions: []fetchapi.RequestPartition{{Partition: partition}},
	}}}
	return like.Broker(cluster)
}

// order finds partitions in the order in which they were asked about, which is the order that answers mostly have.
type order struct {
	partition func(i int) int32
	len, next int
}

// find returns the place of a partition; -1: it was not asked about.
func (o *order) find(partition int32) int {
	for range o.len {
		i := o.next
		if o.next++; o.next == o.len {
			o.next = 0
		}
		if o.partition(i) == partition {
			return i
		}
	}
	return -1
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
