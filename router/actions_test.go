package router

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

// items returns what the batch holds, one line for each invalidation, and empties it.
func (f *feed) items() string {
	b := f.batch.Clone()
	f.batch.Reset()
	var out strings.Builder
	for i := range b.Len() {
		inv := b.Invalidations[i]
		fmt.Fprintf(&out, "%s %s %s", inv.Action, inv.Intent, b.Key(i))
		all, err := b.Fields(i).All()
		if err != nil {
			f.t.Fatal(err)
		}
		for _, v := range all {
			if v == nil {
				out.WriteString(" NULL")
			} else {
				fmt.Fprintf(&out, " <%s>", v)
			}
		}
		switch hasEffect := b.EffectOf(i) != nil; {
		case inv.Action == event.ActionHash && inv.Intent == event.IntentForget:
			if hasEffect { // of a hash with values; one without commutes
				out.WriteString(" guarded")
			}
		case hasEffect == (inv.Action == event.ActionDelete && len(all) == 0):
			fmt.Fprintf(&out, " effect %v", b.EffectOf(i))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// step is a change, and what is made of it.
type step struct {
	what     string
	old, row row
	want     string
}

func follow(t *testing.T, m spectest.Mapping, steps []step) {
	t.Helper()
	f := newFeed(t, mustNew(t, m), spectest.Product())
	for _, s := range steps {
		f.change(s.old, s.row)
		if diff := cmp.Diff(strings.TrimLeft(s.want, "\n"), f.items()); diff != "" {
			t.Errorf("%s: %s", s.what, diff)
		}
	}
}

func TestRebuildFromRow(t *testing.T) {
	m := spectest.Keys("product:{id}:{0..1}", "sku:{sku}").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormJSON, "id", "NAME as title", "price")
	})
	jar := row{"id": 1, "name": "Jar", "price": dec("9.90"), "sku": "a"}
	vase := row{"id": 1, "name": "Vase", "price": null{}, "sku": "b"}
	follow(t, m, []step{
		{"insert", nil, jar, `
rebuild put product:1:0 <{"id":1,"title":"Jar","price":"9.90"}>
rebuild put product:1:1 <{"id":1,"title":"Jar","price":"9.90"}>
rebuild put sku:a <{"id":1,"title":"Jar","price":"9.90"}>
`},
		{"update that moves one key", jar, vase, `
rebuild put product:1:0 <{"id":1,"title":"Vase","price":null}>
rebuild put product:1:1 <{"id":1,"title":"Vase","price":null}>
rebuild put sku:b <{"id":1,"title":"Vase","price":null}>
rebuild remove sku:a
`},
		{"delete", jar, nil, `
rebuild remove product:1:0
rebuild remove product:1:1
rebuild remove sku:a
`},
		{"a key of NULL", jar, row{"id": 1, "name": "Jar", "price": dec("1"), "sku": null{}}, `
rebuild put product:1:0 <{"id":1,"title":"Jar","price":"1"}>
rebuild put product:1:1 <{"id":1,"title":"Jar","price":"1"}>
rebuild remove sku:a
`},
		{"an absent column", jar, row{"id": 1, "name": "Jar", "sku": "a"}, `
rebuild forget product:1:0
rebuild forget product:1:1
rebuild forget sku:a
`},
		{"a value too large", nil, row{"id": 1, "name": strings.Repeat("x", MaxValue), "price": null{}, "sku": "a"}, `
rebuild forget product:1:0
rebuild forget product:1:1
rebuild forget sku:a
`},
		{"a value that grows too large when it is escaped", nil, row{"id": 1, "name": strings.Repeat("\x01", MaxValue/4), "price": null{}, "sku": "a"}, `
rebuild forget product:1:0
rebuild forget product:1:1
rebuild forget sku:a
`},
	})
}

// Two rows of one mapping may swap keys: what the row has now wins over what it had.
func TestAKeyThatMovesWithinARowIsWrittenNotRemoved(t *testing.T) {
	m := spectest.Keys("k:{id}",
		"k:{category_id}").With(func(m *spectest.Mapping) { m.Rebuild = spectest.FromRow(event.FormJSON, "id") })
	f := newFeed(t, mustNew(t, m), spectest.Product())
	f.change(row{"id": 1, "category_id": 2}, row{"id": 2, "category_id": 1})
	if got := f.items(); got != "rebuild put k:2 <{\"id\":2}>\nrebuild put k:1 <{\"id\":2}>\n" {
		t.Errorf("got\n%s", got)
	}
}

