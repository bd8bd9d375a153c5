package write

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// The first lines of a script settle the common case sooner, and as what follows would.
func TestTheFirstLinesOfAScriptDoWhatTheOthersWould(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{Entries: 2})
	whole := simulated(t)
	rest := whole
	for _, first := range [][2]string{
		{"if op == 'set' and now", "if false and now"},
		{"elseif op == 'forget' and not", "elseif false and not"},
		{"if op == 'hset' and now", "if false and now"},
		{"if (op == 'sadd' or op == 'zadd') and", "if false and"},
	} {
		rest = replaced(t, rest, first[0], first[1])
	}
	const clock = worldBegins
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		version := func(name string) event.Version {
			return event.Version{
				Epoch: rapid.SampledFrom([]uint32{1, 1, 1, 2}).Draw(t, name+" epoch"),
				File:  1, Pos: rapid.SampledFrom([]uint64{9, 10, 11}).Draw(t, name+" position"),
			}
		}
		mark := func(name string) string {
			since := rapid.SampledFrom([]int64{0, 0, 0, clock*1000 - 1500, 1}).Draw(t, name+" since")
			source := rapid.SampledFrom([]string{"s", "s", "s", "t"}).Draw(t, name+" source")
			return fmt.Sprintf("%s %d %s", inRedis(version(name)), since, source)
		}
		there := func(name string) bool { return rapid.IntRange(0, 3).Draw(t, name) > 0 }
		v := version("change")
		it := rapid.SampledFrom([]*Item{
			put("k", "new", v), field("k", "f", "new", event.IntentPut, v), member("k", "m", event.IntentPut, v),
			scored("k", "m", "5", v), scored("k", "m", "no number", v), put("k", "", v),
		}).Draw(t, "action")
		if len(it.Fields) < 3 {
			it.Intent = event.IntentForget
		}
		it.Until = rapid.SampledFrom([]int64{inTime, inTime, clock*1000 - 1}).Draw(t, "until")
		it.Begun = rapid.SampledFrom([]int64{0, clock*1000 - 1000}).Draw(t, "begun")
		var state [][]any
		is := func(words ...any) { state = append(state, words) }
		is("flushall")
		is("hset", "clock", "s", clock, "u", 0)
		name := func(k Kind) string { return string(r.b.names.Append(nil, k, "k")) }
		for _, generation := range []Kind{KindField, KindOldField} {
			if there(string(generation)) {
				is("hset", name(generation), "f", mark(string(generation)))
			}
		}
		if there("companion") {
			is("set", name(KindVersion), mark("companion"))
		}
		if there("floor") {
			is("hset", name(KindMember), "<", mark("floor"), ">", inRedis(version("top")))
		}
		for _, m := range []string{"m", "n", "o"} {
			if there("mark of " + m) {
				is("hset", name(KindMember), "="+m, inRedis(version(m)))
			}
		}
		if !there("no generation before") {
			is("hset", name(KindMember), "|", inRedis(version("old top")))
			is("hset", name(KindOldMember), "=m", inRedis(version("old m")))
		}
		if there("key") {
			is([][]any{
				{"set", "k", "old"}, {"hset", "k", "f", "old"}, {"sadd", "k", "x"}, {"zadd", "k", "1", "x"},
			}[rapid.IntRange(0, 3).Draw(t, "type")]...)
		}
		play := func(s *scripts) string {
			for _, words := range state {
				r.redis(words...)
			}
			r.scripts = s
			clear(r.begun)
			o, err := r.try(it)
			if o == Written {
				taken++
			}
			text := fmt.Sprintln(o, err != nil, r.begun)
			for _, k := range []string{
				"k", name(KindVersion), name(KindField), name(KindOldField), name(KindMember), name(KindOldMember),
			} {
				text += k + ": " + r.content(k) + "\n"
			}
			return text
		}
		if a, b := play(whole), play(rest); a != b {
			t.Fatalf("%+v on\n%v\nfirst lines:\n%swithout:\n%s", it, state, a, b)
		}
	})
	if taken == 0 {
		t.Error("nothing was written")
	}
}

// content is what a key holds, and whether for a limited time.
func (r *rig) content(key string) string {
	ctx := r.Context()
	var what any
	switch kind := r.client.Type(ctx, key).Val(); kind {
	case "string":
		what = r.client.Get(ctx, key).Val()
	case "hash":
		what = r.client.HGetAll(ctx, key).Val()
	case "set":
		what = r.client.SMembersMap(ctx, key).Val()
	case "zset":
		what = r.client.ZRangeWithScores(ctx, key, 0, -1).Val()
	default:
		return kind
	}
	return fmt.Sprint(what, r.client.PTTL(ctx, key).Val() > 0)
}
