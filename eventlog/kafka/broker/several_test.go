package broker

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/proof/testbed"
)

func TestOneRequestForSeveralPartitions(t *testing.T) {
	c := client(t, Options{Compression: kafka.Lz4})
	name := topic(t, c, 4, "max.message.bytes=100000")
	value := func(s string) []Record { return []Record{{Value: []byte(s)}} }
	for round := range int64(2) {
		for i, r := range c.ProduceAll(t.Context(), name, []ProduceTo{{2, value("c")}, {0, value("a")}, {3, value("d")}}) {
			if r.Err != nil || r.Offset != round {
				t.Errorf("round %d, result %d: %+v", round, i, r)
			}
		}
	}
	got := c.FetchAll(t.Context(), name, []FetchFrom{{0, 0, 1 << 20}, {1, 0, 1 << 20}, {2, 1, 1 << 20}, {3, 0, 1 << 20}},
		4<<20, time.Second)
	for i, want := range []string{"aa", "", "c", "dd"} {
		var values []byte
		for _, r := range got[i].Records {
			values = append(values, r.Value...)
		}
		if got[i].Err != nil || string(values) != want || got[i].Next != got[i].HighWatermark {
			t.Errorf("partition %d: %q, %+v", i, values, got[i])
		}
	}
}

// What is wrong with one partition is not wrong with those that share its request.
func TestOnePartitionOfSeveralFails(t *testing.T) {
	c := client(t, Options{})
	name := topic(t, c, 2, "max.message.bytes=1000")
	large := []Record{{Value: noise(2000)}}
	produced := c.ProduceAll(t.Context(), name,
		[]ProduceTo{{0, large}, {1, []Record{{Value: []byte("x")}}}, {7, []Record{{Value: []byte("x")}}}})
	if err := produced[0].Err; Classify(err) != Rejected || !errors.Is(err, kafka.MessageSizeTooLarge) ||
		!strings.Contains(err.Error(), "produce to "+name+"/0:") {
		t.Errorf("too large: %v", err)
	}
	if produced[1].Err != nil || produced[1].Offset != 0 {
		t.Errorf("next to it: %+v", produced[1])
	}
	if err := produced[2].Err; Classify(err) != Missing || !strings.Contains(err.Error(), name+"/7") {
		t.Errorf("a partition too many: %v", err)
	}
	got := c.FetchAll(t.Context(), name, []FetchFrom{{0, 5, 1000}, {1, 0, 1000}}, 1<<20, time.Second)
	if err := got[0].Err; Classify(err) != OutOfRange || !strings.Contains(err.Error(), name+"/0 at offset 5") {
		t.Errorf("out of range: %v", err)
	}
	if got[1].Err != nil || len(got[1].Records) != 1 {
		t.Errorf("next to it: %+v", got[1])
	}
}

func TestAnErrorOfTheRequestIsThatOfEachPartition(t *testing.T) {
	c := client(t, Options{Brokers: []string{"127.0.0.1:1"}, Timeout: time.Second})
	produced := c.ProduceAll(t.Context(), "t", []ProduceTo{{4, []Record{{}}}, {5, []Record{{}}}})
	got := c.FetchAll(t.Context(), "t", []FetchFrom{{4, 0, 1}, {5, 0, 1}}, 1, 0)
	for i := range 2 {
		for what, err := range map[string]error{
			"produce to t/4 and 1 more partitions": produced[i].Err,
			"fetch t/4 and 1 more partitions":      got[i].Err,
		} {
			if Classify(err) != Transient || !strings.Contains(err.Error(), what) {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
}

// An answer is filled in the order of the question, and the first partition that holds anything gets a batch of it.
func TestTheFirstPartitionOfAFullAnswerComes(t *testing.T) {
	c := client(t, Options{})
	name := topic(t, c, 2)
	for partition := range 2 {
		_, err := c.Produce(t.Context(), name, partition, Record{Value: bytes.Repeat([]byte("x"), 100_000)})
		must(t, err)
	}
	for first := range 2 {
		got := c.FetchAll(t.Context(), name, []FetchFrom{{first, 0, 1000}, {1 - first, 0, 1000}}, 1000, time.Second)
		if got[0].Err != nil || got[1].Err != nil || len(got[0].Records) != 1 || len(got[1].Records) != 0 ||
			got[1].HighWatermark != 1 {
			t.Errorf("%d first: %+v", first, got)
		}
	}
}

// severalLeaders: a request goes to the broker that leads its first partition. Others have to be asked for elsewhere.
func severalLeaders(t *testing.T, cluster *testbed.KafkaCluster) {
	c := client(t, Options{Brokers: cluster.Brokers(), Timeout: 5 * time.Second})
	name := cluster.Topic(t, cluster.NewTopicName(t), 3)
	for partition := range 3 {
		cluster.MoveLeader(t, name, partition, partition+1)
	}
	testbed.Eventually(t, 2*time.Minute, "leaders", func() bool {
		got, err := c.Leaders(t.Context(), name)
		return err == nil && len(got) == 3 && got[0] == 1 && got[1] == 2 && got[2] == 3
	})
	x := []Record{{Value: []byte("x")}}
	testbed.Eventually(t, 2*time.Minute, "a record",
		func() bool { return c.ProduceAll(t.Context(), name, []ProduceTo{{1, x}})[0].Err == nil })
	produced := c.ProduceAll(t.Context(), name, []ProduceTo{{1, x}, {2, x}})
	got := c.FetchAll(t.Context(), name, []FetchFrom{{1, 0, 1000}, {2, 0, 1000}}, 1000, time.Second)
	if produced[0].Err != nil || got[0].Err != nil || len(got[0].Records) != 2 {
		t.Errorf("of the leader: %+v, %+v", produced[0], got[0])
	}
	if Classify(produced[1].Err) != Transient || !errors.Is(produced[1].Err, kafka.NotLeaderForPartition) {
		t.Errorf("of another leader: %v", produced[1].Err)
	}
	if got[1].Err != nil { // which has a replica
		t.Errorf("of another leader: %v", got[1].Err)
	}
}
