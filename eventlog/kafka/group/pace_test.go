package group

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyARowOfShortGenerationsIsSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r run
		waited := func(took time.Duration) time.Duration {
			begin := time.Now()
			must(t, r.pace(t.Context(), took))
			return time.Since(begin)
		}
		var row []time.Duration
		for range 10 {
			row = append(row, waited(backoff/2))
		}
		want := []time.Duration{0, 0, 0, 0, backoff, 2 * backoff, 4 * backoff, 8 * backoff, 8 * backoff, 8 * backoff}
		if !slices.Equal(row, want) {
			t.Errorf("short generations in a row waited for %v, not %v", row, want)
		}
		if d := waited(backoff) + waited(backoff/2); d != 0 {
			t.Errorf("after a generation that lasted it waited for %s", d)
		}
	})
}

func TestTheEndInterruptsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := run{short: calm + 4}
		begin := time.Now()
		if err := r.pace(ctx, 0); err == nil || time.Since(begin) != time.Second {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}
