package broker

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// client returns a client, of the tests' broker unless others are named. It is closed at the end of the test.
func client(t *testing.T, o Options) *Client {
	t.Helper()
	if o.Brokers == nil {
		o.Brokers = testbed.SharedKafka(t).Brokers()
	}
	c, err := New(o)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// names are those of a topic of the test's own.
func names(t *testing.T) Names {
	return Names{Topic: testbed.SharedKafka(t).NewTopicName(t)}
}

// topic creates a topic of the test's own, with settings like a=b.
func topic(t *testing.T, c *Client, partitions int, config ...string) string {
	t.Helper()
	own := Topic{Name: names(t).Topic, Partitions: partitions}
	for _, s := range config {
		name, value, _ := strings.Cut(s, "=")
		own.Config = append(own.Config, Setting{name, value})
	}
	must(t, c.Ensure(t.Context(), []Topic{own}, true))
	return own.Name
}

func TestWhatIsProducedIsFetched(t *testing.T) {
	for _, compression := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		t.Run(compression.String(), func(t *testing.T) {
			c := client(t, Options{Compression: compression})
			name := topic(t, c, 2)
			at := time.UnixMilli(1_700_000_000_123)
			big := bytes.Repeat([]byte("0123456789abcdef"), 30_000)
			first, err := c.Produce(t.Context(), name, 1,
				Record{Key: []byte("a"), Value: []byte("1"), Time: at}, Record{Key: nil, Value: []byte{}},
				Record{Key: []byte("b"), Value: nil})
			must(t, err)
			second, err := c.Produce(t.Context(), name, 1, Record{Value: big, Time: at})
			must(t, err)
			if first != 0 || second != 3 {
				t.Errorf("the batches are at %d and %d", first, second)
			}
			f, err := c.Fetch(t.Context(), name, 1, 1, 4<<20, time.Second)
			must(t, err)
			if f.Next != 4 || f.HighWatermark != 4 || f.LogStart != 0 || len(f.Records) != 3 {
				t.Fatalf("next %d, high %d, start %d, %d records", f.Next, f.HighWatermark, f.LogStart, len(f.Records))
			}
			if r := f.Records[0]; r.Offset != 1 || r.Key != nil || r.Value == nil || len(r.Value) != 0 {
				t.Errorf("an empty value came back as %+v", r)
			}
			if r := f.Records[1]; string(r.Key) != "b" || r.Value != nil {
				t.Errorf("a tombstone came back as %+v", r)
			}
			if r := f.Records[2]; !bytes.Equal(r.Value, big) || !r.Time.Equal(at) || r.Offset != 3 {
				t.Errorf("the big record came back with %d bytes at %d, %v", len(r.Value), r.Offset, r.Time)
			}
		})
	}
}

func TestABatchLargerThanAskedForComesWhole(t *testing.T) {
	c := client(t, Options{})
	name := topic(t, c, 1)
	big := bytes.Repeat([]byte("x"), 500_000)
	_, err := c.Produce(t.Context(), name, 0, Record{Value: big})
	must(t, err)
	f, err := c.Fetch(t.Context(), name, 0, 0, 100, time.Second)
	must(t, err)
	if len(f.Records) != 1 || len(f.Records[0].Value) != len(big) || f.Next != 1 {
		t.Fatalf("%d records, next %d", len(f.Records), f.Next)
	}
}

