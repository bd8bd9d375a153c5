package router

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

func TestBindAsksForTheColumnsThatAreUsed(t *testing.T) {
	for _, c := range []struct {
		what string
		spec spectest.Mapping
		want []event.Need
	}{
		{"keys need text", spectest.Keys("{sku}:{id}"), []event.Need{{Column: 0, Text: true}, {Column: 4, Text: true}}},
		{
			"columns are compared only", spectest.Keys("{id}").Of("price", "extra"),
			[]event.Need{{Column: 0, Text: true}, {Column: 3}, {Column: 9}},
		},
		{
			"a predicate needs text", spectest.Keys("all").If("row.status == 'x' or old.made > 1"),
			[]event.Need{{Column: 5, Text: true}, {Column: 8, Text: true}},
		},
		{
			"text wins", spectest.Keys("{id}").Of("id", "sku").If("row.sku == 'x'"),
			[]event.Need{{Column: 0, Text: true}, {Column: 4, Text: true}},
		},
		{"nothing, but the rows", spectest.Keys("articles:all"), []event.Need{}},
		{"nothing at all", spectest.Keys("{id}").On("shop.other"), nil},
	} {
		got, err := mustNew(t, c.spec).Bind(spectest.Product())
		if err != nil || !cmp.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %#v, %v, want %#v", c.what, got, err, c.want)
		}
	}
}

func TestAConstantKeyComesWithEveryRow(t *testing.T) {
	f := newFeed(t, mustNew(t, spectest.Keys("articles:all")), spectest.Product())
	f.change(nil, row{})
	f.change(row{}, row{})
	f.change(row{}, nil)
	if got := f.keys(); len(got) != 3 {
		t.Errorf("got %q", got)
	}
}

func TestBindTellsAllThatATableLacksAtOnce(t *testing.T) {
	r := mustNew(t,
		spectest.Keys("p:{idd}:{extra}", "q:{id}").Of("nmae").If("row.statsu == 'live'"),
		spectest.Keys("z:{zzz}").On("shop.prod*"))
	needs, err := r.Bind(spectest.Product())
	want := `f.yaml:2:10: columns: table shop.product has no column "nmae": did you mean "name"?
f.yaml:3:14: when "row.statsu == 'live'": table shop.product has no column "statsu": did you mean "status"?
f.yaml:5:12: key "p:{idd}:{extra}": table shop.product has no column "idd": did you mean "id"?
f.yaml:5:12: key "z:{zzz}": table shop.product has no column "zzz": it has bar_code, batch, category_id, extra, id, made, name, price, score, sku, status, thumb
f.yaml:5:18: key "p:{idd}:{extra}": column extra of shop.product is JSON, which cannot be part of a key: take another column, or a generated one that extracts what the key needs`
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]event.Need{{Column: 0, Text: true}}, needs); diff != "" {
		t.Error(diff)
	}
}

// A caller may go on with what can be bound: the rest errs on the side of invalidating more.
func TestWhatCannotBeBoundInvalidatesMore(t *testing.T) {
	var h heard
	r, err := New(spectest.Specs(spectest.Keys("p:{idd}", "q:{id}").Of("nmae").If("row.statsu == 'live'")),
		Options{Reporter: &h})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Bind(spectest.Product()); err == nil {
		t.Fatal("no error")
	}
	f := &feed{t: t, r: r, table: spectest.Product()}
	_, _ = r.Bind(f.table)
	f.change(row{"id": 1}, row{"id": 1})
	if got := f.keys(); len(got) != 1 || got[0] != "q:1" {
		t.Errorf("got %q", got)
	}
	c := r.mappings[0].meters
	if absent, failed := testutil.ToFloat64(c.absent), testutil.ToFloat64(c.failed); absent != 1 || failed != 1 ||
		len(h) != 1 {
		t.Errorf("%v absent, %v failed, heard %q", absent, failed, h)
	}
}

func TestNewTellsAllFaultsAtOnce(t *testing.T) {
	_, err := New(spectest.Specs(
		spectest.Keys("user:{id", "user:{id|lwer}", "").On("product").Of("name", "NAME", " ").If("rwo.x == 1"),
		spectest.Keys("{id}:{name}").Free("Name", "x").Free("name", "y").Free("nmae", "z").Free("price", "1"),
		spectest.Mapping{Pos: spec.At("f.yaml", 20, 3), Table: spec.Text{Value: "shop.x", Pos: spec.At("f.yaml", 20, 10)}},
	), Options{})
	want := `f.yaml:1:10: table "product": it does not say the schema: write schema.product
f.yaml:2:10: columns: "NAME" comes twice: remove one
f.yaml:2:10: columns: a name is empty: write a column's name
f.yaml:3:10: when "rwo.x == 1": unknown name "rwo": did you mean "row"?
f.yaml:4:10: scope: "name" comes twice: remove one
f.yaml:4:10: scope: no key, field or member of the mapping has the column "nmae": did you mean "name"?
f.yaml:4:10: scope: no key, field or member of the mapping has the column "price": remove it
f.yaml:5:15: key "user:{id": the { has no }: close it, or write {{ for a literal brace
f.yaml:6:19: key "user:{id|lwer}": unknown filter "lwer": did you mean "lower"?
f.yaml:7:10: key "": it is empty: write a key, such as product:{id}
f.yaml:20:3: mapping of "shop.x" has no keys: write at least one, such as "product:{id}"`
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
}

