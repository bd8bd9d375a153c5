package router

import (
	"testing"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

// routed makes a change of shop.product for each run, and a batch that is emptied as a reader does.
func routed(tb testing.TB, old, r row, specs ...spectest.Mapping) func() {
	tb.Helper()
	router := mustNew(tb, specs...)
	table := spectest.Product()
	needs, err := router.Bind(table)
	if err != nil {
		tb.Fatal(err)
	}
	c := &event.Change{
		Table: table, Tx: &event.Tx{}, Op: event.Update, Before: old.image(table, needs),
		After: r.image(table, needs),
	}
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
	specs []spectest.Mapping
} {
	full := row{
		"id": uint64(1234567), "category_id": 17, "name": "Blue Jar", "price": dec("9.90"), "sku": "AB-1234",
		"status": "live",
	}
	moved := row{
		"id": uint64(1234567), "category_id": 18, "name": "Blue Jar", "price": dec("9.90"), "sku": "AB-1234",
		"status": "live",
	}
	return []struct {
		name  string
		old   row
		row   row
		specs []spectest.Mapping
	}{
		{"insert/int", nil, full, []spectest.Mapping{spectest.Keys("product:{id}")}},
		{"insert/text", nil, full, []spectest.Mapping{spectest.Keys("sku:{sku}")}},
		{"insert/lower", nil, full, []spectest.Mapping{spectest.Keys("sku:{sku|lower}")}},
		{"insert/md5", nil, full, []spectest.Mapping{spectest.Keys("sku:{sku|md5}")}},
		{"insert/shard", nil, full, []spectest.Mapping{spectest.Keys("{id|mod:64|pad:2}:{id}")}},
		{
			"insert/three_keys", nil, full,
			[]spectest.Mapping{spectest.Keys("product:{id}", "category:{category_id}:products", "sku:{sku|lower}")},
		},
		{
			"insert/three_mappings", nil, full,
			[]spectest.Mapping{
				spectest.Keys("product:{id}"), spectest.Keys("category:{category_id}:products"),
				spectest.Keys("sku:{sku|lower}"),
			},
		},
		{"update/same_key", full, full, []spectest.Mapping{spectest.Keys("product:{id}")}},
		{
			"update/two_keys", full, moved,
			[]spectest.Mapping{spectest.Keys("product:{id}", "category:{category_id}:products")},
		},
		{"update/unchanged", full, full, []spectest.Mapping{spectest.Keys("product:{id}").Of("name", "price")}},
		{"insert/copies_8", nil, full, []spectest.Mapping{spectest.Keys("hot:{id}:{0..7}")}},
		{"insert/copies_128", nil, full, []spectest.Mapping{spectest.Keys("hot:{id}:{0..127}")}},
	}
}

// effects are the actions other than plain deletes, each alone.
func effects() map[string]spectest.Mapping {
	table := func(m spectest.Mapping) spectest.Mapping { m.Table = spectest.Text("shop.product", 1); return m }
	return map[string]spectest.Mapping{
		"rebuild/json": spectest.Keys("product:{id}").With(func(m *spectest.Mapping) {
			m.Rebuild = spectest.FromRow(event.FormJSON, "id", "name", "price", "sku", "status")
		}),
		"rebuild/hash": spectest.Keys("product:{id}").With(func(m *spectest.Mapping) {
			m.Rebuild = spectest.FromRow(event.FormHash, "id", "name", "price", "sku", "status")
		}),
		"rebuild/query": spectest.Keys("product:{id}").With(func(m *spectest.Mapping) {
			m.Rebuild = &spec.Rebuild{Query: spectest.Text("select 1 from x where id = :id", 5)}
		}),
		"rebuild/when": spectest.Keys("product:{id}").If("row.status == 'live'").With(func(m *spectest.Mapping) {
			m.Rebuild = spectest.FromRow(event.FormJSON, "id", "name")
		}),
		"hash/remove": table(spectest.Mapping{Hash: &spec.Hash{
			Key:   spectest.Text("h:{category_id}", 5),
			Field: spectest.Text("{id}", 6),
		}}),
		"hash/value": table(spectest.Mapping{Hash: &spec.Hash{
			Key:   spectest.Text("h:{category_id}", 5),
			Field: spectest.Text("{id}", 6), Value: spectest.Text("{name}", 7),
		}}),
		"set": table(spectest.Mapping{Set: &spec.Set{
			Key:    spectest.Text("s:{category_id}", 5),
			Member: spectest.Text("{id}", 6),
		}}),
		"zset": table(spectest.Mapping{ZSet: &spec.ZSet{
			Key:    spectest.Text("z:{category_id}", 5),
			Member: spectest.Text("{id}", 6), Score: spectest.Text("{price}", 7),
		}}),
		"expire": table(spectest.Mapping{Expire: &spec.Expire{Keys: []spec.Text{spectest.Text("e:{id}", 5)}, In: 1}}),
		"incr":   spectest.Counter("gen:{category_id}"),
		"delete/publish": spectest.Keys("product:{id}").With(func(m *spectest.Mapping) {
			m.Publish = &spec.Publish{Channel: spectest.Text("c", 5), Message: spectest.Text("{id}", 6)}
		}),
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
		"when/text": "row.status == 'live' || old.status == 'live'", "when/int": "row.id > 10",
		"when/decimal": "row.price > 9.89",
	} {
		b.Run(name, func(b *testing.B) {
			run := routed(b, live, live, spectest.Keys("product:{id}").If(when))
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
