package router

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

// keysOf returns the keys that a template makes from one row of shop.product.
func keysOf(t *testing.T, template string, r row) []string {
	t.Helper()
	f := newFeed(t, mustNew(t, spectest.Keys(template)), spectest.Product())
	f.change(nil, r)
	return f.keys()
}

func TestATemplateMakesKeys(t *testing.T) {
	r := row{
		"id": uint64(17), "category_id": -3, "name": "Blue Jar", "price": dec("9.90"), "sku": "AB-1",
		"thumb": []byte{0, 0xff}, "made": uint64(1999), "batch": zerofill("00042"),
	}
	for _, c := range []struct{ template, want string }{
		{"product:{id}", "product:17"},
		{"{id}", "17"},
		{"articles:all", "articles:all"},
		{"category:{category_id}:products", "category:-3:products"},
		{"{category_id}{id}", "-317"},
		{"price:{price}", "price:9.90"},
		{"sku:{sku|lower}", "sku:ab-1"},
		{"sku:{ sku | lower | hex }", "sku:61622d31"},
		{"sku:{`sku`}", "sku:AB-1"},
		{"{SKU}", "AB-1"},
		{"t:{thumb}", "t:\x00\xff"},
		{"t:{thumb|hex}", "t:00ff"},
		{"made:{made|mod:100}", "made:99"},
		{"batch:{batch}:{batch|mod:10}", "batch:00042:2"},
		{"{{order}}:{id}", "{order}:17"},
		{"{{{id}}}", "{17}"},
		{"{{{{{id}", "{{17"},
		{"}}{id}{{", "}17{"},
		{"{{id}}", "{id}"},
		{"{schema}:{table}:{id}", "shop:product:17"},
		{"{table|upper}:{id}", "PRODUCT:17"},
		{"{schema|crc32|mod:8}", "2"},
		{"ключ:{id}", "ключ:17"},
		{"$1:{id}", "$1:17"},
	} {
		got := keysOf(t, c.template, r)
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s makes %q, want %q", c.template, got, c.want)
		}
	}
}

func TestCopiesMultiplyAKey(t *testing.T) {
	r := row{"id": uint64(5)}
	for template, want := range map[string]string{
		"hot:{id}:{0..3}":       "hot:5:0 hot:5:1 hot:5:2 hot:5:3",
		"{id}:{08..11}":         "5:08 5:09 5:10 5:11",
		"{id}:{8..11}":          "5:8 5:9 5:10 5:11",
		"{0..1}{id}{00..02}":    "0500 1500 0501 1501 0502 1502",
		"x:{3..3}":              "x:3",
		"{0..10}{0..1}":         "00 10 20 30 40 50 60 70 80 90 100 01 11 21 31 41 51 61 71 81 91 101",
		"{ 0..1 }":              "0 1",
		"{1..11}{1..11}|unique": "",
	} {
		got := keysOf(t, template, r)
		if template == "{1..11}{1..11}|unique" {
			// 1 and 11 make 111 as 11 and 1 do.
			if len(got) != 120 {
				t.Errorf("%s makes %d keys, want 120 different ones", template, len(got))
			}
			continue
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s makes %q, want %q", template, got, want)
		}
	}
}

func TestAnUnquotedSchemaOrTableIsTheRowsOwn(t *testing.T) {
	table := &event.Table{Schema: "shop", Name: "product", Columns: []event.Column{
		{Name: "table", Class: event.ClassInt},
		{Name: "a-b", Class: event.ClassInt},
		{Name: "0..1", Class: event.ClassInt},
		{Name: "c`}|d", Class: event.ClassInt},
	}}
	f := newFeed(t, mustNew(t, spectest.Keys("{table}:{`table`}:{`a-b`|pad:3}:{`0..1`}:{`c``}|d`}")), table)
	f.change(nil, row{"table": 1, "a-b": 2, "0..1": 3, "c`}|d": 4})
	if got := f.keys(); got[0] != "product:1:002:3:4" {
		t.Errorf("got %q", got)
	}
}

