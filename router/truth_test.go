package router

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

// cache is what Redis holds under one mapping: the simplest that carries out what Route says, one row after the other.
// What is forgotten the application reads again at once.
type cache struct {
	values map[string]string
	// sets are hashes, sets and sorted sets: a field or member, and its value or score.
	sets map[string]map[string]string
}

// truth is what the cache would hold of the rows if all had just been read.
func truth(rows map[int]row) *cache {
	c := &cache{values: map[string]string{}, sets: map[string]map[string]string{}}
	for _, r := range rows {
		if r["status"] != "live" {
			continue
		}
		value := fmt.Sprintf(`{"id":%v,"category_id":%v,"price":%v}`, r["id"], r["category_id"], r["price"])
		c.values[fmt.Sprintf("p:%v", r["id"])], c.values[fmt.Sprintf("s:%v", r["sku"])] = value, value
		add := func(key, member, value any) {
			if k := fmt.Sprint(key); c.sets[k] == nil {
				c.sets[k] = map[string]string{}
			}
			c.sets[fmt.Sprint(key)][fmt.Sprint(member)] = fmt.Sprint(value)
		}
		add(fmt.Sprint("h:", r["category_id"]), r["id"], r["price"])
		add(fmt.Sprint("t:", r["category_id"]), r["sku"], "")
		add(fmt.Sprint("z:", r["category_id"]), r["sku"], r["price"])
	}
	return c
}

// do carries out one invalidation; now is the truth after the change.
func (c *cache) do(t *rapid.T, b *event.Batch, i int, now *cache) {
	inv, key := b.Invalidations[i], b.Key(i)
	own, err := b.Fields(i).All()
	if err != nil {
		t.Fatal(err)
	}
	set := c.sets[key]
	if set == nil {
		set = map[string]string{}
	}
	value := ""
	switch {
	case inv.Action == event.ActionDelete || inv.Intent == event.IntentForget && inv.Action != event.ActionHash:
		delete(c.values, key)
		set = maps.Clone(now.sets[key])
	case inv.Action == event.ActionRebuild && inv.Intent == event.IntentPut:
		c.values[key] = string(own[0])
	case inv.Action == event.ActionRebuild:
		delete(c.values, key)
	case inv.Intent == event.IntentPut:
		if len(own) > 1 {
			value = string(own[1])
		}
		set[string(own[0])] = value
	case inv.Intent == event.IntentForget: // a field; it is read again
		if v, ok := now.sets[key][string(own[0])]; ok {
			set[string(own[0])] = v
			break
		}
		delete(set, string(own[0]))
	default:
		delete(set, string(own[0]))
	}
	c.sets[key] = set
}

// Whatever happens to the rows, and whichever columns the images of the values lack: once it is carried out, no value
// is other than its row, and no set holds other members than the rows say.
func TestWhatIsWrittenIsTrue(t *testing.T) {
	table := spectest.Product()
	for _, when := range []string{
		"row.status == 'live'", "row.status == 'live' || old.status == 'live'",
		"row.status == 'live' and (row.category_id ?? 0) >= 0",
	} {
		m := spectest.Keys("p:{id}", "s:{sku}").If(when).With(func(m *spectest.Mapping) {
			m.Rebuild = spectest.FromRow(event.FormJSON, "id", "category_id", "price")
			m.Hash = &spec.Hash{
				Key: spectest.Text("h:{category_id}", 30), Field: spectest.Text("{id}", 31),
				Value: spectest.Text("{price}", 32),
			}
			m.Set = &spec.Set{Key: spectest.Text("t:{category_id}", 33), Member: spectest.Text("{sku}", 34)}
			m.ZSet = &spec.ZSet{
				Key: spectest.Text("z:{category_id}", 35), Member: spectest.Text("{sku}", 36),
				Score: spectest.Text("{price}", 37),
			}
		})
		r := mustNew(t, m)
		if _, err := r.Bind(table); err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			f := &feed{r: r, table: table}
			rows, c := map[int]row{}, truth(nil)
			for range rapid.IntRange(1, 25).Draw(t, "changes") {
				id := rapid.IntRange(1, 4).Draw(t, "id")
				old := rows[id]
				now := row{
					"id": id, "category_id": rapid.IntRange(0, 2).Draw(t, "category"), "price": rapid.IntRange(1, 3).Draw(t, "price"),
					"status": rapid.SampledFrom([]string{"live", "dead"}).Draw(t, "status"),
					// Unique, as a key of one row must be.
					"sku": fmt.Sprint(id, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "sku")),
				}
				if old != nil && rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
					now = nil
				}
				if rows[id] = now; now == nil {
					delete(rows, id)
				}
				f.change(lacking(t, old), lacking(t, now))
				b := f.batch.Clone()
				f.batch.Reset()
				for i := range b.Len() {
					c.do(t, b, i, truth(rows))
				}
				want := truth(rows)
				for key, v := range c.values {
					if want.values[key] != v {
						t.Fatalf("%s is %s, and the row says %q", key, v, want.values[key])
					}
				}
				maps.DeleteFunc(c.sets, func(_ string, s map[string]string) bool { return len(s) == 0 })
				if diff := cmp.Diff(want.sets, c.sets); diff != "" {
					t.Fatalf("%v to %v: %s", old, now, diff)
				}
			}
		})
	}
}

// lacking leaves a column of the values out of an image, now and then.
func lacking(t *rapid.T, r row) row {
	if r == nil || rapid.IntRange(0, 5).Draw(t, "lacks") > 0 {
		return r
	}
	r = maps.Clone(r)
	delete(r, "price")
	return r
}
