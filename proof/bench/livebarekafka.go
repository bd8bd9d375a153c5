package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/produce"
)

// detour is a Kafka partition on the bare reader's way from the source to Redis: what any design pays here that has an
// acknowledged record between its halves. Each command for Redis is one record, and its value goes to Redis as it is.
//
// The goroutine that makes a request also writes and reads the socket. By the library's Client it would hand each
// request to another goroutine, and wait for it.
type detour struct {
	topic   string
	in, out *protocol.Conn // one request at a time on each
	records chan []byte
	ended   <-chan struct{}
}

const (
	// gatheredMost is how many records wait at most while a request is under way; they go together in the next one.
	gatheredMost = 1024
	// fetchWait is for how long, in ms, the broker holds back an answer while there is nothing; fetchMost the most
	// bytes of one.
	fetchWait = 1000
	fetchMost = 1 << 20
)

// newDetour connects to the broker, the leader of the topic's only partition, which is empty. The connections end with
// ctx.
func newDetour(ctx context.Context, broker, topic string) (_ *detour, err error) {
	d := &detour{topic: topic, records: make(chan []byte, gatheredMost), ended: ctx.Done()}
	for _, c := range []**protocol.Conn{&d.in, &d.out} {
		tcp, err := (&net.Dialer{}).DialContext(ctx, "tcp", broker)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = tcp.Close() })
		*c = protocol.NewConn(tcp, "bench")
		// brokers of 2.3 and later know them
		(*c).SetVersions(map[protocol.ApiKey]int16{protocol.Produce: 7, protocol.Fetch: 11})
	}
	return d, nil
}

// Write takes a command, to be produced.
func (d *detour) Write(command []byte) (int, error) {
	select {
	case d.records <- bytes.Clone(command):
		return len(command), nil
	case <-d.ended:
		return 0, net.ErrClosed
	}
}

// produce sends what there is, and does so again once that is acknowledged.
func (d *detour) produce() error {
	for {
		var batch []protocol.Record
		select {
		case r := <-d.records:
			batch = append(batch, protocol.Record{Value: protocol.NewBytes(r)})
		case <-d.ended:
			return net.ErrClosed
		}
		for len(d.records) > 0 {
			batch = append(batch, protocol.Record{Value: protocol.NewBytes(<-d.records)})
		}
		answer, err := d.in.RoundTrip(&produce.Request{
			Acks: int16(kafka.RequireAll), Timeout: int32(goneWithin.Milliseconds()),
			Topics: []produce.RequestTopic{{Topic: d.topic, Partitions: []produce.RequestPartition{{
				RecordSet: protocol.RecordSet{
					Attributes: protocol.Attributes(kafka.Lz4),
					Records:    protocol.NewRecordReader(batch...),
				},
			}}}},
		})
		if err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		if code := answer.(*produce.Response).Topics[0].Partitions[0].ErrorCode; code != 0 {
			return fmt.Errorf("produce: %w", kafka.Error(code))
		}
	}
}

// deliver writes to w what comes out of the partition.
func (d *detour) deliver(w io.Writer) error {
	var commands []byte
	for next := int64(0); ; {
		answer, err := d.out.RoundTrip(&fetch.Request{
			ReplicaID: -1, MaxWaitTime: fetchWait, MinBytes: 1, MaxBytes: fetchMost, SessionEpoch: -1,
			Topics: []fetch.RequestTopic{{Topic: d.topic, Partitions: []fetch.RequestPartition{{
				CurrentLeaderEpoch: -1, FetchOffset: next, LogStartOffset: -1, PartitionMaxBytes: fetchMost,
			}}}},
		})
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		found := answer.(*fetch.Response).Topics[0].Partitions[0]
		if found.ErrorCode != 0 {
			return fmt.Errorf("fetch: %w", kafka.Error(found.ErrorCode))
		}
		if commands, next, err = commandsOf(found.RecordSet.Records, commands[:0], next); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		if _, err := w.Write(commands); err != nil {
			return err
		}
	}
}

// commandsOf appends the commands from an offset on, and returns the offset to go on from. A batch comes whole: there
// may be records before it.
func commandsOf(records protocol.RecordReader, commands []byte, from int64) (_ []byte, next int64, err error) {
	for next = from; records != nil; {
		r, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		value, err := protocol.ReadAll(r.Value)
		if err != nil {
			return nil, 0, err
		}
		if r.Offset >= next {
			commands, next = append(commands, value...), r.Offset+1
		}
	}
	return commands, next, nil
}

// liveThroughKafka is the bare reader, following the live source, with a topic of its own on the way.
func liveThroughKafka(ctx context.Context, b *benchmark) ([]*exec.Cmd, error) {
	c, err := b.kafkaCluster(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "bare")
	if err != nil {
		return nil, err
	}
	broker, topic := c.Brokers()[0], filepath.Base(dir)
	if err := makeTopic(ctx, broker, topic); err != nil {
		return nil, err
	}
	run, err := live(ctx, b)
	if err == nil {
		run[0].Args = append(run[0].Args, broker, topic)
	}
	return run, err
}

// makeTopic makes a topic of one partition, and returns when that serves.
func makeTopic(ctx context.Context, broker, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	c, err := kafka.DialContext(ctx, "tcp", broker)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}); err != nil {
		return err
	}
	for {
		err := serves(ctx, broker, topic)
		if err == nil || pause(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

func serves(ctx context.Context, broker, topic string) error {
	c, err := kafka.DialLeader(ctx, "tcp", broker, topic, 0)
	if err != nil {
		return err
	}
	_, err = c.ReadFirstOffset()
	return errors.Join(err, c.Close())
}
