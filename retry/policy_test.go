package retry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/retry"
)

func always(x float64) func() float64 { return func() float64 { return x } }

// almostOne is the largest number that a random source returns.
const almostOne = 1 - 1e-12

func TestAKeyInTroubleTakesTheStepsOfThePolicy(t *testing.T) {
	p := retry.Policy{Rand: always(almostOne)}
	type step struct {
		step retry.Step
		wait time.Duration
	}
	for i, want := range []step{
		{retry.InPlace, 100 * time.Millisecond},
		{retry.InPlace, 200 * time.Millisecond},
		{retry.Park, 10 * time.Second},
		{retry.Park, time.Minute},
		{retry.Park, 10 * time.Minute},
		{retry.Park, 10 * time.Minute},
		{retry.Park, 10 * time.Minute},
		{retry.Bury, 0},
		{retry.Bury, 0},
	} {
		s, wait := p.Next(i + 1)
		if s != want.step || wait.Round(time.Microsecond) != want.wait {
			t.Errorf("after %d attempts: %s after %s, want %s after %s", i+1, s, wait, want.step, want.wait)
		}
	}
	if d := p.ParkDelay(1); d != 10*time.Second {
		t.Errorf("a replayed dead letter is parked for %s after its first attempt, want 10s", d)
	}
	never := retry.Policy{MaxAttempts: 2}
	if s, _ := never.Next(2); s != retry.Bury {
		t.Errorf("with fewer attempts than park_after: %s, want a dead letter", s)
	}
}

func TestAPolicySaysAllThatIsWrongWithIt(t *testing.T) {
	if err := (retry.Policy{}).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	err := retry.Policy{
		MaxAttempts: -1, ParkAfter: -1, ParkDelays: []time.Duration{time.Second, -1},
		MinBackoff: -time.Second, MaxBackoff: -time.Minute,
	}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{"max_attempts", "park_after", "park_delays", "min_backoff", "max_backoff"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not name %s", err, name)
		}
	}
}

func TestABackoffGrowsToItsCeilingAndStartsAgain(t *testing.T) {
	b := retry.Backoff{Min: time.Millisecond, Max: 6 * time.Millisecond, Rand: always(almostOne)}
	for _, want := range []time.Duration{1, 2, 4, 6, 6} {
		if got := b.Next().Round(time.Microsecond); got != want*time.Millisecond {
			t.Errorf("wait %d is %s, want %s", b.Attempts(), got, want*time.Millisecond)
		}
	}
	b.Reset()
	if got := b.Next().Round(time.Microsecond); got != time.Millisecond || b.Attempts() != 1 {
		t.Errorf("after a reset: %s", got)
	}
	low := retry.Backoff{Min: time.Hour, Rand: always(almostOne)}
	if got := low.Next().Round(time.Second); got != time.Hour {
		t.Errorf("with a minimum above the maximum: %s", got)
	}
}

func TestWaitsStayWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := retry.Backoff{
			Min:  time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "min")),
			Rand: always(rapid.Float64Range(0, almostOne).Draw(t, "random")),
		}
		b.Max = b.Min + time.Duration(rapid.Int64Range(0, int64(100*24*time.Hour)).Draw(t, "more"))
		last := time.Duration(0)
		for range 100 {
			d := b.Next()
			if d < b.Min/10 || d > b.Max || d < last {
				t.Fatalf("wait %d is %s after %s, want between %s and %s and growing", b.Attempts(), d, last, b.Min/10, b.Max)
			}
			last = d
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := retry.Backoff{Min: time.Second, Rand: always(almostOne)}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := b.Wait(ctx); err != nil {
			t.Errorf("the first wait: %v", err)
		}
		if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second wait: %v, want the context's error", err)
		}
	})
}

func TestAFilterSelectsByEachOfItsParts(t *testing.T) {
	at := time.Unix(100, 0)
	e := retry.Entry{ID: 7, Key: "user:1", Table: "shop.user", Last: at}
	for _, c := range []struct {
		f    retry.Filter
		want bool
	}{
		{retry.Filter{}, true},
		{retry.Filter{IDs: []uint64{6, 7}}, true},
		{retry.Filter{IDs: []uint64{6}}, false},
		{retry.Filter{Table: "shop.user", Key: "user:1"}, true},
		{retry.Filter{Table: "shop.use"}, false},
		{retry.Filter{Key: "user:"}, false},
		{retry.Filter{Before: at.Add(1)}, true},
		{retry.Filter{Before: at}, false},
	} {
		if got := c.f.Match(&e); got != c.want {
			t.Errorf("%+v: %v", c.f, got)
		}
		if c.f.IsZero() != (len(c.f.IDs) == 0 && c.f.Table+c.f.Key == "" && c.f.Before.IsZero()) {
			t.Errorf("%+v: IsZero is %v", c.f, c.f.IsZero())
		}
	}
}
