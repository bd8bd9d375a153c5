package invalidator

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

const sec = instant(time.Second)

func TestADeleteCountsFromDAfterTheMarkOn(t *testing.T) {
	const d = 2 * time.Second
	for _, c := range []struct {
		name        string
		sent        instant
		took        time.Duration
		known, dark instant
		want        bool
	}{
		{"just before D after the mark", 12*sec - 1, 0, 10 * sec, always, false},
		{"D after the mark", 12 * sec, 0, 10 * sec, always, true},
		{"no mark", 1000 * sec, 0, never, always, false},
		{"known before the engine was made", 0, 0, -2 * sec, always, true},
		{"known not quite long enough before it", 0, 0, -2*sec + 1, always, false},
		{"a reply after D/4", 12 * sec, d / 4, 10 * sec, always, true},
		{"a reply just after D/4", 12 * sec, d/4 + 1, 10 * sec, always, false},
		{"just before D after a silence", 15*sec - 1, 0, 10 * sec, 13 * sec, false},
		{"D after a silence", 15 * sec, 0, 10 * sec, 13 * sec, true},
		{"a silence that its own reply ended", 12 * sec, d / 8, 10 * sec, 12*sec + instant(d/8), false},
		{"Redis has never answered", 12 * sec, 0, 10 * sec, never, false},
	} {
		a := reply{c.sent, c.sent.add(c.took)}
		if got := counts(a, c.known, c.dark, d); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestWithoutSlowReadersADeleteCountsFromTheMarkOn(t *testing.T) {
	for _, c := range []struct {
		name        string
		sent        instant
		took        time.Duration
		known, dark instant
		want        bool
	}{
		{"no mark", 1000 * sec, 0, never, always, false},
		{"just before the mark", 10*sec - 1, time.Second, 10 * sec, always, false},
		{"at the mark", 10 * sec, 0, 10 * sec, always, true},
		{"known before the engine was made", 0, 0, -1, always, true},
		{"Redis took its time", 10 * sec, time.Hour, 10 * sec, always, true},
		{"Redis was silent", 10 * sec, 0, 10 * sec, 20 * sec, true},
		{"Redis has never answered before", 10 * sec, 0, 10 * sec, never, true},
	} {
		if got := counts(reply{c.sent, c.sent.add(c.took)}, c.known, c.dark, 0); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestWhatIsDueCountsWhenItIsSentThen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		moments := rapid.Custom(func(t *rapid.T) instant { return instant(rapid.Int64Range(-1e10, 1e10).Draw(t, "instant")) })
		known, dark := moments.Draw(t, "known"), moments.Draw(t, "dark")
		d := time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "d"))
		at := due(known, dark, d)
		if !counts(reply{at, at}, known, dark, d) {
			t.Fatalf("due at %d, but a delete then does not count", at)
		}
		if counts(reply{at - 1, at - 1}, known, dark, d) {
			t.Fatalf("due at %d, but a delete before counts", at)
		}
	})
}

func TestAMarkCoversSinceItWasKnown(t *testing.T) {
	var m marks
	v := func(pos uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: pos, Row: 1} }
	add := func(term uint64, pos uint64, at instant) {
		m.add(event.Mark{Source: "s", Term: term, Version: v(pos)}, at)
	}
	add(1, 100, 1)
	add(1, 100, 2) // says nothing new
	add(1, 90, 3)  // nor does this
	add(1, 200, 4)
	add(2, 50, 5) // a new leader begins further back
	add(1, 900, 6)
	add(2, 150, 7)
	for _, c := range []struct {
		source string
		term   uint64
		pos    uint64
		want   instant
	}{
		{"s", 1, 100, 1},
		{"s", 1, 101, 4},
		{"s", 1, 200, 4},
		{"s", 1, 201, never}, // the old leader's mark for it came when a new one was known
		{"s", 2, 50, 5},
		{"s", 2, 51, 7},
		{"s", 2, 100, 7}, // the old leader's mark covers no record of the new one
		{"s", 2, 151, never},
		{"s", 3, 1, never},
		{"other", 1, 1, never},
	} {
		if got := m.covering(c.source, c.term, v(c.pos)); got != c.want {
			t.Errorf("source %s, term %d, position %d: known since %d, want %d", c.source, c.term, c.pos, got, c.want)
		}
	}
}

