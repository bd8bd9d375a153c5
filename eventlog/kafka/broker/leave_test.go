package broker

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/proof/testbed"
)

// canned answers every request with the same.
type canned struct {
	io.Reader
	sent bytes.Buffer
}

func (c *canned) Write(p []byte) (int, error) { return c.sent.Write(p) }

func TestARefusalToLetAMemberGoIsAnError(t *testing.T) {
	for _, k := range []struct {
		body []byte // throttle time, error
		code kafka.Error
	}{
		{[]byte{0, 0, 0, 0, 0, 0}, 0},
		{[]byte{0, 0, 0, 0, 0, 15}, kafka.GroupCoordinatorNotAvailable},
		{[]byte{0, 0, 0, 9, 0, 16}, kafka.NotCoordinatorForGroup},
		{[]byte{0, 1, 0, 0, 0, 0}, 0}, // throttled for a minute
	} {
		answer := append([]byte{0, 0, 0, 10, 0x66, 0x72, 0x65, 0x73}, k.body...)
		wire := &canned{Reader: bytes.NewReader(answer)}
		msg, err := (&leave{group: "g", member: "m", clientID: "c"}).RawExchange(wire)
		must(t, err)
		if got := msg.(*left).code; got != k.code {
			t.Errorf("%v: %v, want %v", k.body, got, k.code)
		}
		if want := []byte("\x00\x00\x00\x11\x00\x0d\x00\x01fres\x00\x01c\x00\x01g\x00\x01m"); !bytes.Equal(wire.sent.Bytes(),
			want) {
			t.Errorf("sent %q, want %q", wire.sent.Bytes(), want)
		}
	}
	short := &canned{Reader: bytes.NewReader([]byte{0, 0, 0, 8, 0x66, 0x72, 0x65, 0x73, 0, 0, 0, 0})}
	if _, err := (&leave{}).RawExchange(short); !errors.Is(err, errShort) {
		t.Errorf("a short answer: %v", err)
	}
}

// Brokers say so of a member that they do not know.
func TestAMemberThatIsNotKnownCannotLeave(t *testing.T) {
	cluster := testbed.SharedKafka(t)
	c := client(t, Options{Brokers: cluster.Brokers()})
	group := cluster.NewTopicName(t)
	var err error
	testbed.Eventually(t, 2*time.Minute, "the coordinator answers", func() bool {
		err = c.LeaveGroup(t.Context(), group, "nobody-1")
		return Classify(err) != Transient
	})
	if !errors.Is(err, kafka.UnknownMemberId) {
		t.Errorf("%v, want %v", err, kafka.UnknownMemberId)
	}
}
