package testbed_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// produce appends one record with all acknowledgements and returns its offset. It uses a
// client that knows nothing from before.
func produce(t *testing.T, addr, topic string, partition int, value string) (int64, error) {
	t.Helper()
	return produceVia(t, &kafka.Transport{}, addr, topic, partition, value)
}

// produceVia is produce with a login, or with TLS. It ends the connections.
func produceVia(t *testing.T, tr *kafka.Transport, addr, topic string, partition int, value string) (int64, error) {
	t.Helper()
	defer tr.CloseIdleConnections()
	c := &kafka.Client{Addr: kafka.TCP(addr), Transport: tr, Timeout: 10 * time.Second}
	res, err := c.Produce(t.Context(), &kafka.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte(value))}),
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return 0, err
	}
	return res.BaseOffset, nil
}

// values returns the values of a partition's records.
func values(t *testing.T, addr, topic string, partition int) (all []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := kafka.DialLeader(ctx, "tcp", addr, topic, partition)
	testbed.Must(t, err)
	defer conn.Close()
	testbed.Must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	first, last, err := conn.ReadOffsets()
	testbed.Must(t, err)
	if first == last {
		return nil
	}
	_, err = conn.Seek(first, kafka.SeekAbsolute)
	testbed.Must(t, err)
	for offset := first; offset < last; {
		m, err := conn.ReadMessage(1 << 20)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		all = append(all, string(m.Value))
		offset = m.Offset + 1
	}
	return all
}

func TestBrokerKeepsItsRecordsThroughKillStopAndPause(t *testing.T) {
	c := testbed.Kafka(t)
	topic := c.Topic(t, c.NewTopicName(t), 2)
	addr, b := c.Brokers()[0], c.Broker(1)
	send := func(value string) {
		t.Helper()
		_, err := produce(t, addr, topic, 1, value)
		testbed.Must(t, err)
	}
	send("one")
	testbed.Must(t, b.Kill())
	testbed.Must(t, b.Start(t.Context()))
	send("two")
	testbed.Must(t, b.Stop())
	if _, err := produce(t, addr, topic, 1, "lost"); err == nil {
		t.Fatal("a stopped broker took a record")
	}
	testbed.Must(t, b.Start(t.Context()))
	testbed.Must(t, b.Pause())
	done := make(chan error, 1)
	go func() {
		_, err := produce(t, addr, topic, 1, "three")
		done <- err
	}()
	testbed.Must(t, b.Resume())
	testbed.Must(t, <-done)
	if got := strings.Join(values(t, addr, topic, 1), " "); got != "one two three" {
		t.Fatalf("the partition holds %q", got)
	}
}

func TestTopicsAreChangedAtOnce(t *testing.T) {
	c := testbed.Kafka(t)
	addr := c.Brokers()[0]
	topic := c.Topic(t, c.NewTopicName(t), 1, "retention.ms=123456")
	if out := c.Tool(t, "org.apache.kafka.tools.TopicCommand", "--describe", "--topic", topic); !strings.Contains(out,
		"retention.ms=123456") {
		t.Fatalf("described as %s", out)
	}
	for _, value := range []string{"a", "b", "c"} {
		_, err := produce(t, addr, topic, 0, value)
		testbed.Must(t, err)
	}
	c.DeleteRecords(t, topic, 0, 2)
	if got := strings.Join(values(t, addr, topic, 0), " "); got != "c" {
		t.Fatalf("left: %q", got)
	}
	c.AddPartitions(t, topic, 4)
	_, err := produce(t, addr, topic, 3, "d")
	testbed.Must(t, err)
	c.DeleteTopic(t, topic)
	if _, err := produce(t, addr, topic, 3, "e"); err == nil {
		t.Fatal("a deleted topic took a record")
	}
}

func TestSharedKafkaIsThatOfTheEnvironment(t *testing.T) {
	own := testbed.Kafka(t)
	t.Setenv(testbed.EnvKafka, "127.0.0.1:1,"+own.Brokers()[0])
	c := testbed.SharedKafka(t)
	if got := strings.Join(c.Brokers(), ","); got != own.Brokers()[0] {
		t.Fatalf("brokers %s", got)
	}
	c.Topic(t, c.NewTopicName(t), 1)
	b := c.Broker(1)
	if b.Kill() == nil || b.Stop() == nil || b.Pause() == nil || b.Start(t.Context()) == nil {
		t.Fatal("a shared broker could be stopped")
	}
}

func TestClientsReachAProxiedBrokerThroughItsProxyOnly(t *testing.T) {
	c := testbed.Kafka(t, testbed.KafkaOptions{Proxied: true})
	topic := c.Topic(t, c.NewTopicName(t), 1)
	addr, p := c.Brokers()[0], c.Broker(1).Proxy
	p.OnRequest(func(r proxy.Request) proxy.Action {
		if r.API == proxy.Produce && r.N == 1 {
			return proxy.DropReply
		}
		return proxy.Forward
	})
	if _, err := produce(t, addr, topic, 0, "appended"); err == nil {
		t.Fatal("the acknowledgement was not lost")
	}
	if got := values(t, addr, topic, 0); len(got) != 1 || got[0] != "appended" {
		t.Fatalf("the partition holds %q", got)
	}
	p.Cut()
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial: %v, want connection refused", err)
	}
	c.Topic(t, c.NewTopicName(t), 1) // our own requests still pass
	testbed.Must(t, p.Resume())
	if offset, err := produce(t, addr, topic, 0, "later"); err != nil || offset != 1 {
		t.Fatalf("offset %d, %v", offset, err)
	}
}
