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

// effects are the actions other than plain deletes, each alone.
func effects() map[string]Mapping {
	table := func(m Mapping) Mapping { m.Table = text("shop.product", 1); return m }
	return map[string]Mapping{
		"rebuild/json":   spec("product:{id}").with(func(m *Mapping) { m.Rebuild = fromRow(event.FormJSON, "id", "name", "price", "sku", "status") }),
		"rebuild/hash":   spec("product:{id}").with(func(m *Mapping) { m.Rebuild = fromRow(event.FormHash, "id", "name", "price", "sku", "status") }),
		"rebuild/query":  spec("product:{id}").with(func(m *Mapping) { m.Rebuild = &Rebuild{Query: text("select 1 from x where id = :id", 5)} }),
		"rebuild/when":   spec("product:{id}").when("row.status == 'live'").with(func(m *Mapping) { m.Rebuild = fromRow(event.FormJSON, "id", "name") }),
		"hash/remove":    table(Mapping{Hash: &Hash{Key: text("h:{category_id}", 5), Field: text("{id}", 6)}}),
		"hash/value":     table(Mapping{Hash: &Hash{Key: text("h:{category_id}", 5), Field: text("{id}", 6), Value: text("{name}", 7)}}),
		"set":            table(Mapping{Set: &Set{Key: text("s:{category_id}", 5), Member: text("{id}", 6)}}),
		"zset":           table(Mapping{ZSet: &ZSet{Key: text("z:{category_id}", 5), Member: text("{id}", 6), Score: text("{price}", 7)}}),
		"expire":         table(Mapping{Expire: &Expire{Keys: []Text{text("e:{id}", 5)}, In: 1}}),
		"incr":           gen("gen:{category_id}"),
		"delete/publish": spec("product:{id}").with(func(m *Mapping) { m.Publish = &Publish{Channel: text("c", 5), Message: text("{id}", 6)} }),
	}
}

func BenchmarkEffect(b *testing.B) {
	full := cases()[0].row
	for name, m := range effects() {
		b.Run(name, func(b *testing.B) {
			run := routed(b, full, full, m)
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
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
