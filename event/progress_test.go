package event

import (
	"testing"
	"time"
)

func TestOfAShareAllIsKnown(t *testing.T) {
	for _, c := range []struct {
		share float64
		done  int64
		want  int64
	}{{0.25, 100, 400}, {1, 100, 100}, {0, 100, 0}, {0.5, 0, 0}, {0.999, 3, 3}} {
		if got := AllAt(c.share, c.done); got != c.want {
			t.Errorf("%v of it is %d: %d, want %d", c.share, c.done, got, c.want)
		}
	}
}

func TestProgressSaysPaceAndTimeLeft(t *testing.T) {
	var m Meter
	start := time.Now()
	for _, c := range []struct {
		after    time.Duration
		done, of int64
		want     string
		share    float64 // -1: it is not known
	}{
		{0, 100, 1000, "", 0.1},
		{time.Second, 100, 1000, "", 0.1}, // it waits
		{2 * time.Second, 200, 1000, "50 a second, about 16s left", 0.2},
		{10 * time.Second, 500, 0, "40 a second", -1},
		{11 * time.Second, 540, 100_000, "40 a second, about 41m30s left", 0.0054},
		{12 * time.Second, 580, 100, "40 a second", -1}, // there is more than was thought
		{100 * time.Second, 668, 100_000, "1.0 a second, about 27h36m0s left", 0.00668},
		{101 * time.Second, 5, 10, "", 0.5}, // it has begun again
	} {
		p := m.Take(start.Add(c.after), c.done, c.of)
		if p.String() != c.want || p.Done != c.done {
			t.Errorf("after %s: %q, want %q", c.after, p, c.want)
		}
		if share, known := p.Share(); known != (c.share >= 0) || known && share != c.share {
			t.Errorf("after %s: %v, %v, want %v", c.after, share, known, c.share)
		}
	}
	for n := range 10_000 {
		m.Take(start.Add(time.Duration(n)), int64(n), 0)
	}
	if len(m.samples) > maxSamples {
		t.Errorf("%d samples are kept", len(m.samples))
	}
	var none *Progress
	if _, known := none.Share(); known || none.String() != "" {
		t.Error("nothing says how far it is")
	}
}