func TestATemplateAtFaultIsToldWhereAndWhatToWrite(t *testing.T) {
	for _, c := range []struct {
		template string
		at       int
		what, do string
	}{
		{"", 0, "empty", "product:{id}"},
		{"user:{id", 5, "has no }", "close it"},
		{"user:{", 5, "has no }", "{{"},
		{"user:{id|lower", 5, "has no }", "close it"},
		{"user:id}", 7, "a } without a {", "}}"},
		{"user:{{id}", 9, "a } without a {", "}}"},
		{"user:{{{id}", 0, "", ""},
		{"user:{}", 5, "name no column", "{{"},
		{"user:{ }", 5, "name no column", "{column}"},
		{"user:{|lower}", 5, "name no column", "{column}"},
		{"user:{row.id}", 9, "unexpected '.'", "write {id}"},
		{"user:{id:lower}", 8, "unexpected ':'", "write {id|lower}"},
		{"user:{user-id}", 10, "unexpected '-'", "{`user-id`}"},
		{"user:{first name|lower}", 12, "unexpected 'n'", ""},
		{"user:{a{b}", 7, "unexpected '{'", "close the brace"},
		{"user:{0..7|pad:2}", 7, "unexpected '.'", "{00..07}"},
		{"user:{id|lwer}", 9, `unknown filter "lwer"`, `did you mean "lower"?`},
		{"user:{id|lowercase}", 9, `unknown filter`, `did you mean "lower"?`},
		{"user:{id|sha512}", 9, "unknown filter", "write one of base64, crc32"},
		{"user:{id|}", 9, "a filter is missing", "write one of"},
		{"user:{id||lower}", 9, "a filter is missing", "write one of"},
		{"user:{id|lower:3}", 14, "takes no argument", "write lower"},
		{"user:{id|lower(3)}", 14, "unexpected '('", ""},
		{"user:{id|mod}", 9, "mod has no number", "mod:16"},
		{"user:{id|mod:}", 9, "mod has no number", "mod:16"},
		{"user:{id|mod:x}", 13, "takes a number", "mod:16"},
		{"user:{id|mod:0}", 13, "takes a number", "mod:16"},
		{"user:{id|mod:-1}", 13, "takes a number", "mod:16"},
		{"user:{id|mod:+1}", 13, "takes a number", "mod:16"},
		{"user:{id|mod:1000000000000000001}", 13, "takes a number", "mod:16"},
		{"user:{id|mod: 3}", 13, "takes a number", "mod:16"},
		{"user:{id|pad:65}", 13, "from 1 to 64", "pad:5"},
		{"user:{id|default}", 9, "default has no value", "default:X"},
		{"user:{id|default:a|default:b}", 19, "never used", "remove"},
		{"user:{id|md5|mod:3}", 13, "mod needs an integer, and the text that md5 makes is none", "crc32|mod:3"},
		{"user:{id|default:x|mod:3}", 19, "default:x is none", "crc32|mod:3"},
		{"user:{table|mod:3}", 12, "the table's name is none", "crc32|mod:3"},
		{"user:{7..0}", 5, "counts backwards", "{0..7}"},
		{"user:{0..07}", 5, "different length", "{00..07}"},
		{"user:{0..1024}", 5, "more than 1024 copies", "smaller"},
		{"{0..99}{0..99}", 7, "more than 1024 copies", "smaller"},
		{"{0..9999999999}", 0, "more than 9 digits", "smaller"},
		{"user:{`id}", 6, "never closed", "second one"},
		{"user:{``}", 6, "no name", "write a name"},
		{"user:{`id`x}", 10, "unexpected 'x'", ""},
		{strings.Repeat("x", MaxKey+1), MaxKey, "longer than a key may be", ""},
	} {
		_, faults := parseTemplate(spec.Text{Value: c.template})
		if c.what == "" {
			if len(faults) > 0 {
				t.Errorf("%q: %+v, want none", c.template, faults)
			}
			continue
		}
		if len(faults) != 1 {
			t.Errorf("%.40q: %+v, want one fault", c.template, faults)
			continue
		}
		if f := faults[0]; f.at != c.at || !strings.Contains(f.what, c.what) || !strings.Contains(f.do, c.do) || f.do == "" {
			t.Errorf("%.40q: %+v, want %q, %q at %d", c.template, f, c.what, c.do, c.at)
		}
	}
}

