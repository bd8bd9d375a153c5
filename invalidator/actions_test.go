package invalidator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// thing is one invalidation of a batch that is made by hand.
type thing struct {
	key    string
	action event.Action
	intent event.Intent
	effect *event.Effect
	fields []string
}

// origin is what the things of a batch have in common.
func origin(pos uint64, d time.Duration) event.Origin {
	return event.Origin{Table: "shop.product", Event: event.Version{Epoch: 1, File: 1, Pos: pos}, D: d}
}

// batchOfThings makes a batch, each thing a row of one rows event.
func batchOfThings(o event.Origin, things ...thing) *event.Batch {
	var b event.Batch
	b.Reset()
	b.Source, b.Term = "s", 1
	b.AddOrigin(o)
	for i, th := range things {
		text := append(b.Text(), th.key...)
		for _, f := range th.fields {
			text = event.AppendField(text, f)
		}
		b.AddItem(event.Item{
			Text: text, Key: len(th.key), Row: uint32(i + 1), Action: th.action, Intent: th.intent,
			Effect: th.effect,
		})
	}
	b.End = event.End{File: "binlog.000001", Pos: o.Event.Pos + 1}
	return b.Clone()
}

// put is a key that is rebuilt from its row.
func put(key, value string) thing {
	return thing{key, event.ActionRebuild, event.IntentPut, &event.Effect{As: event.FormString}, []string{value}}
}

// calls checks which calls were made when, by their words: each line of want holds some of them.
func (r *rig) calls(want ...string) {
	r.Helper()
	r.redis.mu.Lock()
	defer r.redis.mu.Unlock()
	ok := len(want) == len(r.redis.calls)
	for i := 0; ok && i < len(want); i++ {
		ok = hasWords(r.redis.calls[i], want[i])
	}
	if !ok {
		r.Fatalf("calls: -want +got\n%s", cmp.Diff(want, r.redis.calls))
	}
}

// hasWords reports whether a call has all the words.
func hasWords(call, words string) bool {
	all := strings.Fields(call)
	return !slices.ContainsFunc(strings.Fields(words), func(w string) bool { return !slices.Contains(all, w) })
}

func TestAValueIsWrittenAndWrittenAgain(t *testing.T) {
	inBubble(t, Options{KeyPrefix: "p:"}, func(r *rig) {
		r.append(batchOfThings(origin(4, d2), put("a", "one")))
		r.calls("0s rebuild p:a set 1/1/4/1 s one")
		r.watermark(0)
		r.mark(4)
		r.pass(d2)
		r.calls("0s rebuild p:a set 1/1/4/1 s one", "2s rebuild p:a set 1/1/4/1 s one")
		r.watermark(1)
		if s := r.engine.Snapshot(); s.InFlight+s.Pending+s.Bytes != 0 {
			r.Fatalf("%+v", s)
		}
	})
}

func TestOldNewsIsForgotten(t *testing.T) {
	for _, c := range []struct {
		d, age   time.Duration
		leftover bool
		want     string
	}{
		{d2, 6900 * ms, false, "set"},
		{d2, 7100 * ms, false, "forget"},
		{0, 4900 * ms, false, "set"},
		{0, 5100 * ms, false, "forget"},
		{d2, event.Unknown, false, "set"},
		{d2, event.Unknown, true, "yield"},
		{d2, 0, true, "yield"},
	} {
		inBubble(t, Options{}, func(r *rig) {
			b := aged(batchOfThings(origin(4, c.d), put("a", "one")), c.age)
			b.Leftover = c.leftover
			r.append(b)
			r.pass(time.Minute)
			r.mark(4)
			r.pass(time.Minute)
			r.watermark(1)
			for _, call := range r.redis.calls {
				if !slices.Contains(strings.Fields(call), c.want) {
					r.Errorf("%+v: %s", c, call)
				}
			}
		})
	}
}

// Rows that were read from their table are as new as the question, though everybody has long been able to see the place
// in the binlog that they are sent under. D counts from the question as well: what a slow reader has read before it is
// over by then.
func TestRowsThatWereReadFromTheirTableCountFromThen(t *testing.T) {
	for _, c := range []struct {
		ago      time.Duration
		leftover bool
		want     []string
	}{
		{0, false, []string{"1h0m0s rebuild a set 1/1/4/1 one", "1h0m2s rebuild a set 1/1/4/1 one"}},
		{8 * time.Second, false, []string{"1h0m0s rebuild a forget"}},
		{0, true, []string{"1h0m0s rebuild a yield", "1h0m2s rebuild a yield"}},
	} {
		inBubble(t, Options{}, func(r *rig) {
			r.mark(4)
			r.pass(time.Hour)
			b := batchOfThings(origin(4, d2), put("a", "one"))
			b.Leftover, b.Read = c.leftover, time.Now().Add(-c.ago)
			r.append(b)
			r.pass(time.Minute)
			r.watermark(1)
			r.calls(c.want...)
		})
	}
}

