package invalidator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
)

const (
	ms = time.Millisecond
	d2 = 2 * time.Second
)

func TestTheFinalDeleteGoesOutDAfterTheMark(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(batchOf(4, d2, "a", "b"))
		r.tape("0s a b")
		r.pass(10 * time.Second) // the event was ahead of its commit
		r.mark(3)                // which this mark does not cover
		r.pass(10 * time.Second)
		r.tape("0s a b")
		r.mark(4)
		r.pass(d2 - 1)
		r.tape("0s a b")
		r.watermark(0)
		r.pass(1)
		r.tape("0s a b", "22s a b")
		r.watermark(1)
		if n := r.engine.Acknowledged(); n != 4 {
			r.Errorf("%d deletes are acknowledged, want 4", n)
		}
	})
}

func TestAMarkThatCameBeforeTheBatchCounts(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.mark(4)
		r.pass(d2 - 1)
		r.append(batchOf(4, d2, "early"))
		r.pass(1)
		r.append(batchOf(4, d2, "old"))
		r.pass(time.Minute)
		// What is known for D when it is first deleted is deleted once; what is known for less, once more when it is.
		r.tape("1.999999999s early", "2s early", "2s old")
		r.watermark(2)
	})
}

func TestOldNewsNeedsOneDelete(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(aged(batchOf(4, d2, "a"), d2))
		r.watermark(1)
		r.append(aged(batchOf(5, d2, "b"), d2-1))
		r.watermark(1)
		r.pass(time.Minute)
		r.tape("0s a", "0s b", "1ns b")
		r.watermark(2)
	})
}

func TestAnAgeGrowsWhileTheBatchWaits(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		b := aged(batchOf(4, d2, "a"), 500*ms)
		b.At = time.Now()
		r.pass(1500 * ms)
		r.log.batches <- b
		r.pass(0)
		r.tape("1.5s a")
		r.watermark(1)
	})
}

func TestAnAgeFromAnotherProcessCountsFromTheFetch(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		b := batchOf(4, d2, "a")
		b.Age = 500 * ms
		r.log.batches <- b
		r.pass(time.Minute)
		r.tape("0s a", "1.5s a")
	})
}

func TestWithoutASecondDeleteWhatIsVisibleIsDeletedOnce(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return 900 * ms } })
		r.append(aged(batchOf(4, 0, "a"), 0))
		r.watermark(0)
		r.pass(time.Minute)
		r.tape("0s a")
		r.watermark(1)
	})
}

// A commit may be held up after its event, as by semi-synchronous replication: a reader of any speed fills the cache
// with the old value after the first delete. The mark is all that is waited for.
func TestWithoutASecondDeleteWhatWasNotVisibleIsDeletedOnceMoreAtTheMark(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(aged(batchOf(4, 0, "a"), event.Unknown))
		r.pass(time.Minute)
		r.tape("0s a")
		r.watermark(0)
		r.mark(4)
		r.tape("0s a", "1m0s a")
		r.watermark(1)
	})
}

// Nor does a silence of Redis delay it: no reader is slow.
func TestWithoutASecondDeleteASilenceOfRedisIsNotWaitedFor(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(aged(batchOf(4, 0, "a"), event.Unknown))
		r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return 900 * ms } })
		r.mark(4)
		r.pass(900 * ms)
		r.tape("0s a", "0s a")
		r.watermark(1)
	})
}

// What is in trouble is parked at the mark, not before: its later delete is its last.
func TestWithoutASecondDeleteAKeyIsParkedAtTheMark(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.refuse("bad")
		r.append(aged(batchOf(4, 0, "bad"), event.Unknown))
		r.pass(time.Minute)
		if parked, _ := r.store.counts(); parked != 0 {
			r.Fatalf("%d keys are parked before their change is known to be visible", parked)
		}
		r.mark(4)
		if parked, _ := r.store.counts(); parked != 1 {
			r.Fatalf("%d keys are parked, want 1", parked)
		}
		r.watermark(1)
	})
}

