package write

import (
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/testbed"
)

func put(key, value string, v event.Version) *Item {
	return &Item{
		Key: key, Action: event.ActionRebuild, Intent: event.IntentPut, Effect: &event.Effect{As: event.FormString},
		Fields: fields(value), Source: "s", Version: v, D: testD,
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