func TestAllFaultsOfATemplateAreToldAtOnce(t *testing.T) {
	_, faults := parseTemplate(spec.Text{Value: "a:{}:{id|lwer|mod:x}:}:{b.c}:{id"})
	var at []int
	for _, f := range faults {
		at = append(at, f.at)
	}
	if want := []int{2, 9, 18, 21, 25, 29}; len(at) != len(want) {
		t.Fatalf("faults at %v, want %v: %+v", at, want, faults)
	} else {
		for i := range want {
			if at[i] != want[i] {
				t.Fatalf("faults at %v, want %v", at, want)
			}
		}
	}
}

// drawTemplate draws a template as a list of its parts.
func drawTemplate(t *rapid.T) *Template {
	name := rapid.SampledFrom([]string{
		"id", "name", "a-b", "schema", "table", "ü", "0", "0..7", "a`b", "x}y", "a|b",
		"$v",
	})
	filters := rapid.SliceOfN(rapid.SampledFrom([]Filter{
		{Name: "lower"},
		{Name: "upper"},
		{Name: "trim"},
		{Name: "pad", Arg: "5", hasArg: true, N: 5},
		{Name: "crc32"},
		{Name: "urlencode"},
	}), 0, 3)
	part := rapid.Custom(func(t *rapid.T) Node {
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			return Node{Kind: NodeLiteral, Lit: rapid.StringMatching("[a-z:{}|`. ]{1,5}").Draw(t, "literal")}
		case 1:
			from := rapid.IntRange(0, 3).Draw(t, "from")
			return Node{
				Kind: NodeCopies,
				Span: Span{from, from + rapid.IntRange(0, 2).Draw(t, "more"), rapid.SampledFrom([]int{0, 2, 3}).Draw(t, "width")},
			}
		case 2:
			return Node{
				Kind:    rapid.SampledFrom([]NodeKind{NodeSchema, NodeTable}).Draw(t, "special"),
				Filters: filters.Draw(t, "filters"),
			}
		}
		n := Node{Kind: NodeColumn, Lit: name.Draw(t, "column"), Filters: filters.Draw(t, "filters")}
		if rapid.Bool().Draw(t, "default") {
			n.Filters = append(n.Filters,
				Filter{Name: "default", Arg: rapid.StringMatching("[a-z: .`]{0,4}").Draw(t, "default"), hasArg: true})
		}
		return n
	})
	tmpl := &Template{}
	for _, n := range rapid.SliceOfN(part, 1, 6).Draw(t, "parts") {
		if last := len(tmpl.Parts) - 1; n.Kind == NodeLiteral && last >= 0 && tmpl.Parts[last].Kind == NodeLiteral {
			tmpl.Parts[last].Lit += n.Lit
			continue
		}
		tmpl.Parts = append(tmpl.Parts, n)
	}
	return tmpl
}

func TestAPrintedTemplateReadsAsItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tmpl := drawTemplate(t)
		back, faults := parseTemplate(spec.Text{Value: tmpl.String()})
		if len(faults) > 0 {
			t.Fatalf("%s: %+v", tmpl, faults)
		}
		if back.String() != tmpl.String() || len(back.Parts) != len(tmpl.Parts) {
			t.Fatalf("%s reads as %s", tmpl, back)
		}
		for i := range tmpl.Parts {
			a, b := &tmpl.Parts[i], &back.Parts[i]
			if a.Kind != b.Kind || a.Lit != b.Lit && a.Kind != NodeSchema && a.Kind != NodeTable || a.Span != b.Span ||
				len(a.Filters) != len(b.Filters) {
				t.Fatalf("%s: part %d reads as %s", tmpl, i, b)
			}
		}
	})
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"product:{id}", "{{order}}:{id|mod:16|pad:2}", "hot:{id}:{0..7}", "{`a``b`|default:x}",
		"{id|", "}{", "{0..}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tmpl, faults := parseTemplate(spec.Text{Value: text})
		for _, fault := range faults {
			if fault.at < 0 || fault.at > len(text) || fault.what == "" || fault.do == "" {
				t.Fatalf("%q: %+v", text, fault)
			}
		}
		if len(faults) > 0 {
			return
		}
		back, faults := parseTemplate(spec.Text{Value: tmpl.String()})
		if len(tmpl.String()) <= MaxKey && (len(faults) > 0 || back.String() != tmpl.String()) {
			t.Fatalf("%q prints as %q, which does not read as itself: %+v", text, tmpl.String(), faults)
		}
	})
}
