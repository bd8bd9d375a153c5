package lint

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// What check takes for the texts that a filter can make holds all that it makes.
func TestAShapeHoldsWhatItsFiltersMake(t *testing.T) {
	values := map[event.Class]*rapid.Generator[event.Value]{
		event.ClassInt:  rapid.Custom(func(t *rapid.T) event.Value { return number(rapid.Int64().Draw(t, "int")) }),
		event.ClassText: rapid.Custom(func(t *rapid.T) event.Value { return text(rapid.String().Draw(t, "text")) }),
		event.ClassBinary: rapid.Custom(func(t *rapid.T) event.Value {
			return event.Value{Kind: event.Bytes, Text: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")}
		}),
	}
	filters := rapid.SliceOfN(rapid.SampledFrom(spelled(t)), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		class := rapid.SampledFrom([]event.Class{event.ClassInt, event.ClassText, event.ClassBinary}).Draw(t, "class")
		key := "{" + strings.Join(append([]string{"c"}, filters.Draw(t, "filters")...), "|") + "}"
		r, err := router.New(spectest.Specs(spectest.Keys(key).On("a.b")), router.Options{})
		if err != nil {
			return // mod of what is no integer, or default twice
		}
		table := &event.Table{Schema: "a", Name: "b", Columns: []event.Column{{Name: "c", Class: class}}}
		if _, err := r.Bind(table); err != nil {
			return // mod of what is no integer
		}
		shape := shapeOf(&table.Columns[0])
		part := r.Mappings()[0].Actions[0].Key.Parts[0]
		for i := range part.Filters {
			shape = shape.through(&part.Filters[i])
		}
		for _, made := range keys(r, table, values[class].Draw(t, "value")) {
			if _, ok := common(language(nil).shape(shape), language(nil).literal(made)); !ok {
				t.Fatalf("%s makes %q, which is not in %+v", key, made, shape)
			}
		}
	})
}

// spelled returns each filter as templates can have it, with different arguments if it takes one.
func spelled(t *testing.T) (all []string) {
	for _, name := range router.Filters() {
		before := len(all)
		for _, argument := range []string{"", ":3", ":25", ":1000", ":-x:"} {
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

func members(s byteSet) (out []byte) {
	for c := range 256 {
		if s.has(byte(c)) {
			out = append(out, byte(c))
		}
	}
	return out
}

// A key that two templates are said to share is made by both; one that both make is found.
func TestCommonFindsAKeyOfBothLanguages(t *testing.T) {
	shapes := []shape{
		{set: bytesOf("0-9"), min: 1, max: 3, signed: true},
		{set: bytesOf("0-9a-f"), min: 2, max: 2},
		{set: anyByte(), max: endless},
		{set: bytesOf("a-z:"), min: 1, max: endless},
		{set: bytesOf("0-9"), max: endless, unit: 2},
		{set: bytesOf("a1"), max: 8, unit: 4},
	}
	draw := rapid.Custom(func(t *rapid.T) language {
		var l language
		for range rapid.IntRange(0, 4).Draw(t, "parts") {
			if rapid.Bool().Draw(t, "literal") {
				l = l.literal(rapid.StringMatching("[a1:]{1,3}").Draw(t, "text"))
			} else {
				l = l.shape(rapid.SampledFrom(shapes).Draw(t, "shape"))
			}
		}
		return l
	})
	// sample draws a key of a language.
	sample := func(t *rapid.T, l language) string {
		var key []byte
		for at := 0; at < len(l); {
			if a := l[at]; a.skip > 0 && rapid.IntRange(0, 2).Draw(t, "skip") > 0 {
				at += a.skip
			} else {
				key = append(key, rapid.SampledFrom(members(a.set)).Draw(t, "byte"))
				at += a.past
			}
		}
		return string(key)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		if key, ok := common(a, b); ok {
			for _, l := range []language{a, b} {
				if _, in := common(l, language(nil).literal(key)); !in {
					t.Fatalf("%q is not a key of both", key)
				}
			}
		}
		key := sample(t, a)
		if _, ok := common(a, language(nil).literal(key)); !ok {
			t.Fatalf("%q is not in its own language", key)
		}
		if _, in := common(b, language(nil).literal(key)); in {
			if _, ok := common(a, b); !ok {
				t.Fatalf("both make %q, and none was found", key)
			}
		}
	})
}