func TestAnEmptyPartitionIsWaitedFor(t *testing.T) {
	c := client(t, Options{})
	name := topic(t, c, 1)
	began := time.Now()
	f, err := c.Fetch(t.Context(), name, 0, 0, 1<<20, 300*time.Millisecond)
	must(t, err)
	if len(f.Records) != 0 || f.Next != 0 || time.Since(began) < 250*time.Millisecond {
		t.Fatalf("%+v after %v", f, time.Since(began))
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err = c.Fetch(ctx, name, 0, 0, 1<<20, time.Minute); Classify(err) != Ended {
		t.Fatalf("%v is %v", err, Classify(err))
	}
}

// TestErrorsOfARunningBroker captures what it answers, and checks that it is told in words that say where.
func TestErrorsOfARunningBroker(t *testing.T) {
	c := client(t, Options{})
	away := client(t, Options{Brokers: []string{"127.0.0.1:1"}, Timeout: time.Second})
	name := topic(t, c, 1, "max.message.bytes=1000")
	produce := func(c *Client, topic string, size int) error {
		_, err := c.Produce(t.Context(), topic, 0, Record{Value: make([]byte, size)})
		return err
	}
	fetch := func(c *Client, topic string, partition int, offset int64) error {
		_, err := c.Fetch(t.Context(), topic, partition, offset, 1000, time.Second)
		return err
	}
	ranged := func(c *Client, topic string) error {
		_, _, err := c.Range(t.Context(), topic, 0)
		return err
	}
	partitions := func(c *Client, topic string) error {
		_, err := c.Partitions(t.Context(), topic)
		return err
	}
	for _, k := range []struct {
		err  error
		want Class
		says []string
	}{
		{fetch(c, name, 0, 77), OutOfRange, []string{"fetch " + name + "/0 at offset 77"}},
		{fetch(c, name, 7, 0), Missing, []string{name + "/7", "does not have so many partitions"}},
		{fetch(c, "nosuch", 0, 0), Missing, []string{"topic nosuch does not exist", "create_topics"}},
		{produce(c, "nosuch", 1), Missing, []string{"topic nosuch does not exist", "create_topics"}},
		{ranged(c, "nosuch"), Missing, []string{"topic nosuch does not exist"}},
		{partitions(c, "nosuch"), Missing, []string{"topic nosuch does not exist"}},
		{produce(c, name, 2000), Rejected, []string{"produce to " + name + "/0", "max.message.bytes"}},
		{produce(away, name, 1), Transient, []string{"broker 127.0.0.1:1", "connection refused"}},
		{fetch(away, name, 0, 0), Transient, []string{"broker 127.0.0.1:1", "connection refused"}},
		{ranged(away, name), Transient, []string{"broker 127.0.0.1:1", "connection refused"}},
		{partitions(away, name), Transient, []string{"broker 127.0.0.1:1", "connection refused"}},
		{away.Ensure(t.Context(), []Topic{{Name: name}}, true), Transient, []string{"127.0.0.1:1"}},
	} {
		if Classify(k.err) != k.want {
			t.Errorf("%v: %v, want %v", Classify(k.err), k.err, k.want)
		}
		for _, s := range k.says {
			if k.err != nil && !strings.Contains(k.err.Error(), s) {
				t.Errorf("%v\ndoes not say %q", k.err, s)
			}
		}
	}
}

// TestMarkersOfTransactionsArePassed has a partition that ends in a marker, which no record follows.
func TestMarkersOfTransactionsArePassed(t *testing.T) {
	c := client(t, Options{})
	name := topic(t, c, 1)
	_, err := c.Produce(t.Context(), name, 0, Record{Value: []byte("before")})
	must(t, err)
	id := name + ".tx"
	var producer *kafka.InitProducerIDResponse
	testbed.Eventually(t, 2*time.Minute, "a coordinator of transactions", func() bool {
		producer, err = c.Kafka().InitProducerID(t.Context(),
			&kafka.InitProducerIDRequest{TransactionalID: id, TransactionTimeoutMs: 10_000})
		return err == nil && producer.Error == nil
	})
	added, err := c.Kafka().AddPartitionsToTxn(t.Context(), &kafka.AddPartitionsToTxnRequest{
		TransactionalID: id, ProducerID: producer.Producer.ProducerID, ProducerEpoch: producer.Producer.ProducerEpoch,
		Topics: map[string][]kafka.AddPartitionToTxn{name: {{Partition: 0}}},
	})
	must(t, err)
	must(t, added.Topics[name][0].Error)
	ended, err := c.Kafka().EndTxn(t.Context(), &kafka.EndTxnRequest{
		TransactionalID: id, ProducerID: producer.Producer.ProducerID, ProducerEpoch: producer.Producer.ProducerEpoch,
		Committed: true,
	})
	must(t, err)
	must(t, ended.Error)
	var f Fetched
	testbed.Eventually(t, 2*time.Minute, "the marker in the partition", func() bool {
		f, err = c.Fetch(t.Context(), name, 0, 0, 1<<20, 10*time.Millisecond)
		must(t, err)
		return f.HighWatermark == 2
	})
	if len(f.Records) != 1 || f.Next != 2 {
		t.Errorf("%d records, next %d, want 1 and 2", len(f.Records), f.Next)
	}
	var all []string
	end, err := c.ReadAll(t.Context(), name, 0, func(r Record) error {
		all = append(all, string(r.Value))
		return nil
	})
	if err != nil || end != 2 || !slices.Equal(all, []string{"before"}) {
		t.Errorf("%v up to %d, %v", all, end, err)
	}
}

// TestHolesOfCompactionArePassed lets a broker compact a batch away in part, and asks for its end with room for one
// batch only.
func TestHolesOfCompactionArePassed(t *testing.T) {
	c := client(t, Options{})
	name := topic(t, c, 1, "cleanup.policy=compact", "segment.ms=100", "min.cleanable.dirty.ratio=0.001")
	put := func(keys ...string) {
		var records []Record
		for _, k := range keys {
			records = append(records, Record{Key: []byte(k), Value: []byte("v")})
		}
		_, err := c.Produce(t.Context(), name, 0, records...)
		must(t, err)
	}
	put("a", "b", "c") // only a will be left of it, and its end is offset 2
	testbed.Eventually(t, 2*time.Minute, "compaction", func() bool {
		put("b", "c")
		f, err := c.Fetch(t.Context(), name, 0, 0, 1, time.Second)
		must(t, err)
		if f.Next != 3 {
			t.Fatalf("behind the first batch comes %d, with %d records", f.Next, len(f.Records))
		}
		return len(f.Records) == 1
	})
	f, err := c.Fetch(t.Context(), name, 0, 1, 1, time.Second)
	must(t, err)
	if len(f.Records) != 0 && f.Records[0].Offset <= 2 || f.Next < 3 {
		t.Errorf("from within the hole: %d records, next %d", len(f.Records), f.Next)
	}
	seen := map[string]int{}
	_, err = c.ReadAll(t.Context(), name, 0, func(r Record) error {
		seen[string(r.Key)]++
		return nil
	})
	must(t, err)
	if seen["a"] != 1 || seen["b"] == 0 || seen["c"] == 0 {
		t.Errorf("read %v", seen)
	}
}

// TestAQuotaIsKept gives a client of its own name a quota that it breaks at once.
func TestAQuotaIsKept(t *testing.T) {
	name := names(t).Topic
	c := client(t, Options{ClientID: name})
	must(t, c.Ensure(t.Context(), []Topic{{Name: name, Partitions: 1}}, true))
	// over 10 s
	res, err := c.Kafka().AlterClientQuotas(t.Context(),
		&kafka.AlterClientQuotasRequest{Entries: []kafka.AlterClientQuotaEntry{{
			Entities: []kafka.AlterClientQuotaEntity{{EntityType: "client-id", EntityName: name}},
			Ops:      []kafka.AlterClientQuotaOps{{Key: "producer_byte_rate", Value: 1900}},
		}}})
	must(t, err)
	must(t, res.Entries[0].Error)
	throttled := func() float64 { return testutil.ToFloat64(c.count.throttled.WithLabelValues("produce")) }
	testbed.Eventually(t, 2*time.Minute, "a throttled request", func() bool {
		_, err := c.Produce(t.Context(), name, 0, Record{Value: make([]byte, 20_000)})
		must(t, err)
		return throttled() > 0
	})
	began, asked := time.Now(), time.Duration(throttled()*float64(time.Second))
	_, err = c.Produce(t.Context(), name, 0, Record{Value: []byte("x")})
	must(t, err)
	if d := time.Since(began); d < asked*9/10 {
		t.Errorf("it went on after %v of %v", d, asked)
	}
}

// A broker whose quota is used up withholds its answer, which must not pass for an error, nor for an end.
func TestAQuotaOfFetchesIsKept(t *testing.T) {
	t.Parallel()
	name := names(t).Topic
	free, c := client(t, Options{}), client(t, Options{ClientID: name})
	must(t, c.Ensure(t.Context(), []Topic{{Name: name, Partitions: 2}}, true))
	// over 10 s
	res, err := c.Kafka().AlterClientQuotas(t.Context(),
		&kafka.AlterClientQuotasRequest{Entries: []kafka.AlterClientQuotaEntry{{
			Entities: []kafka.AlterClientQuotaEntity{{EntityType: "client-id", EntityName: name}},
			Ops:      []kafka.AlterClientQuotaOps{{Key: "consumer_byte_rate", Value: 15_000}},
		}}})
	must(t, err)
	must(t, res.Entries[0].Error)
	for partition := range 2 {
		_, err := free.Produce(t.Context(), name, partition, Record{Value: noise(50_000)})
		must(t, err)
	}
	throttled := func() float64 { return testutil.ToFloat64(c.count.throttled.WithLabelValues("fetch")) }
	testbed.Eventually(t, 2*time.Minute, "a throttled request", func() bool {
		for i, r := range c.FetchAll(t.Context(), name, []FetchFrom{{0, 0, 1 << 20}, {1, 0, 1 << 20}}, 2<<20, time.Second) {
			if r.Err != nil || len(r.Records) != 1 || r.HighWatermark != 1 {
				t.Fatalf("partition %d: %d records, high %d, %v", i, len(r.Records), r.HighWatermark, r.Err)
			}
		}
		return throttled() > 0
	})
}

func TestATrimmedPartitionBeginsWhereItWasTold(t *testing.T) {
	c := client(t, Options{})
	name := topic(t, c, 1)
	for range 5 {
		_, err := c.Produce(t.Context(), name, 0, Record{Value: []byte("x")})
		must(t, err)
	}
	must(t, c.Trim(t.Context(), name, 0, 3))
	if start, end, err := c.Range(t.Context(), name, 0); start != 3 || end != 5 || err != nil {
		t.Errorf("from %d to %d, %v", start, end, err)
	}
	if end, err := c.End(t.Context(), name, 0); end != 5 || err != nil {
		t.Fatalf("the end is %d, %v; want 5", end, err)
	}
	if _, err := c.Fetch(t.Context(), name, 0, 2, 1000, time.Second); Classify(err) != OutOfRange {
		t.Errorf("what is gone: %v: %v", Classify(err), err)
	}
	f, err := c.Fetch(t.Context(), name, 0, 3, 1000, time.Second)
	if err != nil || len(f.Records) != 2 || f.LogStart != 3 {
		t.Errorf("what is left: %+v, %v", f, err)
	}
	if err := c.Trim(t.Context(), name, 0, 99); Classify(err) != OutOfRange {
		t.Errorf("past the end: %v: %v", Classify(err), err)
	}
	if err := c.Trim(t.Context(), "nosuch", 0, 1); Classify(err) != Missing {
		t.Errorf("a missing topic: %v: %v", Classify(err), err)
	}
}

func TestMembersAndOffsetsOfAGroup(t *testing.T) {
	c := client(t, Options{})
	name := topic(t, c, 2)
	must(t, Insist(t.Context(), func(err error) { t.Log(err) }, func() error { // the first group waits for its coordinator
		n, err := c.GroupMembers(t.Context(), name)
		if n != 0 {
			t.Errorf("%d members of no group", n)
		}
		return err
	}))
	group, err := c.Group(kafka.ConsumerGroupConfig{
		ID: name, Topics: []string{name},
		JoinGroupBackoff: 100 * time.Millisecond,
	})
	must(t, err)
	var generation *kafka.Generation
	testbed.Eventually(t, 2*time.Minute, "a generation", func() bool {
		generation, err = group.Next(t.Context())
		return err == nil
	})
	if n, err := c.GroupMembers(t.Context(), name); n != 1 || err != nil {
		t.Errorf("%d members of one, %v", n, err)
	}
	res, err := c.Kafka().OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{
		GroupID: name, GenerationID: int(generation.ID), MemberID: generation.MemberID,
		Topics: map[string][]kafka.OffsetCommit{name: {{Partition: 1, Offset: 17, Metadata: "seventeen"}}},
	})
	must(t, err)
	must(t, res.Topics[name][0].Error)
	got, err := c.GroupOffsets(t.Context(), name, name)
	if err != nil || len(got) != 1 || got[1] != (Committed{Offset: 17, Metadata: "seventeen"}) {
		t.Errorf("%v, %v", got, err)
	}
	must(t, group.Close())
	testbed.Eventually(t, 2*time.Minute, "the member's farewell", func() bool {
		n, err := c.GroupMembers(t.Context(), name)
		must(t, err)
		return n == 0
	})
	fenced, err := c.Kafka().OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{
		GroupID: name, GenerationID: int(generation.ID), MemberID: generation.MemberID,
		Topics: map[string][]kafka.OffsetCommit{name: {{Partition: 1, Offset: 18}}},
	})
	must(t, err)
	if err := fenced.Topics[name][0].Error; Classify(err) != Fenced {
		t.Errorf("the commit of a member that left: %v is %v", err, Classify(err))
	}
}

