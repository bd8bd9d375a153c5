package keyspace

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/float"
	"github.com/freshet/freshet/router"
)

// kind is a type of column, with values as the canal hands them over.
type kind struct {
	event.Column
	value func(*rapid.T) event.Value
}

func printed(s string) event.Value { return event.Value{Kind: event.Text, Text: []byte(s)} }

// integer is an integer type with so many bits.
func integer(typ string, bits int) []kind {
	signed := kind{columnOf("", typ, event.ClassInt), func(t *rapid.T) event.Value {
		least := int64(-1) << (bits - 1)
		n := rapid.OneOf(rapid.Int64Range(least, -(least+1)), rapid.SampledFrom([]int64{least, 0, -1, -(least + 1)})).
			Draw(t, typ)
		return event.Value{Kind: event.Int, Num: uint64(n)}
	}}
	most := uint64(math.MaxUint64) >> (64 - bits)
	number := func(t *rapid.T) uint64 {
		return rapid.OneOf(rapid.Uint64Range(0, most), rapid.SampledFrom([]uint64{0, most})).Draw(t, typ)
	}
	positive := kind{unsigned(columnOf("", typ+" unsigned", event.ClassInt)), func(t *rapid.T) event.Value {
		return event.Value{Kind: event.Uint, Num: number(t)}
	}}
	filled := kind{unsigned(columnOf("", typ+"(6) unsigned zerofill", event.ClassInt)), func(t *rapid.T) event.Value {
		n := number(t)
		return event.Value{Kind: event.Uint, Num: n, Text: fmt.Appendf(nil, "%06d", n)}
	}}
	return []kind{signed, positive, filled}
}

// decimal is a DECIMAL of so many digits.
func decimal(whole, scale int) kind {
	typ := fmt.Sprintf("decimal(%d,%d)", whole+scale, scale)
	return kind{columnOf("", typ, event.ClassDecimal), func(t *rapid.T) event.Value {
		digits := func(n int) string {
			return rapid.OneOf(rapid.StringMatching(fmt.Sprintf("[0-9]{%d}", n)), rapid.Just(zeros(n))).Draw(t, typ)
		}
		s := strings.TrimLeft(digits(whole), "0")
		if s == "" {
			s = "0"
		}
		if scale > 0 {
			s += "." + digits(scale)
		}
		if strings.Trim(s, "0.") != "" && rapid.Bool().Draw(t, "negative") {
			s = "-" + s
		}
		return event.Value{Kind: event.Decimal, Text: []byte(s)}
	}}
}

func real(typ string, f float.Format) kind {
	return kind{columnOf("", typ, event.ClassFloat), func(t *rapid.T) event.Value {
		v := rapid.Float64Range(-1e300, 1e300).Draw(t, typ)
		if f.Single {
			v = float64(rapid.Float32Range(-3e38, 3e38).Draw(t, typ))
		}
		if f.Zerofill > 0 {
			v = math.Abs(v)
		}
		return printed(string(f.Append(nil, v)))
	}}
}

// drawn is a type whose values are numbers in a form.
func drawn(typ string, class event.Class, form string, bounds ...int) kind {
	return kind{columnOf("", typ, class), func(t *rapid.T) event.Value {
		var parts []any
		for i := 0; i < len(bounds); i += 2 {
			parts = append(parts, rapid.IntRange(bounds[i], bounds[i+1]).Draw(t, typ))
		}
		return printed(fmt.Sprintf(form, parts...))
	}}
}

func oneOf(typ string, class event.Class, texts ...string) kind {
	return kind{columnOf("", typ, class), func(t *rapid.T) event.Value {
		return printed(rapid.SampledFrom(texts).Draw(t, typ))
	}}
}

