package invalidator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// What an answer forgets has the newest version that everybody can see, which may be another key's. If Redis refuses it
// for a while, it is parked, and forgotten later: that too must not look to the key's own change as if a newer one had
// been there, or its final action would do nothing about what a slow reader filled meanwhile.
func TestAParkedKeyOfAnAnswerKeepsTheFinalActionOfItsChange(t *testing.T) {
	for name, as := range map[string]func(*event.Batch){
		"found by a scope": func(b *event.Batch) { b.Leftover = true },
		"named":            func(b *event.Batch) { b.Named = true },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, "some", "secret")
			c, ctx := l.server.Client(), t.Context()
			l.server.Do(t, "acl", "setuser", "some", "allkeys")
			l.engine.Mark(markAt(4))
			testbed.Must(t, c.Set(ctx, "user:1", "older", 0).Err())
			rebuild := func(i event.Intent, fields ...string) thing {
				return thing{"user:1", event.ActionRebuild, i, &event.Effect{As: event.FormString}, fields}
			}
			l.log.batches <- batchOfThings(origin(5, actionD), rebuild(event.IntentPut, "new"))
			testbed.Eventually(t, time.Minute, "the first action of the change is done", func() bool {
				return c.Exists(ctx, "user:1").Val() == 0
			})

			l.server.Do(t, "acl", "setuser", "some", "resetkeys", "~ok:*")
			found := batchOfThings(origin(6, 0), rebuild(event.IntentForget))
			found.Age = 0 // old news: one action is enough
			as(found)
			l.log.batches <- found
			testbed.Eventually(t, time.Minute, "the key is parked", func() bool { return l.store.parkCount() > 0 })
			l.server.Do(t, "acl", "setuser", "some", "allkeys")
			testbed.Eventually(t, time.Minute, "the key is forgotten", func() bool {
				parked, dead := l.store.counts()
				return parked+dead == 0
			})

			testbed.Must(t, c.Set(ctx, "user:1", "older", 0).Err()) // by a slow reader
			l.engine.Mark(markAt(6))
			l.finished(2)
			if got := c.Get(ctx, "user:1").Val(); got == "older" {
				t.Error("the final action of the change did nothing, and what a slow reader filled stays")
			}
		})
	}
}

// While plain deletes wait they are packed, without what their batch said of itself.
func TestWhatIsParkedSaysThatItsVersionMayBeAnotherKeys(t *testing.T) {
	for name, c := range map[string]struct {
		as   func(*event.Batch)
		want bool
	}{
		"changed": {func(*event.Batch) {}, false},
		"found":   {func(b *event.Batch) { b.Leftover = true }, true},
		"named":   {func(b *event.Batch) { b.Named = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				r.redis.set(func() { r.redis.answer = func([]string) error { return noPerm } })
				b := batchOf(4, d2, "a")
				c.as(b)
				r.append(b)
				r.pass(time.Second)
				r.mark(4)
				r.pass(d2)
				parked := r.store.parked()
				if len(parked) != 1 || parked[0].Foreign != c.want {
					t.Errorf("parked: %+v", parked)
				}
			})
		})
	}
}

// Without D there is one action only, and where nothing is known of a key that is not there, it writes. One of an older
// change may be on its way in another connection while Redis hangs.
func TestWhatIsParkedWithoutASecondActionKeepsOlderValuesAway(t *testing.T) {
	server := testbed.Redis(t)
	single, err := NewSingle(SingleOptions{Address: server.Addr})
	testbed.Must(t, err)
	defer func() { testbed.Must(t, single.Close()) }()
	now := time.Now()
	version := func(pos uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: pos} }
	do := func(item *write.Item) {
		t.Helper()
		builder := newBuilder("")
		calls := builder.Append(nil, item)
		single.Do(t.Context(), calls)
		if _, err := builder.Outcome(item, calls); err != nil {
			t.Fatal(err)
		}
	}
	for _, again := range []bool{false, true} {
		a := parkedAction(0, &retry.Entry{
			Key: "user:1", Action: event.ActionRebuild, Source: "s", Version: version(9), Due: now,
		}, now)
		do(&a.item)
		do(&write.Item{
			Key: "user:1", Action: event.ActionRebuild, Intent: event.IntentPut, Source: "s", Version: version(8), Now: now,
			Effect: &event.Effect{As: event.FormString}, Fields: event.AppendField(nil, "older"),
			Until: now.Add(time.Minute).UnixMilli(),
		})
		if held := single.Client().Get(t.Context(), "user:1").Val(); held != "" {
			t.Errorf("tried again: %t: the key holds %q", again, held)
		}
	}
}

// Of a field nothing is left that says whose version it was, and the next attempt deletes the whole hash with what is
// known of it. So does that of a set. An older field that Redis gets after that must be too old to be written.
func TestWhatIsParkedWithoutASecondActionIsTriedOnceOlderValuesAreOver(t *testing.T) {
	for name, c := range map[string]struct {
		does  thing
		d     time.Duration
		waits time.Duration
	}{
		"a field": {
			thing{"a", event.ActionHash, event.IntentPut, &event.Effect{}, []string{"f", "1"}}, 0, write.ConfirmsAfter(0),
		},
		"a member": {
			thing{"a", event.ActionSet, event.IntentPut, &event.Effect{}, []string{"1"}}, 0, write.ConfirmsAfter(0),
		},
		"a score": {
			thing{"a", event.ActionZSet, event.IntentPut, &event.Effect{}, []string{"1", "2"}}, 0, write.ConfirmsAfter(0),
		},
		"a value":                   {put("a", "1"), 0, write.ConfirmsAfter(0)},
		"a delete":                  {thing{"a", event.ActionDelete, 0, &event.Effect{Publish: true}, nil}, 0, time.Second},
		"a value with a second one": {put("a", "1"), d2, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{Retry: retry.Policy{ParkDelays: []time.Duration{time.Second}}}, func(r *rig) {
				r.redis.set(func() {
					r.redis.answer = func([]string) error { return noPerm }
					r.redis.answerCall = func(sentCall) (any, error) { return nil, noPerm }
				})
				r.append(batchOfThings(origin(4, c.d), c.does))
				r.pass(time.Minute)
				r.mark(4) // not before that is known how old an older value can be
				began := time.Now()
				r.pass(c.d)
				parked := r.store.parked()
				if len(parked) != 1 || parked[0].Due.Sub(began) != c.d+c.waits {
					t.Errorf("parked: %+v, want it due %s after it was", parked, c.waits)
				}
			})
		})
	}
}

// What follows a refusal may come after a newer change, and takes along what that has left. Without D that lets older
// values in, unless it leaves a mark first; with D nothing is written where nothing is known.
func TestWhatFollowsARefusalLeavesAMarkWithoutASecondAction(t *testing.T) {
	for d, marks := range map[time.Duration]bool{0: true, d2: false} {
		inBubble(t, Options{}, func(r *rig) {
			var sent []string
			r.redis.set(func() {
				r.redis.answerCall = func(c sentCall) (any, error) {
					if c.script != "" {
						return nil, noPerm
					}
					sent = append(sent, strings.Join(c.args[:2], " "))
					return int64(0), nil
				}
			})
			r.append(batchOfThings(origin(4, d), put("a", "1")))
			r.pass(time.Second)
			r.mark(4)
			r.pass(time.Minute)
			r.redis.set(func() {
				if len(sent) == 0 || marks != slices.Contains(sent, "set freshet:v:{a}") {
					t.Errorf("D %s: %q was sent, want a mark: %t", d, sent, marks)
				}
			})
		})
	}
}
