package write

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
)

// A scope forgets a key under the newest version that everybody can see, which may be that of another key. A slow
// reader may fill the key after that, until the final action of the key's own change: this has to remove what it finds.
func TestWhatIsDoneAgainTakesNoChangeItsFinalAction(t *testing.T) {
	forgottenInBetween(t, func(it *Item) { it.Leftover = true })
}

// Nor does a key that somebody has named, in a process that was killed before its second delete.
func TestAKeyThatIsNamedKeepsTheFinalActionOfItsChange(t *testing.T) {
	forgottenInBetween(t, func(it *Item) { it.Named = true })
}

// forgottenInBetween forgets a key between the two actions of an older change.
func forgottenInBetween(t *testing.T, as func(*Item)) {
	t.Helper()
	both(t, func(r *rig) {
		for name, change := range map[string]func(v event.Version) *Item{
			"a value":  func(v event.Version) *Item { return put("k", "new", v) },
			"a field":  func(v event.Version) *Item { return field("k", "f", "new", event.IntentPut, v) },
			"a member": func(v event.Version) *Item { return member("k", "m", event.IntentPut, v) },
		} {
			r.redis("flushall")
			clear(r.begun)
			it := change(at(5))
			r.do(it) // the first action
			found := change(at(6))
			found.Intent = event.IntentForget
			as(found)
			if o := r.do(found); o != Forgotten {
				t.Fatalf("%s: %s", name, o)
			}
			words := map[event.Action][2][]any{
				event.ActionRebuild: {{"set", "k", "old"}, {"get", "k"}},
				event.ActionHash:    {{"hset", "k", "f", "old"}, {"hget", "k", "f"}},
				event.ActionSet:     {{"sadd", "k", "old"}, {"smembers", "k"}},
			}[it.Action]
			r.redis(words[0]...)
			if o := r.do(it); o == Older || strings.Contains(fmt.Sprint(r.redis(words[1]...)), "old") {
				t.Errorf("%s: the final action: %s; what a slow reader filled is there", name, o)
			}
		}
	})
}