func TestRebuildAsHashAndString(t *testing.T) {
	hash := spectest.Keys("p:{id}").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormHash, "name",
			"price", "thumb")
	})
	follow(t, hash, []step{
		{
			"columns that are NULL are left out", nil,
			row{"id": 1, "name": "a", "price": null{}, "thumb": []byte{0xff}},
			"rebuild put p:1 <name> <a> <thumb> <\xff>\n",
		},
		{
			"without any there is no hash", nil,
			row{"id": 1, "name": null{}, "price": null{}, "thumb": null{}},
			"rebuild forget p:1\n",
		},
		{"absent", nil, row{"id": 1, "name": "a", "price": null{}}, "rebuild forget p:1\n"},
	})
	str := spectest.Keys("p:{id}").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormString)
		m.Rebuild.Value = spectest.Text("{name|upper}/{extra}", 22)
	})
	follow(t, str, []step{
		{"a template", nil, row{"id": 1, "name": "a", "extra": doc(`{"x": 1}`)}, "rebuild put p:1 <A/{\"x\": 1}>\n"},
		{"of NULL", nil, row{"id": 1, "name": null{}, "extra": doc(`1`)}, "rebuild forget p:1\n"},
		{"absent", nil, row{"id": 1, "extra": doc(`1`)}, "rebuild forget p:1\n"},
		{"too large", nil, row{"id": 1, "name": strings.Repeat("x", MaxValue), "extra": doc(`1`)}, "rebuild forget p:1\n"},
		{"gone", row{"id": 1, "name": "a"}, nil, "rebuild remove p:1\n"},
	})
}

func TestRebuildByQueryAsksForBothImages(t *testing.T) {
	m := spectest.Keys("rating:{category_id}").If("row.status == 'live'").With(func(m *spectest.Mapping) {
		m.Rebuild = &spec.Rebuild{
			Pos:   spec.At("f.yaml", 20, 5),
			Query: spectest.Text("select avg(x) from r where c = :category_id and n = :name or c = :category_id", 21),
		}
	})
	live := func(c int, name any) row { return row{"category_id": c, "name": name, "status": "live"} }
	follow(t, m, []step{
		{"insert", nil, live(1, "a"), "rebuild put rating:1 <1> <a> <1>\n"},
		{
			"update that moves the row", live(1, "a"), live(2, null{}),
			"rebuild put rating:2 <2> NULL <2>\nrebuild put rating:1 <1> <a> <1>\n",
		},
		{"delete", live(1, "a"), nil, "rebuild put rating:1 <1> <a> <1>\n"},
		{
			"a row that leaves what when selects", live(1, "a"),
			row{"category_id": 1, "name": "a", "status": "dead"},
			"rebuild put rating:1 <1> <a> <1>\n",
		},
		{
			"texts that print otherwise than their number", nil,
			row{"category_id": zerofill("007"), "name": dec("1.50"), "status": "live"},
			"rebuild put rating:007 <007> <1.50> <007>\n",
		},
		{"an absent parameter", nil, row{"category_id": 1, "status": "live"}, "rebuild forget rating:1\n"},
		{"a row that is of no interest", nil, row{"category_id": 1, "name": "a", "status": "dead"}, ""},
	})
	q := mustNew(t, m).Queries()
	if len(q) != 1 || q[0].Schema != "shop" || q[0].Query.ID == "" || len(q[0].Query.Params) != 3 {
		t.Errorf("queries %+v", q)
	}
}

