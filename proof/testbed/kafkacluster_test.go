package testbed_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/proof/testbed"
)

func TestClusterLosesNothingWhileItsLeadersGo(t *testing.T) {
	start := time.Now()
	c := testbed.Kafka(t, testbed.KafkaOptions{Brokers: 3})
	t.Logf("up in %s", time.Since(start))
	topic := c.Topic(t, c.NewTopicName(t), 2)
	all := c.Topic(t, c.NewTopicName(t), 1, "min.insync.replicas=3")
	var sent []string
	// A leader that has just been told so may not know it yet.
	send := func(value string) {
		t.Helper()
		var last error
		testbed.Eventually(t, 2*time.Minute, value+" is taken", func() bool {
			_, last = produce(t, c.Brokers()[len(sent)%3], topic, 0, value)
			return last == nil
		})
		sent = append(sent, value)
	}
	send("before")
	for id := 1; id <= 3; id++ {
		c.MoveLeader(t, topic, 0, id)
		c.MoveLeader(t, all, 0, id)
		if got := c.Leader(t, topic, 0); got != id {
			t.Fatalf("the leader is %d, want %d", got, id)
		}
		send(fmt.Sprint("moved to ", id))
	}
	start = time.Now()
	testbed.Must(t, c.Broker(3).Kill())
	if got := c.AwaitLeader(t, topic, 0, 3); got == 3 {
		t.Fatal("a dead broker leads")
	}
	t.Logf("failed over in %s", time.Since(start))
	_, err := produce(t, c.Brokers()[0], topic, 0, "two of three")
	testbed.Must(t, err)
	sent = append(sent, "two of three")
	c.AwaitLeader(t, all, 0, 3)
	if _, err := produce(t, c.Brokers()[0], all, 0, "two of three"); !errors.Is(err, kafka.NotEnoughReplicas) {
		t.Fatalf("two replicas took a record that needs three: %v", err)
	}
	testbed.Must(t, c.Start(t.Context()))
	c.AwaitInSync(t)
	send("after")
	// A record whose acknowledgement came too late is there twice.
	if got := slices.Compact(values(t, c.Brokers()[0], topic, 0)); !slices.Equal(got, sent) {
		t.Fatalf("the partition holds %q, want %q", got, sent)
	}
}
