package doubt_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/event"
)

// member returns the book of a process of a group, or with "" of a reader, over what all of them share.
func member(t *testing.T, m *doubttest.Memory, group string) *doubt.Book {
	t.Helper()
	alarms, err := alarm.New(slog.New(slog.DiscardHandler), nil)
	must(t, err)
	b, err := doubt.New(m, alarms, nil)
	must(t, err)
	b.Share(m, group)
	must(t, b.Load(t.Context()))
	if group != "" {
		must(t, b.Enroll(t.Context()))
	}
	return b
}

// places are those in the binlog of what happened.
var places atomic.Uint64

// placed is a TRUNCATE at the next place.
func placed(table string) doubt.Doubt {
	d := truncated(table)
	d.At = event.Version{Epoch: 1, File: 1, Pos: places.Add(1)}
	return d
}

// groups are a reader, and the invalidators of two groups, that know the doubt about a table.
type groups struct {
	*doubttest.Memory
	reader, eu, us *doubt.Book
}

func newGroups(t *testing.T) *groups {
	t.Helper()
	m := &doubttest.Memory{}
	g := &groups{Memory: m, reader: member(t, m, ""), eu: member(t, m, "eu"), us: member(t, m, "us")}
	must(t, g.reader.Record(t.Context(), placed("shop.product")))
	g.load(t)
	return g
}

// load has all of them read what the others have written.
func (g *groups) load(t *testing.T) {
	t.Helper()
	for _, b := range []*doubt.Book{g.reader, g.eu, g.us} {
		must(t, b.Load(t.Context()))
	}
}

// settle has a group settle the doubt as it knows it.
func settle(t *testing.T, b *doubt.Book) {
	t.Helper()
	d := b.List()[0]
	must(t, b.Dismiss(t.Context(), d.ID, d.Last))
}

// are fails the test unless so many doubts are listed by the reader and the groups, after a release.
func (g *groups) are(t *testing.T, reader, eu, us int) {
	t.Helper()
	g.load(t)
	must(t, g.reader.Release(t.Context(), "shop"))
	g.load(t)
	if r, e, u := len(g.reader.List()), len(g.eu.List()), len(g.us.List()); r != reader || e != eu || u != us {
		t.Fatalf("the reader lists %d, eu %d, us %d; want %d, %d, %d", r, e, u, reader, eu, us)
	}
}

func TestADoubtAboutASourceEndsOnceEveryGroupHasSettledIt(t *testing.T) {
	g := newGroups(t)
	g.are(t, 1, 1, 1)
	if is := g.reader.List()[0].Answer; !strings.HasSuffix(is, "not settled yet: group eu, group us") {
		t.Error(is)
	}
	settle(t, g.eu)
	g.are(t, 1, 0, 1)
	if is := g.reader.List()[0].Answer; !strings.HasSuffix(is, "not settled yet: group us") {
		t.Error(is)
	}
	settle(t, g.us)
	g.are(t, 0, 0, 0)
	if facts, err := g.FactsUnder(t.Context(), "settled/"); err != nil || len(g.IDs())+len(facts) > 0 {
		t.Errorf("left are %v, %v, %v", g.IDs(), facts, err)
	}
}

func TestADoubtWaitsForAGroupThatIsAway(t *testing.T) {
	g := newGroups(t)
	settle(t, g.eu)
	g.us = member(t, g.Memory, "us") // it was away, and begins again
	g.are(t, 1, 0, 1)
}

// Of a version of freshet that does not enroll, it is known which Redis its group has.
func TestADoubtWaitsForAGroupOfWhichOnlyTheRedisIsKnown(t *testing.T) {
	g := newGroups(t)
	must(t, g.SetFact(t.Context(), "redis/asia", []byte("{}")))
	settle(t, g.eu)
	settle(t, g.us)
	g.are(t, 1, 0, 0)
	settle(t, member(t, g.Memory, "asia"))
	g.are(t, 0, 0, 0)
}

func TestADoubtStaysAsLongAsNoGroupIsKnown(t *testing.T) {
	m := &doubttest.Memory{}
	reader := member(t, m, "")
	must(t, reader.Record(t.Context(), placed("shop.product")))
	must(t, reader.Release(t.Context(), "shop"))
	must(t, reader.Load(t.Context()))
	if len(reader.List()) != 1 {
		t.Fatal("it is gone")
	}
}

func TestWhatWasSettledAndComesAgainIsInDoubtForEachGroup(t *testing.T) {
	g := newGroups(t)
	settle(t, g.eu)
	settle(t, g.us)
	must(t, g.reader.Record(t.Context(), placed("shop.product")))
	must(t, g.reader.Record(t.Context(), placed("shop.other")))
	g.are(t, 2, 2, 2)
}