func TestHash(t *testing.T) {
	plain := spectest.Mapping{
		Table: spectest.Text("shop.product", 1),
		Hash:  &spec.Hash{Key: spectest.Text("h:{id}", 5), Field: spectest.Text("{sku}", 6)},
	}
	follow(t, plain, []step{
		{"insert", nil, row{"id": 1, "sku": "a"}, "hash forget h:1 <a>\n"},
		{"update", row{"id": 1, "sku": "a"}, row{"id": 1, "sku": "b"}, "hash forget h:1 <b>\nhash forget h:1 <a>\n"},
		{"update of something else", row{"id": 1, "sku": "a"}, row{"id": 1, "sku": "a"}, "hash forget h:1 <a>\n"},
		{"delete", row{"id": 1, "sku": "a"}, nil, "hash forget h:1 <a>\n"},
		{"a field of NULL", nil, row{"id": 1, "sku": null{}}, ""},
		{"an absent field", nil, row{"id": 1}, "delete forget h:1\n"},
		{"an absent key", nil, row{"sku": "a"}, ""},
	})
	valued := plain.With(func(m *spectest.Mapping) {
		m.Hash = &spec.Hash{
			Key: spectest.Text("h:{id}", 5), Field: spectest.Text("{sku}", 6),
			Value: spectest.Text("{name}", 7),
		}
	})
	follow(t, valued, []step{
		{"insert", nil, row{"id": 1, "sku": "a", "name": "x"}, "hash put h:1 <a> <x>\n"},
		{
			"update",
			row{"id": 1, "sku": "a", "name": "x"},
			row{"id": 1, "sku": "b", "name": "y"},
			"hash put h:1 <b> <y>\nhash remove h:1 <a>\n",
		},
		{
			"update of the value",
			row{"id": 1, "sku": "a", "name": "x"},
			row{"id": 1, "sku": "a", "name": "y"},
			"hash put h:1 <a> <y>\n",
		},
		{"delete", row{"id": 1, "sku": "a"}, nil, "hash remove h:1 <a>\n"},
		{"a value of NULL", nil, row{"id": 1, "sku": "a", "name": null{}}, "hash remove h:1 <a>\n"},
		{"an absent value", nil, row{"id": 1, "sku": "a"}, "hash forget h:1 <a> guarded\n"},
		{
			"a value too large", nil,
			row{"id": 1, "sku": "a", "name": strings.Repeat("x", MaxValue+1)},
			"hash forget h:1 <a> guarded\n",
		},
		{"an absent field", nil, row{"id": 1, "name": "x"}, "delete forget h:1\n"},
	})
}

func TestSet(t *testing.T) {
	m := spectest.Mapping{
		Table: spectest.Text("shop.product", 1),
		Set:   &spec.Set{Key: spectest.Text("tag:{name}", 5), Member: spectest.Text("{id}", 6)},
	}
	follow(t, m, []step{
		{"insert", nil, row{"id": 1, "name": "x"}, "set put tag:x <1>\n"},
		{
			"update that moves the member",
			row{"id": 1, "name": "x"},
			row{"id": 1, "name": "y"},
			"set put tag:y <1>\nset remove tag:x <1>\n",
		},
		{
			"update of the member",
			row{"id": 1, "name": "x"},
			row{"id": 2, "name": "x"},
			"set put tag:x <2>\nset remove tag:x <1>\n",
		},
		{"update of something else", row{"id": 1, "name": "x"}, row{"id": 1, "name": "x"}, "set put tag:x <1>\n"},
		{"delete", row{"id": 1, "name": "x"}, nil, "set remove tag:x <1>\n"},
		{"NULL", row{"id": 1, "name": "x"}, row{"id": null{}, "name": "x"}, "set remove tag:x <1>\n"},
		{"an absent member", nil, row{"name": "x"}, "set forget tag:x\n"},
		{"an absent key", nil, row{"id": 1}, ""},
		{
			"an absent member of the row that was",
			row{"name": "x"},
			row{"id": 1, "name": "x"},
			"set put tag:x <1>\nset forget tag:x\n",
		},
	})
}

