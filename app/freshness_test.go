package app

import (
	"testing"
	"time"

	"github.com/freshet/freshet/event"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func version(epoch, file uint32, pos uint64, row uint32) event.Version {
	return event.Version{Epoch: epoch, File: file, Pos: pos, Row: row}
}

func at(epoch uint32, file string, pos uint64) *event.Position {
	return &event.Position{Epoch: epoch, File: file, Pos: pos}
}

func TestAVersionIsFinishedWhenThePositionIsBehindIt(t *testing.T) {
	for _, c := range []struct {
		name string
		v    event.Version
		p    *event.Position
		want bool
	}{
		{"nothing was read yet", event.Version{}, at(1, "binlog.000001", 4), true},
		{"the position is behind the event", version(1, 112, 100, 3), at(1, "binlog.000112", 200), true},
		{"the position is before the event", version(1, 112, 200, 3), at(1, "binlog.000112", 100), false},
		{"the event begins at the position", version(1, 112, 100, 1), at(1, "binlog.000112", 100), false},
		{"all before the position", version(1, 112, 100, 0), at(1, "binlog.000112", 100), true},
		{"in an earlier file", version(1, 111, 900, 1), at(1, "binlog.000112", 4), true},
		{"in a later file, whose number has a digit more", version(1, 1000000, 4, 1), at(1, "binlog.999999", 900), false},
		{"of an earlier epoch", version(1, 112, 900, 1), at(2, "binlog.000001", 4), true},
		{"of a later epoch", version(2, 1, 4, 1), at(1, "binlog.000112", 900), false},
	} {
		if got := finished(c.v, c.p, fileNumber(c.p.File)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestFreshnessIsTheNewestMarkOfWhichEverythingIsFinished(t *testing.T) {
	var f freshness
	mark := func(second int, pos uint64, read bool) {
		f.mark(event.Mark{Version: version(1, 1, pos, 1), Made: noon.Add(time.Duration(second) * time.Second), Read: read})
	}
	is := func(pos uint64, want time.Time) {
		t.Helper()
		if got := f.at(at(1, "binlog.000001", pos)); !got.Equal(want) {
			t.Errorf("at %d: %v, want %v", pos, got, want)
		}
	}
	is(4, time.Time{})
	mark(1, 100, true)
	mark(2, 100, true)
	mark(3, 300, true)
	mark(4, 400, false) // the source had more than was read then
	is(50, time.Time{})
	is(101, noon.Add(2*time.Second))
	is(101, noon.Add(2*time.Second)) // and it stays
	is(350, noon.Add(3*time.Second))
	is(900, noon.Add(3*time.Second))
}

func TestFreshnessKeepsFewMarksAndIsNeverAheadForIt(t *testing.T) {
	var f freshness
	const n = 100 * freshnessMarks
	for i := range n {
		f.mark(event.Mark{Version: version(1, 1, uint64(i), 1), Made: noon.Add(time.Duration(i)), Read: true})
		if len(f.waiting) > freshnessMarks {
			t.Fatalf("%d marks wait", len(f.waiting))
		}
	}
	last := time.Time{}
	for i := range uint64(n) {
		got := f.at(at(1, "binlog.000001", i))
		if !got.IsZero() && got.Sub(noon) >= time.Duration(i) {
			t.Fatalf("at %d it is fresh as of mark %d", i, got.Sub(noon))
		}
		if got.Before(last) {
			t.Fatalf("at %d it went back", i)
		}
		last = got
	}
	// A heartbeat's coarseness is doubled each time that half of the marks are left out.
	if missing := n - int(last.Sub(noon)); missing > 4*n/freshnessMarks {
		t.Errorf("in the end it lacks %d of %d marks", missing, n)
	}
}
