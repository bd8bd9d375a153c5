package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/retry"
)

// Ensure sees to it that topics exist, creating those that do not if create allows it, and returns once each of their
// partitions answers. Somebody else may create the same ones at the same time.
//
// Where a topic is missing and may not be created, the error, of class [Missing] or [Denied], holds for all of them
// the commands that do. An error of class [Transient] may be met by trying again. What a topic that exists is set to
// is for [Client.Check] to judge.
func (c *Client) Ensure(ctx context.Context, topics []Topic, create bool) error {
	topics = distinct(topics)
	missing, denied, err := c.missing(ctx, topics)
	if err == nil && len(denied) > 0 {
		err = c.mayNotSee(denied, len(topics))
	}
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if !create {
			return c.mustCreate(missing, &Error{
				Class: Missing, What: "look for topics",
				Err: errors.New("eventlog.kafka.create_topics is false, and these do not exist"),
			})
		}
		if err := c.create(ctx, missing); err != nil {
			return err
		}
	}
	return c.answering(ctx, topics)
}

// missing returns the topics that do not exist, and those of which we may not know whether they do.
func (c *Client) missing(ctx context.Context, topics []Topic) (missing, denied []Topic, err error) {
	names := make([]string, len(topics))
	for i := range topics {
		names[i] = topics[i].Name
	}
	if _, err := c.transport.use(names...); err != nil {
		return nil, nil, c.Explain(ctx, "look for topics", err, Need{})
	}
	c.transport.refresh(ctx, c.kafka.Addr) // so that what was created a moment ago is seen
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.kafka.Metadata(attempt, &kafka.MetadataRequest{Topics: names})
	if err != nil {
		return nil, nil, c.Explain(ctx, "look for topics", err, Need{})
	}
	state := map[string]error{}
	for _, t := range res.Topics {
		state[t.Name] = t.Error
	}
	for _, t := range topics {
		switch err := state[t.Name]; Classify(err) {
		case None, Transient:
		case Missing:
			missing = append(missing, t)
		case Denied:
			denied = append(denied, t)
		default:
			return nil, nil, c.Explain(ctx, "look for topic "+t.Name, err, Need{"Describe", "topic", t.Name})
		}
	}
	return missing, denied, nil
}

// mayNotSee is the error for topics that brokers hide from us: the user has no right to them at all.
func (c *Client) mayNotSee(topics []Topic, of int) error {
	e := &Error{
		Class: Denied, What: "look for topics",
		Err:    fmt.Errorf("user %s may not even see %d of %d", c.User(), len(topics), of),
		Advice: "add the ACLs:",
	}
	for _, t := range topics {
		e.Advice += "\n  " + c.aclCommand("topic", t.Name, t.Access...)
	}
	c.note(e)
	return e
}

// creation asks the brokers to create topics, or whether they would, and returns what they hold against each. It is an
// error of the whole request that stands there for all of them.
func (c *Client) creation(ctx context.Context, topics []Topic, validate bool) map[string]error {
	req := &kafka.CreateTopicsRequest{ValidateOnly: validate}
	for _, t := range topics {
		k := kafka.TopicConfig{Topic: t.Name, NumPartitions: t.Partitions, ReplicationFactor: t.Replication}
		if t.Replication == 0 {
			k.ReplicationFactor = -1 // the brokers' default (KIP-464)
		}
		for _, s := range t.Config {
			k.ConfigEntries = append(k.ConfigEntries, kafka.ConfigEntry{ConfigName: s.Name, ConfigValue: s.Value})
		}
		req.Topics = append(req.Topics, k)
	}
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.kafka.CreateTopics(attempt, req)
	if err == nil {
		return res.Errors
	}
	all := map[string]error{}
	for _, t := range topics {
		all[t.Name] = err
	}
	return all
}

// create creates topics.
func (c *Client) create(ctx context.Context, topics []Topic) error {
	found := c.creation(ctx, topics, false)
	var failed []Topic
	var first error
	for _, t := range topics {
		err := found[t.Name]
		if err == nil || errors.Is(err, kafka.TopicAlreadyExists) {
			continue
		}
		failed = append(failed, t)
		if first == nil || Classify(first) == Transient {
			first = c.Explain(ctx, "create topic "+t.Name, err, Need{"Create", "topic", t.Name})
		}
	}
	// An operator may do what we may not; what is wrong by itself stays wrong.
	if Classify(first) == Denied || errors.Is(first, kafka.PolicyViolation) {
		return c.mustCreate(failed, first)
	}
	return first
}

// distinct returns each topic once, with the rights that any of its uses takes: readers and invalidators have some in
// common.
func distinct(topics []Topic) []Topic {
	var out []Topic
	for _, t := range topics {
		i := slices.IndexFunc(out, func(o Topic) bool { return o.Name == t.Name })
		if i < 0 {
			out = append(out, t)
			continue
		}
		for _, a := range t.Access {
			if !slices.Contains(out[i].Access, a) {
				out[i].Access = append(slices.Clone(out[i].Access), a)
			}
		}
	}
	return out
}

// mustCreate is the error that says which commands create what is missing.
func (c *Client) mustCreate(topics []Topic, err error) error {
	var told *Error
	if !errors.As(err, &told) {
		return err
	}
	e := *told
	var b strings.Builder
	if e.Advice != "" {
		b.WriteString(e.Advice + ", or ")
	}
	b.WriteString("let an operator create what is missing:")
	for _, t := range topics {
		b.WriteString("\n  " + c.CreateCommand(t))
	}
	e.Advice = b.String()
	return &e
}

// answering waits until every partition has a leader that answers, for up to 30 s. A topic that was created is known
// to one broker before the other, and to its leader last.
func (c *Client) answering(ctx context.Context, topics []Topic) error {
	limit, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, t := range topics {
		for {
			err := c.answers(limit, t.Name)
			if err == nil {
				break
			}
			// A topic that another broker has just told us of may still be unknown to this one.
			if class := Classify(err); class != Transient && class != Missing {
				if ctx.Err() == nil && limit.Err() != nil {
					return &Error{Class: Transient, What: "wait for the leaders of topic " + t.Name, Err: errTimeout}
				}
				return err
			}
			_ = retry.Sleep(limit, 50*time.Millisecond) // the next attempt fails if limit has ended
		}
	}
	return nil
}

// answers asks each partition of a topic for its offsets.
func (c *Client) answers(ctx context.Context, topic string) error {
	n, err := c.Partitions(ctx, topic)
	if err != nil {
		return err
	}
	offsets := make([]kafka.OffsetRequest, n)
	for i := range offsets {
		offsets[i] = kafka.LastOffsetOf(i)
	}
	what, need := "wait for the leaders of topic "+topic, Need{"Describe", "topic", topic}
	attempt, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	res, err := c.kafka.ListOffsets(attempt,
		&kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: offsets}})
	if err != nil {
		return c.failed(ctx, what, topic, -1, err, need)
	}
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			return c.failed(ctx, fmt.Sprintf("wait for the leader of %s/%d", topic, p.Partition), topic, p.Partition, p.Error,
				need)
		}
	}
	return nil
}
