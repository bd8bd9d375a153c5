package invalidator

import (
	"context"
	"errors"
	"io"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
)

// clockRedis answers nothing but what time it is.
type clockRedis struct {
	noRedis
	asked int
	takes time.Duration
	err   error
	dials int64
}

func (r *clockRedis) Time(context.Context) (time.Time, error) {
	r.asked++
	if r.err != nil {
		return time.Time{}, r.err
	}
	said := time.Now().Add(-time.Hour)
	time.Sleep(r.takes)
	return said, nil
}

func (r *clockRedis) Dials() int64 { return r.dials }

func TestRedisIsAskedForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		redis := &clockRedis{takes: 3 * ms}
		clock := newRedisTime(redis, func() instant { return instant(time.Since(began)) }, time.Second, noStep(t))
		expect := func(what string, asked int) {
			t.Helper()
			said, err := clock.now(t.Context())
			testbed.Must(t, err)
			if late := time.Now().Add(-time.Hour).UnixMilli() - said; late != 3 {
				t.Errorf("%s: it is taken to be %d ms earlier than it is, want 3", what, late)
			}
			if redis.asked != asked {
				t.Errorf("%s: asked %d times, want %d", what, redis.asked, asked)
			}
		}
		expect("at first", 1)
		time.Sleep(9 * time.Second)
		expect("a while later", 1)
		time.Sleep(time.Second)
		expect("after ten seconds", 2)
		redis.dials++
		expect("a connection was made, perhaps to another server", 3)
		redis.dials++
		redis.err = io.EOF
		if _, err := clock.now(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("of one that is away: %v", err)
		}
		redis.err = nil
		expect("it is back", 5)
	})
}

// noStep is for a Redis whose clock does not step.
func noStep(t *testing.T) func(time.Duration) {
	return func(by time.Duration) { t.Errorf("its clock is taken to have stepped by %s", by) }
}

// What was long on its way is too old to be used for ten seconds.
func TestASlowAnswerIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		redis := &clockRedis{takes: 4 * time.Second}
		clock := newRedisTime(redis, func() instant { return instant(time.Since(began)) }, 5*time.Second, noStep(t))
		for range 2 {
			_, err := clock.now(t.Context())
			testbed.Must(t, err)
		}
		redis.takes = ms
		said, err := clock.now(t.Context())
		testbed.Must(t, err)
		if late := time.Now().Add(-time.Hour).UnixMilli() - said; late > 1 || redis.asked != 3 {
			t.Errorf("asked %d times, want 3; it is taken to be %d ms earlier than it is", redis.asked, late)
		}
	})
}

// A clock that was set, another server's, or a sleep that no clock of this machine shows, is known from the time that
// passes between two questions, and from the ways of their answers.
func TestAStepOfTheClockIsNoticed(t *testing.T) {
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	at := func(d time.Duration) instant { return instant(d) }
	before := said{ms(time.Hour), at(time.Minute), at(time.Minute + time.Second)}
	for name, c := range map[string]struct {
		now  said
		step time.Duration
	}{
		"nothing": {
			said{ms(time.Hour + 10*time.Second), at(70 * time.Second), at(71 * time.Second)},
			0,
		},
		"set forward by an hour": {said{
			ms(2*time.Hour + 10*time.Second), at(70 * time.Second),
			at(71 * time.Second),
		}, time.Hour - time.Second},
		"set back by an hour": {
			said{ms(10 * time.Second), at(70 * time.Second), at(71 * time.Second)},
			time.Second - time.Hour,
		},
		"set forward by a second": {
			said{ms(time.Hour + 11*time.Second), at(70 * time.Second), at(71 * time.Second)},
			0,
		},
		"an answer that came slowly": {said{
			ms(time.Hour + 10*time.Second), at(70 * time.Second),
			at(100 * time.Second),
		}, 0},
		"a question that came slowly": {said{
			ms(time.Hour + 40*time.Second), at(70 * time.Second),
			at(100 * time.Second),
		}, 0},
		"a day, and its drift": {said{
			ms(25*time.Hour + 8*time.Second), at(24*time.Hour + time.Minute),
			at(24*time.Hour + time.Minute),
		}, 0},
		"answers that overtake each other": {said{ms(time.Hour), at(time.Minute), at(time.Minute)}, 0},
	} {
		if step := c.now.step(before); step != c.step {
			t.Errorf("%s: %s, want %s", name, step, c.step)
		}
	}
	if step := before.step(said{replied: never}); step != 0 {
		t.Errorf("the first answer: %s", step)
	}
}

func TestAnUnusedConnectionIsAskedOnceMoreForTheTime(t *testing.T) {
	redis := &clockRedis{err: errors.Join(errUnused, io.EOF)}
	answers := &unusedOnce{clockRedis: redis}
	clock := newRedisTime(answers, func() instant { return 0 }, time.Second, noStep(t))
	if said, err := clock.now(t.Context()); said == 0 || err != nil || redis.asked != 2 {
		t.Errorf("asked %d times, want 2 and a time: %v", redis.asked, err)
	}
}

// unusedOnce is a Redis whose first connection was closed while nobody used it.
type unusedOnce struct{ *clockRedis }

func (r *unusedOnce) Time(ctx context.Context) (time.Time, error) {
	at, err := r.clockRedis.Time(ctx)
	r.err = nil
	return at, err
}

