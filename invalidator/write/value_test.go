package write

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// confirmed makes the key's companion confirm all that comes after.
func (r *rig) confirmed(key string) {
	r.Helper()
	r.redis("set", r.b.names.Version(key), inRedis(event.Version{Epoch: 1})+" 0 s")
}

func TestExpireAtIsPutInsideTheObject(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	now := time.UnixMilli(1763739000123)
	r.confirmed("k")
	for value, want := range map[string]string{
		`{"id":1}`: `{"id":1,"expire_at":1763739060123}`, `{}`: `{"expire_at":1763739060123}`, `[1]`: `[1]`, ``: ``, `{`: `{`,
		`null`: `null`,
	} {
		it := put("k", value, at(1))
		it.Effect, it.Now = &event.Effect{As: event.FormJSON, ExpireAt: time.Minute}, now
		if o := r.do(it); o != Written || r.redis("get", "k") != want {
			t.Errorf("%s became %v (%s), want %s", value, r.redis("get", "k"), o, want)
		}
	}
	it := put("k", "", at(1))
	it.Effect, it.Now = &event.Effect{As: event.FormHash, ExpireAt: time.Minute}, now
	it.Fields = event.AppendNull(fields("a", "1", "b"))
	r.do(it)
	if have := fmt.Sprint(r.client.HGetAll(t.Context(), "k").Val()); have != "map[a:1 expire_at:1763739060123]" {
		t.Error(have)
	}
}

func TestTTLsHaveJitterAndCompanionsOutliveThem(t *testing.T) {
	var random uint64
	r := newRig(t, testbed.Redis(t), Options{Random: func() uint64 { return random }})
	for _, c := range []struct {
		ttl, least, most, companion time.Duration
		jitter                      float64
		random                      uint64
	}{
		{0, -1, -1, foreverTTL, 0.1, 0},
		{time.Minute, time.Minute, time.Minute, leastTTL, 0, 0},
		{2 * time.Hour, 2 * time.Hour, 2 * time.Hour, 2*time.Hour + 2*testD + finalSlack, 0, 1 << 63},
		{time.Hour, 54 * time.Minute, 54 * time.Minute, 66*time.Minute + 2*testD + finalSlack, 0.1, 0},
		{time.Hour, 66*time.Minute - time.Second, 66 * time.Minute, 66*time.Minute + 2*testD + finalSlack, 0.1, 1<<64 - 1},
		{time.Second, time.Millisecond, time.Millisecond, leastTTL, 1, 0},
	} {
		random = c.random
		for _, form := range []event.Form{event.FormString, event.FormHash} {
			r.confirmed("k")
			it := put("k", "v", at(1))
			it.Effect, it.Fields = &event.Effect{As: form, TTL: c.ttl, Jitter: c.jitter}, fields("f", "v")
			if form == event.FormString {
				it.Fields = fields("v")
			}
			calls := r.b.Append(nil, it)
			if c.most != time.Millisecond { // else it is gone before it can be looked at
				r.do(it)
				if left := r.client.PTTL(t.Context(), "k").Val(); left > c.most || c.least > 0 && left < c.least-time.Minute {
					t.Errorf("%+v, %s: %s", c, form, left)
				}
				if left := r.client.PTTL(t.Context(), "freshet:v:{k}").Val(); left > c.companion || left < c.companion-time.Minute {
					t.Errorf("%+v, %s: companion %s", c, form, left)
				}
			} else if ttl := calls[0].words[len(calls[0].words)-1]; ttl != "1" {
				t.Errorf("%+v: ttl %s", c, ttl)
			}
			r.b.Reset()
		}
	}
}

// A companion is there for the final action, D after the first one, however long D is, and for as long again.
func TestACompanionOutlivesALongSecondDelete(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	const d = 24 * time.Hour // the longest that may be configured
	for _, ttl := range []time.Duration{0, time.Minute, 24 * time.Hour} {
		r.redis("flushall")
		clear(r.begun)
		it := put("k", "v", at(1))
		it.D, it.Effect = d, &event.Effect{As: event.FormString, TTL: ttl}
		r.do(it)
		if left := r.client.PTTL(t.Context(), "freshet:v:{k}").Val(); left < ttl+2*d || left > ttl+2*d+2*finalSlack {
			t.Errorf("next to a value that lives for %s the companion lives for %s", ttl, left)
		}
	}
}

