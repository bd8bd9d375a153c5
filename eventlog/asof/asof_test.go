package asof

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAMomentIsReachedWhenTheWorkBeforeItIsFinished(t *testing.T) {
	var l List[int]
	start := time.Now()
	if !l.At().IsZero() || l.Waits() || l.Finish(func(int) bool { return true }) {
		t.Error("an empty list knows a moment")
	}
	l.Add(start, 5)
	l.Add(start.Add(time.Second), 5)
	l.Add(start.Add(2*time.Second), 9)
	if l.Finish(func(upTo int) bool { return upTo <= 4 }) || !l.At().IsZero() {
		t.Error("reached by less")
	}
	if !l.Finish(func(upTo int) bool { return upTo <= 8 }) || !l.At().Equal(start.Add(time.Second)) || !l.Waits() {
		t.Errorf("as of %s", l.At())
	}
	if !l.Finish(func(upTo int) bool { return upTo <= 9 }) || !l.At().Equal(start.Add(2*time.Second)) || l.Waits() {
		t.Errorf("as of %s", l.At())
	}
}

// Whatever is left out, a moment is never called reached before its work is, and with all work finished it is the
// newest.
func TestAListOfManyMomentsIsCoarserAndNeverAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l List[int]
		start := time.Now()
		place, made := 0, map[time.Time]int{}
		for i := range rapid.IntRange(1, 2000).Draw(t, "moments") {
			place += rapid.IntRange(0, 3).Draw(t, "handed over")
			at := start.Add(time.Duration(i) * time.Second)
			made[at] = place
			l.Add(at, place)
			if n := len(l.waiting); n > mostWaiting || l.waiting[n-1] != (moment[int]{at, place}) {
				t.Fatalf("%d wait, the newest for %+v", n, l.waiting[n-1])
			}
			if rapid.IntRange(0, 99).Draw(t, "finish") > 0 {
				continue
			}
			done := rapid.IntRange(0, place).Draw(t, "done")
			l.Finish(func(upTo int) bool { return upTo <= done })
			if upTo, known := made[l.At()]; known && upTo > place {
				t.Fatalf("as of %s, which waits for %d", l.At(), upTo)
			}
		}
		l.Finish(func(int) bool { return true })
		if want := start.Add(time.Duration(len(made)-1) * time.Second); !l.At().Equal(want) {
			t.Fatalf("as of %s, want the newest %s", l.At(), want)
		}
	})
}

func TestAListIsThinnedInItsOlderHalf(t *testing.T) {
	list := []int{0, 1, 2, 3, 4, 5, 6, 7}
	if got := Thin(list, 8); len(got) != 8 {
		t.Errorf("thinned to %v before it is too long", got)
	}
	if got := Thin(append(list, 8), 8); !slices.Equal(got, []int{0, 2, 4, 5, 6, 7, 8}) {
		t.Errorf("%v", got)
	}
}
