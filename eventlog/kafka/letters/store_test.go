package letters

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/retry/retrytest"
)

func TestTheStoreIsAsEveryStoreIs(t *testing.T) {
	t.Parallel()
	retrytest.Run(t, func(t *testing.T) retrytest.Rig {
		r := newRig(t, Options{})
		var p *process
		return retrytest.Rig{
			Open: func() retrytest.Store {
				if p == nil {
					p = r.start()
				} else {
					p = p.restart()
				}
				return p
			},
			Seen:  func() { p.seen() },
			Sound: func() { p.sound(t) },
		}
	})
}

// sound fails the test unless IDs, sizes and windows agree.
func (s *Store) sound(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	named := 0
	for _, w := range s.windows {
		bytes, last := 0, int64(-1)
		for _, it := range w.items {
			if it.offset <= last {
				t.Errorf("%s: offset %d after %d", w.topic, it.offset, last)
			}
			last = it.offset
			bytes += it.size
			if it.settled != (it.size == 0) || it.settled && it.followers != nil {
				t.Errorf("%s@%d: settled %t, of %d bytes, with %d followers", w.topic, it.offset, it.settled, it.size,
					len(it.followers))
			}
			if !it.settled && !it.led {
				named++
				if s.ids[it.entry.ID] != it {
					t.Errorf("%s@%d is not known as %d", w.topic, it.offset, it.entry.ID)
				}
			}
		}
		if bytes != w.bytes {
			t.Errorf("%s: entries take %d bytes, counted %d", w.topic, bytes, w.bytes)
		}
		if len(w.items) > 0 && w.items[0].settled {
			t.Errorf("%s: a finished entry is kept at the head", w.topic)
		}
	}
	if named != len(s.ids) {
		t.Errorf("%d IDs for %d entries", len(s.ids), named)
	}
}

// TestAKeyGoesThroughAllDelaysToADeadLetterAndBack is the whole way of a key that Redis refuses, as the engine asks
// for it: the delay after an attempt is reckoned before the store is asked to keep it.
func TestAKeyGoesThroughAllDelaysToADeadLetterAndBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p := r.start()
	policy := retry.Policy{MaxAttempts: 6, ParkAfter: 2, ParkDelays: r.o.Delays}
	e := entry(1, 0)
	e.Attempts, e.Due = 2, e.Last.Add(policy.ParkDelay(2))
	r.park(p.Store, e)
	for i, topic := range []string{p.Topics()[0], p.Topics()[1], p.Topics()[2], p.Topics()[2]} {
		r.want("before its time", p.due(time.Now()))
		got := p.due(ever())
		r.want(fmt.Sprintf("attempt %d", i), got, "user:1")
		if w := p.ids[got[0].ID].window; w.topic != topic {
			t.Errorf("attempt %d: in %s, want %s", i, w.topic, topic)
		}
		e := got[0]
		e.Attempts++
		if step, _ := policy.Next(e.Attempts); step == retry.Bury {
			e.Due = time.Time{}
		} else {
			e.Due = time.Now().Add(policy.ParkDelay(e.Attempts))
		}
		must(t, p.Settle(t.Context(), nil, []retry.Entry{e}))
		p.sound(t)
	}
	r.want("parked", p.due(ever()))
	dead := p.all(t, retry.Filter{})
	r.want("dead", dead, "user:1")
	if dead[0].Attempts != 6 || !dead[0].Due.IsZero() {
		t.Errorf("the letter is %+v", dead[0])
	}
	if n, err := p.Replay(t.Context(), retry.Filter{IDs: ids(dead)}, time.Now()); n != 1 || err != nil {
		t.Fatalf("%d replayed (%v)", n, err)
	}
	got := p.due(time.Now())
	r.want("replayed", got, "user:1")
	must(t, p.Settle(t.Context(), ids(got), nil))
	r.want("settled", p.due(ever()))
	r.want("dead", p.all(t, retry.Filter{}))
	for _, topic := range p.Topics() {
		if r.offset(topic) != r.end(topic) {
			t.Errorf("%s: %d is committed of %d", topic, r.offset(topic), r.end(topic))
		}
	}
}

func TestACrashBetweenProducingAndCommittingRepeatsADelete(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p := r.start()
	r.park(p.Store, entry(1, time.Second), entry(2, time.Second))
	got := p.due(ever())
	// The crash: user:1 is parked for longer, and the process dies before its old record is finished.
	later := got[0]
	later.Attempts, later.Due = 4, time.Now().Add(time.Minute)
	r.park(r.store(), later)
	p = p.restart()
	got = p.due(ever())
	r.want("after the crash", got, "user:1", "user:2", "user:1")
	must(t, p.Settle(t.Context(), ids(got), nil))
	p = p.restart()
	r.want("in the end", p.due(ever()))
}