// What is read after a start, a rewind or an outage is a backlog, and may be of any age, though it was confirmed just
// now or not yet: until the reader has handed over all that the source holds, under the same term.
func TestABacklogIsForgotten(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		b := batchOfThings(origin(4, d2), put("a", "old"))
		b.Term = 2 // the reader began again
		r.append(b)
		r.calls("0s rebuild a forget")
		r.engine.Mark(event.Mark{Source: "s", Term: 2, Version: markAt(4).Version, Read: true})
		r.pass(d2)
		b = batchOfThings(origin(5, d2), put("a", "new"))
		b.Term = 2
		r.append(b)
		r.calls("0s rebuild a forget", "2s rebuild a forget", "2s rebuild a set 1/1/5/1 new")
		r.watermark(1)
		// The line to the source is cut for long, and then all comes at once.
		r.pass(d2 + backlog + 6*time.Second)
		r.redis.mu.Lock()
		r.redis.calls = nil
		r.redis.mu.Unlock()
		b = batchOfThings(origin(6, d2), put("a", "newer"))
		b.Term = 2
		r.append(b)
		if len(r.redis.calls) != 1 || !strings.Contains(r.redis.calls[0], " forget ") {
			r.Fatalf("%q", r.redis.calls)
		}
	})
}

// A query of a leftover is not run either: the key is forgotten.
func TestALeftoverRunsNoQuery(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		b := aged(batchOfThings(origin(4, d2), query("a")), time.Hour)
		b.Leftover = true
		r.append(b)
		r.calls("0s rebuild a yield")
		r.watermark(1)
	})
}

// What follows an action is told in a round trip of its own, after it and before it counts as finished.
func TestNoticesFollowTheAcknowledgedAction(t *testing.T) {
	inBubble(t, Options{KeyPrefix: "p:"}, func(r *rig) {
		r.redis.set(func() { r.redis.delay = func([]string) time.Duration { return 10 * ms } })
		tell := &event.Effect{Publish: true, Stream: true, MaxLen: 7}
		r.append(aged(batchOfThings(origin(4, 0),
			thing{"a", event.ActionDelete, 0, tell, []string{"changes", "it was a", "log"}}), 0))
		r.pass(10 * ms)
		r.watermark(0)
		r.pass(10 * ms)
		r.watermark(1)
		r.calls("0s unlink p:a", "10ms publish changes it was a",
			"10ms xadd p:log maxlen ~ 7 key p:a source s version 1/1/4/1 action delete")
	})
}

// The command took effect and its reply was lost, so it is sent again: told at least once.
func TestANoticeWhoseReplyWasLostIsSentAgain(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		lost := false
		r.redis.set(func() {
			r.redis.answerCall = func(c sentCall) (any, error) {
				if c.args[0] == "publish" && !lost {
					lost = true
					return nil, errLost
				}
				return int64(1), nil
			}
		})
		r.append(aged(batchOfThings(origin(4, 0),
			thing{"a", event.ActionDelete, 0, &event.Effect{Publish: true}, []string{"changes", "a"}}), 0))
		r.watermark(0)
		r.pass(time.Second)
		r.watermark(1)
		if !lost || len(r.redis.calls) != 2 || !strings.Contains(r.redis.calls[1], "publish") {
			r.Fatalf("lost %v, then %q", lost, r.redis.calls)
		}
	})
}

// The final action confirms the guard that the first one has begun, if no newer change can have been finished before:
// its reply came, before the change had been visible for D, and nothing here had slept.
func TestTheFinalActionConfirmsWhatTheFirstHasBegun(t *testing.T) {
	const begun = 1763739000123
	for name, c := range map[string]struct {
		lose    func(sent int) bool
		fault   func(r *rig)
		first   time.Duration
		confirm bool
		forgets bool
	}{
		"all is well":                             {confirm: true},
		"the first reply is lost":                 {lose: func(sent int) bool { return sent == 1 }},
		"a reply of the final one is lost":        {lose: func(sent int) bool { return sent == 2 }, confirm: true},
		"the first reply comes when D has passed": {first: d2 + 100*time.Millisecond},
		"the process was stopped": {forgets: true, fault: func(r *rig) {
			r.engine.only().health.woke(time.Now().Add(-time.Hour), time.Now(), time.Second)
		}},
		"the machine was suspended": {forgets: true, fault: func(r *rig) {
			now := time.Now()
			r.engine.only().health.woke(now.Round(0).Add(-time.Hour), now, time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{Timeout: time.Minute}, func(r *rig) {
				sent := 0
				r.redis.set(func() {
					r.redis.answerCall = func(sentCall) (any, error) {
						if sent++; c.lose != nil && c.lose(sent) {
							return nil, errLost
						}
						return int64(begun), nil
					}
					r.redis.delay = func([]string) time.Duration { return c.first }
				})
				r.append(batchOfThings(origin(4, d2), put("a", "one")))
				r.mark(4)
				r.pass(c.first + time.Second)
				r.redis.set(func() { r.redis.delay = nil })
				if !strings.Contains(r.lastCall(), " set s 12000 0 ") || !hasWords(r.lastCall(), "1/1/4/1") {
					r.Fatalf("the first action: %s", r.lastCall())
				}
				if c.fault != nil {
					c.fault(r)
				}
				r.pass(2 * d2)
				want := " set s 12000 0 "
				if c.confirm {
					want = fmt.Sprintf(" set s 12000 %d ", begun)
				}
				if c.forgets {
					want = " forget s 12000 "
				}
				if sent < 2 || !strings.Contains(r.lastCall(), want) || !hasWords(r.lastCall(), "1/1/4/1") {
					r.Errorf("the final action: %s, want%s", r.lastCall(), want)
				}
				r.pass(time.Minute)
				r.watermark(1)
			})
		})
	}
}

