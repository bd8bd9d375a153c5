package router

import (
	"fmt"
	"maps"
	"slices"
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

func TestBothImagesOfAnUpdateCount(t *testing.T) {
	f := newFeed(t, mustNew(t, spectest.Keys("product:{id}", "category:{category_id}:products")), spectest.Product())
	f.change(nil, row{"id": 1, "category_id": 5})
	f.change(row{"id": 1, "category_id": 5}, row{"id": 1, "category_id": 6})
	f.change(row{"id": 1, "category_id": 6}, row{"id": 2, "category_id": 6})
	f.change(row{"id": 2, "category_id": 6}, nil)
	want := []string{
		"product:1", "category:5:products",
		"product:1", "category:5:products", "category:6:products",
		"product:1", "product:2", "category:6:products",
		"product:2", "category:6:products",
	}
	if diff := cmp.Diff(want, f.keys()); diff != "" {
		t.Error(diff)
	}
}

func TestAMappingIsForItsEventsOnly(t *testing.T) {
	for _, c := range []struct {
		events   spec.Events
		want     string
		filtered float64
	}{
		{spec.Events{}, "1 2 3 4", 0},
		{spec.Events{Insert: true}, "1", 2},
		{spec.Events{Update: true}, "2 3", 2},
		{spec.Events{Delete: true}, "4", 2},
		{spec.Events{Insert: true, Delete: true}, "1 4", 1},
	} {
		r := mustNew(t, spectest.Keys("{id}").For(c.events))
		f := newFeed(t, r, spectest.Product())
		f.change(nil, row{"id": 1})
		f.change(row{"id": 2}, row{"id": 3})
		f.change(row{"id": 4}, nil)
		if got := strings.Join(f.keys(), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.events, got, c.want)
		}
		if n := testutil.ToFloat64(r.mappings[0].meters.filtered[wrongEvent]); n != c.filtered {
			t.Errorf("%+v: %v rows counted as filtered, want %v", c.events, n, c.filtered)
		}
	}
}

func TestAnUpdateCountsOnlyIfOneOfItsColumnsChanged(t *testing.T) {
	old := row{"id": 1, "category_id": 5, "name": "a", "price": dec("1.00"), "sku": null{}}
	changed := func(name string, v any) row {
		m := maps.Clone(old)
		if m[name] = v; v == nil {
			delete(m, name)
		}
		return m
	}
	for _, c := range []struct {
		what string
		row  row
		want int
	}{
		{"nothing", old, 0},
		{"a column that is not named", changed("price", dec("2.00")), 0},
		{"a named column", changed("name", "b"), 1},
		{"a named column to NULL", changed("name", null{}), 1},
		{"a named column that was NULL and is", changed("sku", null{}), 0},
		{"a named column that is absent", changed("sku", nil), 1},
		{"a key column", changed("id", 2), 2},
		{"a column of another key of the mapping", changed("category_id", 6), 2},
	} {
		f := newFeed(t, mustNew(t, spectest.Keys("{id}", "{id}:{category_id}").Of("NAME", "sku")), spectest.Product())
		f.change(old, c.row)
		got := f.keys()
		if (len(got) == 0) != (c.want == 0) {
			t.Errorf("%s changed: %q", c.what, got)
		}
	}
	f := newFeed(t, mustNew(t, spectest.Keys("{id}").Of("name")), spectest.Product())
	f.change(nil, old)
	f.change(old, nil)
	if got := f.keys(); len(got) != 2 {
		t.Errorf("insert and delete: %q, want both", got)
	}
	f = newFeed(t, mustNew(t, spectest.Keys("{id}").Of("name")), spectest.Product())
	f.change(row{"id": 1}, row{"id": 1, "price": dec("2.00")})
	if got := f.keys(); len(got) == 0 {
		t.Error("a named column that both images lack does not count")
	}
}

func TestNullMakesNoKeyAndIsCounted(t *testing.T) {
	r := mustNew(t, spectest.Keys("sku:{sku}:{0..3}", "id:{id}", "or:{sku|default:none}"))
	f := newFeed(t, r, spectest.Product())
	f.change(row{"id": 1, "sku": "x"}, row{"id": 1, "sku": null{}})
	if diff := cmp.Diff([]string{"sku:x:0", "sku:x:1", "sku:x:2", "sku:x:3", "id:1", "or:x", "or:none"},
		f.keys()); diff != "" {
		t.Error(diff)
	}
	if n := testutil.ToFloat64(r.mappings[0].meters.null); n != 1 {
		t.Errorf("%v keys counted as NULL, want 1", n)
	}
}

