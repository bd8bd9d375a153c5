package write

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// both runs a test on the oldest and the newest Redis that the testbed has.
func both(t *testing.T, run func(r *rig)) {
	t.Run("redis", func(t *testing.T) { run(newRig(t, testbed.Redis(t), Options{})) })
	t.Run("redis 8", func(t *testing.T) { run(newRig(t, testbed.Redis8(t), Options{})) })
}

// Lua's numbers end at 2^53; positions do not.
func TestVersionsCompareExactlyInRedis(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	edges32 := []uint32{0, 1, 9, 10, 1<<31 - 1, 1 << 31, 1<<32 - 2, 1<<32 - 1}
	edges64 := []uint64{0, 1, 9, 10, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, 1<<64 - 2, 1<<64 - 1}
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.OneOf(rapid.SampledFrom(edges32), rapid.Uint32())
		pos := rapid.OneOf(rapid.SampledFrom(edges64), rapid.Uint64())
		draw := func(name string, of event.Version) event.Version {
			v := event.Version{
				Epoch: 7, File: part.Draw(t, name+" file"), Pos: pos.Draw(t, name+" pos"),
				Row: part.Draw(t, name+" row"),
			}
			if rapid.Bool().Draw(t, "same file") {
				v.File = of.File
			}
			if rapid.Bool().Draw(t, "same pos") {
				v.Pos = of.Pos
			}
			return v
		}
		a := draw("a", event.Version{})
		b := draw("b", a)
		r.redis("set", "freshet:v:{k}", inRedis(a)+" 0 s")
		want := Written
		if a.Compare(b) > 0 {
			want = Older
		}
		if got := r.do(put("k", "x", b)); got != want {
			t.Fatalf("%s over %s: %s, want %s", b, a, got, want)
		}
		r.redis("unlink", "freshet:m:{k}", "k")
		r.redis("hset", "freshet:m:{k}", "<", inRedis(event.Version{Epoch: 7})+" 0 s", ">", inRedis(a), "=m", inRedis(a))
		if got := r.do(member("k", "m", event.IntentPut, b)); (got == Older) != (want == Older) {
			t.Fatalf("member %s over %s: %s, want %s", b, a, got, want)
		}
	})
}

func TestASourcesNameMayHaveSpaces(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	it := put("k", "1", at(1))
	it.Source = "a 0 b"
	r.do(it)
	if o := r.do(it); o != Written {
		t.Error(o)
	}
	it.Source = "b"
	if o := r.do(it); o != Forgotten {
		t.Errorf("of another source: %s", o)
	}
}

func TestAKeyOfAnotherTypeIsRemoved(t *testing.T) {
	both(t, func(r *rig) {
		for _, it := range []*Item{
			field("k", "f", "1", event.IntentPut, at(2)), field("k", "f", "", event.IntentRemove, at(2)),
			field("k", "f", "", event.IntentForget, at(2)),
			member("k", "m", event.IntentPut, at(2)), member("k", "m", event.IntentRemove, at(2)), scored("k", "m", "1", at(2)),
			scored("k", "m", "no number", at(2)),
		} {
			r.redis("flushall")
			r.redis("hset", "freshet:f:{k}", "f", inRedis(at(1))+" 0 s")
			r.redis("hset", "freshet:m:{k}", "<", inRedis(at(1))+" 0 s")
			r.redis("set", "k", "a string")
			if it.Fields != nil && strings.Contains(string(it.Fields), "no number") {
				r.redis("unlink", "k")
				r.redis("zadd", "k", "1", "other")
			}
			o := r.do(it)
			if o != Forgotten && (o != Removed || it.Action != event.ActionHash) || r.redis("exists", "k") != int64(0) {
				r.Errorf("%s %s: %s", it.Action, it.Intent, o)
			}
		}
	})
}

func TestWhatIsBesideAKeyMayBeOfAnyType(t *testing.T) {
	both(t, func(r *rig) {
		for _, wrong := range [][]any{{"sadd", "x"}, {"set", "x"}, {"hset", "f", "junk"}} {
			for _, it := range []*Item{
				put("k", "v", at(2)), field("k", "f", "1", event.IntentPut, at(2)),
				member("k", "m", event.IntentPut, at(2)),
			} {
				r.redis("flushall")
				for _, k := range []Kind{KindVersion, KindField, KindOldField, KindMember, KindOldMember} {
					words := append([]any{wrong[0], string(r.b.names.Append(nil, k, "k"))}, wrong[1:]...)
					r.redis(words...)
				}
				if o := r.do(it); o != Forgotten && o != Absent {
					r.Errorf("%v, %s: %s", wrong, it.Action, o)
				}
				forgotten := *it
				forgotten.Intent = event.IntentForget
				r.do(&forgotten)
			}
		}
	})
}

