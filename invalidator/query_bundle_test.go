package invalidator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// batchOfQueries is a batch of so many keys with the prefix, by a query of that name.
func batchOfQueries(pos uint64, name, prefix string, n int) *event.Batch {
	things := someQueries(prefix, n)
	for i := range things {
		things[i].effect.Query = name
	}
	return aged(batchOfThings(origin(pos, 0), things...), 0)
}

// eachTaking has each key take so long, and those in slow 10 s.
func (r *rig) eachTaking(each time.Duration, slow *string) *tapeRebuilder {
	return r.rebuilding(func(ctx context.Context, key string) (string, error) {
		if key == *slow {
			return "v", retry.Sleep(ctx, 10*time.Second)
		}
		return "v", retry.Sleep(ctx, each)
	})
}

// asks returns for how many keys each query was asked.
func (q *tapeRebuilder) asks() []int {
	q.r.redis.mu.Lock()
	defer q.r.redis.mu.Unlock()
	return slices.Clone(q.together)
}

// written returns how often a value was written to a key.
func (r *rig) written(key string) (n int) {
	r.redis.mu.Lock()
	defer r.redis.mu.Unlock()
	for _, c := range r.redis.calls {
		if strings.Contains(c, "freshet:v:{"+key+"} set") {
			n++
		}
	}
	return n
}

// Queries that are known to be quick are asked together, without locks.
func TestQuickQueriesAreAskedTogether(t *testing.T) {
	for each, want := range map[time.Duration][]int{
		0:      {1, 16, 16, 7},
		ms:     {1, 16, 16, 7},
		2 * ms: slices.Repeat([]int{1}, 40),
	} {
		inBubble(t, Options{QueryWorkers: 1}, func(r *rig) {
			q := r.eachTaking(each, new(string))
			r.append(batchOfQueries(4, "q", "k", 40))
			r.pass(time.Second)
			r.watermark(1)
			if !slices.Equal(q.asks(), want) {
				r.Errorf("queries of %v: %v were asked together, want %v", each, q.asks(), want)
			}
			locks := 0
			for _, c := range r.redis.calls {
				if hasWords(c, "acquire") {
					locks++
				}
			}
			if alone := len(slices.DeleteFunc(slices.Clone(want), func(n int) bool { return n > 1 })); locks != alone {
				r.Errorf("queries of %v: %d locks for %d queries of one key", each, locks, alone)
			}
		})
	}
}

// Workers that have nothing to do get their share of what waits, instead of one taking all.
func TestWorkersShareQuickQueries(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 4}, func(r *rig) {
		q := r.eachTaking(ms, new(string))
		r.append(batchOfQueries(4, "q", "known", 1))
		r.pass(ms)
		r.append(batchOfQueries(5, "q", "k", 8))
		if got := slices.Sorted(slices.Values(q.asks())); !slices.Equal(got, []int{1, 1, 1, 2, 2}) {
			r.Errorf("%v were asked together", got)
		}
		r.pass(2 * ms)
		r.watermark(2)
	})
}

// A query that failed, or takes longer than it did, is asked alone again.
func TestAQueryThatFailsIsAskedAlone(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 1}, func(r *rig) {
		fails := false
		q := r.rebuilding(func(context.Context, string) (string, error) {
			if fails {
				return "", errQuery
			}
			return "v", nil
		})
		r.append(batchOfQueries(4, "q", "known", 1))
		r.redis.set(func() { fails = true })
		r.append(batchOfQueries(5, "q", "k", 4))
		if !slices.Equal(q.asks(), []int{1, 4}) {
			r.Fatalf("%v were asked together", q.asks())
		}
		r.redis.set(func() { fails = false })
		r.pass(time.Minute)
		r.watermark(2)
		if len(q.asks()) < 4 || q.asks()[2] != 1 {
			r.Errorf("%v were asked together", q.asks())
		}
	})
}

