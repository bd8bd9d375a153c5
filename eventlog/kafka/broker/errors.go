package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// errClosed is what a closed client says.
var errClosed = errors.New("the client is closed")

// Error is a failure of Kafka as an operator should read it: what was tried and where, what went wrong, and what to
// do about it. It holds no secret and nothing of a record.
type Error struct {
	// Class is what it means for who called.
	Class Class
	// What was tried, and where: "produce to shop.invalidations/3".
	What string
	// Err is what went wrong.
	Err error
	// Advice is what to do, in a clause; "" where waiting is all.
	Advice string
}

// Error returns the sentence.
func (e *Error) Error() string { return "kafka: " + e.text() }

func (e *Error) text() string {
	cause := e.Err.Error()
	if inner, ok := e.Err.(*Error); ok {
		cause = inner.text()
	}
	s := e.What + ": " + cause
	if e.Advice != "" {
		s += ": " + e.Advice
	}
	return s
}

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

// Need is the right that a request needs: the ACL that is missing if the brokers deny it.
type Need struct {
	// Operation is Read, Write, Create, Describe, DescribeConfigs, Delete: as kafka-acls.sh spells it.
	Operation string
	// Resource is topic, group or cluster.
	Resource string
	// Name of the topic or group.
	Name string
}

// Explain makes a sentence of an error that a request of [Client.Kafka] or a consumer group of [Client.Group] ended
// with, as this package's own methods do of theirs: what was tried ("commit the offsets of group freshet"), why it
// failed, and what to do; need is the right that it takes. It counts the error by its class, and makes the client look
// where the leaders are now if the error may come from not knowing. ctx is the caller's, without the attempt's own
// timeout: when it has ended, so has the attempt. A nil error stays nil.
func (c *Client) Explain(ctx context.Context, what string, err error, need Need) error {
	if err == nil {
		return nil
	}
	e := c.explain(ctx, what, err, need)
	c.note(e)
	return e
}

func (c *Client) explain(ctx context.Context, what string, err error, need Need) *Error {
	e := &Error{What: what, Err: cause(err), Class: Classify(err)}
	if ctx.Err() != nil {
		e.Class, e.Err = Ended, context.Cause(ctx)
		return e
	}
	var code kafka.Error
	coded := errors.As(err, &code)
	switch {
	case e.Class != Ended:
	case c.life.Err() != nil:
		e.Err = errClosed
		return e
	case errors.Is(err, context.Canceled): // not the caller's context, so an attempt was cut short on its way
		e.Class = Transient
	}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Err = errTimeout
	}
	switch e.Class {
	case Transient:
		c.transport.refresh(ctx, c.kafka.Addr)
	case Rejected:
		e.Advice = rejectedAdvice(code, need)
	case Denied:
		e.Advice, e.Err = c.denied(need, code, coded)
	case Unauthenticated, Untrusted: // the connection's own error says it
	}
	return e
}

// failed makes a sentence of an error that concerns a partition, or all of a topic if that is negative. What the
// library says of a partition that it does not find may come from an old view of the cluster, from a topic that is
// being created, from a missing ACL or from not having reached any broker; so it looks again.
func (c *Client) failed(ctx context.Context, what, topic string, partition int, err error, need Need) error {
	e := c.explain(ctx, what, err, need)
	if e.Class == Missing {
		found := c.look(ctx, topic, partition)
		if class := Classify(found); class == None || class == Missing {
			c.transport.refresh(ctx, c.kafka.Addr)
			found = c.look(ctx, topic, partition)
		}
		if found != nil {
			e = c.explain(ctx, what, found, need)
		} else {
			e.Class = Transient // one broker does not know yet what another does
		}
		switch {
		case e.Class != Missing:
		case errors.Is(e.Err, protocol.ErrNoPartition):
			e.Err = saidNo{kafka.UnknownTopicOrPartition, "the topic does not have so many partitions"}
		default:
			e.Err = saidNo{kafka.UnknownTopicOrPartition, "topic " + topic + " does not exist"}
			e.Advice = "create it, or set eventlog.kafka.create_topics: true"
		}
	}
	c.note(e)
	return e
}

// look says what the cluster, as it was last seen, holds against a partition; nil: nothing.
func (c *Client) look(ctx context.Context, topic string, partition int) error {
	res, err := c.kafka.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	for _, t := range res.Topics {
		switch {
		case t.Name != topic:
		case t.Error != nil:
			return t.Error
		case partition >= len(t.Partitions):
			return protocol.NewErrNoPartition(topic, int32(partition))
		default:
			return nil
		}
	}
	return protocol.NewErrNoTopic(topic)
}

// denied is the sentence for a missing ACL.
func (c *Client) denied(need Need, code kafka.Error, coded bool) (advice string, err error) {
	if !coded {
		code = kafka.ClusterAuthorizationFailed
	}
	if need == (Need{}) {
		return "", code
	}
	where := need.Resource + " " + need.Name
	if need.Resource == "cluster" {
		where = "the cluster"
	}
	text := fmt.Sprintf("user %s may not %s %s", c.User(), need.Operation, where)
	return "add the ACL: " + c.aclCommand(need.Resource, need.Name, need.Operation), saidNo{code, text}
}

// aclCommand returns the command that gives us rights.
func (c *Client) aclCommand(resource, name string, operations ...string) string {
	s := c.tool("kafka-acls.sh") + " --add --allow-principal " + shellQuote("User:"+c.User())
	for _, o := range operations {
		s += " --operation " + o
	}
	s += " --" + resource
	if name != "" {
		s += " " + shellQuote(name)
	}
	return s
}

// rejectedAdvice says what helps against a refusal.
func rejectedAdvice(code kafka.Error, need Need) string {
	switch code {
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidMessageSize:
		return "raise max.message.bytes of topic " + need.Name + " to 2097152 or more"
	case kafka.UnsupportedCompressionType:
		return "set eventlog.kafka.compression to one that the brokers know"
	case kafka.UnsupportedVersion:
		return "freshet needs Kafka 2.3 or later"
	case kafka.InvalidReplicationFactor:
		return "set eventlog.kafka.replication_factor to no more than there are brokers"
	}
	return ""
}

// cause takes the library's own prefixes off an error, and leaves a connection's sentence alone.
func cause(err error) error {
	var told *Error
	if errors.As(err, &told) {
		return told
	}
	for strings.HasPrefix(err.Error(), "kafka.(*Client)") {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	return reason(err)
}

// shellQuote makes a word that a shell takes as it is.
func shellQuote(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/=@%+") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
