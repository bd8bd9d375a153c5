package invalidator

import (
	"context"
	"errors"
	"io"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// clockRedis answers nothing but what time it is.
type clockRedis struct {
	noRedis
	asked int
	takes time.Duration
	err   error
	// meanwhile is called while the reply is on its way.
	meanwhile func()
}

func (r *clockRedis) Time(context.Context) (time.Time, error) {
	r.asked++
	if r.err != nil {
		return time.Time{}, r.err
	}
	said := time.Now().Add(-time.Hour)
	time.Sleep(r.takes)
	if r.meanwhile != nil {
		r.meanwhile()
	}
	return said, nil
}

func TestRedisIsAskedForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		redis := &clockRedis{takes: 3 * ms}
		clock := newRedisTime(redis, func() moment { return moment(time.Since(began)) }, time.Second)
		expect := func(what string, behind time.Duration, asked int) {
			t.Helper()
			said := clock.now(t.Context())
			if late := time.Duration(time.Now().Add(-time.Hour).UnixMilli()-said) * time.Millisecond; late != behind && said != 0 || (said == 0) != (behind < 0) {
				t.Errorf("%s: it is taken to be %s earlier than it is, want %s", what, late, behind)
			}
			if redis.asked != asked {
				t.Errorf("%s: asked %d times, want %d", what, redis.asked, asked)
			}
		}
		const unknown = -1
		expect("at first", 3*ms, 1)
		time.Sleep(9 * time.Second)
		expect("a while later", 3*ms, 1)
		time.Sleep(time.Second)
		expect("after ten seconds", 3*ms, 2)

		clock.forget()
		redis.err = io.EOF
		expect("a connection was lost, and Redis is away", unknown, 3)
		expect("and still", unknown, 4)
		redis.err, redis.meanwhile = nil, clock.forget
		clock.forget()
		expect("a connection was lost meanwhile: another server may have said that", unknown, 5)
		redis.meanwhile = nil
		expect("then another one is asked", 3*ms, 6)
	})
}

func TestAnUnusedConnectionIsAskedOnceMoreForTheTime(t *testing.T) {
	redis := &clockRedis{err: errors.Join(errUnused, io.EOF)}
	answers := &unusedOnce{clockRedis: redis}
	clock := newRedisTime(answers, func() moment { return 0 }, time.Second)
	if clock.now(t.Context()) == 0 || redis.asked != 2 {
		t.Errorf("asked %d times, want 2 and a time", redis.asked)
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
				until, err := strconv.ParseInt(c.args[11], 10, 64)
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
