package consumer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

func moment1(s string, term uint64, second int, ends ...int64) *record.Mark {
	return &record.Mark{Mark: event.Mark{Source: s, Term: term}, AsOf: time.Unix(int64(second), 0), Ends: ends}
}

func TestFreshAsOfTheNewestMomentThatAllPartitionsHaveReached(t *testing.T) {
	var h history
	fresh := func(want int, finished map[int]int64) {
		t.Helper()
		got := h.asOf(finished)
		if want == 0 && !got.IsZero() || want > 0 && got != time.Unix(int64(want), 0) {
			t.Fatalf("with %v finished: fresh as of %v, want second %d", finished, got, want)
		}
	}
	fresh(0, map[int]int64{0: 100})
	h.add(moment1("s", 1, 10, 5, 7))
	h.add(moment1("s", 1, 11, 5, 9))
	h.add(moment1("s", 1, 12, 8, 9))
	fresh(12, map[int]int64{0: 8, 1: 9})
	fresh(11, map[int]int64{0: 7, 1: 9})
	fresh(10, map[int]int64{0: 7, 1: 8})
	fresh(0, map[int]int64{0: 4, 1: 9})
	fresh(12, map[int]int64{0: 8})       // the other is somebody else's
	fresh(12, map[int]int64{0: 8, 2: 0}) // added since: the source has put nothing there
	// An old leader says nothing any more; a reader that cannot say says nothing either.
	h.add(moment1("s", 0, 99, 0, 0))
	h.add(&record.Mark{Mark: event.Mark{Source: "s", Term: 1}})
	fresh(12, map[int]int64{0: 8, 1: 9})
	// The slowest source counts.
	h.add(moment1("t", 4, 3, -1, 9))
	fresh(3, map[int]int64{0: 8, 1: 9})
	fresh(0, map[int]int64{0: 8, 1: 8})
	h.forget("t")
	fresh(10, map[int]int64{0: 8, 1: 8})
}

// A source whose reader has not caught up yet, for instance since it was started again after a long backlog, has no
// moment: what is known of the others says nothing about it.
func TestNothingIsFreshWhileASourceHasNoMoment(t *testing.T) {
	var h history
	h.add(moment1("s", 1, 10, 5))
	finished := map[int]int64{0: 8}
	if got := h.asOf(finished); got != time.Unix(10, 0) {
		t.Fatalf("fresh as of %v", got)
	}
	h.add(&record.Mark{Mark: event.Mark{Source: "t", Term: 2}})
	if got := h.asOf(finished); !got.IsZero() {
		t.Errorf("fresh as of %v, though nothing is known of t", got)
	}
	h.add(moment1("t", 1, 4, 8)) // its former reader's
	h.add(moment1("t", 2, 9, 8))
	if got := h.asOf(finished); got != time.Unix(9, 0) {
		t.Errorf("fresh as of %v", got)
	}
}

func TestMomentsAreThinnedNotLost(t *testing.T) {
	var h history
	for i := range 10_000 {
		h.add(moment1("s", 1, i+1, int64(i+1)))
	}
	list := h.sources["s"].list
	if len(list) > maxMoments {
		t.Fatalf("%d moments are kept", len(list))
	}
	for _, behind := range []int64{0, 1, 40, 100, 5000} {
		got := h.asOf(map[int]int64{0: 10_000 - behind})
		want := time.Unix(10_000-behind, 0)
		if late := want.Sub(got); got.IsZero() || late < 0 || late > time.Duration(behind)*time.Second {
			t.Errorf("%d behind: fresh as of %v, want about %v", behind, got, want)
		}
	}
}

func TestOnlyTheNewestMarkOfEachSourceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNewest()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.deliver(ctx); close(done) }()
		for i := range 100 {
			n.put(event.Mark{Source: "s", Term: 1, Version: at(i)})
			for src := range 10 {
				n.put(event.Mark{Source: fmt.Sprint("t", src), Term: 2, Version: at(i)})
			}
			synctest.Wait()
		}
		n.put(event.Mark{Source: "t1", Term: 1, Version: at(9999)}) // an old leader's
		n.put(event.Mark{Source: "t2", Term: 2, Version: at(7)})    // an attempt that arrived late
		seen := map[string]event.Version{}
		for range 11 {
			m := <-n.out
			if _, twice := seen[m.Source]; twice {
				t.Fatalf("%s came twice while others waited", m.Source)
			}
			seen[m.Source] = m.Version
		}
		for s, v := range seen {
			if v != at(99) {
				t.Errorf("of %s came %v", s, v)
			}
		}
		synctest.Wait()
		select {
		case m := <-n.out:
			t.Fatalf("%v came again", m)
		default:
		}
		// A steady stream of one does not starve another.
		n.put(event.Mark{Source: "a"})
		n.put(event.Mark{Source: "b"})
		if m := <-n.out; m.Source != "a" {
			t.Fatal(m)
		}
		n.put(event.Mark{Source: "a", Term: 7})
		if m := <-n.out; m.Source != "b" {
			t.Fatal(m)
		}
		cancel()
		<-done
	})
}

func TestAFetchAsksForLessOfWhatIsCompressedWell(t *testing.T) {
	records := func(n int) []broker.Record { return []broker.Record{{Value: make([]byte, n)}} }
	ask := fetchBytes
	for range 10 {
		ask = adapt(ask, records(16*ask)) // compressed to a sixteenth
	}
	if got := 16 * ask; got > 2*fetchBytes {
		t.Fatalf("asks for %d, which is %d unpacked", ask, got)
	}
	for range 10 {
		ask = adapt(ask, records(100))
	}
	if ask != fetchBytes {
		t.Fatalf("asks for %d of a quiet partition", ask)
	}
}

// A leader that has just begun knows of nothing that everybody can see. If it ends by then, all that is known is what
// the one before has said.
func TestTheFirstMarkOfALeaderHidesNoneThatSaysMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNewest()
		at := func(term, pos uint64) event.Mark {
			return event.Mark{Source: "s", Term: term, Version: event.Version{Epoch: 1, File: 1, Pos: pos}}
		}
		for _, m := range []event.Mark{
			at(1, 50), at(1, 100), at(2, 0), at(2, 10), at(2, 5), at(1, 200), at(3, 0), at(3, 20), at(4, 0), at(4, 0),
		} {
			n.put(m)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { n.deliver(ctx); close(done) }()
		for _, want := range []event.Mark{at(1, 100), at(3, 20), at(4, 0)} {
			if got := <-n.out; got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		synctest.Wait()
		n.put(at(4, 100))
		if got := <-n.out; got != at(4, 100) {
			t.Errorf("got %+v", got)
		}
		for term := range uint64(100) {
			n.put(at(10+term, 1000-term))
		}
		synctest.Wait()
		if waiting := len(n.marks["s"]); waiting != maxWaiting {
			t.Errorf("%d marks wait", waiting)
		}
		cancel()
		<-done
	})
}
