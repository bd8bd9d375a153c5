package letters

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/group"
	"github.com/freshet/freshet/retry"
)

// member is a store whose partitions come from a real group.
type member struct {
	*process
	stop func()
}

func (r *rig) join(t *testing.T) *member {
	p := &process{Store: r.store(), rig: r}
	g, err := group.New(r.client, group.Options{
		ID: r.o.Group, Topics: p.Topics(), Session: 6 * time.Second, Log: r.o.Log,
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, p.Serve) }()
	m := &member{p, func() {
		if ctx.Err() == nil {
			cancel()
			must(t, <-ended)
		}
	}}
	t.Cleanup(func() { m.stop() })
	return m
}

// settleAll settles keys that are offered until it has settled n.
func (m *member) settleAll(t *testing.T, n int) {
	t.Helper()
	for n > 0 {
		var got []retry.Entry
		m.wait(func() bool { return len(m.windows) > 0 })
		got, err := m.Due(t.Context(), ever(), 100)
		must(t, err)
		if len(got) == 0 {
			m.wait(func() bool { return len(m.ids) > 0 })
			continue
		}
		must(t, m.Settle(t.Context(), ids(got), nil))
		n -= len(got)
	}
}

func TestTheMembersOfAGroupShareTheTopicsAndTakeOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	a := r.join(t)
	a.wait(func() bool { return len(a.windows) == 3 })
	b := r.join(t)
	b.wait(func() bool { return len(b.windows) == 1 })
	a.wait(func() bool { return len(a.windows) == 2 })
	var entries []retry.Entry
	for n := range 30 {
		entries = append(entries, entry(n, r.o.Delays[n%3]))
	}
	r.park(a.Store, entries...)
	b.settleAll(t, 10)
	a.settleAll(t, 20)
	r.park(b.Store, entries...)
	a.settleAll(t, 20)
	a.stop() // with all of its keys settled: nobody tries them again
	b.wait(func() bool { return len(b.windows) == 3 })
	b.settleAll(t, 10)
	b.stop()
	for _, topic := range a.Topics() {
		offsets, err := r.client.GroupOffsets(t.Context(), r.o.Group, topic)
		must(t, err)
		if fmt.Sprint(offsets[0].Offset) != fmt.Sprint(r.end(topic)) {
			t.Errorf("%s: %v is committed of %d", topic, offsets[0], r.end(topic))
		}
	}
}

func TestFinishedKeysAreRemovedFromTheTopicsAndNoOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{TrimEvery: time.Millisecond})
	topic := r.store().Topics()[0]
	a := r.join(t)
	for n := range 5 {
		r.park(a.Store, entry(n, time.Second))
	}
	a.wait(func() bool { return len(a.ids) == 5 })
	got, err := a.Due(t.Context(), ever(), 3)
	must(t, err)
	must(t, a.Settle(t.Context(), ids(got), nil))
	a.stop() // so that it is committed
	b := r.join(t)
	b.wait(func() bool { return len(b.ids) == 2 })
	for n := 5; ; n++ { // each read is followed by a look
		r.park(b.Store, entry(n, time.Second))
		b.wait(func() bool { return len(b.ids) == n-2 })
		start, _, err := r.client.Range(t.Context(), topic, 0)
		must(t, err)
		if start == 3 {
			break
		}
		if start != 0 || n > 100 {
			t.Fatalf("the topic begins at %d, want 3", start)
		}
	}
	b.stop()
	c := r.join(t)
	c.wait(func() bool { return len(c.ids) > 2 })
	got, err = c.Due(t.Context(), ever(), 2)
	must(t, err)
	r.want("after that", got, "user:3", "user:4")
}

// kafka-consumer-groups.sh --reset-offsets --all-topics sets those of the retry topics too.
func TestAnOffsetOfParkedKeysThatAnotherProgramHasSetIsADoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	topic := r.store().Topics()[0]
	a := r.join(t)
	for n := range 5 {
		r.park(a.Store, entry(n, time.Second))
	}
	a.settleAll(t, 5)
	for n := range 5 {
		r.park(a.Store, entry(n, time.Second))
	}
	a.stop()
	b := r.join(t) // what is freshet's own is none
	b.wait(func() bool { return len(b.ids) == 5 })
	b.stop()
	if d := r.o.Doubts.List(); len(d) != 0 {
		t.Fatalf("doubts: %+v", d)
	}
	res, err := r.client.Kafka().OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{
		GroupID: r.o.Group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{topic: {{Offset: 8}}},
	})
	must(t, err)
	must(t, res.Topics[topic][0].Error)
	for range 2 { // and once only
		c := r.join(t)
		c.wait(func() bool { return len(c.ids) == 2 })
		c.stop()
		d := r.o.Doubts.List()
		if len(d) != 1 || d[0].Cause != alarm.PositionSkipped || d[0].Subject != topic+"/0" || d[0].Count != 1 ||
			!strings.Contains(d[0].Message, "was set to 8 by another program") {
			t.Fatalf("doubts: %+v", d)
		}
	}
}
