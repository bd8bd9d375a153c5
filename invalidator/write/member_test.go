package write

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func field(key, name, value string, i event.Intent, v event.Version) *Item {
	return &Item{
		Key: key, Action: event.ActionHash, Intent: i, Effect: &event.Effect{}, Fields: fields(name, value),
		Source: "s", Version: v, D: testD, Until: inTime,
	}
}

func member(key, name string, i event.Intent, v event.Version) *Item {
	return &Item{
		Key: key, Action: event.ActionSet, Intent: i, Effect: &event.Effect{}, Fields: fields(name), Source: "s", Version: v,
		D: testD, Until: inTime,
	}
}

func scored(key, name, score string, v event.Version) *Item {
	it := member(key, name, event.IntentPut, v)
	it.Action, it.Fields = event.ActionZSet, fields(name, score)
	return it
}

// The two rules that the worlds of the model do not come to, each with and without.
func TestMarksOfMembers(t *testing.T) {
	server := testbed.Redis(t)
	for _, c := range []struct {
		name, old, with string
		play            func(r *rig) Outcome
	}{
		{
			"do not confirm another member as soon as they are begun", "local good = since == 0", "local good = true",
			func(r *rig) Outcome {
				r.do(member("k", "a", event.IntentPut, at(1))) // late: begins marks that were lost
				r.redis("sadd", "k", "as of 9")
				return r.do(member("k", "b", event.IntentPut, at(2))) // late as well
			},
		},
		{
			"do not confirm what a generation held that Redis lost",
			"if newer(oldtop, floor) then floor = oldtop end\n    oldtop = false",
			"oldtop = false",
			func(r *rig) Outcome {
				r.redis("sadd", "k", "m")
				r.redis("hset", "freshet:m:{k}", "<", inRedis(at(1))+" 0 s", ">", inRedis(at(1)))
				r.do(member("k", "m", event.IntentRemove, at(5)))
				r.redis("sadd", "k", "other")
				for pos := uint64(6); r.redis("exists", "freshet:mo:{k}") == int64(0); pos++ {
					r.do(member("k", "other"+at(pos).String(), event.IntentPut, at(pos)))
				}
				r.redis("unlink", "freshet:mo:{k}")
				return r.do(member("k", "m", event.IntentPut, at(4)))
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, server, Options{Entries: 3})
			r.redis("flushall")
			if o := c.play(r); o != Forgotten {
				t.Errorf("%s, want forgotten", o)
			}
			r.redis("flushall")
			r.scripts = replaced(t, theScripts, c.old, c.with)
			if o := c.play(r); o != Written {
				t.Errorf("without the rule: %s, want written", o)
			}
		})
	}
}

// Redis may evict one generation of marks and leave the other.
func TestAFieldsMarkIsInOneGenerationOnly(t *testing.T) {
	server := testbed.Redis(t)
	play := func(r *rig) Outcome {
		r.redis("flushall")
		r.redis("hset", "freshet:fo:{k}", "f", inRedis(at(20))+" 0 s")
		if o := r.do(field("k", "f", "40", event.IntentPut, at(40))); o != Written {
			t.Fatal(o)
		}
		r.redis("unlink", "freshet:f:{k}")
		return r.do(field("k", "f", "30", event.IntentPut, at(30)))
	}
	r := newRig(t, server, Options{})
	if o := play(r); o != Forgotten || r.redis("hexists", "k", "f") != int64(0) {
		t.Errorf("a late value: %s", o)
	}
	r.scripts = replaced(t, theScripts, "if moved then redis.call('HDEL', before, field) end", "")
	if o := play(r); o != Written {
		t.Errorf("without the rule: %s", o)
	}
}

func TestMarksAreBounded(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{Entries: 10})
	r.redis("sadd", "k", "x")
	for pos := uint64(1); pos <= 200; pos++ {
		name := at(pos).String()
		r.do(field("h", name, "1", event.IntentPut, at(pos)))
		r.do(member("k", name, event.IntentPut, at(pos)))
	}
	for _, k := range []Kind{KindField, KindOldField, KindMember, KindOldMember} {
		for _, key := range []string{"h", "k"} {
			name := string(r.b.names.Append(nil, k, key))
			if n := r.redis("hlen", name).(int64); n > 14 {
				t.Errorf("%s holds %d", name, n)
			}
			if r.redis("exists", name) == int64(1) && r.redis("pttl", name).(int64) <= 0 {
				t.Errorf("%s lives forever", name)
			}
		}
	}
}

func TestAMemberMayBeEmptyOrLookLikeAMark(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	for _, name := range []string{"", "<", ">", "|", "=", strings.Repeat("x", 100)} {
		r.redis("flushall")
		r.do(member("k", name, event.IntentPut, at(1)))
		r.redis("sadd", "k", "other")
		if o := r.do(member("k", name, event.IntentPut, at(1))); o != Written {
			t.Errorf("%q: %s", name, o)
		}
		if o := r.do(member("k", name, event.IntentRemove, at(2))); o != Removed {
			t.Errorf("%q: %s", name, o)
		}
		if o := r.do(member("k", name, event.IntentPut, at(1))); o != Older {
			t.Errorf("%q: %s", name, o)
		}
	}
}

func TestAFieldWithoutAnEffectIsAPlainHDEL(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	it := &Item{Key: "k", Action: event.ActionHash, Fields: fields("f")}
	if c := r.b.Append(nil, it)[0]; c.Name() != "hdel" {
		t.Error(c.Name())
	}
	r.redis("hset", "k", "f", "1", "g", "1")
	if o := r.do(it); o != Removed {
		t.Error(o)
	}
	if o := r.do(it); o != Absent {
		t.Error(o)
	}
}
