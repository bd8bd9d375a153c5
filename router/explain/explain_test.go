package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

func explained(t *testing.T, s Sample, specs ...spectest.Mapping) string {
	t.Helper()
	if s.Table == "" {
		s.Table = "shop.product"
	}
	x, err := Explain(spectest.Specs(specs...), s)
	if err != nil {
		return "error: " + err.Error()
	}
	return x.String()
}

func TestExplainSaysWhichKeysARowYields(t *testing.T) {
	m := spectest.Keys("product:{id}", "category:{category_id}:products", "sku:{sku|lower}").D(2 * time.Second)
	for _, c := range []struct {
		what, row, old string
		definition     *event.Table
		specs          []spectest.Mapping
		want           string
	}{
		{"an insert", `{"id": 17, "category_id": 3, "sku": "AB"}`, "", nil, []spectest.Mapping{m}, `
product:17           delete, again after 2s  "product:{id}"                     f.yaml:5:10
category:3:products  delete, again after 2s  "category:{category_id}:products"  f.yaml:6:10
sku:ab               delete, again after 2s  "sku:{sku|lower}"                  f.yaml:7:10
`},
		{"NULL, and what the row does not say", `{"id": "17", "sku": null}`, "", nil, []spectest.Mapping{m}, `
product:17  delete, again after 2s  "product:{id}"                     f.yaml:5:10
-           no key                  "category:{category_id}:products"  f.yaml:6:10  the row does not say category_id
-           no key                  "sku:{sku|lower}"                  f.yaml:7:10  sku is NULL
`},
		{"an update says only what changed", `{"id": 17, "category_id": 3, "sku": "AB"}`, `{"category_id": 4}`, nil, []spectest.Mapping{m}, `
product:17           delete, again after 2s  "product:{id}"                     f.yaml:5:10
category:4:products  delete, again after 2s  "category:{category_id}:products"  f.yaml:6:10  old row
category:3:products  delete, again after 2s  "category:{category_id}:products"  f.yaml:6:10
sku:ab               delete, again after 2s  "sku:{sku|lower}"                  f.yaml:7:10
`},
		{"a delete", `null`, `{"id": 17}`, nil, []spectest.Mapping{spectest.Keys("{id}")}, `
17  delete, once  "{id}"  f.yaml:5:10
`},
		{"why mappings pass over", `{"id": 1, "status": "x"}`, `{"status": "y"}`, nil, []spectest.Mapping{
			spectest.Keys("a").For(spec.Events{Delete: true}), spectest.Keys("a:{id}").Of("name", "id"),
			spectest.Keys("a:{id}").Of("id"),
			spectest.Keys("a").If("row.status == 'live'"), spectest.Keys("b").If("row.id < row.status"),
		}, `
-       no key        mapping 1 (shop.product)  f.yaml:1:10  the mapping is not for update
a:1     delete, once  "a:{id}"                  f.yaml:5:10
-       no key        mapping 3 (shop.product)  f.yaml:1:10  none of its columns changed, nor a column of a key
-       no key        mapping 4 (shop.product)  f.yaml:3:10  when is false
-       remark        mapping 5 (shop.product)  f.yaml:3:10  when failed, which counts as true: f.yaml:3:17: it compares a number with text
b       delete, once  "b"                       f.yaml:5:10
`},
		{"the larger D", `{"id": 1}`, "", nil, []spectest.Mapping{spectest.Keys("a:{id}", "a:1"), spectest.Keys("a:{id}").D(time.Second)}, `
a:1  delete, again after 1s  "a:{id}"  f.yaml:5:10  mapping 2 makes it too, and its second delete is the larger
`},
		{"copies and odd keys", `{"id": 1, "name": "a\u0000b\tc"}`, "", nil, []spectest.Mapping{spectest.Keys("{id}:{0..1}", "{name}", "{name|default:|trim|hex}")}, `
1:0                 delete, once  "{id}:{0..1}"               f.yaml:5:10
1:1                 delete, once  "{id}:{0..1}"               f.yaml:5:10
"a\x00b\tc"         delete, once  "{name}"                    f.yaml:6:10
6100620963          delete, once  "{name|default:|trim|hex}"  f.yaml:7:10
`},
		{"mod of what is no integer", `{"id": "abc"}`, "", nil, []spectest.Mapping{spectest.Keys("{id|mod:4}")}, `
-  no key  "{id|mod:4}"  f.yaml:5:10  id is no integer, which mod needs
`},
		{
			"the definition's types", `{"ID": "17", "price": 9.9, "sku": 5, "made": 1999, "thumb": "x", "bar_code": "5", "extra": {"a": 1}}`, "", spectest.Product(),
			[]spectest.Mapping{spectest.Keys("{id|mod:4}:{price}:{sku}:{made}:{thumb|hex}:{bar_code|mod:3}").If("row.id == 17 and row.price == 9.90 and row.sku == '5' and row.made > 1998").Of("extra")},
			`
1:9.9:5:1999:78:2  delete, once  "{id|mod:4}:{price}:{sku}:{made}:{thumb|hex}:{bar_code|mod:3}"  f.yaml:5:10
`,
		},
		{"numbers without a definition", `{"id": 18446744073709551615, "n": -1.50, "b": true}`, "", nil, []spectest.Mapping{
			spectest.Keys("{id}:{n}:{b}").If("row.id > 9223372036854775807 and row.n == -1.5 and row.b == 1"),
		}, `
18446744073709551615:-1.50:1  delete, once  "{id}:{n}:{b}"  f.yaml:5:10
`},
	} {
		got := explained(t, Sample{Row: []byte(c.row), Old: []byte(c.old), Definition: c.definition}, c.specs...)
		if words(got) != words(c.want) {
			t.Errorf("%s:\n%s\nwant%s", c.what, got, c.want)
		}
	}
}

