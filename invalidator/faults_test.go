package invalidator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

const (
	readonly = answerError("READONLY You can't write against a read only replica.")
	noPerm   = answerError("NOPERM No permissions to access a key")
)

// refuse has Redis refuse commands that hold any of the keys.
func (r *rig) refuse(keys ...string) {
	r.redis.set(func() {
		r.redis.answer = func(asked []string) error {
			for _, k := range keys {
				if slices.Contains(asked, k) {
					return noPerm
				}
			}
			return nil
		}
	})
}

func (r *rig) allow() { r.redis.set(func() { r.redis.answer = nil }) }

func TestWhileRedisIsAwayNothingIsFetchedNorLost(t *testing.T) {
	for name, err := range map[string]error{
		"refused":       errors.New("dial tcp 127.0.0.1:6379: connect: connection refused"),
		"read-only":     readonly,
		"loading":       answerError("LOADING Redis is loading the dataset in memory"),
		"cluster down":  answerError("CLUSTERDOWN The cluster is down"),
		"master down":   answerError("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
		"no password":   answerError("NOAUTH Authentication required."),
		"out of memory": answerError("OOM command not allowed when used memory > 'maxmemory'."),
		"no command":    answerError("NOPERM User freshet has no permissions to run the 'unlink' command"),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.redis.set(func() { r.redis.answer = func([]string) error { return err } })
				r.append(batchOf(4, 0, "a"))
				for i := range 20 {
					r.append(batchOf(uint64(5+i), 0, fmt.Sprintf("k%d", i)))
				}
				fetched := 20 - len(r.log.batches)
				r.pass(10 * time.Minute)
				r.tape()
				r.watermark(0)
				if more := 20 - len(r.log.batches); more > fetched || more > 5 {
					r.Fatalf("%d batches were fetched in the absence of Redis, after %d", more, fetched)
				}
				parked, dead := r.store.counts()
				if parked+dead > 0 || r.alarms.count(alarm.RedisAway) != 1 {
					r.Fatalf("%d parked, %d dead letters, %d alarms; want 0, 0, 1", parked, dead, r.alarms.count(alarm.RedisAway))
				}
				if s := r.engine.Snapshot(); s.RedisUp || s.Waiting != "redis is away" {
					r.Fatalf("%+v", s)
				}
				r.allow()
				r.pass(time.Second)
				r.watermark(21)
				if s := r.engine.Snapshot(); !s.RedisUp || s.Waiting != "" || s.InFlight+s.Pending+s.Bytes != 0 {
					r.Fatalf("a second after Redis' return: %+v", s)
				}
				r.redis.set(func() { r.redis.answer = func([]string) error { return err } })
				r.append(batchOf(99, 0, "b"))
				r.allow()
				r.pass(time.Second)
				if n := r.alarms.count(alarm.RedisAway); n != 2 {
					r.Fatalf("%d alarms for two absences", n)
				}
			})
		})
	}
}

func TestAHungRedisIsAwayAfterTheTimeout(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() {
			r.redis.delay = func([]string) time.Duration { return time.Hour }
			r.redis.ping = func() error { return context.DeadlineExceeded }
		})
		r.append(batchOf(4, d2, "a"))
		r.pass(999 * ms)
		if n := r.alarms.count(alarm.RedisAway); n != 1 { // by the prober's PING
			r.Fatalf("%d alarms", n)
		}
		r.pass(10 * time.Minute)
		r.redis.set(func() { r.redis.delay, r.redis.ping = nil, nil })
		r.mark(4)
		r.pass(time.Second)
		if r.engine.Snapshot().InFlight != 0 {
			r.Fatal("not deleted within a second of Redis' return")
		}
		r.watermark(0)
		r.pass(2 * d2)
		r.watermark(1)
	})
}

func TestASlowRedisGetsLessAtATime(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		keys := make([]string, tripKeys)
		for i := range keys {
			keys[i] = fmt.Sprintf("k%d", i)
		}
		r.redis.set(func() {
			r.redis.delay = func(keys []string) time.Duration { return time.Duration(len(keys)) * ms } // 2000 keys take 2 s
		})
		r.append(batchOf(4, 0, keys...))
		r.pass(time.Minute)
		r.watermark(1)
	})
}

func TestARedisThatIsTooSlowForDIsNotWaitedForInSilence(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() {
			r.redis.ping = func() error {
				r.redis.mu.Unlock()
				<-time.After(d2/4 + ms)
				r.redis.mu.Lock()
				return nil
			}
		})
		r.pass(time.Second)
		r.append(batchOf(4, d2, "a"))
		r.mark(4)
		r.pass(10*d2 + 29*time.Second)
		if n := r.alarms.count(alarm.RedisSlow); n != 0 {
			r.Fatalf("%d alarms too early", n)
		}
		r.pass(2 * time.Second)
		if n := r.alarms.count(alarm.RedisSlow); n != 1 {
			r.Fatalf("%d alarms", n)
		}
		r.watermark(0)
		r.redis.set(func() { r.redis.ping = nil })
		r.pass(2 * d2)
		r.watermark(1)
	})
}

