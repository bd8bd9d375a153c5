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
		asks, key   time.Duration // how long the source takes for a row, and what a row has to wait for
		least, most int
	}{
		"at the default rate":               {10 * time.Microsecond, 500 * time.Microsecond, 40, 60},
		"at a rate of ten":                  {10 * time.Microsecond, 100 * time.Millisecond, 1, 1},
		"when nothing limits it":            {time.Microsecond, 0, mostRows, mostRows},
		"when the source is slow":           {time.Millisecond, 0, 50, 100},
		"when the source is slower by far":  {time.Second, 0, 1, 1},
		"when Redis is, for large values":   {10 * time.Microsecond, 5 * time.Millisecond, 4, 6},
		"when the source is, and the rates": {time.Millisecond, 2 * time.Millisecond, 10, 14},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := walkPace{rows: firstRows, lasts: leastLasts}
				for n := range 100 {
					asked := time.Now()
					time.Sleep(time.Duration(p.rows) * x.asks)
					got := walk.Chunk{Rows: p.rows}
					p.read(asked, &got)
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
