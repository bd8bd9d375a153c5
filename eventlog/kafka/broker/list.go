package broker

import (
	"context"
	"errors"
	"slices"

	"github.com/segmentio/kafka-go"
)

// Topics returns the names of all topics that we may see. The library's client only knows those that it was asked
// about, so a connection of its own asks.
func (c *Client) Topics(ctx context.Context) ([]string, error) {
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	var errs []error
	for _, address := range c.o.Brokers {
		names, err := c.topicsOf(attempt, address)
		if err == nil {
			return names, nil
		}
		errs = append(errs, err)
	}
	return nil, c.Explain(ctx, "list the topics", errors.Join(errs...), Need{"Describe", "topic", "*"})
}

func (c *Client) topicsOf(ctx context.Context, address string) ([]string, error) {
	conn, err := c.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	partitions, err := conn.ReadPartitions()
	if err != nil {
		return nil, err
	}
	return topicNames(partitions), nil
}

// topicNames returns the topics of partitions, each once.
func topicNames(partitions []kafka.Partition) []string {
	var all []string
	for _, p := range partitions {
		all = append(all, p.Topic)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