// What was parked is forgotten under the version of its change, which stays next to a rebuilt key that has no second
// action; of a hash everything goes that is known of its fields.
func TestWhatWasParkedRaisesItsGuard(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		version := event.Version{Epoch: 1, File: 1, Pos: 9, Row: 1}
		var entries []retry.Entry
		for _, a := range []event.Action{event.ActionRebuild, event.ActionHash, event.ActionSet, event.ActionIncr} {
			entries = append(entries, retry.Entry{Key: a.String(), Action: a, Source: "s", Version: version, Due: time.Now()})
		}
		testbed.Must(r, r.store.Park(r.Context(), entries))
		r.pass(2 * time.Second)
		if parked, dead := r.store.counts(); parked+dead != 0 {
			r.Fatalf("%d parked, %d dead", parked, dead)
		}
		r.calls("rebuild drop 1/1/9/1", "member set forget 1/1/9/1", "incr incr",
			"unlink hash freshet:f:{hash} freshet:fo:{hash}")
	})
}

// refusing answers some calls with an error.
func (r *rig) refusing(which func(c sentCall) bool, answer string) {
	r.redis.set(func() {
		r.redis.answerCall = func(c sentCall) (any, error) {
			if which(c) {
				return nil, answerError(answer)
			}
			return int64(3), nil
		}
	})
}

// isPut recognises the call that writes a value.
func isPut(c sentCall) bool { return c.script == "rebuild" && slices.Contains(c.args, "set") }

func TestAValueWithoutMemoryForItIsForgottenAndNoTrouble(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.refusing(isPut, "OOM command not allowed when used memory > 'maxmemory'.")
		r.append(batchOfThings(origin(4, d2), put("a", "one"), put("b", "two")))
		r.calls("0s rebuild a forget", "0s rebuild b forget")
		if s := r.engine.Snapshot(); s.InTrouble != 0 || !s.RedisUp {
			r.Fatalf("%+v", s)
		}
		r.redis.set(func() { r.redis.answerCall = nil })
		r.mark(4)
		r.pass(d2)
		r.calls("0s rebuild a forget", "0s rebuild b forget", "2s rebuild a set one", "2s rebuild b set two")
		r.watermark(1)
	})
}

func TestAKeyThatCannotBeWrittenIsForgottenAtOnceThenTriedAgainThenParked(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.refusing(func(c sentCall) bool { return isPut(c) && slices.Contains(c.args, "bad") },
			"ERR something about this value")
		r.append(batchOfThings(origin(4, d2), put("a", "good"), put("b", "bad")))
		r.calls("0s rebuild a set good", "0s rebuild b forget")
		r.mark(4)
		r.pass(time.Minute)
		r.watermark(1)
		parked := r.store.parked()
		if dead := len(r.store.letters); len(parked)+dead != 0 {
			r.Fatalf("%d parked, %d dead: a parked rebuild is retried as a delete, which passes", len(parked), dead)
		}
		if last := r.redis.calls[len(r.redis.calls)-1]; r.store.parks != 1 || !hasWords(last, "forget 1/1/4/2") {
			r.Fatalf("parked %d times, at last %s", r.store.parks, last)
		}
	})
}

func TestAKeyThatMayNotEvenBeForgottenIsUnlinked(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.refusing(func(c sentCall) bool { return c.script == "rebuild" }, "NOPERM No permissions to access a key")
		r.append(batchOfThings(origin(4, d2), put("a", "one")))
		r.calls("0s unlink a freshet:v:{a}")
		if s := r.engine.Snapshot(); s.InTrouble != 1 {
			r.Fatalf("%+v", s)
		}
	})
}

