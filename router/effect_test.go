package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

func TestWhatIsNotWrittenIsCountedAndTold(t *testing.T) {
	var h heard
	m := spectest.Everything(spectest.Keys("k:{id}"))
	r, err := New(spectest.Specs(m), Options{Reporter: &h})
	if err != nil {
		t.Fatal(err)
	}
	f := newFeed(t, r, spectest.Product())
	f.change(nil, row{"id": 1, "category_id": 2, "sku": "a"}) // no name
	want := heard{
		"1 f.yaml:20:5: a row image of shop.product lacks column name, so what it makes was deleted instead of written: set binlog_row_image=FULL, in every session that writes to the table",
		"1 f.yaml:32:10: a row image of shop.product lacks column name, so what it makes was deleted instead of written: set binlog_row_image=FULL, in every session that writes to the table",
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Error(diff)
	}
	h = nil
	f.change(nil, row{"id": 1, "category_id": 2, "name": "x"}) // no sku
	if len(h) != 4 || !strings.Contains(h.String(),
		"f.yaml:34:10: a row image of shop.product lacks column sku, so the whole key was deleted") ||
		!strings.Contains(h.String(),
			"f.yaml:41:15: a row image of shop.product lacks column sku, so nothing was published") {
		t.Errorf("heard %s", &h)
	}
	h = nil
	f.change(nil, row{"id": "x", "category_id": 2, "name": strings.Repeat("x", MaxValue+1), "sku": "a"})
	for _, part := range []string{
		"4 f.yaml:20:5: a row of shop.product made a value larger than 256 KiB, so what it makes was deleted instead of written: name the columns that the value needs",
		"4 f.yaml:32:10: a row of shop.product made a value longer than 256 KiB, so what it makes was deleted instead of written",
		"5 f.yaml:37:10: a row of shop.product made a score that is no number, so the whole key was deleted: take a number column",
	} {
		if !strings.Contains(h.String(), part) {
			t.Errorf("heard %s\nwhich lacks %s", &h, part)
		}
	}
	c := r.mappings[0].meters
	for reason, want := range map[reason]float64{columnAbsent: 2 + 3, valueLarge: 2, noScore: 1, valueNull: 0} {
		if reason == columnAbsent {
			want = 2 + 3 // the value and the field; then the value, the set and the sorted set
		}
		if got := testutil.ToFloat64(c.forgotten[reason]); got != want {
			t.Errorf("%v forgotten as %s, want %v", got, reason.label(), want)
		}
	}
	if got := testutil.ToFloat64(c.unsent[columnAbsent]); got != 1 {
		t.Errorf("%v unsent, want 1", got)
	}
}

func TestEveryActionOfAMappingHasOneEffect(t *testing.T) {
	m := spectest.Everything(spectest.Keys("k:{id}", "l:{id}"))
	r := mustNew(t, m)
	f := newFeed(t, r, spectest.Product())
	full := row{"id": 1, "category_id": 2, "sku": "a", "name": "x"}
	f.change(nil, full)
	f.change(nil, full)
	if n := len(f.batch.Effects); n != 6 {
		t.Errorf("%d effects, want those of rebuild, hash, set, zset, expire and incr", n)
	}
	want := event.Effect{
		Publish: true, Stream: true, TTL: time.Hour, Jitter: 0.1, ExpireAt: time.Minute, Missing: true, MissingValue: "none",
		MissingTTL: 30 * time.Second,
	}
	if diff := cmp.Diff(want, *f.batch.EffectOf(0)); diff != "" {
		t.Error(diff)
	}
	first := f.batch.EffectOf(0)
	f.batch.Reset()
	f.change(nil, full)
	if f.batch.EffectOf(0) != first {
		t.Error("another batch has another effect")
	}
}

func TestRebuildAsksForTheColumnsThatItHolds(t *testing.T) {
	m := spectest.Keys("k:{id}").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormJSON, "extra",
			"price")
	})
	needs, err := mustNew(t, m).Bind(spectest.Product())
	if diff := cmp.Diff([]event.Need{{Column: 0, Text: true}, {Column: 3, Text: true}, {Column: 9, Text: true}},
		needs); diff != "" || err != nil {
		t.Error(err, diff)
	}
	all := spectest.Keys("k:{id}").With(func(m *spectest.Mapping) { m.Rebuild = spectest.FromRow(event.FormJSON) })
	if needs, err := mustNew(t, all).Bind(spectest.Product()); len(needs) != len(spectest.Product().Columns) ||
		err != nil {
		t.Errorf("%d needs, %v", len(needs), err)
	}
}

