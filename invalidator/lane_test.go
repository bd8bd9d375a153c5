package invalidator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
)

// sentTrip is a round trip: when it began and ended, and the keys in it.
type sentTrip struct {
	from, to time.Duration
	keys     []string
}

// tripRedis is a Redis that does one thing at a time, takes so long for each key, and writes down the round trips.
type tripRedis struct {
	*tapeRedis
	begin time.Time

	mu    sync.Mutex
	trips []sentTrip
}

func (r *tripRedis) Unlink(ctx context.Context, commands []*Command) {
	var keys []string
	for _, c := range commands {
		keys = append(keys, commandKeysOf(c)...)
	}
	r.trip(keys, func() { r.tapeRedis.Unlink(ctx, commands) })
}

func (r *tripRedis) Do(ctx context.Context, calls []*write.Call) {
	var keys []string
	for _, c := range sentCalls(calls) {
		keys = append(keys, c.args[3]) // EVALSHA, the script, how many keys, the key
	}
	r.trip(keys, func() { r.tapeRedis.Do(ctx, calls) })
}

func (r *tripRedis) trip(keys []string, do func()) {
	from := time.Since(r.begin)
	do()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trips = append(r.trips, sentTrip{from, time.Since(r.begin), keys})
}

// of returns the round trips that have keys which begin in a way, and forgets all.
func (r *tripRedis) of(prefix string) []sentTrip {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.trips
	r.trips = nil
	return slices.DeleteFunc(all, func(t sentTrip) bool { return !strings.HasPrefix(t.keys[0], prefix) })
}

// gentleRig is an engine that serves a live partition and gentle ones.
type gentleRig struct {
	*rig
	trips *tripRedis
}

// gently runs a test with a Redis that takes so long for each key.
func gently(t *testing.T, o Options, each time.Duration, test func(r *gentleRig)) {
	t.Helper()
	inBubble(t, o, func(r *rig) {
		g := &gentleRig{rig: r, trips: &tripRedis{tapeRedis: r.redis, begin: time.Now()}}
		r.engine.only().redis = g.trips // nothing is under way
		r.slowDown(each)
		test(g)
	})
}

// serve has batches served gently until the test ends.
func (r *gentleRig) serve(batches ...*event.Batch) *fakeLog {
	log, served := newFakeLog(), make(chan error, 1)
	for _, b := range batches {
		log.batches <- b
	}
	ctx, stop := context.WithCancel(r.Context())
	go func() { served <- r.engine.ServeGently(ctx, log) }()
	r.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			r.Error(err)
		}
	})
	return log
}

// prefixed returns a batch with keys that begin in a way.
func prefixed(prefix string, n int, pos uint64, d time.Duration) *event.Batch {
	keys := someKeys(n)
	for i := range keys {
		keys[i] = prefix + keys[i]
	}
	return batchOf(pos, d, keys...)
}

// Redis does one thing at a time. So what belongs to an answer goes in round trips that it has soon done, one after the
// other, however many partitions there are, whatever has gathered, and in the end as in the beginning.
func TestGentleWorkGoesInSmallRoundTripsOneAtATime(t *testing.T) {
	for name, x := range map[string]struct {
		of   func(*event.Batch) *event.Batch
		most int
	}{
		"deletes": {func(b *event.Batch) *event.Batch { return b }, 100},
		"writes":  {asCounters, 10},
	} {
		t.Run(name, func(t *testing.T) {
			gently(t, Options{}, ms/100, func(r *gentleRig) {
				logs := []*fakeLog{
					r.serve(x.of(prefixed("a", 700, 4, d2)), x.of(prefixed("b", 700, 4, d2))),
					r.serve(x.of(prefixed("c", 700, 4, d2))),
				}
				r.pass(time.Minute)
				r.mark(4)
				r.pass(2 * d2)
				if logs[0].watermark() != 2 || logs[1].watermark() != 1 {
					t.Fatalf("%d and %d batches are finished", logs[0].watermark(), logs[1].watermark())
				}
				keys, last := 0, time.Duration(0)
				for _, s := range r.trips.of("") {
					if len(s.keys) > x.most || s.from < last {
						t.Fatalf("a round trip of %d keys from %s, after one until %s", len(s.keys), s.from, last)
					}
					keys, last = keys+len(s.keys), s.to
				}
				if keys != 2*2100 {
					t.Errorf("%d keys, want 2,100 twice", keys)
				}
			})
		})
	}
}

// Redis takes some 30 µs for a call. At a pace at which it could be asked for each by itself nobody has to wait for
// ten.
func TestRoundTripsAreSmallerAtALowPace(t *testing.T) {
	for rate, most := range map[int]int{1: 1, 2000: 4, 1_000_000_000: 10} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			gently(t, Options{GentleRate: rate}, 0, func(r *gentleRig) {
				log := r.serve(asCounters(prefixed("a", 20, 4, d2)))
				r.mark(4)
				r.pass(5 * time.Minute)
				if log.watermark() != 1 {
					t.Error("it is not finished")
				}
				largest := 0
				for _, s := range r.trips.of("a") {
					largest = max(largest, len(s.keys))
				}
				if largest != most {
					t.Errorf("round trips of up to %d calls, want %d", largest, most)
				}
			})
		})
	}
}