func TestZSet(t *testing.T) {
	scored := spectest.Mapping{
		Table: spectest.Text("shop.product", 1),
		ZSet: &spec.ZSet{
			Key: spectest.Text("board:{name}", 5), Member: spectest.Text("{id}", 6),
			Score: spectest.Text("{price}", 7),
		},
	}
	follow(t, scored, []step{
		{"insert", nil, row{"id": 1, "name": "x", "price": dec("9.90")}, "zset put board:x <1> <9.90>\n"},
		{
			"update of the score",
			row{"id": 1, "name": "x", "price": dec("1")},
			row{"id": 1, "name": "x", "price": dec("-2")},
			"zset put board:x <1> <-2>\n",
		},
		{
			"update that moves it",
			row{"id": 1, "name": "x", "price": dec("1")},
			row{"id": 1, "name": "y", "price": dec("1")},
			"zset put board:y <1> <1>\nzset remove board:x <1>\n",
		},
		{"delete", row{"id": 1, "name": "x", "price": dec("1")}, nil, "zset remove board:x <1>\n"},
		{"a score of NULL", nil, row{"id": 1, "name": "x", "price": null{}}, "zset remove board:x <1>\n"},
		{"an absent score", nil, row{"id": 1, "name": "x"}, "zset forget board:x\n"},
		{"a score that is no number", nil, row{"id": 1, "name": "x", "price": "ten"}, "zset forget board:x\n"},
		{"nor this", nil, row{"id": 1, "name": "x", "price": "nan"}, "zset forget board:x\n"},
		{"nor this one", nil, row{"id": 1, "name": "x", "price": "1e999"}, "zset forget board:x\n"},
	})
	unscored := scored.With(func(m *spectest.Mapping) {
		m.ZSet = &spec.ZSet{Key: spectest.Text("board:{name}", 5), Member: spectest.Text("{id}", 6)}
	})
	follow(t, unscored, []step{
		{"insert: its score is not known", nil, row{"id": 1, "name": "x"}, "zset forget board:x\n"},
		{"update", row{"id": 1, "name": "x"}, row{"id": 1, "name": "y"}, "zset forget board:y\nzset remove board:x <1>\n"},
		{"delete", row{"id": 1, "name": "x"}, nil, "zset remove board:x <1>\n"},
	})
}

func TestExpire(t *testing.T) {
	m := spectest.Mapping{
		Table: spectest.Text("shop.product", 1),
		Expire: &spec.Expire{
			Keys: []spec.Text{spectest.Text("a:{id}", 5), spectest.Text("b:{name}", 6)},
			In:   5 * time.Second,
		},
	}
	follow(t, m, []step{
		{
			"update",
			row{"id": 1, "name": "x"},
			row{"id": 1, "name": "y"},
			"expire forget a:1\nexpire forget b:y\nexpire forget b:x\n",
		},
		{"NULL and absent", nil, row{"name": null{}}, ""},
	})
}

// A live row that becomes a draft, or goes, leaves the set of what is kept, though the predicate is false for that
// change.
func TestARowThatLeavesWhatWhenSelectsIsRemoved(t *testing.T) {
	live, dead := row{"id": 1, "name": "x", "status": "live"}, row{"id": 1, "name": "x", "status": "dead"}
	gone := row{"id": 1, "name": "x", "status": null{}}
	for _, when := range []string{"row.status == 'live'", "row.status == 'live' || old.status == 'live'"} {
		both := strings.Contains(when, "old")
		m := spectest.Keys("p:{id}").If(when).With(func(m *spectest.Mapping) {
			m.Rebuild = spectest.FromRow(event.FormJSON, "id")
			m.Set = &spec.Set{Key: spectest.Text("live", 8), Member: spectest.Text("{id}", 9)}
			m.Hash = &spec.Hash{
				Key: spectest.Text("h", 10), Field: spectest.Text("{id}", 11),
				Value: spectest.Text("{name}", 12),
			}
		})
		const put = "rebuild put p:1 <{\"id\":1}>\nhash put h <1> <x>\nset put live <1>\n"
		const remove = "rebuild remove p:1\nhash remove h <1>\nset remove live <1>\n"
		steps := []step{
			{"in", nil, live, put},
			{"out", nil, dead, ""},
			{"becomes one", dead, live, put},
			{"stays one", live, live, put},
			{"ceases to be one", live, dead, remove},
			{"was none and is none", dead, dead, ""},
			{"ceases by NULL", live, gone, remove},
			{"goes", live, nil, remove},
			{"one that was none goes", dead, nil, ""},
		}
		t.Run(fmt.Sprint(both), func(t *testing.T) { follow(t, m, steps) })
	}
}