// kinds are all types of which keys are made.
func kinds() []kind {
	const day, clock = "%04d-%02d-%02d", "%02d:%02d:%02d"
	dayOf, clockOf := []int{0, 9999, 0, 12, 0, 31}, []int{0, 23, 0, 59, 0, 59}
	temporal := func(typ, form string, bounds ...int) kind { return drawn(typ, event.ClassTemporal, form, bounds...) }
	all := slices.Concat(integer("tinyint", 8), integer("smallint", 16), integer("mediumint", 24), integer("int", 32),
		integer("bigint", 64))
	return append(
		all,
		decimal(8, 2), decimal(0, 5), decimal(20, 0), decimal(35, 30), decimal(1, 1),
		real("double", float.Format{Decimals: float.NoDecimals, Width: float.Width(false, false)}),
		real("float", float.Format{Decimals: float.NoDecimals, Single: true, Width: float.Unlimited}),
		real("double(7,3)", float.Format{Decimals: 3}),
		real("float zerofill", float.Format{Decimals: float.NoDecimals, Single: true, Width: 12, Zerofill: 12}),
		oneOf("double", event.ClassFloat, "0", "-0", "1e15", "1e-15", "-1.5e300"),
		temporal("date", day, dayOf...),
		temporal("datetime", day+" "+clock, append(dayOf, clockOf...)...),
		temporal("datetime(3)", day+" "+clock+".%03d", append(append(dayOf, clockOf...), 0, 999)...),
		temporal("timestamp(6)", day+" "+clock+".%06d", append(append(dayOf, clockOf...), 0, 999999)...),
		temporal("time", clock, 0, 838, 0, 59, 0, 59),
		temporal("time(1)", "-"+clock+".%d", 0, 838, 0, 59, 0, 59, 0, 9),
		kind{columnOf("", "year", event.ClassTemporal), func(t *rapid.T) event.Value {
			n := rapid.OneOf(rapid.Just(0), rapid.IntRange(1901, 2155)).Draw(t, "year")
			return event.Value{Kind: event.Uint, Num: uint64(n), Text: fmt.Appendf(nil, "%04d", n)}
		}},
		drawn("uuid", event.ClassUUID, "%08x-%04x-%04x-%04x-%06x%06x",
			0, 1<<32-1, 0, 65535, 0, 65535, 0, 65535, 0, 1<<24-1, 0, 1<<24-1),
		drawn("inet4", event.ClassInet, "%d.%d.%d.%d", 0, 255, 0, 255, 0, 255, 0, 255),
		oneOf("inet6", event.ClassInet, "::", "::1", "1::", "::2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "1:2:3::5:6:7:8",
			"::1.2.3.4", "::ffff:255.0.0.1", "::ffff:0:1"),
		kind{columnOf("", "inet6", event.ClassInet), func(t *rapid.T) event.Value {
			b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "inet6")
			return printed(netip.AddrFrom16([16]byte(b)).String())
		}},
		oneOf("enum('live','it''s','a.b|c','ü')", event.ClassEnum, "", "live", "it's", "a.b|c", "ü"),
		oneOf("enum('a','?')", event.ClassEnum, "", "a", "😀"),
		oneOf("set('a','b')", event.ClassEnum, "", "a", "a,b"),
		kind{columnOf("", "varchar(64)", event.ClassText), func(t *rapid.T) event.Value {
			return printed(rapid.String().Draw(t, "text"))
		}},
		kind{columnOf("", "varbinary(64)", event.ClassBinary), func(t *rapid.T) event.Value {
			return event.Value{Kind: event.Bytes, Text: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")}
		}},
		kind{columnOf("", "", event.ClassUnknown), func(t *rapid.T) event.Value {
			return printed(rapid.SampledFrom([]string{"", "-17", "x y", " é "}).Draw(t, "unknown"))
		}},
	)
}

// spelled returns each filter as templates can have it, with different arguments if it takes one.
func spelled(t *testing.T) (all []string) {
	for _, name := range router.Filters() {
		before := len(all)
		for _, argument := range []string{"", ":3", ":25", ":1000", ":-X é:"} {
			if _, err := router.New(spectest.Specs(spectest.Keys("{c|"+name+argument+"}")), router.Options{}); err == nil {
				all = append(all, name+argument)
			}
		}
		if len(all) == before {
			t.Errorf("%s takes none of these arguments: add one", name)
		}
	}
	return all
}

// template draws a template over a table's columns.
func template(t *rapid.T, table *event.Table, filters []string) string {
	var b strings.Builder
	for range rapid.IntRange(1, 4).Draw(t, "parts") {
		some := func(what string) string {
			all := rapid.SliceOfN(rapid.SampledFrom(filters), 0, 3).Draw(t, what)
			return strings.Join(append([]string{what}, all...), "|")
		}
		switch rapid.IntRange(0, 9).Draw(t, "part") {
		case 0:
			b.WriteString(rapid.SampledFrom([]string{"{0..12}", "{007..011}", "{95..105}"}).Draw(t, "copies"))
		case 1:
			b.WriteString("{" + some(rapid.SampledFrom([]string{"schema", "table"}).Draw(t, "name")) + "}")
		case 2, 3, 4:
			b.WriteString(rapid.SampledFrom([]string{":", "p:", "a.b*", "{{x}}", "é|"}).Draw(t, "literal"))
		default:
			c := rapid.SampledFrom(table.Columns).Draw(t, "column")
			b.WriteString("{" + some(c.Name) + "}")
		}
	}
	return b.String()
}

