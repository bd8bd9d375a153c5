package letters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// rig is the topics of one test, and what its group has committed.
type rig struct {
	*testing.T
	kafka  *testbed.KafkaCluster
	client *broker.Client
	o      Options

	mu        sync.Mutex
	committed map[string]int64
	rewound   int
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	kafka := testbed.SharedKafka(t)
	c, err := broker.New(broker.Options{Brokers: kafka.Brokers(), Timeout: 30 * time.Second}) // the machine may be busy
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	o.Topic = kafka.NewTopicName(t)
	o.Group = "g" + o.Topic[len(o.Topic)-8:] // offsets are committed under it
	if o.Delays == nil {
		o.Delays = []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute}
	}
	o.Log = slog.New(slog.DiscardHandler)
	alarms, err := alarm.New(o.Log, nil)
	must(t, err)
	o.Alarms = alarms
	o.Doubts, err = doubt.New(nil, alarms, nil)
	must(t, err)
	r := &rig{T: t, kafka: kafka, client: c, o: o, committed: map[string]int64{}}
	s := r.store()
	kafka.Topic(t, s.dead, 1, "cleanup.policy=compact")
	for _, topic := range s.Topics() {
		kafka.Topic(t, topic, 1)
	}
	return r
}

func must(t interface {
	Helper()
	Fatal(args ...any)
}, err error,
) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// store returns a store of the rig's topics, as one more process has it.
func (r *rig) store() *Store {
	r.Helper()
	s, err := New(r.client, r.o)
	must(r, err)
	return s
}

// process is a store that serves topics.
type process struct {
	*Store
	rig  *rig
	stop map[string]func() error // by topic: revokes it, and returns what Serve did
}

// start starts a process that is given the topics; none named: all.
func (r *rig) start(topics ...string) *process {
	p := &process{Store: r.store(), rig: r, stop: map[string]func() error{}}
	if len(topics) == 0 {
		topics = p.Topics()
	}
	for _, topic := range topics {
		p.claim(topic)
	}
	r.Cleanup(func() { p.kill() })
	return p
}

// claim gives the process a topic, with the offset that the group has committed.
func (p *process) claim(topic string) {
	r := p.rig
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	owned := true
	commit := func(o int64, back bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if old, found := r.committed[topic]; owned && (back || !found || o > old) {
			r.committed[topic] = o
			if back {
				r.rewound++
			}
		}
	}
	c := assignment{
		topic: topic, offset: r.offset(topic),
		commit: func(o int64) { commit(o, false) }, rewind: func(o int64) { commit(o, true) },
	}
	go func() { ended <- p.serve(ctx, c) }()
	p.stop[topic] = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		r.mu.Lock()
		defer r.mu.Unlock()
		owned = false
		return err
	})
}

// offset returns what is committed; -1: nothing.
func (r *rig) offset(topic string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o, found := r.committed[topic]; found {
		return o
	}
	return -1
}

// kill ends the process: what it has not committed is not committed.
func (p *process) kill() {
	for _, stop := range p.stop {
		must(p.rig, stop())
	}
}

// restart kills the process and starts it again.
func (p *process) restart() *process {
	topics := slices.Collect(maps.Keys(p.stop))
	p.kill()
	return p.rig.start(topics...)
}

// seen waits until the windows hold what the topics hold.
func (p *process) seen() {
	p.rig.Helper()
	for topic := range p.stop {
		end := p.rig.end(topic)
		p.wait(func() bool {
			w := p.window(topic)
			return w != nil && w.next >= end
		})
	}
}

// wait asks until ready, which is called with the store's lock.
func (p *process) wait(ready func() bool) {
	p.rig.Helper()
	timeout := time.After(2 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		p.mu.Lock()
		ok := ready()
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			p.rig.Fatal("it does not come to be")
		}
	}
}

func (p *process) due(now time.Time) []retry.Entry {
	p.rig.Helper()
	p.seen()
	entries, err := p.Due(p.rig.Context(), now, 1<<20)
	must(p.rig, err)
	return entries
}

func (s *Store) all(t testing.TB, f retry.Filter) []retry.Entry {
	t.Helper()
	entries, err := s.DeadLetters(t.Context(), f, 0, 1<<20)
	must(t, err)
	return entries
}

func (r *rig) park(s *Store, entries ...retry.Entry) {
	r.Helper()
	must(r, s.Park(r.Context(), entries))
}

// want fails the test unless the keys of the entries are these, in this order.
func (r *rig) want(what string, entries []retry.Entry, keys ...string) {
	r.Helper()
	var got []string
	for _, e := range entries {
		got = append(got, e.Key)
	}
	if !slices.Equal(got, keys) {
		r.Errorf("%s: %q, want %q", what, got, keys)
	}
}

func ids(entries []retry.Entry) (out []uint64) {
	for _, e := range entries {
		out = append(out, e.ID)
	}
	return out
}

// window returns a topic's window; nil: there is none. It is called with the store's lock.
func (s *Store) window(topic string) *window {
	for _, w := range s.windows {
		if w.topic == topic {
			return w
		}
	}
	return nil
}

// ever is when everything parked is due.
func ever() time.Time { return time.Unix(1<<33, 0) }

// entry makes the entry of key user:n, due after some time from now; 0: a dead letter.
func entry(n int, in time.Duration) retry.Entry {
	now := time.Now().UTC()
	e := retry.Entry{
		Key: fmt.Sprintf("user:%d", n), Action: event.ActionDelete, Source: "default", Table: "shop.user",
		Version: event.Version{Epoch: 1, File: 1, Pos: uint64(n), Row: 1},
		D:       2 * time.Second, Error: "NOPERM", Attempts: 3, First: now, Last: now,
	}
	if in != 0 {
		e.Due = now.Add(in)
	}
	return e
}

// alarms returns the kinds of alarm that were raised.
func (r *rig) alarms() (kinds []alarm.Kind) {
	for _, a := range r.o.Alarms.Records() {
		kinds = append(kinds, a.Kind)
	}
	return kinds
}

// end returns where a topic ends.
func (r *rig) end(topic string) int64 {
	r.Helper()
	var end int64
	must(r, insist(r.Context(), func() (err error) {
		_, end, err = r.client.Range(r.Context(), topic, 0)
		return err
	}))
	return end
}

var errNoSense = errors.New("it makes no sense")