// `columns` leaves out updates on purpose; but never one that moves a member, or changes a score that the mapping
// names.
func TestColumnsThatTheActionsNameAlwaysCount(t *testing.T) {
	m := spectest.Mapping{
		Table: spectest.Text("shop.product", 1),
		ZSet: &spec.ZSet{
			Key: spectest.Text("z", 5), Member: spectest.Text("{sku}", 6),
			Score: spectest.Text("{price}", 7),
		},
	}.Of("status")
	base := func() row { return row{"sku": "a", "price": dec("1"), "status": "x", "name": "n"} }
	for column, want := range map[string]int{"sku": 2, "price": 1, "status": 1, "name": 0} {
		f := newFeed(t, mustNew(t, m), spectest.Product())
		changed := base()
		changed[column] = "2"
		f.change(base(), changed)
		if got := f.batch.Len(); got != want {
			t.Errorf("%s changed: %d invalidations, want %d", column, got, want)
		}
	}
}

func TestActionsThatCannotBe(t *testing.T) {
	m := spectest.Keys("k:{id}:{0..99}").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormJSON, "id", "name as id", "`a b`x", "name is x", "sku as", "sku as expire_at")
		m.Rebuild.ExpireAt = time.Second
		m.Hash = &spec.Hash{
			Key: spectest.Text("h:{id", 30), Field: spectest.Text("{0..3}", 31),
			Value: spectest.Text("{id|lowre}", 32),
		}
		m.Publish = &spec.Publish{Channel: spectest.Text("c{", 40), Message: spectest.Text("{}", 41)}
	})
	q := spectest.Mapping{
		Pos: spec.At("g.yaml", 1, 1), Table: spectest.Text("shop.product", 1),
		Rebuild: &spec.Rebuild{Query: spectest.Text("delete from x", 3)}, Keys: []spec.Text{spectest.Text("k", 2)},
	}
	none := spectest.Mapping{
		Pos: spec.At("h.yaml", 1, 1), Table: spectest.Text("shop.product", 1),
		Stream: &spec.Stream{Key: spectest.Text("x", 2)},
		Set:    &spec.Set{Key: spectest.Text("s", 3), Member: spectest.Text("m", 4)},
	}
	_, err := New(spectest.Specs(m, q, none), Options{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`f.yaml:5:10: key "k:{id}:{0..99}": it makes 100 copies, each with a value or a message: write at most 64 copies`,
		`f.yaml:22:10: column "name as id": "id" comes twice: give one of them another name: "name as id2"`,
		`f.yaml:23:15: column "` + "`a b`x" +
			`": unexpected "x": write a column, or a column and its name in the value: "user_name as userName"`,
		`f.yaml:24:15: column "name is x": unexpected "is x"`,
		`f.yaml:25:16: column "sku as": a name is missing: write a column's name`,
		`f.yaml:26:10: column "sku as expire_at": expire_at is the name of what expire_at puts there: give the column another name`,
		`f.yaml:30:12: key "h:{id": the { has no }`,
		`f.yaml:31:10: field "{0..3}": copies are for keys: remove {0..3}`,
		`f.yaml:32:14: value "{id|lowre}": unknown filter "lowre": did you mean "lower"?`,
		`f.yaml:40:11: channel "c{": the { has no }`,
		`f.yaml:41:10: message "{}": the braces name no column`,
		`f.yaml:3:10: query: `,
		`h.yaml:1:1: rebuild, publish and stream are about keys, and the mapping has none`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
}

func TestActionsThatDoNotFitTheTable(t *testing.T) {
	table := spectest.Product()
	table.Columns = append(table.Columns, event.Column{Name: "expire_at", Type: "datetime", Class: event.ClassTemporal})
	all := spectest.Keys("k:{id}").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormJSON)
		m.Rebuild.ExpireAt = time.Second
	})
	some := spectest.Keys("k:{id}").With(func(m *spectest.Mapping) {
		m.Rebuild = spectest.FromRow(event.FormHash, "nmae", "extra as more")
	})
	query := spectest.Keys("k:{id}").With(func(m *spectest.Mapping) {
		m.Rebuild = &spec.Rebuild{Query: spectest.Text("select 1 from x where a = :idd and b = :extra", 20)}
	})
	board := spectest.Mapping{
		Table: spectest.Text("shop.product", 1),
		ZSet: &spec.ZSet{
			Key: spectest.Text("z:{extra}", 30), Member: spectest.Text("{extra}", 31),
			Score: spectest.Text("{expire_at}", 32),
		},
	}
	r := mustNew(t, all, some, query, board)
	_, err := r.Bind(table)
	var ps spec.Problems
	if !errors.As(err, &ps) {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"f.yaml:20:5: rebuild: table shop.product has a column expire_at, which is the name of what expire_at puts there",
		`f.yaml:21:10: column: table shop.product has no column "nmae": did you mean "name"?`,
		`f.yaml:20:36: query: table shop.product has no column "idd": did you mean "id"?`,
		`f.yaml:30:12: key "z:{extra}": column extra of shop.product is JSON, which cannot be part of a key`,
		`f.yaml:31:10: member "{extra}": column extra of shop.product is JSON, which cannot be part of a member`,
		`f.yaml:32:10: score "{expire_at}": column expire_at of shop.product is DATETIME, which is no number, as a score must be`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
	// Going on regardless forgets what cannot be made.
	f := &feed{t: t, r: r, table: table}
	f.change(nil, row{"id": 1, "name": "x"})
	if got := f.items(); got != strings.Repeat("rebuild forget k:1\n", 3) {
		t.Errorf("got\n%s", got)
	}
}

