package keyspace

import (
	md5sum "crypto/md5"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// What a template makes matches, and what only looks like it does not.
func TestATemplateMatchesItsKeysAndNoOthers(t *testing.T) {
	const id = "0b5e3f7a-1c2d-4e5f-8a9b-0c1d2e3f4a5b"
	md5 := strings.Repeat("0123abcf", 4)
	for _, c := range []struct {
		template string
		its      []string
		others   []string
	}{
		{
			"product:{id}",
			[]string{"product:0", "product:17", "product:18446744073709551615"},
			[]string{
				"", "product", "product:", "product:x", "product:01", "product:00", "product:-1", "product:+1", "product:1 ",
				"product:1\n", "product:1:reviews", "product:99999999999999999999", "product:18446744073709551616",
				"products:1", "Product:1", "xproduct:1", "product:١", "product:1.0", "product:1e3",
			},
		},
		{
			"n:{n}",
			[]string{"n:0", "n:-1", "n:2147483647", "n:-2147483648"},
			[]string{"n:-0", "n:-", "n:--1", "n:2147483648", "n:-2147483649", "n:-01"},
		},
		{"{tiny}", []string{"-128", "127", "0"}, []string{"128", "-129", "1000", "007"}},
		{"{small}", []string{"0", "65535"}, []string{"65536", "-1"}},
		{"{tax}", []string{"0.0", "999.9"}, []string{"-1.0", "1000.0"}},
		{"b:{batch}", []string{"b:00017", "b:99999", "b:4294967295"}, []string{"b:17", "b:000017", "b:0017", "b:-0017"}},
		{
			"price:{price}",
			[]string{"price:9.90", "price:-0.05", "price:0.00", "price:12345678.99"},
			[]string{"price:9.9", "price:9", "price:.90", "price:09.90", "price:123456789.00", "price:9.900"},
		},
		{"{score}", []string{"0", "-1.5", "1e20", "2.5e-7", "1000"}, []string{"", "1.", ".5", "01", "1E20", "1e+20", "inf"}},
		{
			"day:{day}",
			[]string{"day:2026-01-01", "day:0000-00-00"},
			[]string{
				"day:2026-1-1", "day:2026-13-01", "day:2026-01-32", "day:20260101", "day:2026-01-01 00:00:00",
				"day:26-01-01",
			},
		},
		{
			"at:{at}",
			[]string{"at:2026-01-01 23:59:59.123"},
			[]string{
				"at:2026-01-01 23:59:59", "at:2026-01-01 23:59:59.1234", "at:2026-01-01T23:59:59.123",
				"at:2026-01-01 24:00:00.000", "at:2026-01-01",
			},
		},
		{
			"{took}",
			[]string{"00:00:00", "-838:59:59", "100:00:00"},
			[]string{"0:00:00", "000:00:00", "12:60:00", "12:00", "900:00:00"},
		},
		{"y:{born}", []string{"y:0000", "y:1901", "y:2155"}, []string{"y:1900", "y:2156", "y:0", "y:26"}},
		{
			"{uuid}",
			[]string{id},
			[]string{strings.ToUpper(id), id[1:], id + "0", strings.ReplaceAll(id, "-", ""), "x" + id[1:]},
		},
		{
			"ip:{four}",
			[]string{"ip:0.0.0.0", "ip:255.10.1.99"},
			[]string{"ip:256.0.0.0", "ip:1.2.3", "ip:01.2.3.4", "ip:1.2.3.4.5"},
		},
		{
			"ip:{six}",
			[]string{
				"ip:::", "ip:::1", "ip:1::", "ip:1:2:3:4:5:6:7:8", "ip:::2:3:4:5:6:7:8", "ip:1:2:3:4:5:6:7::", "ip:::1.2.3.4",
				"ip:::ffff:1.2.3.4",
			},
			[]string{"ip:", "ip:1", "ip:1.2.3.4", "ip:G::1", "ip:01::", "ip:FE80::1"},
		},
		{
			"status:{status}",
			[]string{"status:live", "status:it's", "status:out of stock", "status:"},
			[]string{"status:dead", "status:Live", "status:live ", "status:it", "status:out"},
		},
		{"s:{status|upper|md5}", []string{fmt.Sprintf("s:%x", md5sum.Sum([]byte("LIVE")))}, []string{"s:" + md5, "s:live"}},
		{"s:{status|upper}", []string{"s:LIVE", "s:IT'S"}, []string{"s:live"}},
		{"hot:{id}:{0..7}", []string{"hot:1:0", "hot:1:7"}, []string{"hot:1:8", "hot:1:07", "hot:1:", "hot:1", "hot:1:-1"}},
		{"hot:{008..123}", []string{"hot:008", "hot:123"}, []string{"hot:007", "hot:124", "hot:8", "hot:0008"}},
		{"hot:{19..20}{3..3}", []string{"hot:193", "hot:203"}, []string{"hot:183", "hot:213", "hot:194"}},
		{"hot:{8..123}", []string{"hot:8", "hot:123", "hot:99"}, []string{"hot:7", "hot:124", "hot:08"}},
		{"m:{sku|md5}", []string{"m:" + md5}, []string{"m:" + strings.ToUpper(md5), "m:" + md5[1:], "m:" + md5 + "0", "m:x"}},
		{"m:{sku|md5|upper}", []string{"m:" + strings.ToUpper(md5)}, []string{"m:" + md5}},
		{"m:{sku|sha1}", []string{"m:" + md5 + "01234567"}, []string{"m:" + md5}},
		{"m:{sku|sha256}", []string{"m:" + md5 + md5}, []string{"m:" + md5, "m:" + md5 + md5 + "0"}},
		{"c:{sku|crc32}", []string{"c:0", "c:4294967295"}, []string{"c:4294967296", "c:01", "c:-1"}},
		{"c:{sku|crc32|mod:16|pad:2}", []string{"c:00", "c:15"}, []string{"c:16", "c:0", "c:007"}},
		{"c:{id|mod:64}", []string{"c:0", "c:63"}, []string{"c:64", "c:-1", "c:00"}},
		{"c:{n|mod:64}", []string{"c:0", "c:-63"}, []string{"c:64", "c:-64", "c:-0"}},
		{"c:{n|mod:1}", []string{"c:0"}, []string{"c:-0", "c:-1", "c:1", "c:-"}},
		{"c:{n|pad:4}", []string{"c:0017", "c:-017", "c:12345", "c:-1234"}, []string{"c:17", "c:-17", "c:-0017", "c:00017"}},
		{"h:{sku|hex}", []string{"h:", "h:00ff"}, []string{"h:0", "h:0g", "h:0F"}},
		{"h:{sku|hex|upper}", []string{"h:", "h:00FF"}, []string{"h:0", "h:0f"}},
		{"f:{score|upper}", []string{"f:1E20", "f:-1.5"}, []string{"f:1e20", "f:"}},
		{"h:{sku|pad:3|trim|hex}", []string{"h:61", "h:"}, []string{"h:6"}},
		{"h:{id|hex}", []string{"h:3137"}, []string{"h:", "h:3a", "h:00"}},
		{"h:{uuid|hex}", []string{"h:" + strings.Repeat("30", 36)}, []string{"h:30"}},
		{
			"b:{sku|base64}",
			[]string{"b:", "b:QQ==", "b:QUI=", "b:QUJD"},
			[]string{"b:QR==", "b:QQ=", "b:Q===", "b:QUJ=", "b:QUJDQ"},
		},
		{
			"b:{uuid|base64}",
			[]string{"b:" + strings.Repeat("MDAw", 12)},
			[]string{"b:" + strings.Repeat("MDAw", 11) + "MA==", "b:" + strings.Repeat("MDAw", 11), "b:"},
		},
		{
			"u:{sku|urlencode}:x",
			[]string{"u::x", "u:a%3Ab~:x"},
			[]string{"u:a:b:x", "u:%3a:x", "u:%41:x", "u:a%3:x", "u:é:x"},
		},
		{"u:{at|urlencode}", []string{"u:2026-01-01%2000%3A00%3A00.000"}, []string{"u:x", "u:%41"}},
		{"t:{n|default:none}", []string{"t:5", "t:none"}, []string{"t:", "t:None", "t:nonee"}},
		{"t:{sku|md5|default:a.c|upper}", []string{"t:A.C"}, []string{"t:a.c", "t:ABC"}},
		{"{{{id}}}:items", []string{"{17}:items"}, []string{"17:items", "{17}:item", "{x}:items"}},
		{"a.c:{{*}}", []string{"a.c:{*}"}, []string{"abc:{*}", "a.c:{x}", "a.c:{*}x", "a.c:{{*}}"}},
		{"{schema}/{table|upper}/{id}", []string{"shop/PRODUCT/1"}, []string{"shop/product/1", "shop/ORDER/1", "/PRODUCT/1"}},
	} {
		k := mustNew(t, "", []*event.Table{product()}, spectest.Keys(c.template))
		if len(k.Blind()) > 0 {
			t.Errorf("%s: %v", c.template, k.Blind())
		}
		for _, key := range c.its {
			if !matches(k, key) {
				t.Errorf("%s does not match %q", c.template, key)
			}
		}
		for _, key := range c.others {
			if matches(k, key) {
				t.Errorf("%s matches %q", c.template, key)
			}
		}
	}
}

// The mapping says what free text may be; where a type or a filter says it, that counts instead.
func TestFreeTextIsWhatTheMappingSays(t *testing.T) {
	k := mustNew(t, "", []*event.Table{product()},
		spectest.Keys("sku:{sku}", "md5:{sku|md5}", "{id}:{name|lower}:{Name|trim}").Free("SKU", "[^:]+").
			Free("name", `(?i:ann|b.b)?`))
	if b := k.Blind(); len(b) > 0 {
		t.Error(b)
	}
	for key, want := range map[string]bool{
		"sku:a": true, "sku:ä b\n\xff": true, "sku:a:b": false, "sku:": false,
		"md5:a": false, "md5:" + strings.Repeat("0", 32): true,
		"1:ann:BOB": true, "1::": true, "1:b\nb:": true, "1:anna:": false, "x:ann:ann": false,
	} {
		if got := matches(k, key); got != want {
			t.Errorf("%q: %v", key, got)
		}
	}
}

func TestATemplateThatCouldMakeAnythingSaysWhatToWrite(t *testing.T) {
	gone := spectest.Keys("gone:{id}", "gone:{id|md5}", "gone:all", "{table}:1").On("shop.gone_*")
	m := spectest.Keys("sku:{id}:{sku|lower}", "product:{id}", "x:{nope}", "e:{extra}", "t:{thumb|pad:8}", "r:{`row-no`}")
	m.Hash = &spec.Hash{Key: spectest.Text("h:{id}", 30), Field: spectest.Text("{`sku`}", 31)}
	k := mustNew(t, "", []*event.Table{product(), {Schema: "shop", Name: "other"}}, m, gone)
	const by = "or delete by hand what is stale"
	want := []string{
		`f.yaml:5:19: what "sku:{id}:{sku|lower}" made cannot be searched for: {sku|lower} is free text, which could be anything: ` +
			`say in the mapping what the text may be, such as scope: {sku: "[^:]+"}, ` + by,
		`f.yaml:7:12: what "x:{nope}" made cannot be searched for: table shop.product has no column "nope" now, so what {nope} was is not known: ` +
			`say in the mapping what the text may be, such as scope: {nope: "[0-9]+"}, ` + by,
		`f.yaml:8:12: what "e:{extra}" made cannot be searched for: column extra of shop.product is JSON now, so what {extra} was is not known: ` +
			`say in the mapping what the text may be, such as scope: {extra: "[0-9]+"}, ` + by,
		`f.yaml:9:12: what "t:{thumb|pad:8}" made cannot be searched for: {thumb|pad:8} is free text, which could be anything: ` +
			`say in the mapping what the text may be, such as scope: {thumb: "[^:]+"}, ` + by,
		"f.yaml:10:12: what \"r:{`row-no`}\" made cannot be searched for: table shop.product has no column \"row-no\" now, so what {`row-no`} was is not known: " +
			`say in the mapping what the text may be, such as scope: {"row-no": "[0-9]+"}, ` + by,
		"f.yaml:31:10: what \"{`sku`}\" made cannot be searched for: {sku} is free text, which could be anything: " +
			`say in the mapping what the text may be, such as scope: {sku: "[^:]+"}, ` + by,
		`f.yaml:5:15: what "gone:{id}" made cannot be searched for: no table matches "shop.gone_*" now, so what {id} was is not known: ` +
			`say in the mapping what the text may be, such as scope: {id: "[0-9]+"}, ` + by,
		`f.yaml:8:10: what "{table}:1" made cannot be searched for: no table matches "shop.gone_*" now, so what {table} was is not known: ` +
			`delete by hand what is stale`,
	}
	var got []string
	for _, b := range k.Blind() {
		got = append(got, b.String())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	// What needs no table is found without one, and so is what the mapping describes.
	if !matches(k, "gone:all") || !matches(k, "gone:"+strings.Repeat("a", 32)) || matches(k, "gone:17") {
		t.Error("not what is known without the table")
	}
	if k = mustNew(t, "", nil, gone.Free("id", "[0-9]+")); !matches(k, "gone:17") {
		t.Error("what the mapping says does not count without the table")
	}
	if b := k.Blind(); len(b) != 1 || b[0].Mapping.Spec.Table.Value != "shop.gone_*" || b[0].Placeholder != "{table}" {
		t.Error(b)
	}
}

// Labels that the server does not show as they are could be others: such an ENUM is free text.
func TestAnEnumIsItsLabelsOnlyWhereTheyAreCertain(t *testing.T) {
	for typ, certain := range map[string]bool{
		"enum('a','b')": true, "ENUM( 'a' , 'b' )": true, "enum('a','b ')": true, "enum('a','b','ü')": true,
		"enum": false, "enum('a','b','?')": false, `enum('a','b','\\')`: false, "enum('a','b": false, "enum('a' 'b')": false,
		"set('a','b')": false, "enum('a','b','\xff')": false,
	} {
		c := columnOf("c", typ, event.ClassEnum)
		table := &event.Table{Schema: "shop", Name: "product", Columns: []event.Column{c}}
		k := mustNew(t, "", []*event.Table{table}, spectest.Keys("e:{c}"))
		if got := len(k.Blind()) == 0 && matches(k, "e:b") && !matches(k, "e:c"); got != certain {
			t.Errorf("%s: %v", typ, got)
		}
		c.Collation = "" // labels may be bytes
		if all := labels(&c); certain && (all == nil) != strings.Contains(typ, "ü") {
			t.Errorf("%s: %q", typ, all)
		}
	}
}

// A type may come without its numbers, by another name or not at all.
func TestATypeThatIsHalfKnownHoldsMore(t *testing.T) {
	unknown := columnOf("c", "", event.ClassDecimal)
	e, ok := placeholder(&router.Node{Lit: "c"}, &unknown, "")
	if !ok || !regexp.MustCompile("^"+e+"$").MatchString("-1.50") {
		t.Error(e)
	}
	for typ, c := range map[string]struct {
		class event.Class
		keys  []string
	}{
		"integer":               {event.ClassInt, []string{"-9223372036854775808"}},
		"int zerofill":          {event.ClassInt, []string{"0000000017"}},
		"bigint zerofill":       {event.ClassInt, []string{"00000000000000000017"}},
		"decimal":               {event.ClassDecimal, []string{"9999999999", "-1"}},
		"numeric(5)":            {event.ClassDecimal, []string{"99999"}},
		"decimal(3,1) zerofill": {event.ClassDecimal, []string{"07.5"}},
		"decimal( 5 , 5 )":      {event.ClassDecimal, []string{"0.12345"}},
		"":                      {event.ClassTemporal, []string{"2026-01-01", "2026-01-01 00:00:00.1", "-00:00:01"}},
		"datetime /* 5.3*/":     {event.ClassTemporal, []string{"2026-01-01 00:00:00"}},
		"inet":                  {event.ClassInet, []string{"1.2.3.4", "::1"}},
		"double zerofill":       {event.ClassFloat, []string{"0000000000000000000001", "00000000000000000001.5"}},
	} {
		table := &event.Table{Schema: "shop", Name: "product", Columns: []event.Column{columnOf("c", typ, c.class)}}
		k := mustNew(t, "", []*event.Table{table}, spectest.Keys("{c}"))
		for _, key := range c.keys {
			if !matches(k, key) || matches(k, key+"x") {
				t.Errorf("%q: %s", typ, key)
			}
		}
	}
}

func shards(from, to int) (all []*event.Table) {
	for i := from; i < to; i++ {
		all = append(all, &event.Table{Schema: "shop", Name: fmt.Sprintf("order_%02d", i), Columns: product().Columns})
	}
	return all
}

// A mapping makes no keys while its table lacks a column that it names. What it made under the other definitions is
// known all the same.
func TestADefinitionThatLacksAColumnMakesNoKeys(t *testing.T) {
	of := func(name string, columns ...event.Column) *event.Table {
		return &event.Table{Schema: "shop", Name: name, Columns: columns}
	}
	id, small, large := columnOf("id", "int", event.ClassInt), columnOf("w", "tinyint", event.ClassInt),
		columnOf("w", "int", event.ClassInt)
	document := columnOf("w", "json", event.ClassJSON)
	was, lacks, is := of("product", id, small), of("product", id), of("product", large, id)
	m := spectest.Keys("p:{id}:{w}")
	k := mustNew(t, "", []*event.Table{was, lacks, of("product", id, document), of("product"), is}, m)
	if b := k.Blind(); len(b) > 0 || !matches(k, "p:1:2") || !matches(k, "p:1:70000") || matches(k, "p:1:x") {
		t.Error(b)
	}
	folds := func(t *event.Table) *event.Table {
		t.FoldNames = true
		return t
	}
	is = folds(of("product", id, small))
	if b := mustNew(t, "", []*event.Table{folds(of("Product", id)), is}, m).Blind(); len(b) > 0 {
		t.Error(b)
	}
	for what, tables := range map[string][]*event.Table{
		"no definition has it":        {lacks},
		"that of another table":       {of("order_1", id), of("order_2", id, small)},
		"of one of another case":      {of("order_A", id), of("order_a", id, small)},
		"of one that nobody has seen": {folds(of("order_A")), of("order_a", id, small)},
		"each lacks another one":      {of("product", id), of("product", small)},
		"it can be anything":          {lacks, of("product", id, columnOf("w", "varchar", event.ClassText))},
	} {
		m := m
		if tables[0].Name != "product" {
			m = m.On("shop.order_*")
		}
		if b := mustNew(t, "", tables, m).Blind(); len(b) == 0 {
			t.Errorf("%s: all keys are known", what)
		}
	}
}

// Each table makes its own keys; what all of them make alike is one target.
func TestEveryTableOfAPatternMakesItsKeys(t *testing.T) {
	tables := append(shards(0, 12), &event.Table{Schema: "shop", Name: "orders", Columns: product().Columns})
	tables[3].Columns = []event.Column{columnOf("id", "tinyint", event.ClassInt)}
	k := mustNew(t, "", tables, spectest.Keys("{table}:{id}", "order:{id}").On("shop.order_*"),
		spectest.Keys("{table}:{id}").On("shop.order_{00..01}"))
	for key, want := range map[string][]string{
		"order_07:1":   {"0 {table}:{id}"},
		"order_7:1":    {},
		"order_12:1":   {},
		"orders:1":     {},
		"order_01:1":   {"0 {table}:{id}", "1 {table}:{id}"},
		"order_03:-5":  {"0 {table}:{id}"},
		"order_03:128": {},
		"order_04:-5":  {},
		"order:1":      {"0 order:{id}"}, // by both expressions, and once
		"order:-5":     {"0 order:{id}"},
	} {
		if d := cmp.Diff(want, makers(k, key)); d != "" {
			t.Errorf("%s (-want +got):\n%s", key, d)
		}
	}
	if n := len(k.Targets()); n != 3 {
		t.Errorf("%d targets", n)
	}
	for _, h := range k.heads {
		for _, tail := range h.tails {
			if len(tail.targets) > 1 && h.text != "order_00:" && h.text != "order_01:" {
				t.Errorf("%s holds a target for each table", h.text)
			}
		}
	}
}

// A key may begin with the heads of many templates, of which some begin with each other.
func TestAllTemplatesOfAKeyAreFound(t *testing.T) {
	k := mustNew(t, "", []*event.Table{product()},
		spectest.Keys("{id}", "1{id}", "12:{id}", "12:3", "12:{id}:x", "12", "12:4{id}", "2:{id}", "11{id}"))
	for key, want := range map[string][]string{
		"12:3":    {"0 12:3", "0 12:{id}"},
		"12":      {"0 12", "0 1{id}", "0 {id}"},
		"12:42":   {"0 12:4{id}", "0 12:{id}"},
		"12:42:x": {"0 12:{id}:x"},
		"13":      {"0 1{id}", "0 {id}"},
		"":        {}, "1": {"0 {id}"}, "3:": {}, "~": {},
	} {
		got := makers(k, key)
		slices.Sort(got)
		slices.Sort(want)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", key, d)
		}
	}
}

func TestOnlyKeysWithThePrefixMatch(t *testing.T) {
	k := mustNew(t, "app[1]:", []*event.Table{product()}, spectest.Keys("product:{id}", "prod", "prefix:{id}"))
	for key, want := range map[string]bool{
		"app[1]:product:1": true, "app[1]:prod": true, "product:1": false, "app[1]:app[1]:product:1": false, "app[1]:": false,
		"app[1]product:1": false,
	} {
		if got := matches(k, key); got != want {
			t.Errorf("%q: %v", key, got)
		}
	}
	if got, want := k.Pattern(), `app\[1\]:pr*`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if k = mustNew(t, "x", nil); k.Pattern() != "" || matches(k, "x") || matches(k, "") {
		t.Errorf("no mapping matches %s", k.Pattern())
	}
	if k = mustNew(t, "", []*event.Table{product()}, spectest.Keys("{id}", "a*c")); k.Pattern() != "*" {
		t.Error(k.Pattern())
	}
}

// An expression of a mapping may match anything; what freshet keeps for itself is not the mapping's.
func TestFreshetsOwnKeysNeverMatch(t *testing.T) {
	k := mustNew(t, "", []*event.Table{product()}, spectest.Keys("{sku}").Free("sku", "[\\x00-\\x07]?.*"))
	for key, want := range map[string]bool{
		"freshet:v:{a}": false, "{tag}freshet:v:a": false, "freshet": true, "xfreshet:": true, "{}": true, "": true,
	} {
		if got := matches(k, key); got != want {
			t.Errorf("%q: %v", key, got)
		}
	}
}

// Of a hash or a set only what its template made is the mapping's.
func TestFieldsAndMembersAreMatchedToo(t *testing.T) {
	m := spectest.Keys("plain:{id}")
	m.Hash = &spec.Hash{Key: spectest.Text("h:{id}", 30), Field: spectest.Text("{table}:{n}", 31)}
	m.Set = &spec.Set{Key: spectest.Text("s:{id}", 33), Member: spectest.Text("all", 34)}
	k := mustNew(t, "", append(shards(0, 2), product()), m.On("shop.*"))
	fields := func(key string, texts ...string) (all []string) {
		k.Match(key, func(t *Target) {
			for _, f := range texts {
				if t.Field(f) {
					all = append(all, t.Action.Kind.String()+" "+f)
				}
			}
		})
		return all
	}
	if d := cmp.Diff([]string{"hash order_00:1", "hash order_01:-5", "hash product:7"},
		fields("h:1", "order_00:1", "order_01:-5", "order_02:1", "product:7", "product:07", "product", "")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"set all"}, fields("s:1", "all", "al", "all:")); d != "" {
		t.Error(d)
	}
	if got := fields("plain:1", "", "1"); got != nil || (*Target)(nil).Field("x") {
		t.Errorf("fields %q of what has none", got)
	}
}