func TestARowThatIsGone(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	it := put("k", "", at(2))
	it.Intent, it.Fields = event.IntentRemove, nil
	r.confirmed("k")
	r.redis("set", "k", "v")
	if o := r.do(it); o != Removed || r.redis("exists", "k") != int64(0) {
		t.Error(o)
	}
	it.Effect = &event.Effect{Missing: true, MissingValue: "", MissingTTL: 30 * time.Second}
	if o := r.do(it); o != Removed || r.redis("get", "k") != "" {
		t.Error(o, r.redis("get", "k"))
	}
	if left := r.client.PTTL(t.Context(), "k").Val(); left <= 0 || left > 30*time.Second {
		t.Error(left)
	}
	if o := r.do(put("k", "1", at(1))); o != Older {
		t.Error(o)
	}
}

func TestARowOfNullsIsNoHash(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	r.confirmed("k")
	r.redis("hset", "k", "old", "1")
	it := put("k", "", at(2))
	it.Effect, it.Fields = &event.Effect{As: event.FormHash}, event.AppendNull(fields("a"))
	if o := r.do(it); o != Removed || r.redis("exists", "k") != int64(0) {
		t.Error(o)
	}
}

// large returns an item whose hash has n fields of the given size.
func large(key string, n, size int, v event.Version) *Item {
	it := put(key, "", v)
	it.Effect = &event.Effect{As: event.FormHash, TTL: time.Hour}
	var f []byte
	for i := range n {
		f = event.AppendField(event.AppendField(f, fmt.Sprintf("field%d", i)), strings.Repeat("x", size))
	}
	it.Fields = f
	return it
}

func TestALargeHashIsPutTogetherAndSwappedIn(t *testing.T) {
	both(t, func(r *rig) {
		for _, c := range []struct{ fields, size, calls int }{
			{inlineFields, 10, 1}, {inlineFields + 1, 10, 3}, {1000, 10, 5}, {3, inlineBytes, 4}, {1, 3 * inlineBytes, 2},
		} {
			r.redis("flushall")
			r.confirmed("k")
			r.redis("hset", "k", "old", "1")
			it := large("k", c.fields, c.size, at(2))
			if n := len(r.b.Append(nil, it)); n != c.calls {
				r.Errorf("%+v: %d calls", c, n)
			}
			r.b.Reset()
			if o := r.do(it); o != Written {
				r.Errorf("%+v: %s", c, o)
			}
			if n := r.redis("hlen", "k"); n != int64(c.fields) {
				r.Errorf("%+v: %d fields", c, n)
			}
			if left := r.client.TTL(r.Context(), "k").Val(); left < 59*time.Minute {
				r.Errorf("%+v: lives for %s", c, left)
			}
			it.Version = at(1)
			if o := r.do(it); o != Older {
				r.Errorf("%+v: %s", c, o)
			}
			it.Version, it.Effect = at(3), &event.Effect{As: event.FormHash}
			if o := r.do(it); o != Written || r.redis("pttl", "k") != int64(-1) {
				r.Errorf("%+v: %s, lives for %d ms", c, o, r.redis("pttl", "k"))
			}
			for _, key := range r.client.Keys(r.Context(), "*").Val() {
				if strings.Contains(key, ":t:") {
					r.Errorf("%s is left", key)
				}
			}
		}
	})
}

