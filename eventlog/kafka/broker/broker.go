package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/credential"
)

// Options say how to reach the brokers. The zero value of a field is the default that it names.
type Options struct {
	// Brokers are host:port of some of the brokers, to find the others by. Required.
	Brokers []string
	// ClientID is what we call ourselves in the brokers' logs and quotas. Default "freshet".
	ClientID string
	// TLS encrypts the connections; nil: not. Each broker's certificate must be for the ServerName in it; if that is
	// empty, for the host that the broker is reached by.
	TLS credential.TLS
	// Login logs in; nil: nobody logs in.
	Login *Login
	// Compression of what is produced. Default none.
	Compression kafka.Compression
	// Timeout is how long one attempt may take, dialling included. Default 10 s. Connecting to one broker,
	// encryption and login included, may take 3 s of it, so that one that hangs leaves time for another. A command that
	// prints the password has its own time.
	Timeout time.Duration
	// Dial makes the connections. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Registerer is where metrics go; nil: nowhere.
	Registerer prometheus.Registerer
	// Log gets, at level debug, what the library says of consumer groups; nil: nothing is said.
	Log *slog.Logger
}

// Client is the connections to a Kafka cluster.
type Client struct {
	o         Options
	transport *transport
	kafka     *kafka.Client
	dialer    *kafka.Dialer
	count     *counters
	throttle  throttle
	lastError lastError
	packers   sync.Pool
	requests  sync.Pool
	unpackers sync.Pool

	// What has worked before, which tells a broker that goes away from one that refuses us.
	encrypted, loggedIn, answered atomic.Bool

	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	conns  map[*conn]struct{}
	// allGone is closed when the client is closed and the library uses no connection any more.
	allGone chan struct{}
	gone    sync.Once
}

// Record is one record of a partition.
type Record struct {
	Offset int64
	// Key and Value share memory with the other records of the same batch: who keeps one for long copies it.
	Key, Value []byte
	// Time is the broker's or the producer's, as the topic says.
	Time time.Time
}

// Fetched is what one fetch brought.
type Fetched struct {
	// Records are in order; their offsets may have gaps. None when nothing came in time.
	Records []Record
	// Next is the offset to fetch next. It may be past the last record, over control records and over what compaction
	// has removed.
	Next int64
	// HighWatermark is where the records end that can be fetched; LogStart is where they begin.
	HighWatermark, LogStart int64
}

// New returns a client. It does not connect yet.
func New(o Options) (*Client, error) {
	if len(o.Brokers) == 0 {
		return nil, errors.New("kafka: no brokers: set eventlog.kafka.brokers")
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
	count, err := newCounters(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("kafka: metrics: %w", err)
	}
	c := &Client{o: o, count: count, conns: map[*conn]struct{}{}, allGone: make(chan struct{})}
	c.life, c.end = context.WithCancel(context.Background())
	c.transport = &transport{topics: map[string]struct{}{}, make: func(topics []string) *kafka.Transport {
		return &kafka.Transport{
			Context: c.life, Dial: c.dial, DialTimeout: c.dialTimeout() + o.Login.patience(), ClientID: o.ClientID,
			MetadataTTL: metadataTTL, MetadataTopics: topics,
		}
	}}
	c.kafka = &kafka.Client{Addr: kafka.TCP(o.Brokers...), Timeout: o.Timeout, Transport: c.transport}
	c.dialer = &kafka.Dialer{ClientID: o.ClientID, DialFunc: c.dial, Timeout: c.dialTimeout() + o.Login.patience()}
	return c, nil
}

// Kafka returns the library's client, for the requests that this package does not wrap. [Client.Explain] makes
// sentences of its errors. Of the cluster it knows the topics that this client has been asked about, no others.
func (c *Client) Kafka() *kafka.Client { return c.kafka }

// User returns whom the brokers' ACLs know us as, without "User:".
func (c *Client) User() string {
	if c.o.Login != nil {
		return c.o.Login.User()
	}
	if c.o.TLS != nil {
		if shown, err := c.o.TLS(); err == nil && len(shown.Certificates) > 0 && shown.Certificates[0].Leaf != nil {
			return shown.Certificates[0].Leaf.Subject.String()
		}
	}
	return "ANONYMOUS"
}

// Produce appends records, one at least, to a partition, in one batch, and returns the offset of the first once all
// in-sync replicas have them. [Client.ProduceAll] says the rest.
func (c *Client) Produce(ctx context.Context, topic string, partition int, records ...Record) (int64, error) {
	r := c.ProduceAll(ctx, topic, []ProduceTo{{partition, records}})[0]
	return r.Offset, r.Err
}

// Fetch returns what a partition holds from an offset on, up to about maxBytes, waiting for up to wait when it holds
// nothing yet. A batch that is larger than maxBytes comes whole, alone. [Client.FetchAll] says the rest.
func (c *Client) Fetch(ctx context.Context, topic string, partition int, offset int64, maxBytes int,
	wait time.Duration,
) (Fetched, error) {
	r := c.FetchAll(ctx, topic, []FetchFrom{{partition, offset, maxBytes}}, maxBytes, wait)[0]
	return r.Fetched, r.Err
}

// Range returns where the records of a partition begin and where they end: the offset of the oldest, and the one that
// the next will get.
func (c *Client) Range(ctx context.Context, topic string, partition int) (start, end int64, err error) {
	return c.offsets(ctx, topic, partition, kafka.FirstOffsetOf(partition), kafka.LastOffsetOf(partition))
}

// End is Range for who only wants the end: half of the requests, since a broker is asked for one offset at a time.
func (c *Client) End(ctx context.Context, topic string, partition int) (int64, error) {
	_, end, err := c.offsets(ctx, topic, partition, kafka.LastOffsetOf(partition))
	return end, err
}

// At returns the offset of the first record of a partition that was written at a time or later, by the clock that the
// topic goes by; -1: there is none.
func (c *Client) At(ctx context.Context, topic string, partition int, at time.Time) (int64, error) {
	p, err := c.list(ctx, topic, partition, kafka.TimeOffsetOf(partition, at))
	if err != nil {
		return 0, err
	}
	found := int64(-1)
	for offset := range p.Offsets { // the one that was asked for
		found = offset
	}
	return found, nil
}

// offsets asks for one or both ends of a partition.
func (c *Client) offsets(ctx context.Context, topic string, partition int, which ...kafka.OffsetRequest) (start,
	end int64, err error,
) {
	p, err := c.list(ctx, topic, partition, which...)
	return p.FirstOffset, p.LastOffset, err
}

// list asks for offsets of a partition.
func (c *Client) list(ctx context.Context, topic string, partition int, which ...kafka.OffsetRequest,
) (found kafka.PartitionOffsets, err error) {
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.kafka.ListOffsets(attempt,
		&kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: which}})
	if err == nil {
		err = kafka.UnknownTopicOrPartition
		for _, p := range res.Topics[topic] {
			if p.Partition == partition {
				found, err = p, p.Error
			}
		}
	}
	if err != nil {
		what := fmt.Sprintf("ask for the offsets of %s/%d", topic, partition)
		return kafka.PartitionOffsets{}, c.failed(ctx, what, topic, partition, err, Need{"Describe", "topic", topic})
	}
	return found, nil
}

