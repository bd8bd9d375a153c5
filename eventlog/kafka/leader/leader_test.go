package leader

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

func TestAStandbyTakesOverAtOnceWhenTheLeaderStops(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(r.client, Options{Session: time.Minute})
	one := a.leads()
	must(t, one.Begin(place(4)))
	b := r.start(r.connect(brokerOptions()), Options{Session: time.Minute})
	began := time.Now()
	must(t, a.stop())
	two := b.leads()
	if took := time.Since(began); took >= time.Minute { // as if the session had to run out
		t.Errorf("the standby took %s of a session of a minute", took)
	}
	if two.Term() <= one.Term() {
		t.Errorf("the term is %d after %d", two.Term(), one.Term())
	}
	if p := two.Position(); p.Pos != 4 {
		t.Errorf("it goes on from %s", p.String())
	}
	if a.Leading() || !b.Leading() {
		t.Errorf("leading: %v, %v", a.Leading(), b.Leading())
	}
}

func TestARebalanceDoesNotStopAHealthyLeader(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(r.client, Options{})
	cp := a.leads()
	for range 2 {
		b := r.start(r.connect(brokerOptions()), Options{})
		for n := 0; n != 2; { // a member more is a generation more
			var err error
			n, err = members(t, a.Leader)
			must(t, err)
		}
		must(t, b.stop())
	}
	select {
	case err := <-a.lost:
		t.Fatalf("the leader stopped: %v", err)
	default:
	}
	if s := a.Status(); !s.Leading || s.Term != cp.Term() {
		t.Errorf("the leader is %+v, its term was %d", s, cp.Term())
	}
	must(t, cp.Begin(place(4)))
}

func TestAStandbyTakesOverWithinTheSessionWhenTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.spawn()
	p.says("led")
	standby := r.start(r.client, Options{})
	term, pos := p.says("saved")
	must(t, p.Process.Kill())
	_ = p.Wait()
	cp := standby.leads()
	if got := cp.Position(); cp.Term() <= term || got.Pos < pos {
		t.Errorf("it goes on from %s in term %d; %d was saved in term %d", got.String(), cp.Term(), pos, term)
	}
}

func TestALeaderThatWasStoppedForLongDoesNoHarmAndNotices(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.spawn()
	old.says("led")
	old.says("saved")
	standby := r.start(r.client, Options{})
	for n := 0; n != 2; {
		var err error
		n, err = members(t, standby.Leader)
		must(t, err)
	}
	must(t, old.Process.Signal(syscall.SIGSTOP))
	cp := standby.leads()
	from := cp.Position()
	cp.Advance(event.End{File: "binlog.000002", Pos: 4, State: []byte("new")})
	must(t, cp.Save())
	must(t, old.Process.Signal(syscall.SIGCONT))
	old.says("lost")
	for n := 0; n != 2; { // it stands by
		var err error
		n, err = members(t, standby.Leader)
		must(t, err)
	}
	v, err := OpenCheckpoint(t.Context(), r.client, r.names, r.source)
	must(t, err)
	if v.Position.File != "binlog.000002" || string(v.Position.State) != "new" {
		t.Errorf("the position is %s with state %q; the new leader began at %s", v.Position.String(), v.Position.State,
			from.String())
	}
	select {
	case err := <-standby.lost:
		t.Errorf("the new leader stopped: %v", err)
	default:
	}
	must(t, cp.SetMappings("x")) // still leading
}

func TestAHigherTermEndsALeadershipAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(r.client, Options{Watch: 10 * time.Millisecond})
	one := a.leads()
	must(t, one.Begin(place(4)))
	before := a.generations.Load()
	other := r.open()
	if err := a.loses(); !errors.Is(err, ErrDeposed) {
		t.Errorf("it stopped because %v", err)
	}
	one.Advance(event.End{File: "binlog.000001", Pos: 5})
	if err := one.Save(); !errors.Is(err, ErrDeposed) {
		t.Errorf("the old leader saves: %v", err)
	}
	if err := one.SetMappings("x"); !errors.Is(err, ErrDeposed) {
		t.Errorf("the old leader saves: %v", err)
	}
	// The group still gives it the partition, also once it has joined again: it leads again, in a higher term.
	if two := a.leads(); two.Term() <= other.Term() {
		t.Errorf("it leads again in term %d after %d", two.Term(), other.Term())
	}
	if a.generations.Load() == before {
		t.Error("it leads again in the generation in which it was deposed")
	}
}

func TestALeaderStopsAtOnceWhenItsSaveMeetsAHigherTerm(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(r.client, Options{Watch: time.Hour})
	one := a.leads()
	must(t, one.Begin(place(4)))
	r.open()
	one.Advance(to(5))
	if err := one.Save(); !errors.Is(err, ErrDeposed) {
		t.Errorf("save: %v", err)
	}
	if err := a.loses(); !errors.Is(err, ErrDeposed) {
		t.Errorf("it stopped because %v", err)
	}
}

func TestRunEndsWithWhatIsLed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l, err := New(r.client, Options{Names: r.names, Source: r.source, Session: 6 * time.Second, Log: r.log()})
	must(t, err)
	failed := errors.New("no source")
	for _, want := range []error{failed, nil} {
		err := l.Run(t.Context(), func(context.Context, *Checkpoint) error { return want })
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("run: %v, want %v", err, want)
		}
	}
	if n, err := members(t, l); n != 0 || err != nil {
		t.Errorf("it left %d members in the group, %v", n, err)
	}
}