// A socket, a network or a stopped process may hold an action back. Then it only forgets, whatever stands there.
func TestWhatTakesEffectLateIsForgotten(t *testing.T) {
	both(t, func(r *rig) {
		gone := put("k", "", at(2))
		gone.Intent = event.IntentRemove
		for name, c := range map[string]struct{ before, late *Item }{
			"a value":        {put("k", "1", at(1)), put("k", "2", at(2))},
			"a missing row":  {put("k", "1", at(1)), gone},
			"a small hash":   {large("k", 1, 1, at(1)), large("k", 1, 1, at(2))},
			"a large hash":   {large("k", 1, 1, at(1)), large("k", inlineFields+1, 1, at(2))},
			"a field":        {field("k", "f", "1", event.IntentPut, at(1)), field("k", "f", "2", event.IntentPut, at(2))},
			"a member":       {member("k", "m", event.IntentPut, at(1)), member("k", "n", event.IntentPut, at(2))},
			"a former score": {scored("k", "m", "1", at(1)), scored("k", "m", "2", at(2))},
		} {
			r.redis("flushall")
			clear(r.begun)
			r.do(c.before)
			if c.before.Action == event.ActionSet || c.before.Action == event.ActionZSet {
				r.do(c.before) // the marks confirm now, but there is no set
				r.redis(map[event.Action][]any{
					event.ActionSet:  {"sadd", "k", "m"},
					event.ActionZSet: {"zadd", "k", "1", "m"},
				}[c.before.Action]...)
			} else if o := r.do(c.before); o != Written {
				r.Fatalf("%s before: %s", name, o)
			}
			c.late.Until = r.client.Time(r.Context()).Val().UnixMilli() - 1
			if o := r.do(c.late); o != Forgotten || r.redis("exists", "k") != int64(0) {
				r.Errorf("%s: %s", name, o)
			}
			if o := r.do(c.before); o == Written {
				r.Errorf("%s, and then the one before: %s, though the companion knows of the late one", name, o)
			}
			for _, key := range r.client.Keys(r.Context(), "*").Val() {
				if strings.Contains(key, ":t:") {
					r.Errorf("%s: %s is left", name, key)
				}
			}
		}
	})
}

// What was overtaken by a change that the companion knows of is older, and no reason to remove the newer value, however
// late it comes. Only of what was meant to forget is the key removed.
func TestALateValueLeavesANewerOne(t *testing.T) {
	both(t, func(r *rig) {
		for name, c := range map[string]struct{ newer, late *Item }{
			"a value":      {put("k", "2", at(2)), put("k", "1", at(1))},
			"a large hash": {large("k", 1, 1, at(2)), large("k", inlineFields+1, 1, at(1))},
			"a field":      {field("k", "f", "2", event.IntentPut, at(2)), field("k", "f", "1", event.IntentPut, at(1))},
			"a member":     {member("k", "m", event.IntentPut, at(2)), member("k", "m", event.IntentRemove, at(1))},
			"a score":      {scored("k", "m", "2", at(2)), scored("k", "m", "1", at(1))},
		} {
			r.redis("flushall")
			clear(r.begun)
			r.do(c.newer)
			switch c.newer.Action {
			case event.ActionSet, event.ActionZSet:
				r.redis(map[event.Action][]any{
					event.ActionSet:  {"sadd", "k", "x"},
					event.ActionZSet: {"zadd", "k", "1", "x"},
				}[c.newer.Action]...)
			}
			if o := r.do(c.newer); o != Written {
				r.Fatalf("%s: the newer one: %s", name, o)
			}
			value := r.redis("dump", "k")
			c.late.Until = r.client.Time(r.Context()).Val().UnixMilli() - 1
			if o := r.do(c.late); o != Older || r.redis("dump", "k") != value {
				r.Errorf("%s: %s", name, o)
			}
			if keys := r.client.Keys(r.Context(), "*:t:*").Val(); len(keys) > 0 {
				r.Errorf("%s: %v is left", name, keys)
			}
			c.late.Intent = event.IntentForget
			if o := r.do(c.late); o != Forgotten {
				r.Errorf("%s, to be forgotten: %s", name, o)
			}
		}
	})
}

