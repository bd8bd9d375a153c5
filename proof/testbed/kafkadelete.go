package testbed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// DeleteRecords deletes the records of a partition below an offset (-1: all), as retention would: the
// log starts there afterwards.
func (c *KafkaCluster) DeleteRecords(t testing.TB, topic string, partition int, before int64) {
	t.Helper()
	what := fmt.Sprintf("delete the records of %s/%d below %d", topic, partition, before)
	c.admin(t, what, func(ctx context.Context, _ *kafka.Client) error {
		// A leader that has just changed is asked for again, by a client that knows nothing from before.
		return poll(ctx, func() error {
			return c.request(ctx, func(ctx context.Context, k *kafka.Client) error {
				request := &deleteRecords{topic: topic, partition: int32(partition), before: before}
				res, err := k.Transport.RoundTrip(ctx, k.Addr, request)
				if err != nil {
					return err
				}
				if code := res.(*deletedRecords).code; code != 0 {
					return code
				}
				return nil
			})
		})
	})
}

// deleteRecords is a request that the library does not have, and for which Kafka's own tool takes a second of the
// processor. See https://kafka.apache.org/protocol#The_Messages_DeleteRecords.
type deleteRecords struct {
	topic     string
	partition int32
	before    int64
}

// deletedRecords is the answer.
type deletedRecords struct{ code kafka.Error }

// ApiKey implements protocol.Message.
func (*deleteRecords) ApiKey() protocol.ApiKey { return protocol.DeleteRecords }

// ApiKey implements protocol.Message.
func (*deletedRecords) ApiKey() protocol.ApiKey { return protocol.DeleteRecords }

// Required says that RawExchange is used.
func (*deleteRecords) Required(map[protocol.ApiKey]int16) bool { return true }

// Broker returns the leader of the partition.
func (d *deleteRecords) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	like := fetch.Request{Topics: []fetch.RequestTopic{{
		Topic: d.topic, Partitions: []fetch.RequestPartition{{Partition: d.partition}},
	}}}
	return like.Broker(cluster)
}

// RawExchange sends the request, in version 1, and reads the answer.
func (d *deleteRecords) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	const correlation = 1
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(protocol.DeleteRecords)) // the size comes in the end
	b = binary.BigEndian.AppendUint16(b, 1)
	b = binary.BigEndian.AppendUint32(b, correlation)
	b = append(b, 0xff, 0xff) // no client id
	b = binary.BigEndian.AppendUint32(b, 1)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(d.topic))), d.topic...)
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, uint32(d.partition))
	b = binary.BigEndian.AppendUint64(b, uint64(d.before))
	b = binary.BigEndian.AppendUint32(b, uint32(kafkaTimeout.Milliseconds()))
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	if _, err := rw.Write(b); err != nil {
		return nil, err
	}
	// Size, correlation, throttle time; one topic with its name; one partition: its number, its new start, and the code.
	answer := make([]byte, 4+4+4+4+2+len(d.topic)+4+4+8+2)
	if _, err := io.ReadFull(rw, answer); err != nil {
		return nil, err
	}
	size, id := binary.BigEndian.Uint32(answer), binary.BigEndian.Uint32(answer[4:])
	if int(size) != len(answer)-4 || id != correlation {
		return nil, errors.New("the answer is not to the question")
	}
	return &deletedRecords{kafka.Error(binary.BigEndian.Uint16(answer[len(answer)-2:]))}, nil
}