// words takes the columns out of a table.
func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestWhatCannotBeExplainedIsToldWhy(t *testing.T) {
	for _, c := range []struct {
		s    Sample
		want string
	}{
		{Sample{Row: []byte(`{"id": 1`)}, "row: unexpected end of JSON input: write an object of columns"},
		{Sample{Row: []byte(`[1]`)}, "row: json: cannot unmarshal array"},
		{Sample{Old: []byte(`1`)}, "old row: json: cannot unmarshal number"},
		{Sample{Row: []byte(`{"id": 1, "ID": 2}`)}, "comes twice: names of columns compare without case"},
		{Sample{Row: []byte(" null ")}, "there is no row"},
		{Sample{Table: "product", Row: []byte(`{}`)}, `"product" is no table: write schema.table`},
		{Sample{Table: "shop.*", Row: []byte(`{}`)}, `"shop.*" is no table`},
		{Sample{Table: "shop.prodcut", Row: []byte(`{}`)}, `no mapping matches shop.prodcut: did you mean "shop.product"?`},
		{Sample{Table: "crm.x", Row: []byte(`{}`)}, `no mapping matches crm.x: mappings are for shop.product`},
		{
			Sample{Definition: spectest.Product(), Row: []byte(`{"idd": 1}`)},
			`row: table shop.product has no column "idd": did you mean "id"?`,
		},
		{
			Sample{Definition: spectest.Product(), Row: []byte(`{"id": "x"}`)},
			`row: column id: "x" is no value of BIGINT UNSIGNED: write its digits`,
		},
		{
			Sample{Definition: spectest.Product(), Row: []byte(`{"id": -1}`)},
			`row: column id: "-1" is no value of BIGINT UNSIGNED`,
		},
		{
			Sample{Definition: spectest.Product(), Row: []byte(`{"id": 1.5}`)},
			`row: column id: "1.5" is no value of BIGINT UNSIGNED`,
		},
		{
			Sample{Definition: spectest.Product(), Row: []byte(`{"id": 1}`), Old: []byte(`{"price": "1e5"}`)},
			`old row: column price: "1e5" is no value of DECIMAL(10,2)`,
		},
		{Sample{Row: []byte(`{"id": 1e9}`)}, `row: column id: "1e9" is no value of a number column: write its digits`},
		{
			Sample{Definition: &event.Table{Schema: "shop", Name: "product"}, Row: []byte(`{}`)},
			`table shop.product has no column "id"`,
		},
	} {
		if got := explained(t, c.s, spectest.Keys("{id}").Of("price")); !strings.Contains(got, c.want) ||
			!strings.HasPrefix(got, "error: ") {
			t.Errorf("%+v: %s, want %s", c.s, got, c.want)
		}
	}
}

