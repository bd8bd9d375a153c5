package invalidator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
)

// limitedBatch makes a batch of a mapping with a rate limit of its own.
func limitedBatch(pos uint64, d time.Duration, rate int, things ...thing) *event.Batch {
	o := origin(pos, d)
	o.Mapping, o.RateLimit = 3, rate
	return aged(batchOfThings(o, things...), time.Hour)
}

func deleted(key string) thing { return thing{key: key, action: event.ActionDelete} }

// times are when a key was deleted.
func (r *rig) times(key string) []time.Duration {
	r.redis.mu.Lock()
	defer r.redis.mu.Unlock()
	var times []time.Duration
	for _, line := range r.redis.tape {
		when, keys, _ := strings.Cut(line, " ")
		if slices.Contains(strings.Fields(keys), key) {
			d, err := time.ParseDuration(when)
			if err != nil {
				r.Fatal(err)
			}
			times = append(times, d)
		}
	}
	return times
}

// A bulk change of one hot key is one delete each time its turn comes, and its watermark waits for that delete.
func TestAHotKeyOfALimitedMappingIsOneDeleteATurn(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		for i := range 100 {
			r.append(limitedBatch(uint64(4+i), 0, 1, deleted("hot")))
			r.pass(20 * ms)
		}
		// All that came since the last turn waits for the next.
		if got := r.times("hot"); !slices.Equal(got,
			[]time.Duration{0, time.Second - pacerBurst, 2*time.Second - pacerBurst}) {
			r.Fatalf("deleted at %v, want once a second", got)
		}
		if w := r.log.watermark(); w != 98 {
			r.Fatalf("%d batches are committed; want those before the last delete", w)
		}
		if s := r.engine.Snapshot(); s.RateLimited != 1 || s.Pending != 1 || s.InFlight != 0 {
			r.Fatalf("%+v", s)
		}
		r.pass(time.Second)
		r.watermark(100)
		if got := r.times("hot"); len(got) != 4 {
			r.Fatalf("deleted at %v", got)
		}
		if s := r.engine.Snapshot(); s.RateLimited+s.Pending+s.InFlight+s.Bytes != 0 {
			r.Fatalf("%+v", s)
		}
	})
}

// A bulk change of many keys is a steady stream, and does not hold up other mappings' keys.
func TestManyKeysOfALimitedMappingAreASteadyStream(t *testing.T) {
	inBubble(t, Options{MaxInFlight: 50}, func(r *rig) {
		const keys, rate = 1000, 100
		for i := range keys / 10 {
			var things []thing
			for j := range 10 {
				things = append(things, deleted(fmt.Sprintf("k%d", 10*i+j)))
			}
			r.append(limitedBatch(uint64(4+i), 0, rate, things...))
		}
		r.append(aged(batchOf(1000, 0, "other"), time.Hour))
		if got := r.times("other"); len(got) != 1 || got[0] != 0 {
			r.Fatalf("another mapping's key was deleted at %v, want at once", got)
		}
		for second := range 10 {
			before := 0
			for i := range keys {
				for _, at := range r.times(fmt.Sprintf("k%d", i)) {
					if at <= time.Duration(second)*time.Second {
						before++
					}
				}
			}
			if want := second * rate; before < want || before > want+2*rate/10 {
				r.Errorf("%d keys after %d seconds, want about %d", before, second, want)
			}
			r.pass(time.Second)
		}
		r.pass(time.Second)
		r.watermark(101)
	})
}

