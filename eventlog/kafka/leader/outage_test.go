package leader

import (
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
	"github.com/freshet/freshet/retry"
)

func TestALeaderThatIsCutOffStopsByItselfAfterASession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, line := r.proxied()
	a := r.start(client, Options{})
	one := a.leads()
	must(t, one.Begin(place(4)))
	one.Advance(to(5))
	line.Stall(proxy.ToServer | proxy.ToClient)
	late := make(chan error, 1)
	go func() { late <- one.Save() }() // on its way while nothing goes out
	b := r.start(r.connect(broker.Options{}), Options{})
	two := b.leads() // after the session
	if err := a.loses(); !errors.Is(err, errCutOff) {
		t.Errorf("it stopped because %v", err)
	}
	two.Advance(to(6))
	must(t, two.Save())
	if err := <-late; err == nil {
		t.Error("the old leader's save has succeeded")
	}
	must(t, line.Resume()) // what was on its way arrives
	for n := 0; n != 2; {
		var err error
		n, err = members(t, b.Leader)
		must(t, err)
	}
	if s := a.Status(); s.Leading || s.Reason == "" {
		t.Errorf("the old leader is %+v", s)
	}
	must(t, b.stop())
	three := a.leads()
	if p := three.Position(); p.Pos != 6 || three.Term() <= two.Term() {
		t.Errorf("the position is %s in term %d after %d", p.String(), three.Term(), two.Term())
	}
}

func TestALeaderWhoseSeatWasGivenAwayStops(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, line := r.proxied()
	a := r.start(client, Options{Watch: time.Hour})
	a.leads()
	line.Stall(proxy.ToServer | proxy.ToClient)
	b := r.start(r.connect(broker.Options{}), Options{})
	b.leads()
	must(t, line.Resume()) // before it gives up by itself
	if err := a.loses(); !errors.Is(err, errReassigned) {
		t.Errorf("it stopped because %v", err)
	}
	must(t, b.stop())
	a.leads()
}

func TestBrokersThatAreAwayEndNoTermAndLoseNothing(t *testing.T) {
	t.Parallel()
	cluster := testbed.Kafka(t)
	r := newRigOn(t, cluster)
	a := r.start(r.client, Options{Session: 30 * time.Second})
	cp := a.leads()
	must(t, cp.Begin(place(4)))
	must(t, cluster.Broker(1).Kill())

	cp.Advance(to(5))
	if err := cp.Save(); !transient(err) {
		t.Errorf("save: %v", err)
	}
	stashing, saving := make(chan error, 1), make(chan error, 1)
	go func() { stashing <- cp.Stash().Begin("x", at(6)).Append(stashed("a")) }()
	go func() { saving <- cp.SetMappings("abc") }()
	must(t, cluster.Start(t.Context()))
	must(t, <-stashing)
	must(t, <-saving)
	must(t, cp.Save())
	v, err := OpenCheckpoint(t.Context(), r.client, r.names, r.source)
	must(t, err)
	if v.Position.Pos != 5 || v.Term != cp.Term() || v.Mappings != "abc" {
		t.Errorf("the topic holds %+v", v)
	}
	if n := len(r.snapshot().prepared(&position{})); n != 1 {
		t.Errorf("the topic holds %d prepared transactions", n)
	}
	select {
	case err := <-a.lost:
		t.Errorf("the leader stopped: %v", err)
	default:
	}
}

func TestATermIsTakenOnceTheBrokersAreBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, line := r.proxied()
	line.OnRequest(func(q proxy.Request) proxy.Action {
		if q.API == proxy.Produce {
			return proxy.DropCommand
		}
		return proxy.Forward
	})
	failed, recovered, attempts := make(chan error, 1000), make(chan struct{}, 1), 0
	a := r.start(client, Options{Reporter: &retry.Reporter{
		Failed: func(err error) { failed <- err }, Recovered: func(time.Duration) { recovered <- struct{}{} },
		Kind: func(error) (string, bool) { attempts++; return strconv.Itoa(attempts), true },
	}})
	for range 3 {
		if err := <-failed; !transient(err) {
			t.Errorf("it fails with %v", err)
		}
	}
	if a.Leading() {
		t.Error("it leads without a term")
	}
	line.OnRequest(nil)
	a.leads()
	<-recovered
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	client, err := broker.New(broker.Options{Brokers: []string{"127.0.0.1:1"}})
	must(t, err)
	defer client.Close()
	o := Options{Names: broker.Names{Topic: "t"}, Source: "shop", Registerer: reg, Log: slog.New(slog.DiscardHandler)}
	l, err := New(client, o)
	must(t, err)
	l.note(Status{Leading: true, Term: 7})
	l.metrics.saved(time.Second, errors.New("no"))
	l.metrics.saved(time.Second, ErrDeposed)
	if n := testutil.ToFloat64(l.metrics.leading); n != 1 {
		t.Errorf("leading is %v", n)
	}
	if n := testutil.ToFloat64(l.metrics.term); n != 7 {
		t.Errorf("the term is %v", n)
	}
	if n := testutil.ToFloat64(l.metrics.failures); n != 1 {
		t.Errorf("%v failures", n)
	}
	if n := testutil.CollectAndCount(l.metrics.losses); n != 4 {
		t.Errorf("%d reasons at the start", n)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", problems, err)
	}
	if _, err := New(client, o); err == nil {
		t.Error("the metrics are registered twice")
	}
	if _, err := New(client, Options{MaxStashKeys: -1}); err == nil {
		t.Error("options that make no sense are taken")
	}
}
