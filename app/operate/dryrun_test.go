package operate

import (
	"fmt"
	"slices"
	"testing"

	"github.com/freshet/freshet/event"
)

// batchOf returns a batch with keys of a table.
func batchOf(table string, keys ...string) *event.Batch {
	b := &event.Batch{}
	b.AddOrigin(event.Origin{Table: table})
	for _, k := range keys {
		b.Add(append(b.Text(), k...), 0, event.ActionDelete)
	}
	return b
}

// A dry run counts all keys, and shows 20 of them, each once: of one source or of several.
func TestADryRunShowsTwentyKeysAndCountsAll(t *testing.T) {
	found := &Cached{Keys: map[string]int{}}
	for _, table := range []string{"shop.product", "crm.user"} {
		here := &Cached{Keys: map[string]int{}}
		var keys []string
		for id := range 15 {
			keys = append(keys, fmt.Sprintf("%s:%d", table, id))
		}
		here.count(batchOf(table, append(keys, keys[0])...))
		if len(here.Examples) != 15 || here.Keys[table] != 16 {
			t.Errorf("of %s %d keys, and %d examples %q", table, here.Keys[table], len(here.Examples), here.Examples)
		}
		found.add(here)
		var more []string
		for id := range 30 {
			more = append(more, fmt.Sprintf("%s:%d", table, 100+id))
		}
		found.count(batchOf(table, more...))
	}
	if found.Keys["shop.product"] != 46 || found.Keys["crm.user"] != 46 {
		t.Errorf("there are %v", found.Keys)
	}
	sorted := slices.Sorted(slices.Values(found.Examples))
	if len(slices.Compact(sorted)) != 20 || len(found.Examples) != 20 {
		t.Errorf("%d examples: %q", len(found.Examples), found.Examples)
	}
	// Those of a second source have room only for what the first one has left.
	half, other := &Cached{Keys: map[string]int{}}, &Cached{Keys: map[string]int{}}
	for n, c := range []*Cached{half, other} {
		for id := range 12 {
			c.count(batchOf("shop.product", fmt.Sprintf("%d:%d", n, id)))
		}
	}
	half.add(other)
	if len(half.Examples) != maxExamples || half.Keys["shop.product"] != 24 {
		t.Errorf("of two sources %d keys, and %d examples", half.Keys["shop.product"], len(half.Examples))
	}
}
