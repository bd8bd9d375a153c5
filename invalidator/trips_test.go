package invalidator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

func someKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%d", i)
	}
	return keys
}

// asCounters makes writes of a batch of deletes.
func asCounters(b *event.Batch) *event.Batch {
	for i := range b.Invalidations {
		b.Invalidations[i].Action = event.ActionIncr
	}
	return b
}

// slowDown has Redis take its time for each key from now on; 0: none.
func (r *rig) slowDown(each time.Duration) {
	r.redis.set(func() { r.redis.slow, r.redis.most = each, 0 })
}

func (r *rig) mostInATrip() int {
	r.redis.mu.Lock()
	defer r.redis.mu.Unlock()
	return r.redis.most
}

// A delete counts only if its reply came within D/4. A Redis that takes longer for a full round trip, as it always
// will, gets smaller ones: sent again at the same size they would be late forever.
func TestARedisThatIsTooSlowForFullRoundTripsFinishesSmallerOnes(t *testing.T) {
	const d = time.Second
	plain := func(b *event.Batch) *event.Batch { return b }
	for name, test := range map[string]struct {
		of   func(*event.Batch) *event.Batch
		each time.Duration
	}{
		"deletes": {plain, ms / 2},
		"writes":  {asCounters, ms},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{Timeout: time.Minute}, func(r *rig) {
				r.slowDown(test.each)
				for i := range 40 {
					r.append(test.of(batchOf(uint64(i), d, someKeys(1024)...)))
				}
				r.mark(40)
				r.pass(5 * time.Minute)
				r.watermark(40)
				if n := r.alarms.count(alarm.RedisSlow); n != 0 {
					t.Errorf("%d alarms", n)
				}

				r.slowDown(0)
				for i := range 200 {
					r.append(test.of(batchOf(uint64(41+i), d, someKeys(1024)...)))
				}
				r.mark(300)
				r.pass(2 * d)
				r.watermark(240)
				if got, want := r.mostInATrip(), map[string]int{"deletes": tripKeys, "writes": tripCalls}[name]; got != want {
					t.Errorf("once Redis is quick again, round trips have %d keys, want %d", got, want)
				}
			})
		})
	}
}

// A full command of long keys may take longer on a narrow line than Redis is waited for. Sent again as it is, no answer
// to it would ever come.
func TestLongKeysGetOverANarrowLine(t *testing.T) {
	plain := func(b *event.Batch) *event.Batch { return b }
	for name, test := range map[string]struct {
		of func(*event.Batch) *event.Batch
		d  time.Duration
	}{
		"deletes": {plain, d2}, "writes": {asCounters, d2},
		"deletes that are never late": {plain, 8 * time.Second}, // what comes at all comes within D/4
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.engine.spans.shortest.Store(int64(test.d))
				r.redis.set(func() {
					r.redis.delay = func(keys []string) time.Duration {
						bytes := 0
						for _, k := range keys {
							bytes += len(k)
						}
						return time.Duration(bytes) * time.Second / (200 << 10)
					}
				})
				keys := someKeys(tripKeys)
				for i := range keys {
					keys[i] += strings.Repeat("x", 8<<10)
				}
				r.append(test.of(batchOf(1, test.d, keys...)))
				r.mark(1)
				r.pass(10 * time.Minute)
				r.watermark(1)
			})
		})
	}
}

// A far Redis takes as long for a small round trip as for a large one. Small ones must not stay because of one silence.
func TestRoundTripsToAFarRedisGrowAgain(t *testing.T) {
	const d = time.Second
	inBubble(t, Options{Timeout: time.Minute}, func(r *rig) {
		far := func(trip time.Duration) {
			r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return trip }; r.redis.most = 0 })
		}
		at := uint64(0)
		burst := func() {
			at++
			r.append(batchOf(at, d, someKeys(10*tripKeys)...))
			r.mark(at)
			r.pass(100 * d)
			r.watermark(int(at))
		}
		far(d / 3)
		at++
		r.append(batchOf(at, d, someKeys(10*tripKeys)...))
		r.mark(at)
		r.pass(5 * d)
		far(d / 8)
		r.pass(time.Minute)
		burst()
		if got := r.mostInATrip(); got == tripKeys {
			t.Fatalf("round trips of %d keys, which were late just now", got)
		}
		for range 10 {
			burst()
		}
		if got := r.mostInATrip(); got != tripKeys {
			t.Errorf("round trips have %d keys at most, want %d", got, tripKeys)
		}
	})
}

// Parked keys are tried again by the same rule.
func TestParkedKeysThatAreDeletedTooSlowlyAreDeletedInSmallerRoundTrips(t *testing.T) {
	const d = time.Second
	inBubble(t, Options{Timeout: time.Minute}, func(r *rig) {
		var entries []retry.Entry
		for _, k := range someKeys(1024) {
			entries = append(entries, retry.Entry{Key: k, Action: event.ActionDelete, Source: "s", D: d, Due: time.Now()})
		}
		r.slowDown(ms)
		if err := r.store.Park(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
		r.pass(5 * time.Minute)
		if parked, dead := r.store.counts(); parked+dead != 0 {
			t.Errorf("%d keys are parked still, and %d dead letters", parked, dead)
		}
	})
}
