package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
)

// Options say how to reach the brokers. The zero value of a field is the default that it names.
type Options struct {
	// Brokers are host:port of some of the brokers, to find the others by. Required.
	Brokers []string
	// ClientID is what we call ourselves in the brokers' logs and quotas. Default "freshet".
	ClientID string
	// TLS encrypts the connections; nil: not.
	TLS *tls.Config
	// SASL logs in; nil: nobody logs in. See [Mechanism].
	SASL sasl.Mechanism
	// Compression of what is produced. Default none.
	Compression kafka.Compression
	// Timeout is how long one attempt may take, dialling included. Default 10 s.
	Timeout time.Duration
	// Dial makes the connections. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client is the connections to a Kafka cluster.
type Client struct {
	o         Options
	transport *kafka.Transport
	kafka     *kafka.Client
	dialer    *kafka.Dialer
}

// Record is one record of a partition.
type Record struct {
	Offset     int64
	Key, Value []byte
	// Time is the broker's or the producer's, as the topic says.
	Time time.Time
}

// Fetched is what one fetch brought.
type Fetched struct {
	// Records are in order; their offsets may have gaps. None when nothing came in time.
	Records []Record
	// Next is the offset to fetch next. It may be past the last record, over control records.
	Next int64
	// HighWatermark is where the records end that can be fetched; LogStart is where they begin.
	HighWatermark, LogStart int64
}

// New returns a client. It does not connect yet.
func New(o Options) (*Client, error) {
	if len(o.Brokers) == 0 {
		return nil, errors.New("kafka: no brokers")
	}
	if o.ClientID == "" {
		o.ClientID = "freshet"
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	c := &Client{o: o}
	c.transport = &kafka.Transport{
		Dial: o.Dial, DialTimeout: o.Timeout, ClientID: o.ClientID, TLS: o.TLS, SASL: o.SASL, MetadataTTL: time.Second,
	}
	c.kafka = &kafka.Client{Addr: kafka.TCP(o.Brokers...), Timeout: o.Timeout, Transport: c.transport}
	c.dialer = &kafka.Dialer{
		ClientID: o.ClientID, DialFunc: o.Dial, Timeout: o.Timeout, TLS: o.TLS, SASLMechanism: o.SASL,
	}
	return c, nil
}

// Close closes the connections.
func (c *Client) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

// Kafka returns the library's client, for the requests that this package does not wrap.
func (c *Client) Kafka() *kafka.Client { return c.kafka }

// Produce appends records to a partition, in one batch, and returns the offset of the first once all in-sync replicas
// have them. An error leaves open whether they were appended, unless [Classify] says otherwise.
func (c *Client) Produce(ctx context.Context, topic string, partition int, records ...Record) (int64, error) {
	batch := make([]kafka.Record, len(records))
	for i, r := range records {
		batch[i] = kafka.Record{Key: nullable(r.Key), Value: nullable(r.Value), Time: r.Time}
		if r.Time.IsZero() {
			batch[i].Time = time.Now()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.kafka.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(batch...), Compression: c.o.Compression,
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return 0, fmt.Errorf("kafka: produce to %s/%d: %w", topic, partition, err)
	}
	return res.BaseOffset, nil
}

// nullable keeps nil and empty apart: nil is Kafka's null, a tombstone in a compacted topic.
func nullable(b []byte) kafka.Bytes {
	if b == nil {
		return nil
	}
	return kafka.NewBytes(b)
}

// Fetch returns what a partition holds from an offset on, up to about maxBytes, waiting for up to wait when it holds
// nothing yet.
func (c *Client) Fetch(ctx context.Context, topic string, partition int, offset int64, maxBytes int, wait time.Duration) (Fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout+wait)
	defer cancel()
	res, err := c.kafka.Fetch(ctx, &kafka.FetchRequest{
		Topic: topic, Partition: partition, Offset: offset, MinBytes: 1, MaxBytes: int64(maxBytes), MaxWait: wait,
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return Fetched{}, fmt.Errorf("kafka: fetch %s/%d at %d: %w", topic, partition, offset, err)
	}
	f := Fetched{Next: offset, HighWatermark: res.HighWatermark, LogStart: res.LogStartOffset}
	for {
		r, err := res.Records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return Fetched{}, fmt.Errorf("kafka: fetch %s/%d at %d: %w", topic, partition, offset, err)
		}
		rec := Record{Offset: r.Offset, Time: r.Time}
		if r.Key != nil {
			rec.Key, err = kafka.ReadAll(r.Key)
		}
		if r.Value != nil && err == nil {
			rec.Value, err = kafka.ReadAll(r.Value)
		}
		if err != nil {
			return Fetched{}, fmt.Errorf("kafka: fetch %s/%d at %d: %w", topic, partition, offset, err)
		}
		if rec.Offset >= offset { // a batch may begin before what was asked for
			f.Records = append(f.Records, rec)
			f.Next = rec.Offset + 1
		}
	}
}

// Range returns where the records of a partition begin and where they end: the offset of the oldest, and the one that
// the next will get.
func (c *Client) Range(ctx context.Context, topic string, partition int) (start, end int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.kafka.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
		topic: {kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition)},
	}})
	if err != nil {
		return 0, 0, fmt.Errorf("kafka: offsets of %s/%d: %w", topic, partition, err)
	}
	for _, p := range res.Topics[topic] {
		if p.Partition == partition {
			if p.Error != nil {
				return 0, 0, fmt.Errorf("kafka: offsets of %s/%d: %w", topic, partition, p.Error)
			}
			return p.FirstOffset, p.LastOffset, nil
		}
	}
	return 0, 0, fmt.Errorf("kafka: offsets of %s/%d: %w", topic, partition, kafka.UnknownTopicOrPartition)
}

// Partitions returns how many partitions a topic has.
func (c *Client) Partitions(ctx context.Context, topic string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.kafka.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, fmt.Errorf("kafka: topic %s: %w", topic, err)
	}
	for _, t := range res.Topics {
		if t.Name == topic {
			if t.Error != nil {
				return 0, fmt.Errorf("kafka: topic %s: %w", topic, t.Error)
			}
			return len(t.Partitions), nil
		}
	}
	return 0, fmt.Errorf("kafka: topic %s: %w", topic, kafka.UnknownTopicOrPartition)
}

// ReadAll calls each with every record that a partition holds at the time of the call, and returns the offset behind
// the last. It waits for none.
func (c *Client) ReadAll(ctx context.Context, topic string, partition int, each func(Record) error) (end int64, err error) {
	offset, end, err := c.Range(ctx, topic, partition)
	if err != nil {
		return 0, err
	}
	for offset < end {
		f, err := c.Fetch(ctx, topic, partition, offset, 4<<20, time.Second)
		if err != nil {
			return 0, err
		}
		for _, r := range f.Records {
			if r.Offset >= end {
				return end, nil
			}
			if err := each(r); err != nil {
				return 0, err
			}
		}
		if f.Next == offset {
			return 0, fmt.Errorf("kafka: read %s/%d: nothing at offset %d, which is before the end %d", topic, partition, offset, end)
		}
		offset = f.Next
	}
	return end, nil
}

// Group joins a consumer group with the client's connections. The configuration's Brokers and Dialer are set here.
func (c *Client) Group(o kafka.ConsumerGroupConfig) (*kafka.ConsumerGroup, error) {
	o.Brokers, o.Dialer = c.o.Brokers, c.dialer
	return kafka.NewConsumerGroup(o)
}