func TestForgettingMarksOnlyDelays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m marks
		var all []knownMark
		term, pos := uint64(1), uint64(10)
		for i := range rapid.IntRange(1, 500).Draw(t, "marks") {
			if rapid.IntRange(0, 50).Draw(t, "leader") == 0 {
				term, pos = term+1, pos/2
			}
			pos += uint64(rapid.IntRange(0, 3).Draw(t, "step"))
			mark := event.Mark{Source: "s", Term: term, Version: event.Version{Pos: pos}}
			m.add(mark, instant(i))
			all = append(all, knownMark{mark: mark, at: instant(i)})
		}
		if n := len(m.sources["s"]); n > keepMarks {
			t.Fatalf("%d marks are kept", n)
		}
		for range 20 {
			asked := event.Version{Pos: uint64(rapid.IntRange(0, int(pos)+2).Draw(t, "pos"))}
			askedTerm := uint64(rapid.IntRange(1, int(term)).Draw(t, "term"))
			want := never
			for _, k := range all {
				if k.mark.Covers("s", askedTerm, asked) {
					want = min(want, k.at)
				}
			}
			got := m.covering("s", askedTerm, asked)
			if got < want {
				t.Fatalf("known since %d, but the first mark that covers it came at %d", got, want)
			}
			if last := all[len(all)-1].mark; got == never && last.Covers("s", askedTerm, asked) {
				t.Fatal("the newest mark covers it, but it counts as unknown")
			}
		}
	})
}

// Another server that has said the same of no newer version is the one that counts from then on.
func TestTheNewestMarkNamesTheServerThatSaidSoLast(t *testing.T) {
	var m marks
	if _, ok := m.newest("s"); ok {
		t.Error("there is a mark of a source that has said nothing")
	}
	add := func(term, pos uint64, server string) {
		m.add(event.Mark{Source: "s", Term: term, Version: event.Version{Pos: pos}, Server: server}, 0)
	}
	for _, c := range []struct {
		term, pos uint64
		server    string
		want      string
	}{{2, 5, "a", "a"}, {2, 5, "b", "b"}, {2, 4, "c", "b"}, {1, 9, "d", "b"}, {3, 1, "e", "e"}} {
		add(c.term, c.pos, c.server)
		if got, ok := m.newest("s"); !ok || got.Server != c.want {
			t.Errorf("after %+v: %+v", c, got)
		}
	}
}

func TestHavingReadAllIsSaidByTheNewestMarkOfEverySource(t *testing.T) {
	var m marks
	mark := func(source string, term, pos uint64, read bool, at instant) {
		m.add(event.Mark{Source: source, Term: term, Version: event.Version{Pos: pos}, Read: read}, at)
	}
	check := func(ago time.Duration, still bool) {
		t.Helper()
		if got := m.read(10); got != (heardRead{ago, still}) {
			t.Errorf("%+v, want %d ago, still so: %v", got, ago, still)
		}
	}
	mark("a", 2, 1, true, 1)
	check(9, true)
	mark("a", 2, 1, true, 2) // nothing new but that
	check(8, true)
	mark("a", 1, 9, true, 3) // an old leader
	check(8, true)
	mark("b", 1, 1, false, 3)
	check(-1, false)
	mark("b", 1, 1, true, 4)
	check(8, true)
	mark("a", 2, 2, false, 5)
	check(8, false)
	mark("a", 2, 3, true, 6)
	check(6, true)
	if got := (&marks{}).read(10); got.ago >= 0 {
		t.Errorf("without any mark: %+v", got)
	}
}