// quickThenSlow has one bundle hold a slow query, and three quick ones of another text that come after it.
func quickThenSlow(r *rig) *tapeRebuilder {
	slow := ""
	q := r.eachTaking(ms, &slow)
	r.append(batchOfQueries(4, "q", "known", 1))
	r.append(batchOfQueries(5, "other", "known too", 1))
	r.pass(2 * ms)
	r.redis.set(func() { slow = "k0" })
	r.append(batchOfQueries(6, "q", "busy", 1))
	if r.engine.options.QueryWorkers > 1 {
		r.append(batchOfQueries(7, "q", "busy too", 1))
	}
	r.append(batchOfQueries(8, "q", "k", 1))
	r.append(batchOfQueries(9, "other", "o", 3))
	return q
}

// What a query that turns out to be slow holds up waits no longer than in the line: then it is deleted instead.
func TestWhatASlowQueryHoldsUpIsDeletedInstead(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 1}, func(r *rig) {
		q := quickThenSlow(r)
		r.pass(4 * time.Second)
		if n := len(q.asks()); n != 4 || r.forgotten("o0") != 0 {
			r.Errorf("after 4s %v were asked together, and a key was deleted %d times", q.asks(), r.forgotten("o0"))
		}
		r.pass(3 * time.Second)
		for _, key := range []string{"o0", "o1", "o2"} {
			if n := r.forgotten(key); n != 1 {
				r.Errorf("%s was deleted %d times after 7s", key, n)
			}
		}
		r.pass(time.Minute)
		r.watermark(5)
	})
}

// Keys of one query that becomes slow wait no longer than in the line either: they are not all begun with the first.
func TestKeysOfAQueryThatBecomesSlowAreDeletedInstead(t *testing.T) {
	inBubble(t, Options{QueryWorkers: 1}, func(r *rig) {
		isSlow := false
		r.rebuilding(func(ctx context.Context, key string) (string, error) {
			if isSlow {
				return "v", retry.Sleep(ctx, 4*time.Second)
			}
			return "v", nil
		})
		r.append(batchOfQueries(4, "q", "known", 1))
		r.redis.set(func() { isSlow = true })
		r.append(batchOfQueries(5, "q", "k", 16))
		r.pass(11 * time.Second)
		for i := range 16 {
			key := fmt.Sprintf("k%d", i)
			if n := r.forgotten(key) + r.written(key); n == 0 {
				r.Errorf("%s has its old value after 11s", key)
			}
		}
		r.pass(2 * time.Minute)
		r.watermark(2)
	})
}

// A key that comes to a run of a bundle that is given up is not given up with it.
func TestAKeyOutlivesTheBundleOfAPartitionThatEnded(t *testing.T) {
	for name, begin := range map[string]func(r *rig){
		"before its query": func(r *rig) {
			slow := ""
			r.rebuilding(func(_ context.Context, key string) (string, error) {
				if key == slow {
					time.Sleep(20 * ms) // it does not look at its context
				}
				time.Sleep(ms)
				return "v", nil
			})
			r.append(batchOfQueries(4, "q", "known", 1))
			r.append(batchOfQueries(5, "other", "known too", 1))
			r.pass(2 * ms)
			r.redis.set(func() { slow = "k0" })
			r.append(batchOfQueries(6, "q", "busy", 1))
			r.append(batchOfQueries(7, "q", "k", 1))
			r.append(batchOfQueries(8, "other", "o", 1))
			r.pass(2 * ms) // the query of k0 is under way, that of o0 comes after it
		},
		"before it has its lock": func(r *rig) {
			r.rebuilding(nil)
			r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return 20 * ms } })
			r.append(batchOfQueries(8, "other", "o", 1))
			r.pass(10 * ms)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{QueryWorkers: 1}, func(r *rig) {
				begin(r)
				r.stop()
				synctest.Wait()
				log, served := newFakeLog(), make(chan error, 1)
				ctx, stop := context.WithCancel(r.Context())
				go func() { served <- r.engine.Serve(ctx, log) }()
				b := batchOfQueries(9, "other", "o", 1)
				b.At = time.Now()
				log.batches <- b
				r.pass(time.Minute)
				if n := log.watermark(); n != 1 {
					r.Errorf("%d batches of the second partition are committed, want 1", n)
				}
				stop()
				<-served
			})
		})
	}
}
