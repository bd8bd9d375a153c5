package broker

import (
	"context"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// leave is a LeaveGroup request. The library has one, but takes the first two fields of the answer for each other: a
// refusal is a throttle time to it, and no error. Brokers have known version 1 since 0.11, and those of 4.x still do.
// See https://kafka.apache.org/protocol#The_Messages_LeaveGroup.
type leave struct{ group, member, clientID string }

// left is the answer.
type left struct{ code kafka.Error }

// ApiKey returns the number of LeaveGroup.
func (*leave) ApiKey() protocol.ApiKey { return protocol.LeaveGroup }

// ApiKey returns the number of LeaveGroup.
func (*left) ApiKey() protocol.ApiKey { return protocol.LeaveGroup }

// Required says that RawExchange is used.
func (*leave) Required(map[protocol.ApiKey]int16) bool { return true }

// Group has the request sent to the group's coordinator.
func (l *leave) Group() string { return l.group }

// RawExchange sends the request and reads the answer.
func (l *leave) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	w := newRequest(protocol.LeaveGroup, 1, l.clientID, len(l.group)+len(l.member)+4)
	w.str(l.group)
	w.str(l.member)
	answer, err := exchange(rw, w)
	if err != nil {
		return nil, err
	}
	r := reader{b: answer}
	r.i32() // throttled
	code := r.i16()
	if r.failed {
		return nil, errShort
	}
	return &left{kafka.Error(code)}, nil
}

// LeaveGroup has a member leave its consumer group. It is no error of ours, but [kafka.UnknownMemberId], if the group
// does not know it.
func (c *Client) LeaveGroup(ctx context.Context, group, member string) error {
	msg, err := c.transport.RoundTrip(ctx, c.kafka.Addr, &leave{group: group, member: member, clientID: c.o.ClientID})
	if err == nil {
		if code := msg.(*left).code; code != 0 {
			err = code
		}
	}
	return err
}