// A leftover leaves what is known to be of a newer change, and removes all else: its own value, an older one, and what
// nothing is known of.
func TestALeftoverLeavesANewerValueAlone(t *testing.T) {
	both(t, func(r *rig) {
		sets := map[event.Action][]any{
			event.ActionSet: {"sadd", "k", "m", "x"}, event.ActionZSet: {"zadd", "k", "1", "m", "1", "x"},
		}
		for name, change := range map[string]func(v event.Version) *Item{
			"a value":         func(v event.Version) *Item { return put("k", "1", v) },
			"a hash":          func(v event.Version) *Item { return large("k", 1, 1, v) },
			"a field":         func(v event.Version) *Item { return field("k", "f", "1", event.IntentPut, v) },
			"a member":        func(v event.Version) *Item { return member("k", "m", event.IntentPut, v) },
			"an empty member": func(v event.Version) *Item { return member("k", "", event.IntentPut, v) },
			"a score":         func(v event.Version) *Item { return scored("k", "m", "1", v) },
		} {
			for _, c := range []struct {
				name    string
				of      event.Version
				source  string
				evicted bool
				want    Outcome
			}{
				{"older than the value", at(4), "s", false, Older},
				{"of the value itself", at(5), "s", false, Forgotten},
				{"newer than the value", at(6), "s", false, Forgotten},
				{"of an epoch that is over", event.Version{Pos: 4}, "s", false, Forgotten},
				{"of a later epoch", event.Version{Epoch: 2, Pos: 4}, "s", false, Forgotten},
				{"of another source", at(4), "another", false, Forgotten},
				{"without a companion", at(4), "s", true, Forgotten},
			} {
				r.redis("flushall")
				clear(r.begun)
				it := change(at(5))
				r.do(it)
				if words := sets[it.Action]; words != nil {
					r.redis(words...)
				}
				if o := r.do(it); o != Written {
					r.Fatalf("%s: %s", name, o)
				}
				if c.evicted {
					for _, k := range []Kind{KindVersion, KindField, KindMember} {
						r.redis("unlink", string(r.b.names.Append(nil, k, "k")))
					}
				}
				value := r.redis("dump", "k")
				again := change(c.of)
				again.Source, again.Intent, again.Leftover = c.source, event.IntentForget, true
				if o := r.do(again); o != c.want || (r.redis("dump", "k") == value) != (c.want == Older) {
					r.Errorf("%s, a leftover %s: %s", name, c.name, o)
				}
				if o := r.do(change(at(4))); o == Written {
					r.Errorf("%s, a leftover %s: then an older value was written", name, c.name)
				}
			}
		}
	})
}

// What is known of one member says nothing about another one, or about the set as a whole.
func TestALeftoverLeavesASetForItsOwnMemberOnly(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	for _, c := range []struct {
		member event.Fields
		want   Outcome
	}{
		{fields("m"), Older}, {fields("n"), Forgotten}, {fields(""), Forgotten}, {nil, Forgotten},
	} {
		r.redis("flushall")
		clear(r.begun)
		for range 2 { // the second one finds a set
			r.do(member("k", "m", event.IntentPut, at(5)))
			r.redis("sadd", "k", "x")
		}
		it := member("k", "", event.IntentForget, at(4))
		it.Fields, it.Leftover = c.member, true
		if o := r.do(it); o != c.want || (r.redis("exists", "k") == int64(1)) != (c.want == Older) {
			t.Errorf("%q: %s", c.member, o)
		}
	}
	r.redis("flushall")
	clear(r.begun)
	for range 2 {
		r.do(member("k", "", event.IntentPut, at(5)))
		r.redis("sadd", "k", "x")
	}
	it := member("k", "", event.IntentForget, at(4))
	it.Fields, it.Leftover = nil, true
	if o := r.do(it); o != Forgotten {
		t.Errorf("no member, where the empty one is newer: %s", o)
	}
}

