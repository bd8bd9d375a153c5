package broker

import (
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// fetchVersion is the version of the fetch request that we speak: brokers have known it since 2.3.
const fetchVersion = 11

// fetch is a request for the records of some partitions, which one broker leads, that reads its answer itself. The
// library's own does not say how far the batches of an answer reach, so that one that ends in a control batch, or that
// compaction has emptied, would be fetched forever; it hides a batch whose checksum is wrong after the one before;
// and it copies more. See https://kafka.apache.org/protocol#The_Messages_Fetch.
type fetch struct {
	topic    string
	from     []FetchFrom
	maxBytes int32
	wait     time.Duration
	clientID string
	version  int16
}

// fetched is the answer, with what it says of each partition in the order of the request.
type fetched struct {
	throttle time.Duration
	parts    []stored
	// withheld: it speaks of no partition, since a quota is used up.
	withheld bool
}

// stored is what a partition holds.
type stored struct {
	code          kafka.Error
	highWatermark int64
	logStart      int64
	batches       []byte
}

// ApiKey returns the number of Fetch.
func (*fetch) ApiKey() protocol.ApiKey { return protocol.Fetch }

// ApiKey returns the number of Fetch.
func (*fetched) ApiKey() protocol.ApiKey { return protocol.Fetch }

// Prepare gets the version that both sides know.
func (f *fetch) Prepare(version int16) { f.version = version }

// Required says that RawExchange is used.
func (*fetch) Required(map[protocol.ApiKey]int16) bool { return true }

// Broker returns the leader of the first partition. Of the others it refuses, one by one, those that it has no replica
// of.
func (f *fetch) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	return leader(cluster, f.topic, int32(f.from[0].Partition))
}

// RawExchange sends the request and reads the answer.
func (f *fetch) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if f.version < fetchVersion {
		return nil, saidNo{
			kafka.UnsupportedVersion,
			fmt.Sprintf("the broker knows version %d of fetch requests, not %d", f.version, fetchVersion),
		}
	}
	w := newRequest(protocol.Fetch, fetchVersion, f.clientID, len(f.topic)+32*len(f.from))
	w.i32(-1) // replica id: a consumer
	w.i32(int32(f.wait.Milliseconds()))
	w.i32(1) // min bytes
	w.i32(f.maxBytes)
	w.b = append(w.b, 0) // read uncommitted: a foreign open transaction must not hold us up
	w.i32(0)             // no fetch session: id 0,
	w.i32(-1)            // epoch -1
	w.i32(1)             // one topic
	w.str(f.topic)
	w.i32(int32(len(f.from)))
	for _, p := range f.from {
		w.i32(int32(p.Partition))
		w.i32(-1) // the leader's epoch: whichever
		w.i64(p.Offset)
		w.i64(-1) // log start offset: followers only
		w.i32(int32(p.MaxBytes))
	}
	w.i32(0)  // forgotten topics
	w.str("") // rack
	answer, err := exchange(rw, w)
	if err != nil {
		return nil, err
	}
	return parseFetched(answer, f.from)
}

// parseFetched reads the answer up to the batches. A partition that it does not speak of has an error.
func parseFetched(answer []byte, from []FetchFrom) (*fetched, error) {
	r := reader{b: answer}
	f := &fetched{throttle: time.Duration(r.i32()) * time.Millisecond, parts: make([]stored, len(from))}
	whole := kafka.Error(r.i16())
	f.withheld = whole == 0 && f.throttle > 0
	if whole == 0 {
		whole = kafka.Unknown
	}
	for i := range f.parts {
		f.parts[i].code = whole
	}
	r.i32() // session
	asked := order{partition: func(i int) int32 { return int32(from[i].Partition) }, len: len(from)}
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
			f.withheld = false
			if i := asked.find(index); i >= 0 {
				f.parts[i] = stored{kafka.Error(code), high, start, batches}
			}
		}
	}
	if r.failed {
		return nil, errShort
	}
	return f, nil
}
