package broker

import (
	"context"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// trim is a DeleteRecords request, which the library does not have. Brokers have known version 1 since 2.0.
// See https://kafka.apache.org/protocol#The_Messages_DeleteRecords.
type trim struct {
	topic     string
	partition int32
	before    int64
	timeout   int32 // ms
	clientID  string
}

// trimmed is the answer.
type trimmed struct {
	start int64
	code  kafka.Error
}

// ApiKey returns the number of DeleteRecords.
func (*trim) ApiKey() protocol.ApiKey { return protocol.DeleteRecords }

// ApiKey returns the number of DeleteRecords.
func (*trimmed) ApiKey() protocol.ApiKey { return protocol.DeleteRecords }

// Required says that RawExchange is used.
func (*trim) Required(map[protocol.ApiKey]int16) bool { return true }

// Broker returns the leader of the partition.
func (d *trim) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	return leader(cluster, d.topic, d.partition)
}

// RawExchange sends the request and reads the answer.
func (d *trim) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	w := newRequest(protocol.DeleteRecords, 1, d.clientID, len(d.topic)+32)
	w.i32(1) // one topic
	w.str(d.topic)
	w.i32(1) // one partition
	w.i32(d.partition)
	w.i64(d.before)
	w.i32(d.timeout)
	answer, err := exchange(rw, w)
	if err != nil {
		return nil, err
	}
	r := reader{b: answer}
	r.i32() // throttled
	t := &trimmed{code: kafka.Unknown}
	for range r.count(6) {
		r.skip(int(r.i16())) // topic
		for range r.count(14) {
			index, start, code := r.i32(), r.i64(), r.i16()
			if index == d.partition {
				t.start, t.code = start, kafka.Error(code)
			}
		}
	}
	if r.failed {
		return nil, errShort
	}
	return t, nil
}

// Trim deletes the records of a partition below an offset, as retention would do one day: for topics that are kept for
// as long as it takes, and no longer. It takes the right to Delete on the topic. Records that are younger than the
// oldest segment's end leave the disk when their segment does.
func (c *Client) Trim(ctx context.Context, topic string, partition int, before int64) error {
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	msg, err := c.transport.RoundTrip(attempt, c.kafka.Addr, &trim{
		topic: topic, partition: int32(partition), before: before,
		timeout: int32(c.o.Timeout.Milliseconds() / 2), clientID: c.o.ClientID,
	})
	if err == nil {
		if code := msg.(*trimmed).code; code != 0 {
			err = code
		}
	}
	if err != nil {
		what := fmt.Sprintf("delete the records of %s/%d below offset %d", topic, partition, before)
		return c.failed(ctx, what, topic, partition, err, Need{"Delete", "topic", topic})
	}
	return nil
}
