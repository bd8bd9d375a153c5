package testbed

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// partition returns what is known of a partition, or an error if it is not known.
func (v *clusterView) partition(topic string, partition int) (*metadata.ResponsePartition, error) {
	if t := v.topic(topic); t != nil {
		for i := range t.Partitions {
			if int(t.Partitions[i].PartitionIndex) == partition {
				return &t.Partitions[i], nil
			}
		}
	}
	return nil, fmt.Errorf("%s/%d is not known", topic, partition)
}

// Leader returns the id of the broker that leads a partition, or -1 while there is none.
func (c *KafkaCluster) Leader(t testing.TB, topic string, partition int) int {
	t.Helper()
	p := c.view(t, topic, partition)
	return int(p.LeaderID)
}

// view returns what the first running broker that answers knows of a partition.
func (c *KafkaCluster) view(t testing.TB, topic string, partition int) *metadata.ResponsePartition {
	t.Helper()
	var last error
	for _, b := range c.running() {
		v, err := kafkaMetadata(t.Context(), b.internal, topic)
		if err == nil {
			var p *metadata.ResponsePartition
			if p, err = v.partition(topic, partition); err == nil {
				return p
			}
		}
		last = fmt.Errorf("broker %d: %w", b.ID, err)
	}
	t.Fatalf("testbed: kafka: %v", last)
	return nil
}

// awaitServed returns when partitions of a topic, all or those given, are served by their
// leaders.
func (c *KafkaCluster) awaitServed(ctx context.Context, topic string, partitions ...int) error {
	return c.everywhere(ctx, []string{topic}, func(v *clusterView) error {
		var errs []error
		for _, b := range c.running() {
			errs = append(errs, b.serves(ctx, v, partitions...))
		}
		return errors.Join(errs...)
	})
}

// AwaitLeader returns when all running brokers agree that another broker than the given one
// leads and serves the partition, and returns which: what follows a kill of the leader.
func (c *KafkaCluster) AwaitLeader(t testing.TB, topic string, partition, not int) (leader int) {
	t.Helper()
	Must(t, c.everywhere(t.Context(), []string{topic}, func(v *clusterView) error {
		p, err := v.partition(topic, partition)
		if err == nil && (p.LeaderID < 0 || int(p.LeaderID) == not) {
			err = fmt.Errorf("%s/%d is led by %d", topic, partition, p.LeaderID)
		}
		if err == nil {
			leader = int(p.LeaderID)
		}
		return err
	}))
	Must(t, c.awaitServed(t.Context(), topic, partition))
	return leader
}

// MoveLeader makes a broker the leader of a partition, and returns when it serves and all
// running brokers know. The broker must hold a replica in sync. It stays the partition's preferred leader.
func (c *KafkaCluster) MoveLeader(t testing.TB, topic string, partition, broker int) {
	t.Helper()
	replicas := []int{broker}
	for _, r := range c.view(t, topic, partition).ReplicaNodes {
		if int(r) != broker {
			replicas = append(replicas, int(r))
		}
	}
	what := fmt.Sprintf("move the leader of %s/%d to broker %d", topic, partition, broker)
	c.admin(t, what, func(ctx context.Context, k *kafka.Client) error {
		if err := reassign(ctx, k, topic, partition, replicas); err != nil {
			return err
		}
		// The order of the replicas is known at once where the election is decided.
		if err := electPreferred(ctx, k, topic, partition); err != nil {
			return err
		}
		err := c.everywhere(ctx, []string{topic}, func(v *clusterView) error {
			p, err := v.partition(topic, partition)
			if err == nil && int(p.LeaderID) != broker {
				err = fmt.Errorf("%s/%d is led by %d", topic, partition, p.LeaderID)
			}
			return err
		})
		if err != nil {
			return err
		}
		return c.awaitServed(ctx, topic, partition)
	})
}

// reassign sets the replicas of a partition; the first is its preferred leader.
func reassign(ctx context.Context, k *kafka.Client, topic string, partition int, replicas []int) error {
	res, err := k.AlterPartitionReassignments(ctx, &kafka.AlterPartitionReassignmentsRequest{
		Topic:       topic,
		Assignments: []kafka.AlterPartitionReassignmentsRequestAssignment{{PartitionID: partition, BrokerIDs: replicas}},
		Timeout:     kafkaTimeout,
	})
	if err != nil {
		return err
	}
	for _, p := range res.PartitionResults {
		if p.Error != nil {
			return p.Error
		}
	}
	return res.Error
}

// electPreferred has the preferred leader of a partition elected.
func electPreferred(ctx context.Context, k *kafka.Client, topic string, partition int) error {
	res, err := k.ElectLeaders(ctx,
		&kafka.ElectLeadersRequest{Topic: topic, Partitions: []int{partition}, Timeout: kafkaTimeout})
	if err != nil {
		return err
	}
	for _, p := range res.PartitionResults {
		if p.Error != nil && !errors.Is(p.Error, kafka.ElectionNotNeeded) {
			return p.Error
		}
	}
	return res.Error
}

// AwaitInSync returns when all running brokers say that every replica of every partition is
// in sync.
func (c *KafkaCluster) AwaitInSync(t testing.TB) {
	t.Helper()
	Must(t, c.everywhere(t.Context(), []string{allTopics}, func(v *clusterView) error {
		for _, topic := range v.Topics {
			for _, p := range topic.Partitions {
				if p.LeaderID < 0 || len(p.IsrNodes) < len(p.ReplicaNodes) {
					return fmt.Errorf("%s/%d: leader %d, replicas %v, in sync %v", topic.Name, p.PartitionIndex, p.LeaderID,
						p.ReplicaNodes, p.IsrNodes)
				}
			}
		}
		return nil
	}))
}
