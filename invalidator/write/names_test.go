package write

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

var allKinds = []Kind{KindVersion, KindField, KindOldField, KindMember, KindOldMember, KindLock, KindTemporary}

// cluster starts a Redis in Cluster mode. Its second port is the first plus 10000, which may be taken: then another is
// started.
func cluster(t *testing.T) *testbed.RedisServer {
	t.Helper()
	for try := 1; ; try++ {
		s, err := testbed.StartRedis(t.Context(), testbed.Options{Args: []string{"--cluster-enabled", "yes"}})
		if err == nil {
			t.Cleanup(func() { testbed.Must(t, s.Close()) })
			return s
		}
		if try == 10 {
			t.Fatal(err)
		}
	}
}

// oddKey draws a key of odd braces and bytes.
func oddKey(t *rapid.T) string {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{
		"{", "}", "{}", "a", "user:1", "\x00", "\xff", ":", " ", "{x}",
		"",
	}), 0, 7)
	return strings.Join(parts.Draw(t, "key"), "")
}

func oddNames(t *rapid.T) Names {
	return Names{Prefix: rapid.SampledFrom([]string{"", "shop:", "{shop}:", "a{b}c"}).Draw(t, "prefix")}
}

func TestWhatIsBesideAKeyIsInItsSlot(t *testing.T) {
	client := cluster(t).Client()
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		n, key := oddNames(t), oddKey(t)
		if rapid.Bool().Draw(t, "random") {
			key = string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		}
		want := client.ClusterKeySlot(ctx, n.Key(key)).Val()
		if got := n.Slot(key); int64(got) != want {
			t.Fatalf("%q is in slot %d, not %d", n.Key(key), want, got)
		}
		for _, k := range allKinds {
			name := string(n.Append(nil, k, key))
			if got := client.ClusterKeySlot(ctx, name).Val(); got != want {
				t.Fatalf("%q is in slot %d, its %s %q in %d", n.Key(key), want, k, name, got)
			}
		}
	})
}

func TestNoTwoKeysShareAName(t *testing.T) {
	owners := map[string]string{}
	rapid.Check(t, func(t *rapid.T) {
		key := oddKey(t)
		for _, k := range allKinds {
			name := string(Names{}.Append(nil, k, key))
			if owner, ok := owners[name]; ok && owner != string(k)+" of "+key {
				t.Fatalf("%q is of %q and of %q", name, owner, key)
			}
			owners[name] = string(k) + " of " + key
		}
	})
}

func TestNamesAsTheyAreDocumented(t *testing.T) {
	for key, want := range map[string]string{
		"user:1":     "p:freshet:lock:{p:user:1}",
		"{user:1}:x": "p:freshet:lock::{user:1}:x",
	} {
		if got := (Names{Prefix: "p:"}).Lock(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	if got, want := (Names{}).Version("user:1"), "freshet:v:{user:1}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Who may write the column that a key begins with could name a companion, and write a mark that is newer than all.
func TestWhatAColumnMakesOfFreshetsOwnNamesIsOnlyRemoved(t *testing.T) {
	r := newRig(t, testbed.SharedRedis(t), Options{Names: Names{Prefix: "forged:"}})
	text := &event.Effect{As: event.FormString}
	page := func(pos uint64, path, body string) Outcome {
		return r.do(&Item{
			Key: path, Action: event.ActionRebuild, Intent: event.IntentPut, Effect: text, Fields: fields(body),
			Source: "s", Version: at(pos), Until: inTime, Now: time.Now(),
		})
	}
	name := strings.TrimPrefix(r.b.names.Version("/home"), "forged:")
	page(2, name, inRedis(at(1000))+" 0 s")
	if o := page(3, "/home", "new"); o != Written {
		t.Errorf("a change of the key is %s", o)
	}
	for _, it := range []Item{
		{Action: event.ActionHash, Effect: &event.Effect{}, Fields: fields("a", "1")},
		{Action: event.ActionHash, Fields: fields("a")},
		{Action: event.ActionSet, Effect: &event.Effect{}, Fields: fields("a")},
		{Action: event.ActionExpire, Effect: &event.Effect{In: time.Hour}},
		{Action: event.ActionIncr},
	} {
		r.redis("set", "forged:"+name, "1")
		it.Key, it.Intent, it.Source, it.Version, it.Until = name, event.IntentPut, "s", at(4), inTime
		if o := r.do(&it); o != Removed || r.redis("exists", "forged:"+name) != int64(0) {
			t.Errorf("%s: %s", it.Action, o)
		}
	}
}