// An expression can be right by itself and too deep in a key.
func TestAnExpressionThatIsTooDeepIsAnErrorWithItsPlace(t *testing.T) {
	deep := "a"
	for {
		deeper := "(" + deep + ")"
		if _, err := regexp.Compile(deeper); err != nil {
			break
		}
		deep = deeper
	}
	m := spectest.Keys("k:{id}:{sku}:{n}").Free("sku", deep)
	r, err := router.New(spectest.Specs(m), router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(r.Mappings(), []*event.Table{product()}, "")
	if err == nil || !strings.HasPrefix(err.Error(), "keyspace: f.yaml:5:10: ") {
		t.Error(err)
	}
	m = spectest.Keys("k")
	m.Hash = &spec.Hash{Key: spectest.Text("h", 30), Field: spectest.Text("{id}:{sku}:{n}", 31)}
	if r, err = router.New(spectest.Specs(m.Free("sku", deep)), router.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err = New(r.Mappings(), []*event.Table{product()}, ""); err == nil {
		t.Error("the field has no error")
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1, 20, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var templates []string
			for i := range n {
				templates = append(templates, fmt.Sprintf("kind-%d:{id}", i), fmt.Sprintf("list-%d:{n}:{day}", i))
			}
			k := mustNew(b, "", []*event.Table{product()}, spectest.Keys(templates[:n]...))
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = fmt.Sprintf("session:%x", i*2654435761)
				switch {
				case i%100 == 0:
					keys[i] = fmt.Sprintf("kind-%d:%d", i%max(1, n/2), i)
				case i%10 == 1:
					keys[i] = fmt.Sprintf("kind-%d", i) // begins as many do
				}
			}
			hits, i := 0, 0
			each := func(*Target) { hits++ }
			b.ReportAllocs()
			for b.Loop() {
				k.Match(keys[i%len(keys)], each)
				i++
			}
			if hits == 0 && i >= len(keys) {
				b.Fatal("nothing matched")
			}
		})
	}
}