// A change that comes late, or one of an older term, takes nobody's place: both are sent.
func TestALateChangeTakesNobodysPlace(t *testing.T) {
	for name, change := range map[string]func(b *event.Batch){
		"an older version": func(b *event.Batch) { b.Origins[0].Event.Pos = 3 },
		"an older term":    func(b *event.Batch) { b.Origins[0].Event.Pos, b.Term = 9, 0 },
		"another source":   func(b *event.Batch) { b.Origins[0].Event.Pos, b.Source = 9, "t" },
	} {
		inBubble(t, Options{}, func(r *rig) {
			r.append(limitedBatch(4, 0, 1, deleted("first")))
			r.append(limitedBatch(5, 0, 1, deleted("a")))
			late := limitedBatch(6, 0, 1, deleted("a"))
			change(late)
			r.append(late)
			r.pass(time.Minute)
			if got := r.times("a"); len(got) != 2 {
				r.Errorf("%s: deleted at %v, want twice", name, got)
			}
			r.watermark(3)
		})
	}
}

// The larger D of both counts, and the older change is finished with the newer one's final delete.
func TestWhoeverTakesAPlaceKeepsTheLargerD(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(limitedBatch(4, 0, 1, deleted("first")))
		r.append(limitedBatch(5, 4*time.Second, 1, deleted("a")))
		newer := limitedBatch(6, d2, 1, deleted("a"))
		newer.Age = event.Unknown
		r.append(newer)
		r.pass(time.Second)
		r.tape("0s first", "950ms a")
		r.watermark(1)
		r.mark(6)
		r.pass(3900 * ms)
		r.watermark(1)
		r.pass(200 * ms)
		r.tape("0s first", "950ms a", "5s a")
		r.watermark(3)
	})
}

// What a key would be is known by the newest change: older values that waited are never written.
func TestTheNewestValueTakesThePlace(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		fresh := func(pos uint64, th thing) *event.Batch { return aged(limitedBatch(pos, 0, 1, th), time.Second) }
		r.append(fresh(4, put("first", "x")))
		for pos := uint64(5); pos < 10; pos++ {
			r.append(fresh(pos, put("a", fmt.Sprintf("value%d", pos))))
		}
		r.pass(time.Minute)
		r.calls("0s rebuild first x", "950ms rebuild a 1/1/9/1 value9")
		r.watermark(6)
	})
}

// Keys that cannot be deleted are set apart, and the older changes they stand for are not finished before them.
func TestAnAbsorbedChangeWaitsForTheKeyInTrouble(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() {
			r.redis.answer = func(keys []string) error {
				if slices.Contains(keys, "bad") {
					return answerError("NOPERM No permissions to access a key")
				}
				return nil
			}
		})
		r.append(limitedBatch(4, 0, 40, deleted("first"), deleted("second"), deleted("third"), deleted("fourth")))
		r.append(limitedBatch(5, 0, 40, deleted("bad"), deleted("good")))
		r.append(limitedBatch(6, 0, 40, deleted("bad"), deleted("good")))
		if s := r.engine.Snapshot(); s.RateLimited != 2 {
			r.Fatalf("%d keys wait, want 2 for the two changes of each", s.RateLimited)
		}
		r.pass(110 * ms)
		if r.count("good") != 1 || r.engine.Snapshot().InTrouble != 1 {
			r.Fatalf("deleted %v, %d keys in trouble", r.redis.tape, r.engine.Snapshot().InTrouble)
		}
		r.watermark(1)
		r.redis.set(func() { r.redis.answer = nil })
		r.pass(time.Second)
		r.watermark(3)
		if s := r.engine.Snapshot(); s.RateLimited+s.Pending+s.InFlight+s.InTrouble+s.Bytes != 0 {
			r.Fatalf("%+v", s)
		}
	})
}

// Queries of a limited mapping are paced as well.
func TestQueriesOfALimitedMappingArePaced(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		q := r.rebuilding(nil)
		r.append(limitedBatch(4, 0, 1, query("a"), query("b")))
		r.append(limitedBatch(5, 0, 1, query("b")))
		r.pass(10 * time.Second)
		q.ran("0s a", "950ms b")
		r.calls("acquire", "rebuild a 1/1/4/1", "release", "acquire", "rebuild b 1/1/5/1", "release")
		r.watermark(2)
	})
}