func TestALostCheckpointHalts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mark(3, 1)
	l, err := New(r.client, Options{Names: r.names, Source: r.source, Session: 6 * time.Second, Log: r.log()})
	must(t, err)
	err = l.Run(t.Context(), func(context.Context, *Checkpoint) error {
		t.Error("it leads")
		return nil
	})
	var lost *LostError
	if !errors.As(err, &lost) {
		t.Errorf("run: %v", err)
	}
}

func TestAPositionIsNotSetByHandWhileAReaderRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(r.client, Options{})
	must(t, a.leads().Begin(place(4)))
	if err := SetPosition(t.Context(), r.client, r.names, r.source, place(3)); !errors.Is(err, ErrRunning) {
		t.Errorf("set: %v", err)
	}
	must(t, a.stop())
	must(t, SetPosition(t.Context(), r.client, r.names, r.source, place(3)))
	v, err := OpenCheckpoint(t.Context(), r.client, r.names, r.source)
	must(t, err)
	if v.Position.Pos != 3 || v.Position.Epoch != 2 {
		t.Errorf("the position is %s in epoch %d", v.Position.String(), v.Position.Epoch)
	}
}

func TestPartitionsThatAreAddedToACheckpointTopicMakeNoSecondLeader(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.start(r.client, Options{})
	one := a.leads()
	must(t, one.Begin(place(4)))
	r.cluster.AddPartitions(t, r.name(), 3)
	b := r.start(r.connect(brokerOptions()), Options{})
	for !b.Status().Standby { // it has partitions, but not the one that counts
		select {
		case <-b.led:
			t.Fatal("a second reader leads")
		case <-time.After(10 * time.Millisecond):
		}
	}
	one.Advance(to(5))
	must(t, one.Save())
	select {
	case err := <-a.lost:
		t.Errorf("the leader stopped: %v", err)
	default:
	}
}

// runs runs a reader until it ends by itself; lead works while it leads.
func (r *rig) runs(o Options, lead func(ctx context.Context, cp *Checkpoint) error) error {
	r.t.Helper()
	o.Names, o.Source, o.Session, o.Log = r.names, r.source, 6*time.Second, r.log()
	l, err := New(r.client, o)
	must(r.t, err)
	return l.Run(r.t.Context(), lead)
}

func TestACheckpointTopicThatIsMadeAgainUnderItsLeaderIsALostPosition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		watch time.Duration
		then  func(*testing.T, context.Context, *Checkpoint)
	}{
		"nothing is saved": {10 * time.Millisecond, func(_ *testing.T, ctx context.Context, _ *Checkpoint) { <-ctx.Done() }},
		"a position is saved": {time.Hour, func(t *testing.T, ctx context.Context, cp *Checkpoint) {
			cp.Advance(to(5))
			for err := cp.Save(); transient(err); err = cp.Save() {
			}
			if p := cp.Durable(); p.Pos == 5 {
				t.Error("a position in the new topic counts")
			}
			<-ctx.Done()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			begun := 0
			err := r.runs(Options{Watch: c.watch}, func(ctx context.Context, cp *Checkpoint) error {
				begun++
				must(t, cp.Begin(place(4)))
				must(t, cp.Stash().Begin("x", at(4)).Append(stashed("a")))
				r.cluster.DeleteTopic(t, r.name())
				r.cluster.Topic(t, r.name(), 1, "cleanup.policy=compact")
				c.then(t, ctx, cp)
				return ctx.Err()
			})
			var lost *LostError
			if !errors.As(err, &lost) {
				t.Errorf("run: %v", err)
			}
			if begun != 1 {
				t.Errorf("it led %d times", begun)
			}
			if c.watch != time.Hour {
				return // another process cannot know: no mark was made
			}
			v, err := OpenCheckpoint(t.Context(), r.client, r.names, r.source)
			must(t, err)
			if v.Lost == nil {
				t.Errorf("another process finds %+v", v)
			}
			must(t, SetPosition(t.Context(), r.client, r.names, r.source, place(7)))
			if cp := r.open(); cp.Position().Pos != 7 {
				t.Errorf("set by hand it is %d", cp.Position().Pos)
			}
		})
	}
}

// remove takes a source out as docs/kafka.md says. compacted: its tombstone, and all before it, are gone, too.
func (r *rig) remove(compacted bool) {
	r.t.Helper()
	_, err := r.client.Produce(r.t.Context(), r.names.Marks(), 0, broker.Record{Key: []byte(r.source)})
	must(r.t, err)
	topics := []string{r.name()}
	if compacted {
		topics = append(topics, r.names.Marks())
	}
	for _, topic := range topics {
		r.cluster.DeleteTopic(r.t, topic)
		r.cluster.Topic(r.t, topic, 1, "cleanup.policy=compact")
	}
}

func TestASourceThatWasRemovedBeginsAgainAboveItsEarlierLife(t *testing.T) {
	t.Parallel()
	for name, compacted := range map[string]bool{
		"its tombstone is there":          false,
		"its tombstone is compacted away": true,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			old := r.open()
			must(t, old.Begin(place(4)))
			r.mark(old.Term(), 1)
			r.remove(compacted)
			r.least = nil
			now := uint64(time.Now().UnixMilli())
			cp, err := r.tryOpen(Options{})
			for transient(err) {
				cp, err = r.tryOpen(Options{})
			}
			must(t, err)
			if p := cp.Position(); !p.IsZero() || cp.Term() < now {
				t.Errorf("it goes on from %s in term %d, at %d", p.String(), cp.Term(), now)
			}
		})
	}
}