func TestAPredicateThatFailsWritesNothing(t *testing.T) {
	m := spectest.Keys("p:{id}").If("row.category_id > 5").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormJSON, "id")
	})
	at := func(n any) row { return row{"id": 1, "category_id": n} }
	follow(t, m, []step{
		{"put", nil, at(6), "rebuild put p:1 <{\"id\":1}>\n"},
		{"fails", nil, at(null{}), "rebuild forget p:1\n"},
		{"fails for the new row", at(6), at(null{}), "rebuild forget p:1\n"},
		{"fails for the old row alone", at(null{}), at(4), "rebuild remove p:1\n"},
		{"row is nil in a DELETE, which fails", at(6), nil, "rebuild remove p:1\n"},
	})
	r := mustNew(t, spectest.Keys("p:{id}").If("row.statsu == 'x'").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormJSON, "id")
	}))
	f := &feed{t: t, r: r, table: spectest.Product()}
	if _, err := r.Bind(f.table); err == nil {
		t.Fatal("no error")
	}
	if f.change(nil, at(6)); f.items() != "rebuild forget p:1\n" {
		t.Error("a predicate that cannot be bound let a value be written")
	}
}

// A mapping that only forgets takes the predicate at its word, as ever.
func TestWhenOfAMappingThatWritesNothingIsAboutTheChange(t *testing.T) {
	m := spectest.Keys("p:{id}").If("row.status == 'live'").With(func(m *spectest.Mapping) {
		m.Hash = &spec.Hash{Key: spectest.Text("h", 6), Field: spectest.Text("{id}", 7)}
	})
	live, dead := row{"id": 1, "status": "live"}, row{"id": 1, "status": "dead"}
	follow(t, m, []step{
		{"ceases to be one", live, dead, ""},
		{"goes", live, nil, ""},
		{"is one", dead, live, "delete forget p:1\nhash forget h <1>\n"},
	})
}

func TestNotices(t *testing.T) {
	m := spectest.Keys("p:{id}", "s:{sku}").With(func(m *spectest.Mapping) {
		m.Publish = &spec.Publish{
			Channel: spectest.Text("changed:{category_id}", 8),
			Message: spectest.Text("{id}:{name}", 9),
		}
		m.Stream = &spec.Stream{Key: spectest.Text("changes:{category_id}", 10), MaxLen: 100}
	})
	a := row{"id": 1, "sku": "a", "category_id": 5, "name": "x"}
	b := row{"id": 1, "sku": "b", "category_id": 6, "name": "y"}
	follow(t, m, []step{
		{"update", a, b, `
delete forget p:1 <changed:6> <1:y> <changes:6>
delete forget s:b <changed:6> <1:y> <changes:6>
delete forget s:a <changed:5> <1:x> <changes:5>
`},
		{"a message of NULL is none", nil, row{"id": 1, "sku": "a", "category_id": 5, "name": null{}}, `
delete forget p:1 NULL NULL <changes:5>
delete forget s:a NULL NULL <changes:5>
`},
		{"nor is one that cannot be made", nil, row{"id": 1, "sku": "a", "name": "x"}, `
delete forget p:1 NULL NULL NULL
delete forget s:a NULL NULL NULL
`},
	})
	rebuilt := m.With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormJSON, "id")
		m.Stream = nil
		m.Keys = m.Keys[:1]
	})
	follow(t, rebuilt, []step{
		{"put", nil, a, "rebuild put p:1 <changed:5> <1:x> <{\"id\":1}>\n"},
		{"remove", a, nil, "rebuild remove p:1 <changed:5> <1:x>\n"},
	})
}

