package broker

import (
	"context"
	"errors"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// operations are the bits of rights in the brokers' answers.
// Source: org.apache.kafka.common.acl.AclOperation, KIP-430.
func operations() map[string]int32 {
	return map[string]int32{"Read": 1 << 3, "Write": 1 << 4, "Delete": 1 << 6}
}

// rights looks for rights to topics that are missing.
func (k *checker) rights(ctx context.Context, topics []Topic) {
	has, err := k.authorized(ctx, topics)
	if err != nil {
		k.report(k.Explain(ctx, "ask for our rights to topics", err, Need{}))
		return
	}
	for _, t := range topics {
		bits, known := has[t.Name]
		if !known { // it does not exist, or we may not even see it
			continue
		}
		for _, a := range t.Access {
			switch {
			case bits&operations()[a] != 0:
			case a == "Delete":
				k.warn(k.aclCommand("topic", t.Name, a),
					"kafka: user %s may not %s records of topic %s: those that are done with stay, and it grows forever", k.User(), a,
					t.Name)
			default:
				k.fail(k.aclCommand("topic", t.Name, a), "kafka: user %s may not %s topic %s", k.User(), a, t.Name)
			}
		}
	}
}

// authorized asks the first broker of the configuration that answers what we may do with topics. The library's client
// does not ask that, so a connection of its own does.
func (c *Client) authorized(ctx context.Context, topics []Topic) (map[string]int32, error) {
	req := &metadata.Request{TopicNames: []string{}, IncludeTopicAuthorizedOperations: true}
	for _, t := range topics {
		req.TopicNames = append(req.TopicNames, t.Name)
	}
	var errs []error
	for _, address := range c.o.Brokers {
		res, err := c.ask(ctx, address, req)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		has := map[string]int32{}
		for _, t := range res.(*metadata.Response).Topics {
			if t.ErrorCode == 0 {
				has[t.Name] = t.TopicAuthorizedOperations
			}
		}
		return has, nil
	}
	return nil, errors.Join(errs...)
}

// ask makes one request for metadata of one broker.
func (c *Client) ask(ctx context.Context, address string, req protocol.Message) (protocol.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	conn, err := c.dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	pc := protocol.NewConn(conn, c.o.ClientID)
	pc.SetVersions(map[protocol.ApiKey]int16{protocol.Metadata: 8}) // since Kafka 2.3
	return pc.RoundTrip(req)
}

// groups looks for consumer groups that we may not use.
func (k *checker) groups(ctx context.Context, groups []string) {
	for _, g := range groups {
		if _, err := k.GroupMembers(ctx, g); Classify(err) == Denied {
			e := k.explain(ctx, "look at group "+g, kafka.GroupAuthorizationFailed, Need{"Read", "group", g})
			k.fail(k.aclCommand("group", g, "Read"), "kafka: %v", e.Err)
		}
	}
}
