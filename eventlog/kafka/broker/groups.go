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
	// Metadata is what was committed with it, and On on which Redis all before it was done.
	Metadata string
	On       WorkedOn
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
	all, err := c.OffsetsOfAll(ctx, group, topic)
	return all[topic], err
}

// OffsetsOfAll is GroupOffsets for several topics, by one request.
func (c *Client) OffsetsOfAll(ctx context.Context, group string, topics ...string,
) (map[string]map[int]Committed, error) {
	asked, committed := map[string][]int{}, map[string]map[int]Committed{}
	for _, topic := range topics {
		n, err := c.Partitions(ctx, topic)
		if err != nil {
			return nil, err
		}
		committed[topic] = map[int]Committed{}
		for i := range n {
			asked[topic] = append(asked[topic], i)
		}
	}
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.kafka.OffsetFetch(attempt, &kafka.OffsetFetchRequest{GroupID: group, Topics: asked})
	if err == nil {
		err = res.Error
		for topic, partitions := range res.Topics {
			for _, p := range partitions {
				switch {
				case p.Error != nil:
					err = p.Error
				case p.CommittedOffset >= 0:
					metadata, on := CutWorkedOn(p.Metadata)
					committed[topic][p.Partition] = Committed{p.CommittedOffset, metadata, on}
				}
			}
		}
	}
	if err != nil {
		return nil, c.Explain(ctx, "ask for the offsets of group "+group, err, Need{"Describe", "group", group})
	}
	return committed, nil
}