// Two mappings with a key in common may have a different D. A slow reader of the one with the longer D may fill the key
// after the final action of a newer change of the other. What is forgotten that is no leftover has to remove that.
func TestWhatIsForgottenForGoodIsRemovedWhateverIsNewer(t *testing.T) {
	both(t, func(r *rig) {
		for name, change := range map[string]func(v event.Version) *Item{
			"a value":  func(v event.Version) *Item { return put("k", "new", v) },
			"a field":  func(v event.Version) *Item { return field("k", "f", "new", event.IntentPut, v) },
			"a member": func(v event.Version) *Item { return member("k", "m", event.IntentPut, v) },
		} {
			r.redis("flushall")
			clear(r.begun)
			slow := change(at(4))
			slow.Intent, slow.D = event.IntentForget, time.Minute
			r.do(slow) // its first action
			for range 2 {
				r.do(change(at(5))) // both actions of the newer change
			}
			r.redis("unlink", "k")
			r.redis(map[event.Action][]any{
				event.ActionRebuild: {"set", "k", "as of 3"}, event.ActionHash: {"hset", "k", "f", "as of 3"},
				event.ActionSet: {"sadd", "k", "as of 3"},
			}[slow.Action]...)
			if o := r.do(slow); o != Forgotten || r.redis("exists", "k") != int64(0) {
				r.Errorf("%s: %s", name, o)
			}
		}
	})
}

// A source that crashes may come back without the newest changes. Their final actions do not come, so what they left
// must not be left by what is done again: that is forgotten under a version that is newer than all that was lost.
func TestWhatALostChangeHasLeftIsForgottenUnderANewerVersion(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	for range 2 {
		r.do(put("k", "never committed", at(45)))
	}
	again := put("k", "", at(30))
	again.Intent, again.Leftover = event.IntentForget, true
	if o := r.do(again); o != Older {
		t.Errorf("under its own version: %s, want older", o)
	}
	again.Version = event.Version{Epoch: 1, File: 2, Pos: 4} // where the source's next binlog begins
	if o := r.do(again); o != Forgotten || r.redis("exists", "k") != int64(0) {
		t.Errorf("under the newest visible version: %s", o)
	}
}

func TestCallsOfAnItemMayBeSentAgain(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	r.confirmed("k")
	it := large("k", 1000, 10, at(2))
	calls := r.b.Append(nil, it)
	for n := range calls {
		send(t.Context(), r.client, calls[:n])
	}
	for range 2 {
		send(t.Context(), r.client, calls)
		if o, err := r.b.Outcome(it, calls); o != Written || err != nil || r.redis("hlen", "k") != int64(1000) {
			t.Error(o, err)
		}
	}
}

func TestATemporaryKeyDoesNotStay(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	calls := r.b.Append(nil, large("k", 1000, 10, at(2)))
	send(t.Context(), r.client, calls[:1])
	name := calls[0].words[3]
	if left := r.client.PTTL(t.Context(), name).Val(); left <= 0 || left > stageTTL {
		t.Error(name, left)
	}
}

func TestWhatCannotBeMadeOutIsForgotten(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	damaged := event.Fields{200}
	for _, it := range []*Item{
		{Action: event.ActionRebuild, Intent: event.IntentPut, Fields: fields("v")},
		{Action: event.ActionRebuild, Intent: event.IntentPut, Effect: &event.Effect{}, Fields: damaged},
		{
			Action: event.ActionRebuild, Intent: event.IntentPut, Effect: &event.Effect{As: event.FormHash},
			Fields: fields("odd"),
		},
		{Action: event.ActionHash, Intent: event.IntentPut, Effect: &event.Effect{}, Fields: damaged},
		{Action: event.ActionSet, Intent: event.IntentPut, Effect: &event.Effect{}, Fields: damaged},
		{Action: event.ActionZSet, Intent: event.IntentPut, Effect: &event.Effect{}, Fields: fields("m")},
		{Action: event.ActionSet, Intent: event.IntentPut, Fields: fields("m")},
		{Action: event.ActionExpire},
		{Action: event.ActionDelete},
		{},
	} {
		it.Key, it.Source, it.Version, it.D = "k", "s", at(2), testD
		r.confirmed("k")
		r.redis("hset", "k", "f", "v")
		if o := r.do(it); o != Forgotten && o != Removed || r.redis("exists", "k") != int64(0) {
			t.Errorf("%s: %s", it.Action, o)
		}
	}
}
