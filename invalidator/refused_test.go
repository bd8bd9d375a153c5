package invalidator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// A right that is missing for values alone is one absence of Redis, and ends once the right is there: that deletes pass
// meanwhile is no news of it.
func TestACommandThatIsRefusedIsOneAbsenceThoughOthersPass(t *testing.T) {
	noTime := answerError("NOPERM User freshet has no permissions to run the 'time' command")
	noScript := answerError("NOPERM User freshet has no permissions to run the 'evalsha' command")
	noUnlink := answerError("NOPERM User freshet has no permissions to run the 'unlink' command")
	for name, refuse := range map[string]func(r *tapeRedis){
		"the time": func(r *tapeRedis) { r.timeErr = noTime },
		"a script": func(r *tapeRedis) { r.answerCall = func(sentCall) (any, error) { return nil, noScript } },
		"a delete": func(r *tapeRedis) { r.answer = func([]string) error { return noUnlink } },
	} {
		for kind, value := range map[string]thing{"a value": put("a", "one"), "a query": query("a")} {
			t.Run(name+" with "+kind, func(t *testing.T) {
				inBubble(t, Options{}, func(r *rig) {
					r.rebuilding(nil)
					r.redis.set(func() { refuse(r.redis) })
					const each = 500
					for i := range each {
						value.key = fmt.Sprintf("v%d", i)
						r.append(aged(batchOfThings(origin(uint64(4+2*i), 0), value), 0))
						r.append(batchOf(uint64(5+2*i), 0, fmt.Sprintf("d%d", i)))
						r.pass(time.Millisecond)
					}
					r.pass(time.Minute)
					if n := r.alarms.count(alarm.RedisAway); n != 1 {
						r.Errorf("%d alarms, want 1", n)
					}
					if s := r.engine.Snapshot(); s.RedisUp {
						r.Error("Redis counts as there")
					}
					if n := r.log.watermark(); n > 1 {
						r.Errorf("%d batches are committed", n)
					}
					r.redis.set(func() { r.redis.timeErr, r.redis.answerCall, r.redis.answer = nil, nil, nil })
					r.pass(time.Minute)
					r.watermark(2 * each)
					if s := r.engine.Snapshot(); !s.RedisUp || s.Waiting != "" {
						r.Errorf("a minute after Redis allowed it: %+v", s)
					}
				})
			})
		}
	}
}

// A partition that is given up takes with it what was refused: Redis is there again for the others.
func TestWhatIsGivenUpIsRefusedNoMore(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.redis.set(func() {
			r.redis.timeErr = answerError("NOPERM User freshet has no permissions to run the 'time' command")
		})
		r.append(batchOfThings(origin(4, d2), put("a", "one")))
		r.pass(time.Second)
		if s := r.engine.Snapshot(); s.RedisUp {
			r.Fatal("Redis counts as there")
		}
		r.stop()
		r.served <- <-r.served
		r.pass(time.Minute)
		if s := r.engine.Snapshot(); !s.RedisUp {
			r.Errorf("a minute after: %+v", s)
		}
	})
}

// A server that does not know a command repeats what it was given: names of keys, and what a message says of a row.
func TestWhatRedisRepeatsOfARowIsInNoMessage(t *testing.T) {
	for name, does := range map[string]thing{
		"PUBLISH": {"user:ann", event.ActionDelete, 0, &event.Effect{Publish: true}, []string{"changes", "user:ann"}},
		"UNLINK":  {"user:ann", event.ActionDelete, 0, nil, nil},
		"EVALSHA": put("user:ann", "user:ann"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testbed.Redis(t, "--rename-command", name, "")
			e := start(t, Deps{Redis: single(t, SingleOptions{Address: server.Addr})}, Options{})
			caughtUp(e)
			log := newFakeLog()
			log.batches <- batchOfThings(origin(4, d2), does)
			e.Mark(markAt(4))
			switch err := e.Serve(t.Context(), log); {
			case err == nil, !strings.Contains(err.Error(), "unknown command"):
				t.Errorf("it ends with %v", err)
			case strings.Contains(err.Error(), "ann"):
				t.Errorf("a message says %v", err)
			}
		})
	}
}
