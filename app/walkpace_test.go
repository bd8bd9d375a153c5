package app

import (
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
		// any is how long the source takes for a chunk, and how long the write of how far the walk is takes. asks is how
		// long the source takes for a row, and key is what a row has to wait for.
		any, asks, key time.Duration
		least, most    int
	}{
		"at the default rate":                          {2000, 0, 10 * time.Microsecond, 500 * time.Microsecond, 40, 60},
		"at a rate of ten":                             {10, 0, 10 * time.Microsecond, 100 * time.Millisecond, 1, 1},
		"when nothing limits it":                       {1e9, 0, time.Microsecond, 0, mostRows, mostRows},
		"when the source is slow":                      {1e9, 0, time.Millisecond, 0, 50, 100},
		"when the source is slower by far":             {1e9, 0, time.Second, 0, fewRows, fewRows},
		"when the source is, whatever it is asked for": {1e9, time.Second, 0, 0, fewRows, fewRows},
		"when Redis is, for large values":              {1e9, 0, 10 * time.Microsecond, time.Millisecond, 20, 26},
		"when Redis is slower by far":                  {1e9, 0, 10 * time.Microsecond, 5 * time.Millisecond, fewRows, fewRows},
		"when the source is, and the rates":            {500, 0, time.Millisecond, 2 * time.Millisecond, 10, 14},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newWalkPace(0, x.rate)
				for n := range 100 {
					got := walk.Chunk{Rows: p.rows}
					took := x.any + time.Duration(p.rows)*x.asks
					time.Sleep(took + x.any)
					p.read(took, &got)
					time.Sleep(time.Duration(got.Rows) * x.key)
					p.handedOut()
					time.Sleep(time.Until(p.rested))
					if n == 50 {
						p.failed() // and recovers from it
					}
					if n > 80 && (p.rows < x.least || p.rows > x.most) {
						t.Fatalf("chunk %d has %d rows, want %d to %d", n, p.rows, x.least, x.most)
					}
				}
			})
		})
	}
}