func TestPlacesFollowTheTextWhereItStands(t *testing.T) {
	m := spectest.Keys()
	m.Keys = []spec.Text{
		{
			Value: "ключ:{id", Pos: spec.At("f.yaml", 100, 1),
			Runs: []spec.Run{{Offset: 9, Line: 109, Column: 1}},
		},
		{Value: "ключ:{id", Pos: spec.At("f.yaml", 7, 10)},
		{Value: "x{"},
	}
	_, err := New(spectest.Specs(m), Options{})
	var got []string
	for _, p := range err.(spec.Problems) {
		got = append(got, p.Pos.String())
	}
	if diff := cmp.Diff([]string{"", "f.yaml:7:15", "f.yaml:109:1"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWantsGoesByTheNameAlone(t *testing.T) {
	r := mustNew(t, spectest.Keys("a"), spectest.Keys("b").On("shop.order_{00..63}"), spectest.Keys("c").On("crm.*"))
	for name, want := range map[string]bool{
		"shop.product": true, "shop.order_17": true, "crm.anything": true, "shop.order_64": false, "shop.Product": false,
		"shopproduct.": false,
	} {
		schema, table, _ := strings.Cut(name, ".")
		if got := r.Wants(schema, table); got != want {
			t.Errorf("Wants(%s) = %v", name, got)
		}
	}
}

// A column counts if a mapping of its table names it anywhere, or makes a value of all columns.
func TestUsesGoesByAllThatAMappingNames(t *testing.T) {
	text := func(s string) spec.Text { return spec.Text{Value: s} }
	row := func(as event.Form, value string, columns ...spec.Text) *spec.Rebuild {
		return &spec.Rebuild{FromRow: true, As: as, Value: text(value), Columns: columns}
	}
	r, err := New([]spec.Mapping{
		{
			Table: text("shop.a"), Keys: []spec.Text{text("a:{Id}")}, When: text(`row.state == "x"`),
			Columns: []spec.Text{text("b")},
		},
		{Table: text("shop.some"), Keys: []spec.Text{text("s:{id}")}, Rebuild: row(event.FormJSON, "", text("c as d"))},
		{Table: text("shop.text"), Keys: []spec.Text{text("t:{id}")}, Rebuild: row(event.FormString, "{e|md5}")},
		{Table: text("shop.all_*"), Keys: []spec.Text{text("w:{id}")}, Rebuild: row(event.FormJSON, "")},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"a.id": true, "a.STATE": true, "a.b": true, "a.c": false, "some.c": true, "some.d": false, "some.e": false,
		"text.e": true, "text.c": false, "all_of.anything": true, "other.id": false, "A.id": false,
	} {
		table, column, _ := strings.Cut(name, ".")
		if got := r.Uses(&event.Table{Schema: "shop", Name: table}, column); got != want {
			t.Errorf("Uses(%s) = %v", name, got)
		}
	}
	if !r.Uses(&event.Table{Schema: "SHOP", Name: "A", FoldNames: true}, "ID") {
		t.Error("names that compare without letter case do not match")
	}
}

func TestUnfitNamesMappingsWithoutATable(t *testing.T) {
	r := mustNew(t, spectest.Keys("a"), spectest.Keys("b").On("shop.prodcut"), spectest.Keys("c").On("crm.*"))
	var got []string
	for _, m := range r.Unfit([]*event.Table{spectest.Product()}) {
		got = append(got, m.Error())
	}
	want := `f.yaml:1:10: no table matches "shop.prodcut": did you mean "shop.product"?
f.yaml:1:10: no table matches "crm.*": create it, grant SELECT on it, or remove the mapping; names are case-sensitive`
	if diff := cmp.Diff(want, strings.Join(got, "\n")); diff != "" {
		t.Error(diff)
	}
	if got := mustNew(t, spectest.Keys("a")).Unfit([]*event.Table{spectest.Product()}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestWithoutATableASchemaIsAskedFor(t *testing.T) {
	r, err := New([]spec.Mapping{
		{Table: spec.Text{Value: "shop.product"}, Keys: []spec.Text{{Value: "a:{id}"}}},
		{Table: spec.Text{Value: "tenant_*.user"}, Keys: []spec.Text{{Value: "b:{id}"}}},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for schema, want := range map[string]bool{"shop": true, "tenant_7": true, "other": false, "": false} {
		if got := r.Wants(schema, ""); got != want {
			t.Errorf("schema %q: %v", schema, got)
		}
	}
}
