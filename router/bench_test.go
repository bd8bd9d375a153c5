package router

import (
	"testing"

	"github.com/freshet/freshet/event"
)

// routed makes a change of shop.product for each run, and a batch that is emptied as a reader does.
func routed(tb testing.TB, old, r row, specs ...Mapping) func() {
	tb.Helper()
	router := mustNew(tb, specs...)
	table := product()
	needs, err := router.Bind(table)
	if err != nil {
		tb.Fatal(err)
	}
	c := &event.Change{Table: table, Tx: &event.Tx{}, Op: event.Update, Before: old.image(table, needs), After: r.image(table, needs)}
	if old == nil {
		c.Op = event.Insert
	}
	var b event.Batch
	return func() {
		c.Version.Row++
		if c.Version.Row%100 == 0 {
			c.Version.Pos++
		}
		router.Route(&b, c)
		if b.Len() >= 2000 {
			b.Reset()
		}
	}
}

func cases() []struct {
	name  string
	old   row
	row   row
	specs []Mapping
} {
	full := row{"id": uint64(1234567), "category_id": 17, "name": "Blue Jar", "price": dec("9.90"), "sku": "AB-1234", "status": "live"}
	moved := row{"id": uint64(1234567), "category_id": 18, "name": "Blue Jar", "price": dec("9.90"), "sku": "AB-1234", "status": "live"}
	return []struct {
		name  string
		old   row
		row   row
		specs []Mapping
	}{
		{"insert/int", nil, full, []Mapping{spec("product:{id}")}},
		{"insert/text", nil, full, []Mapping{spec("sku:{sku}")}},
		{"insert/lower", nil, full, []Mapping{spec("sku:{sku|lower}")}},
		{"insert/md5", nil, full, []Mapping{spec("sku:{sku|md5}")}},
		{"insert/shard", nil, full, []Mapping{spec("{id|mod:64|pad:2}:{id}")}},
		{"insert/three_keys", nil, full, []Mapping{spec("product:{id}", "category:{category_id}:products", "sku:{sku|lower}")}},
		{"insert/three_mappings", nil, full, []Mapping{spec("product:{id}"), spec("category:{category_id}:products"), spec("sku:{sku|lower}")}},
		{"update/same_key", full, full, []Mapping{spec("product:{id}")}},
		{"update/two_keys", full, moved, []Mapping{spec("product:{id}", "category:{category_id}:products")}},
		{"update/unchanged", full, full, []Mapping{spec("product:{id}").columns("name", "price")}},
		{"insert/copies_8", nil, full, []Mapping{spec("hot:{id}:{0..7}")}},
		{"insert/copies_128", nil, full, []Mapping{spec("hot:{id}:{0..127}")}},
	}
}

func TestRoutingAllocatesNothing(t *testing.T) {
	for _, c := range cases() {
		run := routed(t, c.old, c.row, c.specs...)
		for range 5000 {
			run()
		}
		if n := testing.AllocsPerRun(2000, run); n != 0 {
			t.Errorf("%s: %v allocations a row, want 0", c.name, n)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	for _, c := range cases() {
		b.Run(c.name, func(b *testing.B) {
			run := routed(b, c.old, c.row, c.specs...)
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
	live := row{"id": 17, "status": "live", "price": dec("9.90")}
	for name, when := range map[string]string{
		"when/text": "row.status == 'live' || old.status == 'live'", "when/int": "row.id > 10", "when/decimal": "row.price > 9.89",
	} {
		b.Run(name, func(b *testing.B) {
			run := routed(b, live, live, spec("product:{id}").when(when))
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