func TestOfTwoMappingsOfOneKeyTheLargerDCounts(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.mark(100)
		r.append(batchWith("a", time.Second, "b", time.Second, "a", d2))
		r.pass(time.Minute)
		r.tape("0s b a", "1s b", "2s a")
		r.watermark(1)
	})
}

func TestAFinalDeleteWithALateReplyIsRepeated(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		want []string
	}{
		{d2 / 4, []string{"0s a", "2s a"}},
		{d2/4 + 1, []string{"0s a", "2s a", "4.500000001s a"}},
	} {
		inBubble(t, Options{}, func(r *rig) {
			r.append(batchOf(4, d2, "a"))
			r.mark(4)
			r.pass(time.Second)
			r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return c.took } })
			r.pass(d2)
			r.redis.set(func() { r.redis.delay = nil })
			r.pass(time.Minute)
			r.tape(c.want...)
			r.watermark(1)
		})
	}
}

func TestOldNewsWithALateReplyIsRepeated(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return d2/4 + 1 } })
		r.append(aged(batchOf(4, d2, "a"), time.Hour))
		r.pass(time.Second)
		r.redis.set(func() { r.redis.delay = nil })
		r.watermark(0)
		r.pass(time.Minute)
		r.tape("0s a", "2.500000001s a")
		r.watermark(1)
	})
}

func TestAFinalDeleteOverALostConnectionIsRepeated(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(batchOf(4, d2, "a"))
		r.mark(4)
		r.pass(time.Second)
		lost := 0
		r.redis.set(func() {
			r.redis.answer = func([]string) error {
				if lost++; lost == 1 {
					return errors.New("connection reset by peer")
				}
				return nil
			}
		})
		r.pass(time.Second)
		r.pass(d2 / 4) // enough to try again, far too short for D
		if n := r.count("a"); n != 2 {
			r.Fatalf("deleted %d times, want a first time and again after the loss", n)
		}
		r.watermark(0)
		r.pass(d2)
		if n := r.count("a"); n != 3 {
			r.Fatalf("deleted %d times, want once more D after Redis was back", n)
		}
		r.watermark(1)
	})
}

// A Redis that comes and goes says so in the log once a minute, with how often it came back in between.
func TestARedisThatComesAndGoesDoesNotFillTheLog(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		away := func(is bool) {
			r.redis.set(func() {
				r.redis.ping = func() error {
					if is {
						return errors.New("connection reset by peer")
					}
					return nil
				}
			})
			r.pass(2 * time.Second)
		}
		for range 30 { // two minutes
			away(true)
			away(false)
		}
		for i, want := range []string{"repeats=0", "repeats=1"} { // 14 or 15 returns between them
			said := r.lines.with("redis is back")
			if len(said) != 2 || !strings.Contains(said[i], want) {
				t.Fatalf("the log says %q, want two lines, number %d with %s", said, i, want)
			}
		}
	})
}

// A hang that was over before the final delete is due is seen by the prober, and delays it.
func TestASilenceWhileAKeyIsPendingDelaysItsFinalDelete(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(batchOf(4, d2, "a"))
		r.mark(4)
		r.pass(time.Second)
		hang := time.Now().Add(600 * ms)
		r.redis.set(func() {
			r.redis.ping = func() error {
				r.redis.mu.Unlock()
				<-time.After(time.Until(hang))
				r.redis.mu.Lock()
				return nil
			}
		})
		r.pass(time.Minute)
		r.redis.mu.Lock()
		tape := r.redis.tape
		r.redis.mu.Unlock()
		at, _ := time.ParseDuration(tape[len(tape)-1][:len(tape[len(tape)-1])-2])
		if len(tape) != 2 || at < 1600*ms+d2 {
			r.Fatalf("deleted at %v, want a final delete D after the hang's end at 1.6s", tape)
		}
	})
}

func TestPendingKeysShareCommands(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		for i := range 30 {
			r.append(batchOf(uint64(4+i), d2, fmt.Sprintf("k%d", i)))
		}
		r.mark(100)
		r.pass(d2)
		r.redis.mu.Lock()
		defer r.redis.mu.Unlock()
		if n := len(r.redis.tape); n != 31 {
			r.Fatalf("%d commands, want 30 first ones and a final one for all:\n%v", n, r.redis.tape)
		}
		r.watermark(30)
	})
}