func TestOneMappingDoesEverythingInAFixedOrder(t *testing.T) {
	m := spectest.Keys("k:{id}").With(func(m *spectest.Mapping) {
		m.Incr = spectest.Text("gen", 6)
		m.Expire = &spec.Expire{Keys: []spec.Text{spectest.Text("e", 7)}, In: time.Second}
		m.ZSet = &spec.ZSet{Key: spectest.Text("z", 8), Member: spectest.Text("{id}", 9), Score: spectest.Text("{price}", 10)}
		m.Set = &spec.Set{Key: spectest.Text("s", 11), Member: spectest.Text("{id}", 12)}
		m.Hash = &spec.Hash{Key: spectest.Text("h", 13), Field: spectest.Text("{id}", 14)}
		m.RateLimit = 50
	})
	f := newFeed(t, mustNew(t, m, spectest.Keys("l:{id}")), spectest.Product())
	f.change(nil, row{"id": 1, "price": dec("2")})
	if got := f.batch.Origin(0).RateLimit; got != 50 {
		t.Errorf("rate limit %d, want 50", got)
	}
	want := "delete forget k:1\nhash forget h <1>\nset put s <1>\nzset put z <1> <2>\nexpire forget e\ndelete forget " +
		"l:1\nincr forget gen\n"
	if diff := cmp.Diff(want, f.items()); diff != "" {
		t.Error(diff)
	}
}

// The same key of two mappings is two invalidations where what is done to it differs, and one where it does not.
func TestTheSameKeyOfTwoActionsIsTwo(t *testing.T) {
	rebuild := spectest.Keys("k:{id}").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormJSON,
			"id")
	})
	field := func(f string) spectest.Mapping {
		return spectest.Mapping{
			Table: spectest.Text("shop.product", 1),
			Hash:  &spec.Hash{Key: spectest.Text("k:{id}", 5), Field: spectest.Text(f, 6)},
		}
	}
	f := newFeed(t, mustNew(t, spectest.Keys("k:{id}"), rebuild, field("a"), field("b"),
		spectest.Keys("k:{id}", "k:{category_id}")), spectest.Product())
	f.change(nil, row{"id": 1, "category_id": 1})
	want := "delete forget k:1\nrebuild put k:1 <{\"id\":1}>\nhash forget k:1 <a>\nhash forget k:1 <b>\n"
	if diff := cmp.Diff(want, f.items()); diff != "" {
		t.Error(diff)
	}
}

// Whatever comes first: a delete is not taken for done because the key is rebuilt.
func TestADeleteBehindARebuildOfTheSameKeyStays(t *testing.T) {
	rebuild := spectest.Keys("k:{id}").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormJSON,
			"id")
	})
	f := newFeed(t, mustNew(t, rebuild, spectest.Keys("k:{id}")), spectest.Product())
	f.change(nil, row{"id": 1})
	if diff := cmp.Diff("rebuild put k:1 <{\"id\":1}>\ndelete forget k:1\n", f.items()); diff != "" {
		t.Error(diff)
	}
}

func TestManyCopiesOfAnEffectAreToldApart(t *testing.T) {
	m := spectest.Mapping{
		Table: spectest.Text("shop.product", 1),
		Set:   &spec.Set{Key: spectest.Text("{name}:{0..999}", 5), Member: spectest.Text("{id}", 6)},
	}
	f := newFeed(t, mustNew(t, m, spectest.Keys("x:{0..999}")), spectest.Product())
	f.change(row{"id": 1, "name": "x"}, row{"id": 2, "name": "x"})
	if n := f.batch.Len(); n != 3000 {
		t.Errorf("%d invalidations, want 1000 puts, 1000 removes and 1000 deletes", n)
	}
}

func TestColumnsThatTheServerHidesAreNoPartOfAValue(t *testing.T) {
	m := spectest.Keys("k:{id}")
	m.Rebuild = spectest.FromRow(event.FormJSON)
	r := mustNew(t, m)
	table := &event.Table{Schema: "shop", Name: "product", Columns: []event.Column{
		{Name: "id", Type: "bigint unsigned", Class: event.ClassInt, Unsigned: true},
		{Name: "row_end", Type: "timestamp(6)", Class: event.ClassTemporal, Hidden: true},
		{Name: "DB_ROW_HASH_1", Type: "bigint unsigned", Class: event.ClassInt, Unsigned: true, Hidden: true},
	}}
	needs, err := r.Bind(table)
	if err != nil {
		t.Fatal(err)
	}
	if len(needs) != 1 || needs[0].Column != 0 {
		t.Errorf("a value of the whole row needs the columns %v, want the first only", needs)
	}
}