// The group does not know yet that it has come again when it settles it.
func TestWhatComesAgainWhileItIsSettledIsInDoubt(t *testing.T) {
	g := newGroups(t)
	settle(t, g.us)
	must(t, g.reader.Record(t.Context(), placed("shop.product")))
	settle(t, g.eu)
	g.are(t, 1, 1, 1)
}

func TestWhatWasDismissedAndComesAnewIsSettledByNobody(t *testing.T) {
	g := newGroups(t)
	settle(t, g.eu)
	settle(t, g.reader)
	if len(g.IDs()) != 0 {
		t.Fatal("a reader dismisses it for all groups", g.IDs())
	}
	late := g.us.List()[0] // us settles what it does not know to be gone
	must(t, g.us.Dismiss(t.Context(), late.ID, late.Last))
	must(t, g.reader.Record(t.Context(), placed("shop.product")))
	g.are(t, 1, 1, 1)
}

func TestWhatAGroupCouldNotSettleStays(t *testing.T) {
	for _, op := range []string{"set fact", "drop", "drop fact"} {
		t.Run(op, func(t *testing.T) {
			g := newGroups(t)
			settle(t, g.us)
			failed := errors.New("away")
			g.Fail = func(_ context.Context, is, _ string) error {
				if is == op {
					return failed
				}
				return nil
			}
			d := g.eu.List()[0]
			err := g.eu.Dismiss(t.Context(), d.ID, d.Last)
			if op == "set fact" && (!errors.Is(err, failed) || len(g.eu.List()) != 1) {
				t.Fatalf("it is settled: %v, %+v", err, g.eu.List())
			}
			must(t, g.reader.Load(t.Context()))
			err = g.reader.Release(t.Context(), "shop")
			if op != "set fact" && !errors.Is(err, failed) {
				t.Fatal(err)
			}
			if gone := len(g.IDs()) == 0; gone != (op == "drop fact") {
				t.Fatal("kept are", g.IDs())
			}
			g.Fail = nil
			if op == "set fact" {
				settle(t, g.eu)
			}
			g.are(t, 0, 0, 0)
		})
	}
}

func TestADoubtOfAGroupIsItsOwn(t *testing.T) {
	m := &doubttest.Memory{}
	eu, us := member(t, m, "eu"), member(t, m, "us")
	d := truncated("shop.product")
	d.Group = "eu"
	must(t, eu.Record(t.Context(), d))
	settle(t, eu)
	must(t, us.Load(t.Context()))
	if len(m.IDs())+len(us.List()) != 0 {
		t.Fatal(m.IDs())
	}
}

func TestTheMetricCountsWhatIsInDoubtForTheGroup(t *testing.T) {
	g := newGroups(t)
	reg := prometheus.NewRegistry()
	eu, err := doubt.New(g.Memory, nil, reg)
	must(t, err)
	eu.Share(g.Memory, "eu")
	want := func(n float64) {
		t.Helper()
		must(t, eu.Load(t.Context()))
		all, err := reg.Gather()
		must(t, err)
		for _, m := range all[0].GetMetric() {
			if m.GetLabel()[0].GetValue() == string(alarm.TruncatedTable) && m.GetGauge().GetValue() != n {
				t.Errorf("%v, want %v", m, n)
			}
		}
	}
	want(1)
	settle(t, eu)
	want(0)
	must(t, g.reader.Record(t.Context(), placed("shop.product")))
	want(1)
}

// The operator's process does not know that it has come again when it puts it, and its record is the last one.
func TestWhatIsAskedForAsItStoodBeforeIsPutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := doubttest.Shared{Memory: &doubttest.Memory{}, Changes: make(chan struct{})}
		reader, _ := open(t, shared)
		must(t, reader.Record(t.Context(), placed("shop.product")))
		operator := member(t, shared.Memory, "eu")
		time.Sleep(time.Minute)
		d := truncated("shop.product")
		d.At = event.Version{Epoch: 1, File: 2, Pos: 3}
		must(t, reader.Record(t.Context(), d))
		must(t, operator.Ask(t.Context(), reader.List()[0].ID))
		shared.Changes <- struct{}{}
		time.Sleep(time.Minute)
		kept, err := shared.Doubts(t.Context())
		must(t, err)
		if len(kept) != 1 || kept[0].Count != 2 || kept[0].At != d.At || !kept[0].Asked {
			t.Fatalf("kept are %+v", kept)
		}
	})
}

