package write

import (
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

func put(key, value string, v event.Version) *Item {
	return &Item{
		Key: key, Action: event.ActionRebuild, Intent: event.IntentPut, Effect: &event.Effect{As: event.FormString},
		Fields: fields(value), Source: "s", Version: v, D: testD, Until: inTime,
	}
}

func TestTheFirstPutOfAKeyDeletesItAndItsSecondWritesIt(t *testing.T) {
	r := newRig(t, testbed.Redis(t), Options{})
	r.redis("set", "k", "unknown")
	for i, want := range []Outcome{Forgotten, Written, Written} {
		if o := r.do(put("k", "1", at(1))); o != want {
			t.Fatalf("put %d: %s, want %s", i, o, want)
		}
	}
	if o := r.do(put("k", "2", at(2))); o != Written {
		t.Error(o)
	}
	if o := r.do(put("k", "1", at(1))); o != Older {
		t.Error(o)
	}
	if v := r.redis("get", "k"); v != "2" {
		t.Error(v)
	}
}

// One process pauses before its first action, another finishes that change and a newer one, Redis evicts what both have
// left, and the first goes on: its action begins a companion, the reply is lost, and it is sent again.
func TestAnActionThatIsSentAgainConfirmsNothing(t *testing.T) {
	both(t, func(r *rig) {
		for _, late := range []*Item{
			put("k", "old", at(1)), field("k", "f", "old", event.IntentPut, at(1)), member("k", "old", event.IntentPut, at(1)),
			scored("k", "m", "1", at(1)),
		} {
			r.redis("flushall")
			for range 3 {
				switch late.Action { // members are added only to what is there
				case event.ActionSet:
					r.redis("sadd", "k", "another")
				case event.ActionZSet:
					r.redis("zadd", "k", "1", "another")
				default:
				}
				calls := r.b.Append(nil, late)
				send(r.Context(), r.client, calls)
				if o, err := r.b.Outcome(late, calls); o != Forgotten || err != nil || r.redis("exists", "k") != int64(0) {
					r.Errorf("%s: %s, %v", late.Action, o, err)
				}
				r.b.Reset()
			}
		}
	})
}