func TestAKeyInTroubleHoldsUpNoOther(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.refuse("bad")
		r.append(batchOf(4, d2, "a", "bad", "b"))
		r.append(batchOf(5, d2, "c"))
		r.mark(5)
		r.tape("0s a", "0s b", "0s c")
		r.pass(d2 - 1)
		if parked, _ := r.store.counts(); parked != 0 {
			r.Fatal("parked before D after its mark")
		}
		r.watermark(0)
		r.pass(1)
		if parked, _ := r.store.counts(); parked != 1 {
			r.Fatal("not parked D after its mark")
		}
		r.watermark(2)
		e := r.store.parked()[0]
		want := retry.Entry{
			ID: 1, Key: "bad", Action: event.ActionDelete, Source: "s", Table: "shop.product",
			Version: event.Version{Epoch: 1, File: 1, Pos: 4, Row: 2}, D: d2,
			Error: string(noPerm), Attempts: 3,
			First: r.redis.begin, Last: r.redis.begin.Add(300 * ms), Due: r.redis.begin.Add(d2 + 10*time.Second),
		}
		e.Last = e.Last.Round(ms)
		if diff := cmp.Diff(want, e); diff != "" {
			r.Fatal(diff)
		}
		r.allow()
		r.pass(10*time.Second - 1)
		if r.count("bad") != 0 {
			r.Fatal("tried again before it was due")
		}
		r.pass(2)
		if parked, _ := r.store.counts(); parked != 0 || r.count("bad") != 1 {
			r.Fatalf("%d parked, deleted %d times; want it deleted once it was due", parked, r.count("bad"))
		}
	})
}

// A batch that takes several round trips: the reply to the first comes last.
func TestKeysInTroubleAreFoundInWhicheverOrderRoundTripsAreAnswered(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.refuse("bad 1", "bad 2")
		keys := make([]string, 2*tripKeys)
		for i := range keys {
			keys[i] = fmt.Sprint("key ", i)
		}
		keys[1], keys[tripKeys+1] = "bad 1", "bad 2"
		r.redis.set(func() {
			r.redis.delay = func(some []string) time.Duration {
				if slices.Contains(some, "key 0") {
					return 10 * ms
				}
				return 0
			}
		})
		r.append(aged(batchOf(4, d2, keys...), time.Minute))
		r.pass(time.Minute)
		var parked []string
		for _, e := range r.store.parked() {
			parked = append(parked, e.Key)
		}
		if slices.Sort(parked); !slices.Equal(parked, []string{"bad 1", "bad 2"}) {
			r.Fatalf("parked are %q", parked)
		}
	})
}

func TestAKeyThatRecoversInPlaceIsNotParked(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.refuse("bad")
		r.append(batchOf(4, d2, "bad"))
		r.pass(50 * ms)
		r.allow()
		r.pass(time.Minute)
		r.mark(4)
		r.pass(d2)
		if n := r.count("bad"); n != 2 || r.store.parks != 0 {
			r.Fatalf("deleted %d times, parked %d times; want a first and a final delete", n, r.store.parks)
		}
		r.watermark(1)
		if s := r.engine.Snapshot(); s.InTrouble != 0 || s.Pending != 0 || s.Unmarked != 0 {
			r.Fatalf("%+v", s)
		}
	})
}

func TestAParkedKeyIsGivenUpAfterItsLastAttempt(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.refuse("bad")
		r.append(batchOf(4, 0, "bad"))
		r.pass(time.Second)
		r.watermark(1)
		r.pass(10*time.Second + time.Minute + 2*10*time.Minute)
		if _, dead := r.store.counts(); dead != 0 {
			r.Fatal("given up before the eighth attempt")
		}
		r.pass(10 * time.Minute)
		if _, dead := r.store.counts(); dead != 1 || r.alarms.count(alarm.DeadLetter) != 1 {
			r.Fatalf("%d dead letters, %d alarms", dead, r.alarms.count(alarm.DeadLetter))
		}
		if e := r.store.letters[0]; e.Attempts != 8 || e.Error != string(noPerm) || !e.Due.IsZero() {
			r.Fatalf("%+v", e)
		}
	})
}

func TestWithoutParkingAKeyIsGivenUpAtOnce(t *testing.T) {
	inBubble(t, Options{Retry: retry.Policy{MaxAttempts: 2}}, func(r *rig) {
		r.refuse("bad")
		r.append(batchOf(4, d2, "bad"))
		r.mark(4)
		r.pass(d2)
		if parked, dead := r.store.counts(); parked != 0 || dead != 1 || r.alarms.count(alarm.DeadLetter) != 1 {
			r.Fatalf("%d parked, %d dead letters", parked, dead)
		}
		r.watermark(1)
	})
}