func TestAnAbsentColumnMakesNoKeyAndIsReported(t *testing.T) {
	var h heard
	r, err := New(spectest.Specs(spectest.Keys("sku:{sku|default:none}", "id:{id}")), Options{Reporter: &h})
	if err != nil {
		t.Fatal(err)
	}
	f := newFeed(t, r, spectest.Product())
	f.change(row{"id": 1}, row{"id": 1, "sku": "x"})
	f.change(row{"id": 2, "sku": struct{}{}}, nil) // a value without a text
	if diff := cmp.Diff([]string{"sku:x", "id:1", "id:2"}, f.keys()); diff != "" {
		t.Error(diff)
	}
	want := `1 f.yaml:5:14: a row image of shop.product lacks column sku, so a key of "sku:{sku|default:none}" was not deleted: set binlog_row_image=FULL, in every session that writes to the table`
	if diff := cmp.Diff(heard{want, want}, h); diff != "" {
		t.Error(diff)
	}
	if n := testutil.ToFloat64(r.mappings[0].meters.absent); n != 2 {
		t.Errorf("%v keys counted as absent, want 2", n)
	}
}

// MariaDB 11.8 logs a column that an expression makes with an INSERT only. What needs it is reported each time, with
// advice that helps there.
func TestAComputedColumnThatRowsLackIsReportedWithAdviceThatHelps(t *testing.T) {
	var h heard
	r, err := New(spectest.Specs(spectest.Keys("sku:{sku|default:none}", "id:{id}")), Options{Reporter: &h})
	if err != nil {
		t.Fatal(err)
	}
	table := spectest.Product()
	table.Columns[table.Column("sku")].Computed = true
	f := newFeed(t, r, table)
	f.change(nil, row{"id": 1, "sku": "x"})
	f.change(row{"id": 1}, row{"id": 1})
	f.change(row{"id": 1}, nil)
	if diff := cmp.Diff([]string{"sku:x", "id:1", "id:1", "id:1"}, f.keys()); diff != "" {
		t.Error(diff)
	}
	want := `1 f.yaml:5:14: a row image of shop.product lacks column sku, so a key of "sku:{sku|default:none}" was not deleted: take the columns that it is computed from, or a plain one that a BEFORE trigger fills, since MariaDB 11.8 leaves computed columns out of row images; older versions need binlog_row_image=FULL`
	if diff := cmp.Diff(heard{want, want, want}, h); diff != "" { // both images of the UPDATE
		t.Error(diff)
	}
}

func TestAKeyIsAtMost64KiBLong(t *testing.T) {
	var h heard
	r, err := New(spectest.Specs(spectest.Keys("n:{name}:{0..1}", "u:{name|upper}", "m:{name|md5}", "id:{id}")),
		Options{Reporter: &h})
	if err != nil {
		t.Fatal(err)
	}
	f := newFeed(t, r, spectest.Product())
	f.change(nil, row{"id": 1, "name": strings.Repeat("x", MaxKey-4)})
	if got := f.keys(); len(got) != 5 || len(got[0]) != MaxKey {
		t.Errorf("%d keys, the first of %d bytes", len(got), len(got[0]))
	}
	f.change(nil, row{"id": 1, "name": strings.Repeat("x", MaxKey-1)})
	f.change(nil, row{"id": 1, "name": strings.Repeat("x", 1<<20)})
	if got := f.keys(); len(got) != 4 || got[1] != "id:1" || len(got[0]) != 34 {
		t.Errorf("%d keys: %.50q", len(got), got)
	}
	if len(h) != 4 || !strings.HasPrefix(h[0], "2 f.yaml:5:10: a row of shop.product made a key longer than 64 KiB") {
		t.Errorf("heard %q", h)
	}
	if n := testutil.ToFloat64(r.mappings[0].meters.long); n != 4 {
		t.Errorf("%v keys counted as long, want 4", n)
	}
}

