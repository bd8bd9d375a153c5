package operate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

// over returns the keys of mappings.
func over(t rapid.TB, mappings ...spectest.Mapping) *Keys {
	t.Helper()
	route, err := router.New(spectest.Specs(mappings...), router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &Keys{Mappings: route.Mappings()}
}

// defined is a table with an id of a type.
func defined(schema, name, typ string) *event.Table {
	return &event.Table{
		Schema: schema, Name: name, Columns: []event.Column{{Name: "id", Class: event.ClassInt, Type: typ}},
	}
}

func matches(keys *keyspace.Keyspace, key string) (found bool) {
	keys.Match(key, func(*keyspace.Target) { found = true })
	return found
}

func TestADoubtIsAboutTheKeysOfItsTablesAndSchemas(t *testing.T) {
	truncated := func(names ...string) doubt.Doubt { return doubt.Doubt{Cause: alarm.TruncatedTable, Tables: names} }
	dropped := func(name string) doubt.Doubt {
		return doubt.Doubt{Cause: alarm.TruncatedTable, Schemas: []string{name}}
	}
	for _, c := range []struct {
		name     string
		mappings []spectest.Mapping
		known    []*event.Table
		doubts   []doubt.Doubt
		its      []string
		others   []string
		// blind is what the first doubt cannot be answered for; "": it can be.
		blind string
	}{
		{
			name: "a schema's name is none of a table",
			mappings: []spectest.Mapping{
				spectest.Keys("product:{id}").On("*.product"),
				spectest.Keys("review:{id}").On("shop.review"),
			},
			known:  []*event.Table{defined("shop", "product", "int"), defined("shop", "review", "int")},
			doubts: []doubt.Doubt{truncated("shop.review")},
			its:    []string{"review:1"}, others: []string{"product:1"},
		},
		{
			name: "a schema that no table is known of, though a table's name has it",
			mappings: []spectest.Mapping{
				spectest.Keys("{schema}:{id}").On("*.product"),
				spectest.Keys("review:{id}").On("shop.review"),
			},
			known:  []*event.Table{defined("shop", "review", "int")},
			doubts: []doubt.Doubt{truncated("shop.review")},
			its:    []string{"review:1"}, others: []string{"shop:1"},
		},
		{
			name: "a schema",
			mappings: []spectest.Mapping{
				spectest.Keys("product:{id}").On("*.product"),
				spectest.Keys("user:{id}").On("crm.user"),
			},
			known:  []*event.Table{defined("shop", "product", "int"), defined("crm", "user", "int")},
			doubts: []doubt.Doubt{dropped("shop")},
			its:    []string{"product:1"}, others: []string{"user:1"},
		},
		{
			name: "a schema with a dot is no table",
			mappings: []spectest.Mapping{
				spectest.Keys("product:{id}").On("`my.shop`.product"),
				spectest.Keys("shop:{id}").On("my.shop"),
			},
			known:  []*event.Table{defined("my.shop", "product", "int"), defined("my", "shop", "int")},
			doubts: []doubt.Doubt{dropped("my.shop")},
			its:    []string{"product:1"}, others: []string{"shop:1"},
		},
		{
			name: "a table of a schema with a dot",
			mappings: []spectest.Mapping{
				spectest.Keys("product:{id}").On("`my.shop`.`pro.duct`"),
				spectest.Keys("shop:{id}").On("my.shop"),
			},
			known:  []*event.Table{defined("my.shop", "pro.duct", "int"), defined("my", "shop", "int")},
			doubts: []doubt.Doubt{truncated("my.shop.pro.duct")},
			its:    []string{"product:1"}, others: []string{"shop:1"},
		},
		{
			name:     "in lower case, where the source compares without it",
			mappings: []spectest.Mapping{spectest.Keys("{table}:{id}").On("Shop.*")},
			known: []*event.Table{
				{Schema: "Shop", Name: "Product", FoldNames: true, Columns: defined("", "", "int").Columns},
			},
			doubts: []doubt.Doubt{truncated("shop.product")},
			its:    []string{"Product:1"},
		},
		{
			name:     "a table that nobody has seen, of a mapping of which another is known",
			mappings: []spectest.Mapping{spectest.Keys("product:{id}").On("shop*.product")},
			known:    []*event.Table{defined("shop2", "product", "int")},
			doubts:   []doubt.Doubt{truncated("shop1.product"), truncated("shop2.product")},
			its:      []string{"product:1"},
			blind:    "nobody knows which columns table shop1.product had, so what {id} was is not known",
		},
		{
			name:     "the other one of these two",
			mappings: []spectest.Mapping{spectest.Keys("{schema}:{id}").On("shop*.product")},
			known:    []*event.Table{defined("shop2", "product", "int")},
			doubts:   []doubt.Doubt{truncated("shop2.product"), truncated("shop1.product"), dropped("shop3")},
			its:      []string{"shop2:1"},
		},
		{
			name:     "a table that nobody has seen, whose mapping says what its keys are",
			mappings: []spectest.Mapping{spectest.Keys("{schema}:{table}:{id}").On("shop*.*").Free("id", "[0-9]+")},
			known:    []*event.Table{defined("shop2", "product", "int")},
			doubts:   []doubt.Doubt{truncated("shop1.product")},
			its:      []string{"shop1:product:99999999999"}, others: []string{"shop2:product:1", "shop1:product:x"},
		},
		{
			name:     "a schema that nobody has seen a table of",
			mappings: []spectest.Mapping{spectest.Keys("{table}:{id}").On("*.*").Free("id", "[0-9]+")},
			known:    []*event.Table{defined("shop2", "product", "int")},
			doubts:   []doubt.Doubt{dropped("shop1"), truncated("shop2.product")},
			its:      []string{"product:1"},
			blind:    `nobody knows which tables schema "shop1" had, so what {table} was is not known`,
		},
		{
			name:     "another name",
			mappings: []spectest.Mapping{spectest.Keys("{table}:{id}").On("`my.shop`.*")},
			known:    []*event.Table{defined("my.shop", "a", "int")},
			doubts:   []doubt.Doubt{truncated("my.shop.b", "my.shop.a")},
			its:      []string{"a:1", "b:1"}, others: []string{"shop.b:1", "b:99999999999"},
		},
		{
			name:     "everything",
			mappings: []spectest.Mapping{spectest.Keys("{table}:{id}").On("*.*")},
			known:    []*event.Table{defined("shop", "product", "int"), defined("my.shop", "a", "int")},
			doubts:   []doubt.Doubt{{Cause: alarm.XAUnread}},
			its:      []string{"product:1", "a:1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys, err := over(t, c.mappings...).inDoubt(c.known, c.doubts...)
			testbed.Must(t, err)
			for _, k := range c.its {
				if !matches(keys, k) {
					t.Errorf("%s is not in doubt", k)
				}
			}
			for _, k := range c.others {
				if matches(keys, k) {
					t.Errorf("%s is in doubt", k)
				}
			}
			b := BlindTo(&c.doubts[0], keys)
			if (b == nil) != (c.blind == "") || b != nil && !strings.Contains(b.String(), c.blind) {
				t.Errorf("blind: %v, want %q", b, c.blind)
			}
			for _, d := range c.doubts[1:] {
				if b := BlindTo(&d, keys); b != nil && c.blind != "" {
					t.Errorf("what the first doubt lacks keeps another: %s", b)
				}
			}
		})
	}
}

// Whatever the tables are called: a doubt for which no template is blind can be dismissed, since all keys of its tables
// are found.
func TestNoDoubtIsAnsweredWithoutAllOfItsKeys(t *testing.T) {
	answered := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		keys, err := over(t, w.mappings...).inDoubt(w.known, w.doubts...)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range w.doubts {
			if BlindTo(&d, keys) != nil {
				continue
			}
			answered++
			for _, table := range w.about[i] {
				for _, key := range keysOf(over(t, w.mappings...).Mappings, table) {
					if !matches(keys, key) {
						t.Fatalf("%+v is answered, and %q of table %q.%q stays\nmappings %+v\nknown %+v", d, key, table.Schema,
							table.Name, w.mappings, w.known)
					}
				}
			}
		}
	})
	if answered == 0 {
		t.Error("no doubt could be answered")
	}
}

