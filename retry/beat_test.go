package retry

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAllThatWaitsForABeatIsWokenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		woken := make(map[time.Duration]int)
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 7 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 137 * time.Millisecond) // all begin within a second
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				for Beat(ctx, time.Second) == nil {
					mu.Lock()
					woken[time.Since(began)]++
					mu.Unlock()
					time.Sleep(time.Duration(i) * 100 * time.Millisecond) // what is done then takes a while
				}
			})
		}
		all.Wait()
		if len(woken) > 6 {
			t.Errorf("woken at %d moments in 6 seconds: %v", len(woken), woken)
		}
	})
}

func TestTheNextBeatIsNoFurtherThanSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			time.Sleep(37 * time.Millisecond)
			for _, every := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
				if d := ToBeat(every); d <= every-time.Second || d > every {
					t.Errorf("every %v: the next one is in %v", every, d)
				}
			}
			for _, every := range []time.Duration{0, 100 * time.Millisecond, 1500 * time.Millisecond} {
				if d := ToBeat(every); d != every {
					t.Errorf("every %v, which is no whole second: the next one is in %v", every, d)
				}
			}
		}
		time.Sleep(ToBeat(time.Second))
		if d := ToBeat(5 * time.Second); d != 5*time.Second {
			t.Errorf("at a beat, the next one in 5s is in %v", d)
		}
	})
}