func TestWithoutMemoryTheKeyIsRemovedAndItsCompanionConfirmsNothing(t *testing.T) {
	both(t, func(r *rig) {
		r.do(put("k", "1", at(1)))
		r.do(put("k", "1", at(1)))
		hash := put("h", "", at(1))
		hash.Effect, hash.Fields = &event.Effect{As: event.FormHash}, fields("a", "1")
		r.do(hash)
		r.do(hash)
		r.redis("hset", "f", "f", "1")
		r.redis("hset", "freshet:f:{f}", "f", inRedis(at(1))+" 0 s")
		r.redis("sadd", "s", "m")
		r.redis("hset", "freshet:m:{s}", "<", inRedis(at(1))+" 0 s", ">", inRedis(at(1)))
		r.redis("set", "n", "5")
		// loads the script
		send(r.Context(), r.client, []*Call{r.b.Append(nil, field("f", "f", "1", event.IntentPut, at(0)))[0]})
		r.redis("config", "set", "maxmemory", "1")
		hash.Version = at(2)
		for _, it := range []*Item{
			put("k", "2", at(2)), hash, field("f", "f", "2", event.IntentPut, at(2)), member("s", "m2", event.IntentPut, at(2)),
			{Key: "n", Action: event.ActionIncr},
		} {
			o, err := r.try(it)
			if err != nil && strings.Contains(err.Error(), "OOM") {
				r.b.Reset()
				c := r.b.Fallback(it)
				send(r.Context(), r.client, []*Call{c})
				if c.Err != nil {
					r.Errorf("%s: fallback: %v", it.Action, c.Err)
				}
			} else if o != Forgotten || err != nil {
				r.Errorf("%s: %s, %v", it.Action, o, err)
			}
			if r.redis("exists", it.Key) != int64(0) {
				r.Errorf("%s is there", it.Key)
			}
		}
		r.redis("config", "set", "maxmemory", "0")
		if o := r.do(put("k", "1", at(1))); o == Written {
			r.Error("an older value was written after one that could not be")
		}
	})
}

// What was confirmed for a key says nothing of what is written to it after it was dropped.
func TestAKeyThatIsDroppedTakesAllThatIsKnownOfItAlong(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	names := []string{"k"}
	for _, k := range []Kind{KindVersion, KindField, KindOldField, KindMember, KindOldMember} {
		names = append(names, string(r.b.names.Append(nil, k, "k")))
	}
	for _, name := range names {
		r.redis("set", name, "1")
	}
	send(t.Context(), r.client, []*Call{r.b.Fallback(put("k", "1", at(1)))})
	for _, name := range names {
		if r.redis("exists", name) != int64(0) {
			t.Errorf("%s is there", name)
		}
	}
}

func TestWhatRedisRefusesAsAWholeIsAnError(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	r.redis("replicaof", "127.0.0.1", "1")
	if _, err := r.try(put("k", "1", at(1))); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Error(err)
	}
	r.redis("replicaof", "no", "one")
	r.redis("acl", "setuser", "weak", "on", ">p", "~*", "+@all", "-@scripting")
	client := r.server.NewClient(&redis.Options{Username: "weak", Password: "p"})
	defer func() { _ = client.Close() }()
	r.client = client
	if _, err := r.try(put("k", "1", at(1))); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Error(err)
	}
}

// An action that Redis did not carry out is never acknowledged, whether there was a key or not.
func TestWhatWasRefusedIsNotAcknowledged(t *testing.T) {
	both(t, func(r *rig) {
		expire := &Item{Key: "k", Action: event.ActionExpire, Effect: &event.Effect{In: time.Minute}}
		items := []*Item{
			{Key: "k", Action: event.ActionIncr},
			expire,
			{Key: "k", Action: event.ActionDelete},
			put("k", "1", at(1)), field("k", "f", "1", event.IntentPut, at(1)), field("k", "f", "1", event.IntentForget, at(1)),
			field("k", "f", "1", event.IntentRemove, at(1)), member("k", "m", event.IntentPut, at(1)),
			member("k", "m", event.IntentForget, at(1)),
		}
		for _, it := range items {
			r.do(it) // loads the scripts
		}
		for _, refuses := range []struct {
			code     string
			from, to []any
		}{
			{"READONLY", []any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}},
			{
				"NOREPLICAS",
				[]any{"config", "set", "min-replicas-to-write", "1"},
				[]any{"config", "set", "min-replicas-to-write", "0"},
			},
		} {
			for _, there := range []bool{false, true} {
				r.redis("flushall")
				if there {
					r.redis("set", "k", "5", "px", "1000")
				}
				r.redis(refuses.from...)
				for _, it := range items {
					if o, err := r.try(it); err == nil || !strings.Contains(err.Error(), refuses.code) {
						r.Errorf("%s %s, %v there: %s, %v; want %s", it.Action, it.Intent, there, o, err, refuses.code)
					}
				}
				r.redis(refuses.to...)
			}
		}
		r.redis("flushall")
		r.redis("config", "set", "maxmemory", "1")
		if o, err := r.try(items[0]); err == nil || !strings.Contains(err.Error(), "OOM") {
			r.Errorf("a counter that is missing, without memory: %s, %v", o, err)
		}
		r.redis("config", "set", "maxmemory", "0")
	})
}