// A live key waits for the round trip that is under way, and for no other.
func TestLiveKeysDoNotWaitForGentleOnes(t *testing.T) {
	gently(t, Options{}, ms, func(r *gentleRig) {
		r.serve(prefixed("a", 900, 4, 0), prefixed("b", 900, 4, 0))
		r.pass(250 * ms)
		r.append(prefixed("live", 1, 5, 0))
		r.pass(time.Minute)
		live := r.trips.of("live")
		if len(live) != 1 || live[0].to-live[0].from > 101*ms || live[0].from > 251*ms {
			t.Errorf("%v", live)
		}
		r.watermark(1)
	})
}

// A mark that comes late, or the end of a silence, has all final actions of seconds fall due at once. They keep the
// pace, too, and come before what could be done for the first time: that would be late in its turn.
func TestGentleWorkKeepsThePaceToItsEnd(t *testing.T) {
	gently(t, Options{GentleRate: 500}, 0, func(r *gentleRig) {
		var batches []*event.Batch
		for i := range 200 {
			batches = append(batches, prefixed(fmt.Sprintf("%d:", i), 50, uint64(4+i), d2))
		}
		log := r.serve(batches...)
		r.pass(time.Second)
		r.mark(23) // the first 20
		r.pass(d2)
		first := r.trips.of("")
		if n := keysIn(first); n < 2900 || n > 3100 { // 1,000 a second, and what a pause is made up for
			t.Errorf("%d keys within %s, for the first time", n, time.Second+d2)
		}
		r.pass(time.Second)
		finals := r.trips.of("")
		if n := keysIn(finals); n < 900 || n > 1100 {
			t.Errorf("%d keys within the next second, want 1,000", n)
		}
		if got := log.watermark(); got < 17 {
			t.Errorf("%d batches are finished, want nearly 20: others have come before them", got)
		}
		for range 60 {
			r.mark(1000)
			r.pass(time.Second)
		}
		if got := log.watermark(); got != 200 {
			t.Errorf("%d batches are finished", got)
		}
	})
}

func keysIn(trips []sentTrip) (n int) {
	for _, s := range trips {
		n += len(s.keys)
	}
	return n
}

// At a low pace the keys of a batch go out over seconds. If Redis is late in between, keys of that time alone are sent
// once more: if all were, a Redis that is late now and then would keep a batch from ever being finished.
func TestAGentleBatchIsFinishedThoughRedisIsLateNowAndThen(t *testing.T) {
	gently(t, Options{GentleRate: 20, Timeout: time.Minute}, 0, func(r *gentleRig) {
		late := 0
		r.redis.set(func() {
			r.redis.delay = func([]string) time.Duration {
				if late++; late%40 == 0 {
					return d2/4 + ms
				}
				return 0
			}
		})
		log := r.serve(prefixed("a", 200, 4, d2))
		r.mark(4)
		r.pass(2 * time.Minute)
		if log.watermark() != 1 {
			t.Errorf("it is not finished after %d actions", keysIn(r.trips.of("a")))
		}
	})
}

// What is fetched far ahead is old by the time that it is dealt with.
func TestGentleWorkIsNotFetchedFarAhead(t *testing.T) {
	gently(t, Options{}, ms, func(r *gentleRig) {
		var batches []*event.Batch
		for i := range 100 {
			batches = append(batches, prefixed(fmt.Sprintf("%d:", i), 100, uint64(4+i), d2))
		}
		log := r.serve(batches...)
		synctest.Wait()
		if got := 100 - len(log.batches); got != gentleAhead/100 {
			t.Errorf("%d batches are fetched at once, want %d", got, gentleAhead/100)
		}
		r.pass(time.Second)
		if got := 100 - len(log.batches); got < gentleAhead/100+9 || got > gentleAhead/100+10 {
			t.Errorf("%d batches are fetched, and the keys of about 10 dealt with", got)
		}
	})
}

// Gentle work that Redis is too slow for goes in smaller round trips, down to one key, and live work does not.
func TestGentleRoundTripsThatAreLateAreHalved(t *testing.T) {
	gently(t, Options{Timeout: time.Minute}, 0, func(r *gentleRig) {
		log := r.serve(asCounters(prefixed("a", 100, 4, d2)))
		r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return d2 / 2 } })
		r.mark(4)
		r.pass(10 * time.Minute)
		sizes := r.trips.of("a")
		if n := len(sizes[len(sizes)-1].keys); n != 1 {
			t.Errorf("round trips of %d keys, want 1", n)
		}
		if n := r.engine.only().live.trips.halved.Load(); n != 0 {
			t.Errorf("live round trips are halved %d times", n)
		}
		r.redis.set(func() { r.redis.delay = nil })
		r.pass(10 * time.Minute)
		if log.watermark() != 1 {
			t.Error("it is not finished")
		}
	})
}