// Partitions returns how many partitions a topic has. It may be up to 2 s behind when some are added.
func (c *Client) Partitions(ctx context.Context, topic string) (int, error) {
	t, err := c.describe(ctx, topic)
	return len(t.Partitions), err
}

// describe returns what is known of a topic.
func (c *Client) describe(ctx context.Context, topic string) (found kafka.Topic, err error) {
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.kafka.Metadata(attempt, &kafka.MetadataRequest{Topics: []string{topic}})
	if err == nil {
		err = kafka.UnknownTopicOrPartition
		for _, t := range res.Topics {
			if t.Name == topic {
				found, err = t, t.Error
			}
		}
	}
	if err != nil {
		return kafka.Topic{}, c.failed(ctx, "look at topic "+topic, topic, -1, err, Need{"Describe", "topic", topic})
	}
	return found, nil
}

// ClusterID returns the name that the cluster has drawn for itself; "" if it has none. It asks for a topic with it,
// which need not be there.
func (c *Client) ClusterID(ctx context.Context, topic string) (string, error) {
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.kafka.Metadata(attempt, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return "", c.Explain(ctx, "ask for the id of the cluster", err, Need{"Describe", "topic", topic})
	}
	return res.ClusterID, nil
}

// Leaders returns the number of the broker that leads each partition of a topic; -1: none does, or none that is known.
// It may be up to 2 s behind, and less after an error of a request, which makes the client look again.
func (c *Client) Leaders(ctx context.Context, topic string) ([]int, error) {
	t, err := c.describe(ctx, topic)
	if err != nil {
		return nil, err
	}
	leaders := make([]int, len(t.Partitions))
	for i := range leaders {
		leaders[i] = -1
	}
	for _, p := range t.Partitions {
		if p.ID < len(leaders) && p.Leader.Host != "" {
			leaders[p.ID] = p.Leader.ID
		}
	}
	return leaders, nil
}

// ReadAll calls each with every record that a partition holds at the time of the call, and returns the offset after
// the last. It waits for none.
func (c *Client) ReadAll(ctx context.Context, topic string, partition int, each func(Record) error) (end int64,
	err error,
) {
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
		if f.Next == offset && f.HighWatermark < end {
			// The end was another leader's, which had more than all replicas have.
			return 0, &Error{
				Class: Transient, What: fmt.Sprintf("read %s/%d", topic, partition),
				Err: fmt.Errorf("nothing at offset %d, which is before the end %d", offset, end),
			}
		}
		offset = f.Next
	}
	return end, nil
}

// Group joins a consumer group with the client's connections. The configuration's Brokers, Dialer and loggers are set
// here. The group is closed before the client.
func (c *Client) Group(o kafka.ConsumerGroupConfig) (*kafka.ConsumerGroup, error) {
	o.Brokers, o.Dialer = c.o.Brokers, c.dialer
	o.Logger, o.ErrorLogger = c.logger("message", o.ID), c.logger("error", o.ID)
	return kafka.NewConsumerGroup(o)
}

// logger returns a logger for the library, which formats what it says; so it is an attribute, not the message.
func (c *Client) logger(as, group string) kafka.Logger {
	if c.o.Log == nil {
		return nil
	}
	return kafka.LoggerFunc(func(format string, args ...any) {
		if c.o.Log.Enabled(context.Background(), slog.LevelDebug) {
			c.o.Log.Debug("consumer group", "group", group, as, fmt.Sprintf(format, args...))
		}
	})
}
