package invalidator

import (
	"testing"
	"time"
)

// A reader that is gone for good leaves keys that wait for a mark forever. Redis is asked about them no more often
// than at rest, however short their D is; what comes alongside them, and a mark in the end, find the quick pace again.
func TestKeysThatWaitForAMarkDoNotHurryTheProber(t *testing.T) {
	const d = 40 * ms
	inBubble(t, Options{}, func(r *rig) {
		pings := func(of time.Duration) int {
			r.redis.mu.Lock()
			before := r.redis.pings
			r.redis.mu.Unlock()
			r.pass(of)
			r.redis.mu.Lock()
			defer r.redis.mu.Unlock()
			return r.redis.pings - before
		}
		retired := batchOf(4, d, "retired")
		retired.Source = "t"
		r.append(retired)
		r.pass(time.Minute)
		if n := pings(10 * time.Second); n > int(10*time.Second/restPulse) {
			r.Errorf("while a key waits for a mark, redis is asked %d times in 10 s", n)
		}

		r.redis.set(func() { r.redis.tape, r.redis.begin = nil, time.Now().Add(37*ms) })
		r.pass(37 * ms)
		r.append(batchOf(4, d, "mine"))
		r.mark(4)
		if n := pings(d); n < pulsesPerD-1 {
			r.Errorf("while a D is counted, redis is asked %d times in it", n)
		}
		r.tape("0s mine", "40ms mine")

		r.pass(10*time.Second + 13*ms)
		m := markAt(4)
		m.Source = "t"
		r.redis.set(func() { r.redis.tape, r.redis.begin = nil, time.Now() })
		r.engine.Mark(m)
		r.pass(time.Second)
		r.tape("40.5ms retired") // busyPulse/2 after the mark an answer ends what may have been a silence
		r.watermark(2)
	})
}

func TestAtRestAShortDIsNotWorthTheWhile(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(batchOf(4, 8*ms, "a"))
		r.mark(4)
		r.pass(time.Second)
		r.watermark(1)
		r.redis.set(func() { r.redis.pings = 0 })
		r.pass(10 * time.Second)
		r.redis.mu.Lock()
		defer r.redis.mu.Unlock()
		if n := r.redis.pings; n > int(10*time.Second/restPulse) {
			r.Errorf("at rest redis is asked %d times in 10 s", n)
		}
	})
}
