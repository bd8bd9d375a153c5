package letters

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

func TestParkedKeysThatTheBrokersLostAreNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		committed, below int64
		says             string
	}{
		"retention":     {committed: 1, below: 3, says: "only those below 1 were finished"},
		"no commit":     {committed: -1, below: 3, says: "has committed none"},
		"created again": {committed: 9, below: 0, says: "those below 9 were finished: the topic was created again"},
		"none, none":    {committed: -1, below: 0},
		"all read":      {committed: 5, below: 5},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			s := r.store()
			topic := s.Topics()[0]
			for n := range 5 {
				r.park(s, entry(n, time.Second))
			}
			if c.below > 0 {
				r.kafka.DeleteRecords(t, topic, 0, c.below)
			}
			if c.committed >= 0 {
				r.committed[topic] = c.committed
			}
			p := r.start(topic)
			if got := p.due(ever()); len(got) != 5-int(c.below) {
				t.Errorf("%d are due", len(got))
			}
			doubts := r.o.Doubts.List()
			if c.says == "" {
				if len(doubts) > 0 {
					t.Errorf("doubts: %+v", doubts)
				}
				return
			}
			if len(doubts) != 1 || doubts[0].Subject != topic+"/0" || !strings.Contains(doubts[0].Message, c.says) {
				t.Errorf("doubts: %+v, want one that says %q", doubts, c.says)
			}
			if got := r.alarms(); !slices.Equal(got, []alarm.Kind{alarm.RecordsLost}) {
				t.Errorf("the alarms are %v", got)
			}
			if o := r.offset(topic); o != c.below {
				t.Errorf("%d is committed, want %d, or the next start would find them lost again", o, c.below)
			}
		})
	}
}

func TestKeysThatAreLostWhileServingAreNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Window: 1})
	s := r.store()
	topic := s.Topics()[0]
	for n := range 5 {
		r.park(s, entry(n, time.Second))
	}
	p := r.start(topic)
	p.wait(func() bool { return len(p.windows) > 0 && p.windows[0].next == 1 })
	r.kafka.DeleteRecords(t, topic, 0, 3)
	got, err := p.Due(t.Context(), ever(), 1)
	must(t, err)
	must(t, p.Settle(t.Context(), ids(got), nil)) // makes room: it reads on at 1
	p.wait(func() bool { return len(p.windows) > 0 && p.windows[0].next == 4 })
	if got := r.o.Doubts.List(); len(got) != 1 || !strings.Contains(got[0].Message, "from 3 to 5") {
		t.Errorf("doubts: %+v", got)
	}
}

// The offsets that follow mean other keys, also when there are as many again before it is noticed where the topic
// begins.
func TestARetryTopicThatIsMadeAnewWhileItIsServedIsReadFromItsBeginning(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	s := r.store()
	topic := s.Topics()[0]
	w := &window{topic: topic, next: 7, commit: func(int64) {}}
	r.park(s, entry(1, time.Second))
	var cut *cutError
	if err := s.lost(t.Context(), w, errNoSense); !errors.As(err, &cut) || cut.next != 0 {
		t.Fatalf("a fetch after the end comes to %v", err)
	}
	if got := r.o.Doubts.List(); len(got) != 1 || !strings.Contains(got[0].Message, "those below 7 were finished") {
		t.Errorf("doubts: %+v", got)
	}
}

func TestATopicOfNobodysIsNotServed(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	s := r.store()
	for _, topic := range []string{r.o.Topic, s.dead, r.o.Topic + ".other.retry.10s", r.o.Topic + "." + r.o.Group +
		".retry.soon"} {
		if err := s.serve(t.Context(), assignment{topic: topic, offset: -1}); err == nil {
			t.Errorf("%s is served", topic)
		}
	}
}

func TestKeysOfADelayThatIsConfiguredNoMoreAreServed(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Delays: []time.Duration{30 * time.Second, 5 * time.Minute}})
	old := r.store()
	r.park(old, entry(1, 30*time.Second), entry(2, 5*time.Minute))
	r.o.Delays = []time.Duration{30 * time.Second, time.Hour}
	s := r.store()
	former := s.Former(append(append(old.Topics(), s.Topics()...), r.o.Topic, r.o.Topic+".other.retry.5m", s.dead))
	if len(former) != 1 || former[0] != r.o.Topic+"."+r.o.Group+".retry.5m" {
		t.Fatalf("topics of former delays: %v", former)
	}
	r.kafka.Topic(t, s.Topics()[1], 1)
	p := r.start(append(s.Topics(), former...)...)
	r.want("due", p.due(ever()), "user:1", "user:2")
}