// A value may take effect until Window after its change became known to be visible, by Redis' own clock, be that right
// or wrong.
func TestAValueSaysUntilWhenItMayTakeEffect(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var left []time.Duration // from each call on, until it may take effect
		r.redis.set(func() {
			r.redis.ahead = -12 * time.Hour
			r.redis.answerCall = func(c sentCall) (any, error) {
				until, err := strconv.ParseInt(c.args[10], 10, 64)
				testbed.Must(t, err)
				left = append(left, time.UnixMilli(until).Sub(time.Now().Add(r.redis.ahead)).Round(10*ms))
				return int64(1), nil
			}
		})
		r.append(batchOfThings(origin(4, d2), put("a", "one")))
		r.pass(time.Second)
		r.mark(4)
		r.pass(2 * d2)
		r.watermark(1)
		if len(left) != 2 || left[0] != 7*time.Second || left[1] != 5*time.Second {
			t.Errorf("the first and the final action may take effect for %v, want 7 s and 5 s", left)
		}
	})
}

// untils returns a recorder of until when each call may take effect.
func (r *rig) untils() *[]time.Time {
	until := &[]time.Time{}
	r.redis.set(func() {
		r.redis.answerCall = func(c sentCall) (any, error) {
			ms, err := strconv.ParseInt(c.args[10], 10, 64)
			testbed.Must(r, err)
			*until = append(*until, time.UnixMilli(ms))
			return int64(1), nil
		}
	})
	return until
}

// After a step of Redis' clock a mark may seem older than it is: until it cannot any more, values are forgotten. What
// comes later is written.
func TestAfterAStepOfTheClockValuesAreForgotten(t *testing.T) {
	for name, step := range map[string]func(r *tapeRedis){
		"forward, on another connection": func(r *tapeRedis) { r.ahead, r.dials = time.Hour, 1 },
		"back":                           func(r *tapeRedis) { r.ahead = -time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				change := func(pos uint64, want string) {
					r.append(batchOfThings(origin(pos, d2), put("a", "value")))
					r.mark(pos)
					r.pass(2 * d2)
					if !hasWords(r.lastCall(), want) {
						r.Errorf("the final action: %s, want%s", r.lastCall(), want)
					}
				}
				change(4, " set 1/1/4/1 ")
				r.pass(askTimeEvery - 3*d2 + time.Second)
				r.append(batchOfThings(origin(5, d2), put("a", "value"))) // Redis was asked nine seconds ago
				r.mark(5)
				r.redis.set(func() { step(r.redis) })
				r.pass(2 * d2)
				if !hasWords(r.lastCall(), "forget 1/1/5/1") {
					r.Errorf("the final action after the step: %s", r.lastCall())
				}
				change(6, " forget 1/1/6/1 ")
				r.pass(write.ConfirmsAfter(d2))
				change(7, " set 1/1/7/1 ")
				r.watermark(4)
			})
		})
	}
}

// That nobody waits for a query any more, while Redis is asked for its time, says nothing of Redis.
func TestAQueryThatIsBrokenOffIsNoNewsOfRedis(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		q := r.rebuilding(nil)
		r.redis.set(func() { r.redis.timeTakes = DefaultTimeout / 2 })
		r.append(aged(batchOfThings(origin(4, d2), query("a")), time.Hour))
		q.ran("0s a")
		r.stop()
		r.served <- <-r.served
		r.pass(DefaultTimeout)
		if n := r.alarms.count(alarm.RedisAway); n != 0 {
			r.Errorf("Redis was %d times said to be away", n)
		}
	})
}

// A partition is given up within the timeout of a round trip, also while Redis does not say what time it is.
func TestAPartitionIsGivenUpWhileRedisIsSilent(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		var things []thing
		for i := range 300 {
			things = append(things, put(strconv.Itoa(i), "one"))
		}
		r.append(batchOfThings(origin(4, d2), things...))
		r.pass(time.Second)
		r.mark(4)
		r.redis.set(func() { r.redis.silent = true })
		r.pass(5 * time.Second) // the final actions are due
		began, asked := time.Now(), r.redis.asked
		r.stop()
		r.served <- <-r.served
		if took := time.Since(began); took > 2*DefaultTimeout {
			t.Errorf("it took %s, and Redis was asked %d times what time it is", took, r.redis.asked-asked)
		}
	})
}

// What becomes visible while Redis is asked for its time is known before a value is sent.
func TestWhatBecomesVisibleWhileRedisIsAskedCounts(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		until := r.untils()
		r.redis.set(func() { r.redis.noTime = true })
		r.append(batchOfThings(origin(4, d2), put("a", "one"), put("b", "two")))
		r.pass(1500 * ms)
		r.mark(4)
		last := time.Now().Add(write.Window(d2))
		r.pass(3 * time.Second)
		r.redis.set(func() { r.redis.noTime = false })
		r.pass(time.Minute)
		r.watermark(1)
		for _, u := range *until {
			if u.After(last) {
				t.Errorf("a value may take effect %s later than Window after its change became known to be visible", u.Sub(last))
			}
		}
		if len(*until) == 0 {
			t.Error("nothing was sent")
		}
	})
}

// A time that Redis did not say once does not cost a value: it is asked again.
func TestAValueWaitsForTheTime(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		until := r.untils()
		r.append(batchOfThings(origin(4, d2), put("a", "one")))
		r.pass(9 * time.Second)
		r.mark(4)
		r.pass(1800 * ms)
		r.redis.set(func() { r.redis.noTime = true })
		r.pass(1100 * ms)
		r.redis.set(func() { r.redis.noTime = false })
		r.pass(10 * time.Second)
		r.watermark(1)
		for _, u := range *until {
			if u.Before(r.redis.begin) {
				t.Errorf("a value may take effect until %s, which is long ago", u)
			}
		}
	})
}