// Of several changes of a key in one batch the last says all; a counter rises once.
func TestABatchSaysEachThingOnce(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		e, count := &event.Effect{As: event.FormString}, &event.Effect{}
		member := func(m string, i event.Intent) thing {
			return thing{"tag", event.ActionSet, i, count, []string{m}}
		}
		rebuilt := func(v string) thing { return thing{"a", event.ActionRebuild, event.IntentPut, e, []string{v}} }
		incr := thing{key: "gen", action: event.ActionIncr}
		r.append(aged(batchOfThings(origin(4, 0), rebuilt("old"), incr, member("x", event.IntentPut), rebuilt("new"),
			member("y", event.IntentPut), incr, member("x", event.IntentRemove), thing{key: "a", action: event.ActionDelete}),
			0))
		r.calls("rebuild a set 1/1/4/4 new", "member tag sadd y", "incr gen", "member tag srem x 1/1/4/7")
		r.tape("0s a")
		r.watermark(1)
	})
}

// Redis goes away in the middle of a trip: all calls of the keys without an answer are sent again.
func TestWritesWaitWhileRedisIsAway(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.refusing(isPut, "READONLY You can't write against a read only replica.")
		r.append(batchOfThings(origin(4, d2), put("a", "one"), put("b", "two")))
		r.pass(time.Minute)
		if s := r.engine.Snapshot(); s.RedisUp || s.InTrouble != 0 || r.alarms.count(alarm.RedisAway) != 1 {
			r.Fatalf("%+v", s)
		}
		r.watermark(0)
		r.redis.set(func() { r.redis.answerCall = nil })
		r.pass(time.Second)
		r.calls("rebuild a set one", "rebuild b set two")
		r.mark(4)
		r.pass(d2)
		r.watermark(1)
	})
}

// A job of values is bounded in bytes as well as in keys.
func TestARoundTripOfValuesIsBounded(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		largest := 0
		r.redis.set(func() {
			r.redis.delay = func([]string) time.Duration { return ms }
		})
		value := strings.Repeat("x", 100<<10)
		var things []thing
		for i := range 40 {
			things = append(things, put(fmt.Sprint(i), value))
		}
		r.append(aged(batchOfThings(origin(4, 0), things...), 0))
		r.pass(time.Second)
		r.watermark(1)
		at := map[string]int{}
		for _, c := range r.redis.calls {
			when, _, _ := strings.Cut(c, " ")
			at[when] += len(c)
			largest = max(largest, at[when])
		}
		// Writers work side by side, so at one moment there are as many trips as writers.
		if most := tripsInFlight * (tripBytes + len(value) + 10000); largest > most || len(at) < 1 {
			r.Errorf("%d bytes at one moment, want at most %d", largest, most)
		}
	})
}

// query is a key that is rebuilt by query.
func query(key string) thing {
	return thing{key, event.ActionRebuild, event.IntentPut, &event.Effect{As: event.FormString, Query: "q"}, []string{key}}
}

// tapeRebuilder writes down which queries begin when, on the clock of a bubble.
type tapeRebuilder struct {
	r    *rig
	tape []string
	// together are for how many keys each query was asked.
	together []int
	answer   func(ctx context.Context, key string) (string, error)
}

// Query implements [Rebuilder].
func (q *tapeRebuilder) Query(ctx context.Context, _, _ string, params []event.Fields, _ *event.GTIDSet,
	answer func(int, event.Fields, bool, error) bool,
) {
	q.r.redis.set(func() { q.together = append(q.together, len(params)) })
	for i, p := range params {
		value, missing, err := q.one(ctx, p)
		if !answer(i, value, missing, err) {
			return
		}
	}
}

func (q *tapeRebuilder) one(ctx context.Context, params event.Fields) (event.Fields, bool, error) {
	key, _, _ := params.Next()
	q.r.redis.mu.Lock()
	q.tape = append(q.tape, fmt.Sprintf("%s %s", time.Since(q.r.redis.begin), key))
	answer := q.answer
	q.r.redis.mu.Unlock()
	if answer == nil {
		return event.AppendField(nil, "the row"), false, nil
	}
	value, err := answer(ctx, string(key))
	if value == "" || err != nil {
		return nil, true, err
	}
	return event.AppendField(nil, value), false, nil
}

func (q *tapeRebuilder) ran(want ...string) {
	q.r.Helper()
	q.r.redis.mu.Lock()
	defer q.r.redis.mu.Unlock()
	if diff := cmp.Diff(want, q.tape); diff != "" {
		q.r.Fatalf("queries: -want +got\n%s", diff)
	}
}

// rebuilding gives the rig's engine a rebuilder.
func (r *rig) rebuilding(answer func(ctx context.Context, key string) (string, error)) *tapeRebuilder {
	q := &tapeRebuilder{r: r, answer: answer}
	r.engine.queries.rebuilder = q
	return q
}

var errQuery = errors.New("table is gone")