func TestTheLibrarysWordsAreDebug(t *testing.T) {
	var logged bytes.Buffer
	c := client(t, Options{Log: debugLog(&logged)})
	group, err := c.Group(kafka.ConsumerGroupConfig{ID: names(t).Topic, Topics: []string{"nosuch"}})
	must(t, err)
	_, _ = group.Next(t.Context())
	must(t, group.Close())
	if s := logged.String(); !strings.Contains(s, "level=DEBUG msg=\"consumer group\" group="+
		"TestTheLibrarysWordsAreDebug") {
		t.Errorf("logged %s", s)
	}
}

func ExampleClient_CreateCommand() {
	c, _ := New(Options{Brokers: []string{"kafka-1:9092"}})
	fmt.Println(c.CreateCommand(ReaderTopics(Names{"shop"}, "main", Sizing{Replication: 3})[0]))
	_ = c.Close()
	// Output: kafka-topics.sh --bootstrap-server kafka-1:9092 --create --topic shop --partitions 12 --replication-factor 3 --config unclean.leader.election.enable=false --config message.timestamp.type=LogAppendTime --config min.insync.replicas=2 --config cleanup.policy=delete --config retention.ms=604800000 --config retention.bytes=-1 --config max.message.bytes=2097152
}

// A request may reach the library's transport just after another one, for a topic that is new, has replaced it.
func TestARequestThatComesLateLeavesNoConnectionBehind(t *testing.T) {
	c := client(t, Options{Timeout: 5 * time.Second})
	a, b := topic(t, c, 1), topic(t, c, 1)
	late, err := c.transport.use(a)
	must(t, err)
	_, err = c.transport.use(b, "freshet-of-no-broker")
	must(t, err)
	func() {
		defer c.transport.used(late)
		_, err = late.RoundTrip(t.Context(), c.kafka.Addr, &metadata.Request{TopicNames: []string{a}})
		must(t, err)
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