func TestAParkedKeyIsDeletedAgainAfterALateReply(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		want int
	}{{d2 / 4, 1}, {d2/4 + 1, 2}} {
		inBubble(t, Options{}, func(r *rig) {
			r.refuse("bad")
			r.append(batchOf(4, d2, "bad"))
			r.mark(4)
			r.pass(5 * time.Second)
			r.allow()
			late := true
			r.redis.set(func() {
				r.redis.delay = func([]string) time.Duration {
					defer func() { late = false }()
					if late {
						return c.took
					}
					return 0
				}
			})
			r.pass(time.Minute)
			if parked, _ := r.store.counts(); parked != 0 || r.count("bad") != c.want {
				r.Fatalf("reply after %s: %d parked, deleted %d times, want %d", c.took, parked, r.count("bad"), c.want)
			}
		})
	}
}

func TestAFullStoreStopsReadingAndDropsNothing(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.store.limit = 700
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = fmt.Sprintf("bad%d", i)
		}
		r.redis.set(func() {
			r.redis.answer = func(asked []string) error {
				if strings.Contains(strings.Join(asked, " "), "bad") {
					return noPerm
				}
				return nil
			}
		})
		r.append(batchOf(4, 0, keys...))
		r.pass(time.Second)
		if n := r.alarms.count(alarm.StoreFull); n != 1 || !r.engine.Snapshot().StoreFull {
			r.Fatalf("%d alarms", n)
		}
		if parked, _ := r.store.counts(); parked != 700 {
			r.Fatalf("%d keys are parked, want as many as fit", parked)
		}
		left := len(r.log.batches)
		for i := range 5 {
			r.append(batchOf(uint64(5+i), 0, "good"))
		}
		r.pass(5 * time.Second)
		if n := len(r.log.batches) - left; n < 4 { // one was being fetched already
			r.Fatalf("%d of 5 batches are left in the log, though the store is full", n)
		}
		r.watermark(0)
		r.allow() // the parked ones are settled when due, and make room
		r.pass(time.Minute)
		r.watermark(6)
		if parked, dead := r.store.counts(); parked+dead != 0 || r.engine.Snapshot().StoreFull {
			r.Fatalf("%d parked, %d dead", parked, dead)
		}
		for _, k := range keys {
			if r.count(k) == 0 {
				r.Fatalf("%s was dropped", k)
			}
		}
	})
}

func TestAStoreThatFailsIsTriedAgain(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.store.fail = errors.New("no space left on device")
		r.refuse("bad")
		r.append(batchOf(4, 0, "bad"))
		r.pass(10 * time.Minute)
		if n := r.alarms.count(alarm.StoreFailed); n < 1 || n > 11 { // once, and again each minute
			r.Fatalf("%d alarms", n)
		}
		r.watermark(0)
		r.store.mu.Lock()
		r.store.fail = nil
		r.store.mu.Unlock()
		r.pass(time.Minute)
		r.watermark(1)
	})
}

func TestAFaultThatNoAttemptMendsEndsServe(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() {
			r.redis.answer = func([]string) error { return answerError("ERR unknown command 'unlink'") }
		})
		r.append(batchOf(4, 0, "a"))
		err := <-r.served
		if err == nil || !strings.Contains(err.Error(), "unlink 1 keys: ERR unknown command") ||
			!strings.Contains(err.Error(), "Redis 6.0") {
			r.Fatalf("Serve returned %v", err)
		}
		r.watermark(0)
	})
}

func TestAFaultEndsServeThoughAnotherRoundTripHangs(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() {
			r.redis.answer = func(keys []string) error {
				if keys[0] == "fault" {
					return answerError("ERR syntax error")
				}
				return nil
			}
			r.redis.delay = func(keys []string) time.Duration {
				if keys[0] == "hangs" {
					return time.Hour
				}
				return 0
			}
		})
		r.append(batchOf(4, 0, "hangs"))
		r.append(batchOf(5, 0, "fault"))
		r.pass(DefaultTimeout)
		select {
		case err := <-r.served:
			if err == nil || !strings.Contains(err.Error(), "ERR syntax error") {
				r.Fatalf("Serve returned %v", err)
			}
		default:
			r.Fatal("Serve waits for a Redis that hangs")
		}
	})
}

func TestALogThatFailsEndsServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, Deps{Redis: noRedis{}, Alarms: &alarms{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
			Options{})
		broken := &brokenLog{fakeLog{id: 7}}
		if err := e.Serve(t.Context(), broken); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "partition 7") {
			t.Fatalf("Serve returned %v", err)
		}
	})
}