// What is explained is what is routed.
func TestExplainAgreesWithRoute(t *testing.T) {
	specs := spectest.Specs(
		spectest.Keys("a:{id}", "a:{category_id}", "n:{name|lower}:{0..1}").Of("name"),
		spectest.Keys("a:{category_id}", "s:{sku|default:none}").If("row.name == 'a' || old.name == 'a'").D(time.Second),
	)
	table := spectest.Product()
	table.Columns[0].Unsigned = false
	r, err := router.New(specs, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	needs, err := r.Bind(table)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		old, row := drawRow(t, "old"), drawRow(t, "row")
		c := event.Change{Table: table, Tx: &event.Tx{}, Op: event.Update}
		for _, n := range needs {
			name := table.Columns[n.Column].Name
			c.Before, c.After = append(c.Before, valueOf(old[name])), append(c.After, valueOf(row[name]))
		}
		var b event.Batch
		r.Route(&b, &c)
		var want []string
		for i := range b.Len() {
			want = append(want, b.Key(i))
		}
		x, err := Explain(specs, Sample{Table: "shop.product", Definition: table, Row: jsonOf(t, row), Old: jsonOf(t, old)})
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Keys(); !slices.Equal(got, want) {
			t.Fatalf("%v to %v: explained %q, routed %q", old, row, got, want)
		}
	})
}

// drawRow draws a row: numbers, texts and NULL by column.
func drawRow(t *rapid.T, name string) map[string]any {
	row := map[string]any{}
	for column, values := range map[string][]any{
		"id": {nil, -2, -1, 0, 1, 2}, "category_id": {nil, -2, -1, 0, 1, 2}, "name": {nil, "", "a", "A", ":", "1"},
		"sku": {nil, "", "a", "A", ":", "1"},
	} {
		row[column] = rapid.SampledFrom(values).Draw(t, name+" "+column)
	}
	return row
}

func valueOf(v any) event.Value {
	switch x := v.(type) {
	case int:
		return event.Value{Kind: event.Int, Num: uint64(x), Raw: fmt.Append(nil, x)}
	case string:
		return event.Value{Kind: event.Text, Text: []byte(x), Raw: []byte(x)}
	}
	return event.Value{Kind: event.Null}
}

func jsonOf(t *rapid.T, row map[string]any) []byte {
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAnExplanationHoldsWhatAProgramNeeds(t *testing.T) {
	x, err := Explain(spectest.Specs(spectest.Keys("{id}", "{sku}").D(time.Second)),
		Sample{Table: "shop.product", Row: []byte(`{"id": 1, "sku": null}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := &Explanation{Table: "shop.product", Op: event.Insert, Lines: []Explained{
		{
			Key: "1", Made: true, Mapping: 1, Pattern: "shop.product", Template: "{id}", Pos: spec.At("f.yaml", 5, 10),
			Action: event.ActionDelete, D: time.Second,
		},
		{
			Why: "sku is NULL", Mapping: 1, Pattern: "shop.product", Template: "{sku}", Pos: spec.At("f.yaml", 6, 10),
			Action: event.ActionDelete, D: time.Second,
		},
	}}
	if diff := cmp.Diff(want, x); diff != "" {
		t.Error(diff)
	}
}
