package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff spaces attempts with exponential growth and full jitter: the n-th wait is uniform between 0 and
// min(Max, Min·2ⁿ), so that many who failed together do not return together. (Source: "Exponential Backoff And
// Jitter", AWS Architecture Blog, 2015.) A wait is never below a tenth of Min: a busy loop helps nobody.
//
// The zero value of each field means its default. A Backoff belongs to one goroutine at a time.
type Backoff struct {
	// Min is the ceiling of the first wait. Default 100 ms.
	Min time.Duration
	// Max is the ceiling of all waits; at least Min. Default 30 s. To notice a server's return within a second it must
	// be below one second.
	Max time.Duration
	// Rand returns a number in [0, 1). Default: math/rand/v2.
	Rand func() float64

	n int
}

// Next returns the next wait.
func (b *Backoff) Next() time.Duration {
	least, most, random := orElse(b.Min, DefaultMinBackoff), orElse(b.Max, DefaultMaxBackoff), b.Rand
	if random == nil {
		random = rand.Float64
	}
	d := jitter(least, max(least, most), b.n, random)
	b.n++
	return d
}

// Attempts returns how many waits were given since the last [Backoff.Reset].
func (b *Backoff) Attempts() int { return b.n }

// Reset must be called after a success: the next wait is a first one again.
func (b *Backoff) Reset() { b.n = 0 }

// Wait waits for [Backoff.Next]. It returns the context's error if that ends first.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep waits for d. It returns the context's error if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 { // a timer that is due at once has crashed Go's runtime, in a bubble of synctest under the race detector
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// jitter returns the wait after n earlier ones.
func jitter(least, most time.Duration, n int, random func() float64) time.Duration {
	ceiling := most
	// least << n must neither overflow nor pass the ceiling.
	if n < 62 && least <= most>>n {
		ceiling = least << n
	}
	return max(time.Duration(random()*float64(ceiling)), least/10)
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}