func TestTheWatermarkWaitsForTheOldest(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(batchOf(4, d2, "slow"))
		r.append(batchOf(5, 0, "quick"))
		r.append(batchOf(6, 0)) // progress without a key
		r.watermark(0)
		r.mark(4)
		r.pass(d2)
		r.watermark(3)
		r.append(batchOf(7, 0))
		r.watermark(4)
	})
}

func TestSeveralSourcesWaitForTheirOwnMarks(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		other := batchOf(4, d2, "other")
		other.Source = "t"
		r.append(other)
		r.append(batchOf(4, d2, "mine"))
		r.mark(4)
		r.pass(d2)
		r.tape("0s other", "0s mine", "2s mine")
		m := markAt(4)
		m.Source = "t"
		r.engine.Mark(m)
		r.pass(d2)
		r.tape("0s other", "0s mine", "2s mine", "4s other")
		r.watermark(2)
	})
}

func TestAKeyPrefixGoesBeforeEveryKey(t *testing.T) {
	inBubble(t, Options{KeyPrefix: "shop:"}, func(r *rig) {
		r.append(batchOf(4, 0, "a", "b"))
		r.tape("0s shop:a shop:b")
	})
}

func TestFirstDeletesArePaced(t *testing.T) {
	inBubble(t, Options{RateLimit: 100}, func(r *rig) {
		keys := make([]string, 400)
		for i := range keys {
			keys[i] = fmt.Sprintf("k%d", i)
		}
		r.append(batchOf(4, d2, keys...))
		r.pass(3800 * ms)
		if in := r.engine.Snapshot().InFlight; in == 0 {
			r.Fatal("400 keys went out in 3.8 s")
		}
		r.pass(200 * ms)
		if in := r.engine.Snapshot().InFlight; in != 0 {
			r.Fatalf("%d keys are left after 4 s", in)
		}
		r.mark(4)
		r.pass(d2)
		r.watermark(1)
		for _, k := range keys {
			if n := r.count(k); n != 2 {
				r.Fatalf("%s was deleted %d times", k, n)
			}
		}
	})
}

func TestAtTheEndOfTheLogEverythingIsFinishedFirst(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.append(batchOf(4, d2, "a"))
		close(r.log.batches)
		r.pass(time.Minute)
		if len(r.served) > 0 {
			r.Fatal("Serve returned before the final delete")
		}
		r.mark(4)
		r.pass(d2)
		r.watermark(1)
		if err := <-r.served; err != nil {
			r.Fatal(err)
		}
	})
}

func TestABatchIsCountedOnceInTheLatency(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var b event.Batch
		b.Reset()
		b.Source, b.Term = "s", 1
		for i, before := range []time.Duration{3 * time.Second, 3 * time.Second, time.Second} {
			tx := event.Tx{Committed: time.Now().Add(-before)}
			b.AddOrigin(event.Origin{Table: "shop.product", Tx: tx, D: d2, Event: event.Version{Pos: uint64(4 + i)}})
			b.Add(append(b.Text(), byte('a'+i)), 1, event.ActionDelete)
		}
		r.append(b.Clone())
		p := r.engine.Snapshot().Latency
		if p.Count != 2 || p.P50 < time.Second || p.P50 > 1125*ms || p.P99 < 3*time.Second || p.P99 > 3375*ms {
			r.Fatalf("%+v, want two transactions of 1 s and 3 s", p)
		}
		r.mark(100)
		r.pass(10 * time.Second) // the final delete is not counted
		if p := r.engine.Snapshot().Latency; p.Count != 2 {
			r.Fatalf("%+v after the final delete", p)
		}
		r.pass(time.Minute)
		if p := r.engine.Snapshot().Latency; p.Count != 0 {
			r.Fatalf("%+v a minute later", p)
		}
	})
}