// A replay of the same changes gives the same invalidations, whatever the router did before.
func TestAReplayGivesTheSame(t *testing.T) {
	table := spectest.Product()
	rapid.Check(t, func(t *rapid.T) {
		when := rapid.SampledFrom([]string{"", "row.name == 'a'", "row.name != old.name", "row.id > 0 || old.id > 0"}).Draw(t,
			"when")
		m := spectest.Everything(spectest.Keys("k:{id}", "l:{category_id}"))
		if when != "" {
			m = m.If(when)
		}
		type change struct{ old, row row }
		var changes []change
		for i := range rapid.IntRange(1, 12).Draw(t, "changes") {
			c := change{drawRow(t, fmt.Sprint("old ", i)), drawRow(t, fmt.Sprint("row ", i))}
			switch rapid.IntRange(0, 2).Draw(t, "op") {
			case 0:
				c.old = nil
			case 1:
				c.row = nil
			}
			changes = append(changes, c)
		}
		cut := rapid.IntRange(0, len(changes)).Draw(t, "cut")
		play := func(r *Router) string {
			f := &feed{r: r, table: table}
			_, _ = r.Bind(table)
			var out strings.Builder
			for i, c := range changes {
				f.change(c.old, c.row)
				if i == cut { // a batch is handed on in between
					out.WriteString(f.items())
				}
			}
			out.WriteString(f.items())
			return out.String()
		}
		r, err := New(spectest.Specs(m), Options{})
		if err != nil {
			t.Fatal(err)
		}
		first := play(r)
		if again := play(r); again != first {
			t.Fatalf("the same router:\n%s", cmp.Diff(first, again))
		}
		other, err := New(spectest.Specs(m), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if again := play(other); again != first {
			t.Fatalf("another router:\n%s", cmp.Diff(first, again))
		}
	})
}

func TestActionsAllocateNothing(t *testing.T) {
	m := spectest.Everything(spectest.Keys("k:{id}"))
	old := row{"id": 1, "category_id": 2, "sku": "a", "name": "x"}
	now := row{"id": 1, "category_id": 3, "sku": "b", "name": "y"}
	run := routed(t, old, now, m)
	for range 5000 {
		run()
	}
	if n := testing.AllocsPerRun(2000, run); n > 1 {
		t.Errorf("%v allocations a row, want none but those of the memory for counters", n)
	}
}
