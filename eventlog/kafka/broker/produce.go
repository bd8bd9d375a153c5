package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// produceVersion is the version of the produce request that we speak: brokers have known it since 2.1.
const produceVersion = 7

// produce is a request that appends a batch to each of some partitions, which one broker leads. The library's own
// writes a batch piece by piece, copies it through pages of memory that it does not keep, and has lz4 work on blocks of
// 4 MiB, which no cache holds. See https://kafka.apache.org/protocol#The_Messages_Produce.
type produce struct {
	topic      string
	partitions []int32
	request    *request
	version    int16
}

// produced is the answer, with what it says of each partition in the order of the request.
type produced struct {
	throttle time.Duration
	parts    []appended
}

// appended is what became of a batch.
type appended struct {
	code   kafka.Error
	offset int64
}

// ApiKey returns the number of Produce.
func (*produce) ApiKey() protocol.ApiKey { return protocol.Produce }

// ApiKey returns the number of Produce.
func (*produced) ApiKey() protocol.ApiKey { return protocol.Produce }

// Prepare gets the version that both sides know.
func (p *produce) Prepare(version int16) { p.version = version }

// Required says that RawExchange is used.
func (*produce) Required(map[protocol.ApiKey]int16) bool { return true }

// Broker returns the leader of the first partition. It refuses those that it does not lead, one by one.
func (p *produce) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	return leader(cluster, p.topic, p.partitions[0])
}

// RawExchange sends the request and reads the answer.
func (p *produce) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if p.version < produceVersion {
		return nil, saidNo{
			kafka.UnsupportedVersion,
			fmt.Sprintf("the broker knows version %d of produce requests, not %d", p.version, produceVersion),
		}
	}
	answer, err := exchange(rw, p.request)
	if err != nil {
		return nil, err
	}
	return parseProduced(answer, p.partitions)
}

// begin begins the request, after which come for each partition its number, the size of its batch, and the batch.
func (p *produce) begin(clientID string, timeout time.Duration) {
	w := p.request
	w.begin(protocol.Produce, produceVersion, clientID)
	w.b = binary.BigEndian.AppendUint16(w.b, math.MaxUint16) // no transaction
	w.b = binary.BigEndian.AppendUint16(w.b, math.MaxUint16) // acknowledged by all in-sync replicas
	w.i32(int32(timeout.Milliseconds()))
	w.i32(1) // one topic
	w.str(p.topic)
	w.i32(int32(len(p.partitions)))
}

// parseProduced reads the answer. What it does not speak of is no success.
func parseProduced(answer []byte, partitions []int32) (*produced, error) {
	r := reader{b: answer}
	p := &produced{parts: make([]appended, len(partitions))}
	for i := range p.parts {
		p.parts[i].code = kafka.Unknown
	}
	asked := order{partition: func(i int) int32 { return partitions[i] }, len: len(partitions)}
	for range r.count(6) {
		r.skip(int(r.i16())) // topic
		for range r.count(30) {
			index, code, offset := r.i32(), r.i16(), r.i64()
			r.skip(8 + 8) // time of appending, log start
			if i := asked.find(index); i >= 0 {
				p.parts[i] = appended{kafka.Error(code), offset}
			}
		}
	}
	p.throttle = time.Duration(r.i32()) * time.Millisecond
	if r.failed {
		return nil, errShort
	}
	return p, nil
}
