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

func TestFreshnessIsTheNewestMarkOfWhichEverythingHandedOnIsFinished(t *testing.T) {
	var f freshness
	// The versions of marks say nothing here: what was known to be visible when it was handed on needs none.
	mark := func(second int, read bool) {
		f.mark(event.Mark{Version: version(1, 1, 4, 0), Made: noon.Add(time.Duration(second) * time.Second), Read: read})
	}
	handOn := func(file string, pos uint64) { f.handOn(&event.End{Epoch: 1, File: file, Pos: pos}) }
	is := func(file string, pos uint64, want time.Time) {
		t.Helper()
		f.finish(event.End{Epoch: 1, File: file, Pos: pos})
		if got := f.at(); !got.Equal(want) {
			t.Errorf("at %s:%d: %v, want %v", file, pos, got, want)
		}
	}
	const file, next = "binlog.999999", "binlog.1000000"
	is(file, 4, time.Time{})
	mark(1, true) // nothing was handed on yet, and the source has nothing more
	is(file, 4, noon.Add(time.Second))
	handOn(file, 100)
	f.handOn(&event.End{}) // a part of a transaction
	mark(2, true)
	mark(3, true)
	handOn(file, 300)
	mark(4, true)
	handOn(file, 400)
	mark(5, false) // the source had more than was read then
	handOn(next, 50)
	mark(6, true)
	is(file, 99, noon.Add(time.Second))
	is(file, 100, noon.Add(3*time.Second))
	is(file, 100, noon.Add(3*time.Second)) // and it stays
	is(file, 350, noon.Add(4*time.Second))
	is(file, 900, noon.Add(4*time.Second))
	is(next, 50, noon.Add(6*time.Second))
}

func TestFreshnessWaitsForTheWorkOfTheServerBefore(t *testing.T) {
	var f freshness
	is := func(want time.Time) {
		t.Helper()
		if got := f.at(); !got.Equal(want) {
			t.Errorf("fresh as of %v, want %v", got, want)
		}
	}
	f.handOn(&event.End{Epoch: 1, File: "binlog.000009", Pos: 100})
	f.finish(event.End{Epoch: 1, File: "binlog.000009", Pos: 60})
	// Another server answers, in whose binlog the numbers are lower: its mark says nothing of what is pending.
	f.mark(event.Mark{Made: noon, Read: true})
	is(time.Time{})
	f.handOn(&event.End{Epoch: 2, File: "binlog.000001", Pos: 50})
	f.mark(event.Mark{Made: noon.Add(time.Second), Read: true})
	is(time.Time{})
	f.finish(event.End{Epoch: 1, File: "binlog.000009", Pos: 100})
	is(noon)
	f.finish(event.End{Epoch: 2, File: "binlog.000001", Pos: 50})
	is(noon.Add(time.Second))
}

func TestFreshnessKeepsFewMarksAndIsNeverAheadForIt(t *testing.T) {
	var f freshness
	const n = 25_600
	for i := range n {
		f.handOn(&event.End{File: "binlog.000001", Pos: uint64(i) + 1})
		f.mark(event.Mark{Made: noon.Add(time.Duration(i)), Read: true})
	}
	last := time.Time{}
	for i := range uint64(n + 1) {
		f.finish(event.End{File: "binlog.000001", Pos: i})
		got := f.at()
		if !got.IsZero() && got.Sub(noon) >= time.Duration(i) {
			t.Fatalf("at %d it is fresh as of mark %d", i, got.Sub(noon))
		}
		if got.Before(last) {
			t.Fatalf("at %d it went back", i)
		}
		last = got
	}
	// A heartbeat's coarseness is doubled each time that half of the marks are left out.
	if missing := n - int(last.Sub(noon)); missing > 4*n/256 {
		t.Errorf("in the end it lacks %d of %d marks", missing, n)
	}
}