func TestAnEntryGoesToTheTopicOfTheNearestDelay(t *testing.T) {
	s, err := New(nil, Options{Topic: "t", Group: "g"})
	must(t, err)
	now := time.Unix(1000, 0)
	for wait, want := range map[time.Duration]string{
		-time.Hour: "t.g.retry.10s", 0: "t.g.retry.10s", 2 * time.Second: "t.g.retry.10s",
		9_990 * time.Millisecond:  "t.g.retry.10s",
		59_990 * time.Millisecond: "t.g.retry.1m", 61 * time.Second: "t.g.retry.1m", 599 * time.Second: "t.g.retry.10m",
		24 * time.Hour: "t.g.retry.10m",
	} {
		if got := s.route(&retry.Entry{Due: now.Add(wait)}, now); got != want {
			t.Errorf("a wait of %s: %s, want %s", wait, got, want)
		}
	}
	if got := s.route(&retry.Entry{}, now); got != "t.g.dlq" {
		t.Errorf("a dead letter goes to %s", got)
	}
}

// cuttable is a connection that fails while Kafka is away.
type cuttable struct {
	net.Conn
	away *atomic.Bool
}

var errNobody = errors.New("nobody answers")

func (c cuttable) Write(b []byte) (int, error) {
	if c.away.Load() {
		return 0, errNobody
	}
	return c.Conn.Write(b)
}

// TestKafkaAwayIsSaidAndWaitedOut: for longer than a store waits by itself.
func TestKafkaAwayIsSaidAndWaitedOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.park(r.store(), entry(1, time.Second))
	var away atomic.Bool
	c, err := broker.New(broker.Options{
		Brokers: r.kafka.Brokers(), Timeout: time.Second,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if away.Load() {
				return nil, errNobody
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return cuttable{conn, &away}, err
		},
	})
	must(t, err)
	defer func() { must(t, c.Close()) }()
	away.Store(true)
	r.client = c
	p := r.start(r.store().Topics()[0])
	if err := p.Park(t.Context(), []retry.Entry{entry(2, time.Second)}); err == nil || errors.Is(err, retry.ErrFull) {
		t.Errorf("parked while nobody answers: %v", err)
	}
	p.wait(func() bool { return len(p.unread) == 1 })
	if _, err := p.NextDue(t.Context()); err == nil || !strings.Contains(err.Error(), errNobody.Error()) {
		t.Errorf("the engine is told %v", err)
	}
	away.Store(false)
	r.want("due", p.due(ever()), "user:1")
	if _, err := p.NextDue(t.Context()); err != nil {
		t.Errorf("the engine is still told %v", err)
	}
	r.park(p.Store, entry(2, time.Second))
	got := p.due(ever())
	r.want("due", got, "user:1", "user:2")

	away.Store(true)
	if err := p.Settle(t.Context(), ids(got[:1]), got[1:]); err == nil {
		t.Error("settled while nobody answers")
	}
	left, err := p.Due(t.Context(), ever(), 10)
	must(t, err)
	r.want("what could not be written again", left, "user:2")
	if o := r.offset(p.Topics()[0]); o != 1 {
		t.Errorf("%d is committed, want 1", o)
	}
	away.Store(false)
	must(t, p.Settle(t.Context(), nil, left))
	r.want("parked again", p.due(ever()), "user:2")
}

func TestMetricsAreComplete(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s, err := New(nil, Options{Topic: "t", Group: "g", Registerer: reg})
	must(t, err)
	problems, err := testutil.GatherAndLint(reg)
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if n, err := testutil.GatherAndCount(reg); n != 4+2*len(operations()) || err != nil {
		t.Errorf("%d series (%v)", n, err)
	}
	if !strings.Contains(s.Advice(), "t.g.retry.*") || !strings.Contains(s.Advice(), "t.g.dlq") {
		t.Errorf("the advice is %q", s.Advice())
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"no topic": {Group: "g"}, "no group": {Topic: "t"},
		"no delay": {Topic: "t", Group: "g", Delays: []time.Duration{time.Second, 0}},
		"window":   {Topic: "t", Group: "g", Window: -1},
	} {
		if _, err := New(nil, o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
