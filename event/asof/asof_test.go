package asof

import (
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

func TestAListIsThinnedTheMoreTheOlder(t *testing.T) {
	var list []int64
	for now := range int64(100_000) {
		list = Thin(append(list, now), 64, func(at *int64) int64 { return *at })
		if len(list) > 64 || list[0] != 0 || list[len(list)-1] != now {
			t.Fatalf("at %d: %v", now, list)
		}
	}
	for i := 2; i < len(list); i++ {
		if gap, age := list[i]-list[i-1], list[len(list)-1]-list[i-1]; gap > 1+age/2 {
			t.Errorf("a gap of %d at an age of %d", gap, age)
		}
	}
	if short := []int64{1, 2, 3}; len(Thin(short, 3, func(at *int64) int64 { return *at })) != 3 {
		t.Error("thinned before it is too long")
	}
}
