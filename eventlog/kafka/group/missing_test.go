package group

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/testbed"
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
	r := newRig(t, testbed.SharedKafka(t), 3)
	late := r.group + ".late"
	r.topics = append(r.topics, late)
	i := &interrupter{slog.NewTextHandler(t.Output(), nil), "nothing is shared out", make(chan struct{}), make(chan struct{})}
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
