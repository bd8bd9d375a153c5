package broker

import (
	"errors"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/segmentio/kafka-go"
)

// TestAClusterOfThree has one cluster, since that takes three brokers to start. Its leaders move last.
func TestAClusterOfThree(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t, testbed.KafkaOptions{Brokers: 3})
	t.Run("partitions of several leaders", func(t *testing.T) { severalLeaders(t, cluster) })
	t.Run("leaders that go", func(t *testing.T) { leadersThatGo(t, cluster) })
}

// leadersThatGo plays a cluster's life to one client. Each part says how long it may stay blind.
func leadersThatGo(t *testing.T, cluster *testbed.KafkaCluster) {
	c := client(t, Options{Brokers: cluster.Brokers(), Timeout: 2 * time.Second})
	name := cluster.Topic(t, cluster.NewTopicName(t), 1)
	// until tries again at once until it succeeds. How long that takes is logged.
	until := func(what string, try func() error) {
		t.Helper()
		began, tries := time.Now(), 0
		testbed.Eventually(t, 2*time.Minute, what, func() bool {
			tries++
			err := try()
			if class := Classify(err); err != nil && class != Transient {
				t.Fatalf("%s: %v: %v", what, class, err)
			}
			if err != nil {
				t.Logf("%s: try %d after %v: %v", what, tries, time.Since(began).Round(time.Millisecond), err)
			}
			return err == nil
		})
		t.Logf("%s: %d tries, %v", what, tries, time.Since(began).Round(time.Millisecond))
	}
	produce := func() error {
		_, err := c.Produce(t.Context(), name, 0, Record{Value: []byte("x")})
		return err
	}
	fetch := func() error {
		_, err := c.Fetch(t.Context(), name, 0, 0, 1<<20, time.Second)
		return err
	}
	strict := cluster.Topic(t, cluster.NewTopicName(t), 1, "min.insync.replicas=3")
	until("the first", produce)

	next := func(id int) int { return id%3 + 1 }
	for range 2 {
		cluster.MoveLeader(t, name, 0, next(cluster.Leader(t, name, 0)))
		until("produce after a move", produce)
		cluster.MoveLeader(t, name, 0, next(cluster.Leader(t, name, 0)))
		until("fetch after a move", fetch)
	}

	dead := cluster.Leader(t, name, 0)
	must(t, cluster.Broker(dead).Kill())
	cluster.AwaitLeader(t, name, 0, dead)
	until("produce after a death", produce)
	// A topic that wants all three acknowledges nothing now.
	cluster.AwaitLeader(t, strict, 0, dead)
	var short error
	testbed.Eventually(t, 2*time.Minute, "too few replicas", func() bool {
		_, short = c.Produce(t.Context(), strict, 0, Record{Value: []byte("x")})
		return errors.Is(short, kafka.NotEnoughReplicas) || errors.Is(short, kafka.NotEnoughReplicasAfterAppend)
	})
	if Classify(short) != Transient {
		t.Errorf("with two of three: %v: %v", Classify(short), short)
	}
	must(t, cluster.Start(t.Context()))
	cluster.AwaitInSync(t) // else two are left that count, and none of them may hang

	hung := cluster.Leader(t, name, 0)
	must(t, cluster.Broker(hung).Pause())
	until("produce while the leader hangs", produce)
	must(t, cluster.Broker(hung).Resume())
	must(t, cluster.Start(t.Context()))

	leader := cluster.Leader(t, name, 0)
	for _, id := range []int{next(leader), next(next(leader))} {
		must(t, cluster.Broker(id).Kill())
	}
	err := produce()
	if Classify(err) != Transient {
		t.Errorf("without replicas: %v: %v", Classify(err), err)
	}
	must(t, cluster.Start(t.Context()))
	until("produce when the replicas are back", produce)
}
