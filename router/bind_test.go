package router

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/event"
)

func TestBindAsksForTheColumnsThatAreUsed(t *testing.T) {
	for _, c := range []struct {
		what string
		spec Mapping
		want []event.Need
	}{
		{"keys need text", spec("{sku}:{id}"), []event.Need{{Column: 0, Text: true}, {Column: 4, Text: true}}},
		{"columns are compared only", spec("{id}").columns("price", "extra"), []event.Need{{Column: 0, Text: true}, {Column: 3}, {Column: 9}}},
		{"a predicate needs text", spec("all").when("row.status == 'x' or old.made > 1"), []event.Need{{Column: 5, Text: true}, {Column: 8, Text: true}}},
		{"text wins", spec("{id}").columns("id", "sku").when("row.sku == 'x'"), []event.Need{{Column: 0, Text: true}, {Column: 4, Text: true}}},
		{"nothing, but the rows", spec("articles:all"), []event.Need{}},
		{"nothing at all", spec("{id}").table("shop.other"), nil},
	} {
		got, err := mustNew(t, c.spec).Bind(product())
		if err != nil || !cmp.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %#v, %v, want %#v", c.what, got, err, c.want)
		}
	}
}

func TestAConstantKeyComesWithEveryRow(t *testing.T) {
	f := newFeed(t, mustNew(t, spec("articles:all")), product())
	f.change(nil, row{})
	f.change(row{}, row{})
	f.change(row{}, nil)
	if got := f.keys(); len(got) != 3 {
		t.Errorf("got %q", got)
	}
}

func TestBindTellsAllThatATableLacksAtOnce(t *testing.T) {
	r := mustNew(t,
		spec("p:{idd}:{extra}", "q:{id}").columns("nmae").when("row.statsu == 'live'"),
		spec("z:{zzz}").table("shop.prod*"))
	needs, err := r.Bind(product())
	want := `f.yaml:2:10: columns: table shop.product has no column "nmae": did you mean "name"?
f.yaml:3:14: when "row.statsu == 'live'": table shop.product has no column "statsu": did you mean "status"?
f.yaml:5:12: key "p:{idd}:{extra}": table shop.product has no column "idd": did you mean "id"?
f.yaml:5:12: key "z:{zzz}": table shop.product has no column "zzz": it has bar_code, batch, category_id, extra, id, made, name, price, score, sku, status, thumb
f.yaml:5:18: key "p:{idd}:{extra}": column extra of shop.product is JSON, which has no text that could be part of a key: take another column, or a generated one that extracts what the key needs`
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
	r, err := New([]Mapping{spec("p:{idd}", "q:{id}").columns("nmae").when("row.statsu == 'live'")}, Options{Reporter: &h})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Bind(product()); err == nil {
		t.Fatal("no error")
	}
	f := &feed{t: t, r: r, table: product()}
	_, _ = r.Bind(f.table)
	f.change(row{"id": 1}, row{"id": 1})
	if got := f.keys(); len(got) != 1 || got[0] != "q:1" {
		t.Errorf("got %q", got)
	}
	c := r.mappings[0].meters
	if absent, failed := testutil.ToFloat64(c.absent), testutil.ToFloat64(c.failed); absent != 1 || failed != 1 || len(h) != 1 {
		t.Errorf("%v absent, %v failed, heard %q", absent, failed, h)
	}
}

func TestNewTellsAllFaultsAtOnce(t *testing.T) {
	_, err := New([]Mapping{
		spec("user:{id", "user:{id|lwer}", "").table("product").columns("name", "NAME", " ").when("rwo.x == 1"),
		{Pos: Pos{"f.yaml", 20, 3}, Table: Text{Value: "shop.x", Pos: Pos{"f.yaml", 20, 10}}},
	}, Options{})
	want := `f.yaml:1:10: table "product": it does not say the schema: write schema.product
f.yaml:2:10: columns: "NAME" comes twice: remove one
f.yaml:2:10: columns: a name is empty: write a column's name
f.yaml:3:10: when "rwo.x == 1": unknown name "rwo": did you mean "row"?
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
	at := func(offset int) Pos { return Pos{"f.yaml", 100 + offset, 1} }
	m := spec()
	m.Keys = []Text{{Value: "ключ:{id", Locate: at}, {Value: "ключ:{id", Pos: Pos{"f.yaml", 7, 10}}, {Value: "x{"}}
	_, err := New([]Mapping{m}, Options{})
	var got []string
	for _, p := range err.(Problems) {
		got = append(got, p.Pos.String())
	}
	if diff := cmp.Diff([]string{"", "f.yaml:7:15", "f.yaml:109:1"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWantsGoesByTheNameAlone(t *testing.T) {
	r := mustNew(t, spec("a"), spec("b").table("shop.order_{00..63}"), spec("c").table("crm.*"))
	for name, want := range map[string]bool{
		"shop.product": true, "shop.order_17": true, "crm.anything": true, "shop.order_64": false, "shop.Product": false, "shopproduct.": false,
	} {
		schema, table, _ := strings.Cut(name, ".")
		if got := r.Wants(schema, table); got != want {
			t.Errorf("Wants(%s) = %v", name, got)
		}
	}
}

func TestMissingNamesMappingsWithoutATable(t *testing.T) {
	r := mustNew(t, spec("a"), spec("b").table("shop.prodcut"), spec("c").table("crm.*"))
	got := Problems(r.Missing([]*event.Table{product()}))
	want := `f.yaml:1:10: no table matches "shop.prodcut": did you mean "shop.product"?
f.yaml:1:10: no table matches "crm.*": create it, grant SELECT on it, or remove the mapping; names are case-sensitive`
	if diff := cmp.Diff(want, got.Error()); diff != "" {
		t.Error(diff)
	}
	if got := mustNew(t, spec("a")).Missing([]*event.Table{product()}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestASuggestionIsNear(t *testing.T) {
	names := []string{"lower", "upper", "urlencode", "base64"}
	for name, want := range map[string]string{
		"lwoer": "lower", "LOWER": "lower", "low": "lower", "lower_case": "lower", "uper": "upper", "url_encode": "urlencode",
		"base": "base64", "sha512": "", "x": "", "": "", strings.Repeat("lower", 40): "",
	} {
		if got := nearest(name, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestWithoutATableASchemaIsAskedFor(t *testing.T) {
	r, err := New([]Mapping{
		{Table: Text{Value: "shop.product"}, Keys: []Text{{Value: "a:{id}"}}},
		{Table: Text{Value: "tenant_*.user"}, Keys: []Text{{Value: "b:{id}"}}},
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