func TestOneRowYieldsAKeyOnce(t *testing.T) {
	r := mustNew(t,
		spectest.Keys("a:{id}", "a:{category_id}", "b:{id}").D(time.Second),
		spectest.Keys("a:{id}", "c:{id}").D(5*time.Second),
		spectest.Keys("c:{id}", "d:{id}"))
	f := newFeed(t, r, spectest.Product())
	f.change(row{"id": 1, "category_id": 1}, row{"id": 1, "category_id": 2})
	f.change(nil, row{"id": 1, "category_id": 1})
	b := f.batch.Clone()
	var got []string
	for i := range b.Len() {
		o := b.Origin(int(b.Invalidations[i].Origin))
		got = append(got, fmt.Sprintf("%s D=%s mapping %d at %s", b.Key(i), o.D, o.Mapping, b.Version(i)))
	}
	want := []string{
		"a:1 D=5s mapping 1 at 1/1/100/1", "a:2 D=1s mapping 0 at 1/1/100/1", "b:1 D=1s mapping 0 at 1/1/100/1",
		"c:1 D=5s mapping 1 at 1/1/100/1", "d:1 D=0s mapping 2 at 1/1/100/1",
		"a:1 D=5s mapping 1 at 1/1/200/1", "b:1 D=1s mapping 0 at 1/1/200/1", "c:1 D=5s mapping 1 at 1/1/200/1",
		"d:1 D=0s mapping 2 at 1/1/200/1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRowsOfOneEventShareTheirMappingsOrigin(t *testing.T) {
	r := mustNew(t, spectest.Keys("a:{id}"), spectest.Keys("b:{id}").D(time.Second))
	f := newFeed(t, r, spectest.Product())
	f.change(nil, row{"id": 1})
	f.same(nil, row{"id": 2})
	f.same(nil, row{"id": 3})
	f.change(nil, row{"id": 4})
	b := f.batch.Clone()
	if len(b.Origins) != 4 || b.Len() != 8 {
		t.Fatalf("%d origins of %d invalidations, want 4 of 8", len(b.Origins), b.Len())
	}
	for i := range b.Len() {
		o := b.Origin(int(b.Invalidations[i].Origin))
		if o.Table != "shop.product" || o.Event.Row != 0 || o.Mapping != i%2 ||
			b.Version(i).Row != []uint32{1, 2, 3, 1}[i/2] {
			t.Errorf("%s: %+v", b.Key(i), o)
		}
	}
	if b.Last != (event.Version{Epoch: 1, File: 1, Pos: 200, Row: 1}) {
		t.Errorf("last is %s", b.Last)
	}
	// The batch is handed on in the middle of an event: its next row needs its origin again.
	f.batch.Reset()
	f.same(nil, row{"id": 5})
	f.same(nil, row{"id": 6})
	if len(f.batch.Origins) != 2 {
		t.Errorf("%d origins after the batch was emptied, want 2", len(f.batch.Origins))
	}
}

func TestTablesOfOnePayloadDoNotShareOrigins(t *testing.T) {
	r := mustNew(t, spectest.Keys("o:{id}").On("shop.order_*"))
	var b event.Batch
	var tables []*event.Table
	for _, name := range []string{"order_1", "order_2"} {
		t1 := spectest.Product()
		t1.Name = name
		tables = append(tables, t1)
	}
	for i := range 4 {
		t1 := tables[i%2]
		if _, err := r.Bind(t1); err != nil {
			t.Fatal(err)
		}
		r.Route(&b, &event.Change{
			Table: t1, Tx: &event.Tx{}, Op: event.Insert, After: []event.Value{value(i)},
			Version: event.Version{Pos: 4, Row: uint32(i + 1)},
		})
	}
	for i := range b.Len() {
		if got, want := b.Of(i).Table, tables[i%2].String(); got != want {
			t.Errorf("row %d is of %s, want %s", i, got, want)
		}
	}
	if len(b.Origins) != 2 {
		t.Errorf("%d origins, want 2", len(b.Origins))
	}
}

func TestManyKeysOfOneRowAreDeduplicatedToo(t *testing.T) {
	r := mustNew(t, spectest.Keys("{id}:{0..999}"), spectest.Keys("{category_id}:{500..1499}").D(time.Second),
		spectest.Keys("{id}:{0..3}"))
	f := newFeed(t, r, spectest.Product())
	for range 3 {
		f.change(nil, row{"id": 7, "category_id": 7})
	}
	b := f.batch.Clone()
	seen := map[string]int{}
	for i := range b.Len() {
		seen[b.Key(i)]++
	}
	if len(seen) != 1500 || b.Len() != 4500 {
		t.Fatalf("%d keys, %d of them different, want 4500 and 1500", b.Len(), len(seen))
	}
	for i := range b.Len() {
		var n int
		fmt.Sscanf(b.Key(i), "7:%d", &n)
		want := time.Duration(0)
		if n >= 500 {
			want = time.Second
		}
		if d := b.Of(i).D; d != want {
			t.Fatalf("%s has D %s, want %s", b.Key(i), d, want)
		}
	}
}

func TestATableThatNoMappingMatchesYieldsNothing(t *testing.T) {
	r := mustNew(t, spectest.Keys("{id}"))
	other := spectest.Product()
	other.Name = "other"
	if needs, err := r.Bind(other); needs != nil || err != nil {
		t.Fatalf("needs %v, %v, want none", needs, err)
	}
	var b event.Batch
	r.Route(&b, &event.Change{Table: other, Tx: &event.Tx{}, Op: event.Insert})
	if b.Len() != 0 || len(b.Origins) != 0 {
		t.Errorf("routed %v", batchKeys(&b))
	}
}

// The plans of definitions that were forgotten are made again, the same.
func TestAnyNumberOfDefinitionsCanBeBound(t *testing.T) {
	r := mustNew(t, spectest.Keys("{id}:{sku}"))
	first := newFeed(t, r, spectest.Product())
	for range 5000 {
		if _, err := r.Bind(spectest.Product()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.plans.of); n != 1 {
		t.Errorf("%d plans of one table are kept", n)
	}
	first.change(nil, row{"id": 1, "sku": "x"})
	if got := first.keys(); len(got) != 1 || got[0] != "1:x" {
		t.Errorf("got %q", got)
	}
}

// drawRow draws an image: some columns are NULL, and some absent.
func drawRow(t *rapid.T, name string) row {
	r := row{}
	ints := rapid.Custom(func(t *rapid.T) any { return rapid.IntRange(-2, 2).Draw(t, "int") })
	texts := rapid.Custom(func(t *rapid.T) any {
		return rapid.SampledFrom([]string{"", "a", "A", ":", "1"}).Draw(t,
			"text")
	})
	for column, g := range map[string]*rapid.Generator[any]{"id": ints, "category_id": ints, "name": texts, "sku": texts} {
		switch rapid.IntRange(0, 5).Draw(t, name+" "+column) {
		case 0:
			r[column] = null{}
		case 1:
		default:
			r[column] = g.Draw(t, name+" value")
		}
	}
	return r
}

// naive is what the mapping language says of one template and one image, without any plan.
func naive(tmpl []string, r row) []string {
	key := ""
	for _, p := range tmpl {
		column, isColumn := strings.CutPrefix(p, "$")
		if !isColumn {
			key += p
			continue
		}
		column, filter, _ := strings.Cut(column, "|")
		v, ok := r[column]
		if !ok {
			return nil
		}
		text := fmt.Sprint(v)
		if _, isNull := v.(null); isNull {
			if filter != "default:z" {
				return nil
			}
			text = "z"
		}
		if filter == "lower" {
			text = strings.ToLower(text)
		}
		key += text
	}
	return []string{key}
}

// Whatever the rows: an UPDATE yields the keys of both images, each once, and never one of NULL or of an absent
// column.
func TestRouteYieldsTheUnionOfBothImages(t *testing.T) {
	part := rapid.SampledFrom([]string{"k:", ":", "$id", "$category_id", "$name", "$name|lower", "$sku|default:z", "$sku"})
	rapid.Check(t, func(t *rapid.T) {
		templates := rapid.SliceOfN(rapid.SliceOfN(part, 1, 4), 1, 4).Draw(t, "templates")
		var specs []spectest.Mapping
		for _, parts := range templates {
			text := ""
			for _, p := range parts {
				if c, ok := strings.CutPrefix(p, "$"); ok {
					p = "{" + c + "}"
				}
				text += p
			}
			specs = append(specs, spectest.Keys(text))
		}
		table := spectest.Product()
		r, err := New(spectest.Specs(specs...), Options{})
		if err != nil {
			t.Fatal(err)
		}
		f := &feed{t: nil, r: r, table: table}
		if _, err := r.Bind(table); err != nil {
			t.Fatal(err)
		}
		old, row := drawRow(t, "old"), drawRow(t, "row")
		switch rapid.IntRange(0, 2).Draw(t, "op") {
		case 0:
			old = nil
		case 1:
			row = nil
		}
		var want []string
		for _, tmpl := range templates {
			for _, image := range []map[string]any{old, row} {
				if image != nil {
					want = append(want, naive(tmpl, image)...)
				}
			}
		}
		slices.Sort(want)
		want = slices.Compact(want)
		f.change(old, row)
		got := f.keys()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%v of %v to %v: %q, want %q", templates, old, row, got, want)
		}
	})
}
