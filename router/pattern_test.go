package router

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

func TestAPatternMatchesTablesByName(t *testing.T) {
	for _, c := range []struct {
		pattern  string
		yes, not string
	}{
		{"shop.product", "shop.product", "shop.Product Shop.product shop.product2 shop.produc hop.product"},
		{"shop.order_*", "shop.order_ shop.order_1 shop.order_items", "shop.order shop.Order_1 shops.order_1"},
		{"shop.*", "shop.a shop.product", "sho.a shopp.a"},
		{"*.product", "a.product shop.product", "a.products"},
		{"shop_{0..3}.order", "shop_0.order shop_3.order", "shop_4.order shop_00.order shop_.order"},
		{
			"shop.order_{00..63}", "shop.order_00 shop.order_07 shop.order_63",
			"shop.order_64 shop.order_7 shop.order_007 shop.order_ shop.order_0x",
		},
		{"shop.order_{0..100}", "shop.order_0 shop.order_10 shop.order_100", "shop.order_101 shop.order_01 shop.order_-1"},
		{"shop.{8..12}_{1..2}x", "shop.8_1x shop.12_2x", "shop.7_1x shop.12_3x shop.122x"},
		{"shop.{1..99}{1..9}", "shop.11 shop.999 shop.123", "shop.1 shop.10 shop.9999"},
		{"shop.*_{0..9}_*", "shop.a_1_b shop.a_b_1_ shop._1__", "shop.a_10_b shop.a_1"},
		{"shop.a*b*c", "shop.abc shop.axbxc shop.abbcc", "shop.acb shop.abcd"},
		{"`my.db`.`t{0..1}*`", "my.db.t{0..1}*", "my.db.t0"},
		{"shop.`a``b`", "shop.a`b", "shop.ab shop.a``b"},
		{"my-db.t$1", "my-db.t$1", "my-db.t1"},
	} {
		p, faults := parsePattern(c.pattern)
		if len(faults) > 0 {
			t.Errorf("%s: %v", c.pattern, faults)
			continue
		}
		match := func(name string) bool {
			i := strings.LastIndex(name, ".")
			if rest, ok := strings.CutPrefix(name, "my.db."); ok {
				return p.match("my.db", rest)
			}
			return p.match(name[:i], name[i+1:])
		}
		for _, name := range strings.Fields(c.yes) {
			if !match(name) {
				t.Errorf("%s does not match %s", c.pattern, name)
			}
		}
		for _, name := range strings.Fields(c.not) {
			if match(name) {
				t.Errorf("%s matches %s", c.pattern, name)
			}
		}
	}
}

func TestAPatternAtFaultIsToldWhereAndWhatToWrite(t *testing.T) {
	for _, c := range []struct {
		pattern string
		at      int
		what    string
	}{
		{"", 0, "empty"},
		{"  ", 0, "empty"},
		{"product", 0, "does not say the schema"},
		{"shop.", 5, "name is missing"},
		{".product", 0, "name is missing"},
		{"a.b.c", 3, "more than one dot"},
		{"shop.order_.*", 11, "more than one dot"},
		{"shop.order_%", 11, "no wildcard"},
		{"shop.order_?", 11, "no wildcard"},
		{"shop.order_[0-9]", 11, "no meaning"},
		{"shop.order_{00..63", 11, "has no }"},
		{"shop.order_63}", 13, "without a {"},
		{"shop.order_{a..b}", 11, "no run of numbers"},
		{"shop.order_{}", 11, "no run of numbers"},
		{"shop.order_{63..00}", 11, "counts backwards"},
		{"shop.order_{0..063}", 11, "different length"},
		{"shop.order_{0..1234567890}", 11, "more than 9 digits"},
		{"shop.`a", 5, "never closed"},
		{"shop.``", 5, "no name"},
		{"shop.a b", 6, "no meaning"},
		{"shop." + strings.Repeat("a", 600), 512, "too long"},
	} {
		_, faults := parsePattern(c.pattern)
		if len(faults) == 0 {
			t.Errorf("%q: no fault", c.pattern)
			continue
		}
		if f := faults[0]; f.at != c.at || !strings.Contains(f.what, c.what) || f.do == "" {
			t.Errorf("%q: %+v, want %q at %d", c.pattern, f, c.what, c.at)
		}
	}
}

func TestAPatternPrintsAsItIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{
			"a", "order_", "*", "{00..63}", "{0..7}", "`x.y`", "`*`", "`{`", "$", "-", "ü",
			"```",
		})
		name := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(piece, 1, 5).Draw(t, "pieces"),
				"")
		})
		text := name.Draw(t, "schema") + "." + name.Draw(t, "table")
		p, faults := parsePattern(text)
		if len(faults) > 0 {
			return
		}
		back, faults := parsePattern(p.String())
		if len(faults) > 0 || back.String() != p.String() {
			t.Fatalf("%s prints as %s, which reads as %s, %v", text, p.String(), back.String(), faults)
		}
	})
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"shop.product", "shop.order_{00..63}", "`a.b`.`c``d`", "*.*", "{0..1}.{0..1}*{0..1}*"} {
		f.Add(s, "shop", "order_17")
	}
	f.Fuzz(func(t *testing.T, text, schema, table string) {
		p, faults := parsePattern(text)
		for _, fault := range faults {
			if fault.at < 0 || fault.at > len(text) || fault.what == "" || fault.do == "" {
				t.Fatalf("%q: %+v", text, fault)
			}
		}
		if len(faults) > 0 {
			return
		}
		back, faults := parsePattern(p.String())
		if len(p.String()) <= maxPattern && (len(faults) > 0 || back.match(schema, table) != p.match(schema, table)) {
			t.Fatalf("%q prints as %q, which is not the same: %v", text, p.String(), faults)
		}
		if name, ok := p.exact(); ok && !p.match(name.schema, name.table) {
			t.Fatalf("%q does not match its own table", text)
		}
	})
}

func TestPatternsMatchWithoutLetterCaseWhereTheSourceDoes(t *testing.T) {
	for _, c := range []struct{ pattern, schema, table string }{
		{"Shop.Product", "shop", "product"},
		{"shop.product", "SHOP", "Product"},
		{"Shop_{00..63}.Order*", "shop_07", "orders"},
		{"*.`Ünï.X`", "a", "ünï.x"},
	} {
		r := mustNew(t, spectest.Keys("p:{id}").On(c.pattern))
		table := spectest.Product()
		table.Schema, table.Name = c.schema, c.table
		if needs, _ := r.Bind(table); needs != nil || r.Wants(c.schema, c.table) {
			t.Errorf("%s matches %s.%s, byte by byte", c.pattern, c.schema, c.table)
		}
		if len(r.Unfit([]*event.Table{table})) == 0 {
			t.Errorf("%s is not missing among %s", c.pattern, table)
		}
		folded := *table
		folded.FoldNames = true
		if needs, err := r.Bind(&folded); needs == nil || err != nil || !r.WantsFolded(c.schema, c.table) ||
			!r.WantsFolded(c.schema, "") {
			t.Errorf("%s does not match %s.%s without letter case (%v)", c.pattern, c.schema, c.table, err)
		}
		if missing := r.Unfit([]*event.Table{&folded}); len(missing) > 0 {
			t.Error(missing)
		}
	}
}