func TestExpireShortensAndNeverLengthens(t *testing.T) {
	both(t, func(r *rig) {
		it := &Item{Key: "k", Action: event.ActionExpire, Effect: &event.Effect{In: 5 * time.Second}}
		if o := r.do(it); o != Absent {
			r.Error(o)
		}
		for _, c := range []struct{ before, most int64 }{{0, 5000}, {100000, 5000}, {3000, 3000}} {
			r.redis("set", "k", "v")
			if c.before > 0 {
				r.redis("pexpire", "k", c.before)
			}
			if o := r.do(it); o != Written {
				r.Error(o)
			}
			if left := r.redis("pttl", "k").(int64); left <= 0 || left > c.most {
				r.Errorf("%d ms left of %d, want at most %d", left, c.before, c.most)
			}
		}
	})
}

// A counter may be an older one: of data that Redis came back with, or of a replica that was promoted. A reader that
// has read the later one before, and stores a page of then, must not find that its generation comes again.
func TestACounterOfBeforeDoesNotComeToAGenerationOfBeforeAgain(t *testing.T) {
	both(t, func(r *rig) {
		it := &Item{Key: "k", Action: event.ActionIncr}
		for _, of := range []int64{1, r.client.Time(r.Context()).Val().Add(-time.Minute).UnixMilli()} {
			r.redis("set", "k", of, "ex", 3600)
			for range 5 {
				r.do(it)
			}
			later, err := r.client.Get(r.Context(), "k").Int64()
			if err != nil {
				r.Error(err)
			}
			for r.client.Time(r.Context()).Val().UnixMilli() <= later {
				continue // it was raised more than a thousand times a second
			}
			r.redis("set", "k", of, "keepttl")
			r.do(it)
			if is, err := r.client.Get(r.Context(), "k").Int64(); is <= later || err != nil {
				r.Errorf("the counter of before was %d later, and is %d, %v", later, is, err)
			}
			if left := r.redis("ttl", "k").(int64); left <= 0 {
				r.Errorf("its time to live is %d", left)
			}
		}
	})
}

func TestACounterBeginsAtRedisTimeAndRises(t *testing.T) {
	both(t, func(r *rig) {
		it := &Item{Key: "k", Action: event.ActionIncr}
		now := func() int64 { return r.client.Time(r.Context()).Val().UnixMilli() }
		read := func() int64 {
			n, err := r.client.Get(r.Context(), "k").Int64()
			if err != nil {
				r.Error(err)
			}
			return n
		}
		before := now()
		if o := r.do(it); o != Written {
			r.Error(o)
		}
		first := read()
		if after := now(); first < before || first > after {
			r.Errorf("%d is not between %d and %d", first, before, after)
		}
		if r.do(it); read() <= first {
			r.Errorf("%d follows %d", read(), first)
		}
		const high = 99_999_999_999_999 // no clock begins there
		r.redis("set", "k", high)
		if r.do(it); read() != high+1 {
			r.Errorf("%d follows %d", read(), high)
		}
		for _, words := range [][]any{{"set", "k", "text"}, {"set", "k", "9223372036854775807"}, {"sadd", "k", "m"}} {
			r.redis("unlink", "k")
			r.redis(words...)
			before := now()
			if o := r.do(it); o != Forgotten {
				r.Error(o)
			}
			if n := read(); n < before {
				r.Errorf("%v became %d", words, n)
			}
		}
	})
}

// A fallback may come after the action of a newer change, and takes along what is known of that. Without D a key of
// which nothing is known is written at once: then neither the change that was refused nor one in between may be.
func TestWithoutASecondActionAFallbackLetsNoOlderValueIn(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	single := func(it *Item) *Item {
		it.D = 0
		return it
	}
	for name, of := range map[string]func(v uint64) *Item{
		"a value":  func(v uint64) *Item { return single(put("k", fmt.Sprint(v), at(v))) },
		"a field":  func(v uint64) *Item { return single(field("h", "f", fmt.Sprint(v), event.IntentPut, at(v))) },
		"a member": func(v uint64) *Item { return single(member("s", "m", event.IntentPut, at(v))) },
	} {
		if o := r.do(of(3)); o != Written && name != "a member" {
			t.Errorf("%s: %s, want it written where nothing is known", name, o)
		}
		older := of(1)
		calls := []*Call{r.b.Fallback(older)}
		if older.NeedsMark() {
			calls = r.b.Mark(nil, older)
		}
		send(t.Context(), r.client, calls)
		r.b.Reset()
		older.Refused = true
		if o := r.do(older); o == Written {
			t.Errorf("%s that was refused was written over a newer one", name)
		}
		if between := of(2); between.NeedsMark() {
			if o := r.do(between); o == Written {
				t.Errorf("%s in between was written over a newer one", name)
			}
		}
		if n := r.redis("exists", older.Key); n != int64(0) {
			t.Errorf("%s is there", name)
		}
	}
}
