package app

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/canal/walk"
)

// A value is as old as the chunk that it came with, so a chunk has as many rows as can be dealt with at once, whatever
// the limit is: the rate, a Redis that takes no more, or the source.
func TestAChunkHasAsManyRowsAsCanBeDealtWithAtOnce(t *testing.T) {
	for name, x := range map[string]struct {
		rate int
		// any is how long the source takes for a chunk, and as long again the write of how far the walk is. row is how
		// long the source takes for a row more, and key is what a row has to wait for.
		any, row, key time.Duration
		least, most   int
	}{
		"at the default rate":                    {2000, 0, 10 * time.Microsecond, 500 * time.Microsecond, 40, 60},
		"at a rate of ten":                       {10, 0, 10 * time.Microsecond, 100 * time.Millisecond, 1, 1},
		"when nothing limits it":                 {1e9, 0, time.Microsecond, 0, mostRows, mostRows},
		"when the source is slow":                {1e9, 0, time.Millisecond, 0, 50, 100},
		"when the source is slower by far":       {1e9, 0, time.Second, 0, fewRows, fewRows},
		"when Redis is, for large values":        {1e9, 0, 10 * time.Microsecond, time.Millisecond, 20, 26},
		"when Redis is slower by far":            {1e9, 0, 10 * time.Microsecond, 5 * time.Millisecond, fewRows, fewRows},
		"when the source is, and the rates":      {500, 0, time.Millisecond, 2 * time.Millisecond, 10, 14},
		"when the source is far away":            {1e9, time.Second, 0, 0, mostRows, mostRows},
		"when it is far away, and slow":          {1e9, time.Second, time.Millisecond, 0, 50, 100},
		"when it is far away, and slower by far": {1e9, time.Second, time.Second, 0, fewRows, fewRows},
		"when it is far, at the default rate":    {2000, time.Second, 10 * time.Microsecond, 500 * time.Microsecond, 40, 60},
		"when it is far away, at a rate of ten":  {10, time.Second, 0, 100 * time.Millisecond, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := pacedWalk{T: t, rate: x.rate, any: x.any, row: x.row, key: x.key}
			w.walk(func(n, rows int) {
				if n == 50 {
					w.pace.failed() // and recovers from it
				}
				if n == 0 && rows > max(1, int(float64(x.rate)*chunkLasts(0).Seconds())) {
					t.Errorf("the first chunk has %d rows, more than can be dealt with at once", rows)
				}
				if n > 80 && rows > 1 && (rows < x.least || rows > x.most) {
					t.Fatalf("chunk %d has %d rows, want %d to %d", n, rows, x.least, x.most)
				}
			})
		})
	}
}

// pacedWalk is a walk of 100 chunks over a source and a Redis that take so long, on the clock of a bubble.
type pacedWalk struct {
	*testing.T
	rate          int
	any, row, key time.Duration
	// met is how many rows are found of so many.
	met  func(rows int) int
	pace walkPace
	read int
}

// walk calls each before a chunk is read, with its number and how many rows it will have.
func (w *pacedWalk) walk(each func(n, rows int)) {
	synctest.Test(w.T, func(t *testing.T) {
		w.pace = newWalkPace(0, w.rate)
		for n := range 100 {
			each(n, w.pace.next())
			rows := w.pace.next()
			took := w.any + time.Duration(rows)*w.row
			time.Sleep(took + w.any)
			got := walk.Chunk{Rows: rows}
			if w.met != nil {
				got.Rows = w.met(rows)
			}
			w.pace.read(took, &got)
			if left := time.Until(w.pace.rested); left != walkRests*took {
				t.Fatalf("chunk %d took %s, and the source is left alone for %s", n, took, left)
			}
			time.Sleep(time.Duration(got.Rows) * w.key)
			w.pace.handedOut()
			time.Sleep(time.Until(w.pace.rested))
			w.read += rows
		}
	})
}

// A source that is busy takes its time for anything, now more and now less. The chunks do not become smaller for that;
// but once it is the rows that take the time, they do, at once.
func TestAChunkDoesNotShrinkForWhatItsRowsDoNotCost(t *testing.T) {
	busy := rand.New(rand.NewPCG(1, 2))
	w := pacedWalk{T: t, rate: 1e9, row: 10 * time.Microsecond}
	sum, slow := 0, 0
	w.walk(func(n, rows int) {
		if w.any = time.Duration(busy.ExpFloat64() * float64(300*time.Millisecond)); n >= 60 {
			w.any, w.row = 0, time.Millisecond
		}
		switch {
		case n >= 20 && n < 60:
			sum += rows
		case n >= 60 && rows > 200:
			slow++
		case n >= 80 && rows > 100:
			t.Errorf("chunk %d has %d rows, each of which takes %s", n, rows, w.row)
		}
	})
	if mean := sum / 40; mean < 250 {
		t.Errorf("while the source is busy a chunk has %d rows on average", mean)
	}
	if slow > 6 {
		t.Errorf("%d chunks have too many rows once these take long", slow)
	}
}

// Rows that a condition leaves out cost the source as much, and Redis nothing.
func TestAChunkHasManyRowsIfFewAreWanted(t *testing.T) {
	for name, x := range map[string]struct {
		met   func(rows int) int
		least int
	}{
		"none":           {func(int) int { return 0 }, mostRows},
		"one in hundred": {func(rows int) int { return rows / 100 }, mostRows * 9 / 10},
	} {
		t.Run(name, func(t *testing.T) {
			w := pacedWalk{T: t, rate: 2000, row: time.Microsecond, key: 500 * time.Microsecond, met: x.met}
			w.walk(func(n, rows int) {
				if n > 20 && rows < x.least {
					t.Errorf("chunk %d is of %d rows, want %d", n, rows, x.least)
				}
			})
		})
	}
}