// A process that was stopped meanwhile sees only what came of it.
func TestWhatIsDroppedAndComesAgainBetweenTwoLooksIsAnotherDoubt(t *testing.T) {
	g := newGroups(t)
	id := g.reader.List()[0].ID
	must(t, g.reader.Ask(t.Context(), id))
	g.load(t)
	settle(t, g.eu)
	settle(t, g.us)
	must(t, g.reader.Load(t.Context()))
	must(t, g.reader.Release(t.Context(), "shop"))
	if len(g.IDs()) != 0 {
		t.Fatal("it is not gone")
	}
	must(t, g.reader.Record(t.Context(), placed("shop.product")))
	g.load(t)
	for _, b := range []*doubt.Book{g.reader, g.eu, g.us} {
		if d := b.List()[0]; d.Asked || d.Count != 1 {
			t.Errorf("it is taken for the one before: %+v", d)
		}
		if b != g.reader {
			settle(t, b)
		}
	}
	g.are(t, 0, 0, 0)
}

// The one that answers may be stuck since the last time, and what was missing is there now.
func TestWhoIsStuckHearsEachTimeThatSomebodyAsks(t *testing.T) {
	g := newGroups(t)
	id := g.reader.List()[0].ID
	for range 3 {
		g.eu.Stuck(doubt.Doubt{ID: id}, "not all of its keys can be looked for")
		must(t, g.us.Ask(t.Context(), id))
		g.load(t)
		if d := g.eu.List()[0]; d.Stuck || d.Answer != "" || !d.Asked {
			t.Fatalf("%+v", d)
		}
	}
}

// It was stopped, another one leads, and it has not heard of that.
func TestAReaderThatLeadsNoMoreDropsNothingThatHasComeAgain(t *testing.T) {
	for _, what := range []string{"release", "dismissal"} {
		t.Run(what, func(t *testing.T) {
			g := newGroups(t)
			settle(t, g.eu)
			settle(t, g.us)
			must(t, g.reader.Load(t.Context()))
			former, seen := g.reader, g.reader.List()[0]
			g.reader = member(t, g.Memory, "")
			must(t, g.reader.Record(t.Context(), placed("shop.product")))
			if what == "release" {
				must(t, former.Release(t.Context(), "shop"))
			} else if err := former.Dismiss(t.Context(), seen.ID, seen.Last); !errors.Is(err, doubt.ErrCameAgain) {
				t.Error(err)
			}
			g.are(t, 1, 1, 1)
		})
	}
}

// Who waits for an answer may ask any process for it.
func TestAllProcessesSayThatADoubtIsStuck(t *testing.T) {
	g := newGroups(t)
	id, other := g.reader.List()[0].ID, member(t, g.Memory, "eu")
	stuck := func(want bool) {
		t.Helper()
		g.load(t)
		must(t, other.Load(t.Context()))
		if is := other.Echo(id); is != want || other.List()[0].Stuck != want {
			t.Errorf("another of the group: %v, %+v", is, other.List()[0])
		}
		d := g.reader.List()[0]
		if d.Stuck != want || want != (d.Answer == "group eu cannot answer it: free text") {
			t.Errorf("the reader: %+v", d)
		}
		if g.us.Echo(id) {
			t.Error("another group")
		}
	}
	must(t, g.eu.TellStuck(t.Context(), id))
	stuck(false)
	g.eu.Stuck(g.eu.List()[0], "free text")
	must(t, g.eu.TellStuck(t.Context(), id))
	stuck(true)
	must(t, g.reader.Ask(t.Context(), id))
	stuck(false)
	g.eu.Stuck(g.eu.List()[0], "free text")
	must(t, g.eu.TellStuck(t.Context(), id))
	stuck(true)
	must(t, g.reader.Record(t.Context(), placed("shop.product")))
	stuck(false)
	settle(t, g.eu)
	settle(t, g.us)
	g.are(t, 0, 0, 0)
	if facts, err := g.FactsUnder(t.Context(), "stuck/"); err != nil || len(facts) > 0 {
		t.Errorf("left are %v, %v", facts, err)
	}
}

// The clock of the reader that takes over is behind that of the one before it.
func TestWhatComesBeforeItIsKnownWhatIsKeptIsLaterAllTheSame(t *testing.T) {
	m := &doubttest.Memory{}
	d := placed("shop.product").Named()
	d.Since, d.Count = time.Now().Add(time.Hour).UTC().Round(0), 1
	d.Last = d.Since
	must(t, m.PutDoubt(t.Context(), d))
	eu := member(t, m, "eu")
	settle(t, eu)
	reader, err := doubt.New(m, nil, nil)
	must(t, err)
	reader.Share(m, "")
	must(t, reader.Record(t.Context(), placed("shop.product")))
	must(t, eu.Load(t.Context()))
	if len(eu.List()) != 1 {
		t.Error("what has come again counts as settled")
	}
	must(t, reader.Release(t.Context(), "shop"))
	if len(m.IDs()) != 1 {
		t.Error("it is dropped")
	}
}
