package group

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
)

// interrupter holds up who logs a message that begins in a certain way, until the test lets it go on.
type interrupter struct {
	slog.Handler
	message string
	held    chan struct{}
	goOn    chan struct{}
}

func (i *interrupter) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, i.message) {
		i.held <- struct{}{}
		<-i.goOn
	}
	return i.Handler.Handle(ctx, r)
}

// A topic is made just after the partitions were shared out without it, and before anybody watches it: nothing changes
// any more that the library would see.
func TestATopicThatIsMadeWhileNothingIsSharedOutIsShared(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.SharedKafka(t), 3)
	late := r.group + ".late"
	r.topics = append(r.topics, late)
	i := &interrupter{
		slog.NewTextHandler(t.Output(), nil), "nothing is shared out", make(chan struct{}),
		make(chan struct{}),
	}
	m := r.join(Options{Log: slog.New(i)}, nil)
	select {
	case <-i.held:
	case <-time.After(patience):
		t.Fatal("nobody says that a topic is missing")
	}
	r.cluster.Topic(t, late, 2)
	close(i.goOn)
	if n := take(t, m.counts, 1, "generations"); n[0] != 0 {
		t.Fatalf("%d partitions were shared out without a topic", n[0])
	}
	m.began(5)
}

// Kafka's own default is to create a topic that somebody asks about, and the library says nothing against it.
func TestATopicThatIsMissingIsNotCreatedByAskingForIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.SharedKafka(t), 3)
	there := r.topics[0]
	for i := range 40 { // more than the library sends in one go
		r.topics = append(r.topics, fmt.Sprintf("%s.%d.%s", r.group, i, strings.Repeat("x", 100)))
	}
	m := r.join(Options{}, nil)
	take(t, m.counts, 3, "generations") // before each the library has asked
	c, err := broker.New(broker.Options{Brokers: r.cluster.Brokers()})
	must(t, err)
	defer func() { must(t, c.Close()) }()
	all, err := c.Topics(t.Context())
	must(t, err)
	for _, topic := range all {
		if strings.HasPrefix(topic, r.group) && topic != there {
			t.Errorf("topic %s exists", topic)
		}
	}
}
