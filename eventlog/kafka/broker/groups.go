package broker

import (
	"context"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describegroups"
)

// Committed is how far a group has come in a partition.
type Committed struct {
	// Offset is that of the next record to process.
	Offset int64
	// Metadata is what was committed with it.
	Metadata string
}

// GroupMembers returns how many members a consumer group has: 0 when it has none, or does not exist. A member that
// was killed counts until its session has timed out. The library's own request is passed by: it cannot read members
// that are only joining.
func (c *Client) GroupMembers(ctx context.Context, group string) (int, error) {
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	msg, err := c.transport.RoundTrip(attempt, c.kafka.Addr, &describegroups.Request{Groups: []string{group}})
	if err == nil {
		for _, g := range msg.(*describegroups.Response).Groups {
			switch {
			case g.GroupID != group || kafka.Error(g.ErrorCode) == kafka.GroupIdNotFound:
			case g.ErrorCode != 0:
				err = kafka.Error(g.ErrorCode)
			default:
				return len(g.Members), nil
			}
		}
	}
	return 0, c.Explain(ctx, "ask for the members of group "+group, err, Need{"Describe", "group", group})
}

// GroupOffsets returns how far a group has come in a topic, by partition. A partition without a commit is left out.
func (c *Client) GroupOffsets(ctx context.Context, group, topic string) (map[int]Committed, error) {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	partitions := make([]int, n)
	for i := range partitions {
		partitions[i] = i
	}
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	committed := map[int]Committed{}
	res, err := c.kafka.OffsetFetch(attempt,
		&kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: partitions}})
	if err == nil {
		err = res.Error
		for _, p := range res.Topics[topic] {
			switch {
			case p.Error != nil:
				err = p.Error
			case p.CommittedOffset >= 0:
				committed[p.Partition] = Committed{p.CommittedOffset, p.Metadata}
			}
		}
	}
	if err != nil {
		return nil, c.Explain(ctx, "ask for the offsets of group "+group, err, Need{"Describe", "group", group})
	}
	return committed, nil
}