func TestOnlyWhatIsFinishedWithoutAHoleIsCommitted(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p := r.start()
	for n := range 6 {
		r.park(p.Store, entry(n, time.Second+time.Duration(n)))
	}
	topic := p.Topics()[0]
	got := p.due(ever())
	for _, step := range []struct {
		done int
		want int64
	}{{1, 0}, {2, 0}, {4, 0}, {0, 3}, {5, 3}, {3, 6}} {
		must(t, p.Settle(t.Context(), ids(got[step.done:step.done+1]), nil))
		p.sound(t)
		if o := r.offset(topic); o != step.want {
			t.Errorf("with %d settled, %d is committed, want %d", step.done, o, step.want)
		}
	}
	r.park(p.Store, entry(7, time.Second), entry(8, time.Second))
	got = p.due(ever())
	must(t, p.Settle(t.Context(), ids(got[1:]), nil))
	p = p.restart()
	r.want("after a crash also what was settled behind", p.due(ever()), "user:7", "user:8")
}

func TestARevokedPartitionIsPassedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p := r.start()
	r.park(p.Store, entry(1, time.Second), entry(2, time.Second), entry(3, time.Minute))
	under := p.due(ever())
	r.want("under way", under, "user:1", "user:2", "user:3")
	topic := p.Topics()[0]
	must(t, p.stop[topic]())
	next := r.start(topic)
	end := r.end(p.Topics()[2])
	again := under[1]
	again.Due = time.Now().Add(10 * time.Minute)
	must(t, p.Settle(t.Context(), ids(under[:1]), []retry.Entry{again, under[2]}))
	if r.end(p.Topics()[2]) != end {
		t.Error("an entry of a revoked partition was written again: its new owner will do that")
	}
	if o := r.offset(topic); o > 0 {
		t.Errorf("%d is committed of a revoked partition", o)
	}
	p.sound(t)
	delete(p.stop, topic)
	r.want("those of its own", p.due(ever()), "user:3")
	got := next.due(ever())
	r.want("the new owner's", got, "user:1", "user:2")
	must(t, next.Settle(t.Context(), ids(got), nil))
	if o := r.offset(topic); o != 2 {
		t.Errorf("%d is committed, want 2", o)
	}
}

func TestTwoOwnersTryWhatEitherParks(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	topics := r.store().Topics()
	a, b := r.start(topics[0]), r.start(topics[1], topics[2])
	var entries []retry.Entry
	for n := range 30 {
		entries = append(entries, entry(n, r.o.Delays[n%3]))
	}
	r.park(a.Store, entries[:15]...)
	r.park(b.Store, entries[15:]...)
	var keys []string
	for _, p := range []*process{a, b} {
		got := p.due(ever())
		for _, e := range got {
			keys = append(keys, e.Key)
		}
		must(t, p.Settle(t.Context(), ids(got), nil))
		r.want("settled", p.due(ever()))
	}
	slices.Sort(keys)
	if len(keys) != 30 || len(slices.Compact(keys)) != 30 {
		t.Errorf("the two were given %q", keys)
	}
	if len(a.ids)+len(b.ids) != 0 {
		t.Errorf("%d and %d IDs are kept", len(a.ids), len(b.ids))
	}
}

func TestAWindowIsBoundedAndMovesOn(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"entries": {Window: 10}, "bytes": {WindowBytes: 10 * (itemBytes + 100)}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, o)
			p := r.start(r.store().Topics()[0])
			var entries []retry.Entry
			for n := range 100 {
				e := entry(n, time.Second)
				e.Error = strings.Repeat("x", 100)
				entries = append(entries, e)
			}
			r.park(p.Store, entries...)
			w := func() *window { return p.windows[0] }
			tried := 0
			for tried < 100 {
				p.wait(func() bool { return len(p.windows) > 0 && (w().full(&p.o) || w().next == 100) })
				if n := p.inWindows(); n > 12 {
					t.Fatalf("%d entries in memory", n)
				}
				if u, err := p.Held(); u.Parked != 100-tried || err != nil {
					t.Errorf("%d keys are parked (%v), want %d", u.Parked, err, 100-tried)
				}
				got, err := p.Due(t.Context(), ever(), 3)
				must(t, err)
				must(t, p.Settle(t.Context(), ids(got), nil))
				tried += len(got)
				p.sound(t)
			}
			if o := r.offset(w().topic); o != 100 {
				t.Errorf("%d is committed", o)
			}
		})
	}
}

func TestOneDeleteServesAllEntriesOfAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p := r.start()
	var entries []retry.Entry
	for n := range 200 {
		e := entry(n%2, time.Second)
		e.Version.Pos = uint64(n)
		entries = append(entries, e)
	}
	r.park(p.Store, entries...)
	got := p.due(ever())
	r.want("due", got, "user:0", "user:1")
	if got[0].Version.Pos != 198 || got[1].Version.Pos != 199 {
		t.Errorf("the versions are %s and %s, want the highest", got[0].Version, got[1].Version)
	}
	p.sound(t)
	given := got[1]
	given.Due = time.Time{}
	must(t, p.Settle(t.Context(), ids(got[:1]), []retry.Entry{given}))
	p.sound(t)
	r.want("parked", p.due(ever()))
	r.want("dead", p.all(t, retry.Filter{}), "user:1")
	if o := r.offset(p.Topics()[0]); o != 200 {
		t.Errorf("%d is committed of 200", o)
	}
}