// world is some tables, those of them that are known, and doubts about them.
type world struct {
	mappings []spectest.Mapping
	known    []*event.Table
	doubts   []doubt.Doubt
	// about are the tables that each doubt is about in truth.
	about [][]*event.Table
}

func drawWorld(t *rapid.T) (w world) {
	fold := rapid.Bool().Draw(t, "without letter case")
	types := rapid.SampledFrom([]string{"int", "bigint", "int(9) unsigned zerofill"})
	names := []string{"a", "b", "a.b", "A"}
	if fold {
		names = names[:3]
	}
	// Of tables whose names print the same, there is one: a doubt has no more than that.
	var all []*event.Table
	for _, schema := range names {
		for _, name := range names {
			if s := schema + "." + name; !slices.ContainsFunc(all, func(t *event.Table) bool { return t.String() == s }) {
				d := defined(schema, name, types.Draw(t, "type"))
				d.FoldNames = fold
				all = append(all, d)
			}
		}
	}
	// Of a schema all tables are known, or none.
	seen := map[string]bool{}
	for _, schema := range names {
		seen[schema] = rapid.Bool().Draw(t, "schema "+schema+" is known")
	}
	schemas := rapid.Bool().Draw(t, "schemas")
	for _, table := range all {
		if schemas && seen[table.Schema] || !schemas && rapid.Bool().Draw(t, "table is known") {
			w.known = append(w.known, table)
		}
	}
	pattern := rapid.SampledFrom([]string{"*", "a", "a*", "*b", "`a.b`", "b", "A"})
	template := rapid.SampledFrom([]string{"p:{id}", "{schema}:{id}", "{table}:{id}", "{schema}/{table}", "all"})
	for i := range rapid.IntRange(1, 3).Draw(t, "mappings") {
		m := spectest.Keys(fmt.Sprint(i, ":", template.Draw(t, "template")))
		if m = m.On(pattern.Draw(t, "schema") + "." + pattern.Draw(t, "table")); rapid.Bool().Draw(t, "scope") &&
			strings.Contains(m.Keys[0].Value, "{id}") {
			m = m.Free("id", "-?[0-9]+")
		}
		w.mappings = append(w.mappings, m)
	}
	for range rapid.IntRange(1, 3).Draw(t, "doubts") {
		d := doubt.Doubt{Cause: alarm.XAKeysUnknown}
		var about []*event.Table
		if schemas {
			schema := rapid.SampledFrom(names).Draw(t, "dropped")
			d.Schemas = []string{schema}
			about = slices.DeleteFunc(slices.Clone(all), func(t *event.Table) bool { return t.Schema != schema })
		} else {
			about = rapid.SliceOfN(rapid.SampledFrom(all), 1, 2).Draw(t, "tables")
			for _, table := range about {
				d.Tables = append(d.Tables, table.String())
			}
		}
		w.doubts, w.about = append(w.doubts, d.Named()), append(w.about, about)
	}
	return w
}

// keysOf returns keys that mappings make from rows of a table.
func keysOf(mappings []*router.Mapping, table *event.Table) (all []string) {
	ids := map[string][]string{
		"int": {"0", "-2147483648"}, "bigint": {"7", "99999999999"}, "int(9) unsigned zerofill": {"000000007"},
	}
	for _, m := range mappings {
		if !m.Matches(table) {
			continue
		}
		for _, id := range ids[table.Columns[0].Type] {
			var key string
			for _, n := range m.Actions[0].Key.Parts {
				switch n.Kind {
				case router.NodeSchema:
					key += n.Of(table.Schema)
				case router.NodeTable:
					key += n.Of(table.Name)
				case router.NodeColumn:
					key += id
				default:
					key += n.Lit
				}
			}
			all = append(all, key)
		}
	}
	return all
}