// Whatever the router makes from a row, the keyspace of its mappings matches, or says that it does not look for it.
func TestEveryKeyOfARowIsFound(t *testing.T) {
	filters, types := spelled(t), kinds()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"product", "Order_07", "a.b"}).Draw(t, "table")
		table := &event.Table{Schema: "shop", Name: name}
		var values []func(*rapid.T) event.Value
		for i, k := range rapid.SliceOfN(rapid.SampledFrom(types), 1, 3).Draw(t, "columns") {
			k.Name = fmt.Sprintf("c%d", i)
			table.Columns, values = append(table.Columns, k.Column), append(values, k.value)
		}
		m := spectest.Keys(template(t, table, filters)).On("shop.*")
		m.Hash = &spec.Hash{
			Key:   spectest.Text("h"+template(t, table, filters), 30),
			Field: spectest.Text(template(t, table, []string{"md5", "lower"}), 31),
		}
		if strings.Contains(m.Hash.Field.Value, "..") {
			return // copies are for keys
		}
		described := rapid.Bool().Draw(t, "described")
		for _, c := range table.Columns {
			if named := "{" + c.Name; described && strings.Contains(m.Keys[0].Value+m.Hash.Key.Value+m.Hash.Field.Value, named) {
				m = m.Free(c.Name, ".*")
			}
		}
		r, err := router.New(spectest.Specs(m), router.Options{})
		if err != nil {
			return // mod of what is no integer, or default twice
		}
		needs, err := r.Bind(table)
		if err != nil {
			return // mod of what is no integer
		}
		prefix := rapid.SampledFrom([]string{"", "app*:"}).Draw(t, "prefix")
		k, err := New(r.Mappings(), []*event.Table{table}, prefix)
		if err != nil {
			t.Fatal(err)
		}
		if described && len(k.Blind()) > 0 {
			t.Fatal(k.Blind())
		}
		blind := map[event.Action]bool{}
		for _, b := range k.Blind() {
			blind[event.ActionDelete] = blind[event.ActionDelete] || b.Template.Pos == m.Keys[0].Pos
			blind[event.ActionHash] = blind[event.ActionHash] || b.Template.Pos != m.Keys[0].Pos
		}
		for range 4 {
			var image []event.Value
			for _, n := range needs {
				v := event.Value{Kind: event.Null}
				if rapid.IntRange(0, 5).Draw(t, "null") > 0 {
					v = values[n.Column](t)
				}
				image = append(image, v)
			}
			for _, key := range made(r, table, image) {
				if got := found(k, prefix+key.key, key.action, key.fields); got == blind[key.action] && !reserved(key.key) {
					t.Fatalf("%+v is found: %v, and blind: %v\n%q %q %q\n%+v", key, got, blind[key.action], m.Keys[0].Value,
						m.Hash.Key.Value, m.Hash.Field.Value, table.Columns)
				}
			}
		}
	})
}

// The same for each filter alone over each type.
func TestEveryFilterOfEveryTypeIsFound(t *testing.T) {
	for _, filter := range append([]string{""}, spelled(t)...) {
		for _, kind := range kinds() {
			kind.Name = "c"
			m := spectest.Keys(strings.Replace("k:{c|"+filter+"}:x", "|}", "}", 1)).Free("c", ".*")
			table := &event.Table{Schema: "shop", Name: "product", Columns: []event.Column{kind.Column}}
			r, err := router.New(spectest.Specs(m), router.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Bind(table); err != nil {
				continue // mod of what is no integer
			}
			k, err := New(r.Mappings(), []*event.Table{table}, "")
			if err != nil {
				t.Fatal(err)
			}
			values := rapid.Custom(kind.value)
			for i := range 10 {
				for _, key := range made(r, table, []event.Value{values.Example(i)}) {
					if !found(k, key.key, key.action, nil) {
						t.Errorf("%s of %s: %q is not found", m.Keys[0].Value, kind.Type, key.key)
					}
				}
			}
		}
	}
}

// key is one that the router made.
type key struct {
	key    string
	action event.Action
	fields [][]byte
}

// made returns the keys of a row.
func made(r *router.Router, table *event.Table, image []event.Value) (all []key) {
	var b event.Batch
	r.Route(&b, &event.Change{Table: table, Tx: &event.Tx{}, Op: event.Delete, Before: image})
	for i := range b.Invalidations {
		fields, err := b.Fields(i).All()
		if err != nil {
			panic(err)
		}
		all = append(all, key{b.Key(i), b.Invalidations[i].Action, fields})
	}
	return all
}

// found reports whether a target of the action matches the key, and its first field.
func found(k *Keyspace, key string, action event.Action, fields [][]byte) (ok bool) {
	k.Match(key, func(t *Target) {
		ok = ok || t.Action.Kind == action && (len(fields) == 0 || t.Field(string(fields[0])))
	})
	return ok && strings.HasPrefix(key, strings.NewReplacer(`\`, "").Replace(strings.TrimSuffix(k.Pattern(), "*")))
}
