package shape

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keys returns the keys of a row of which the router needs one column.
func keys(r *router.Router, table *event.Table, v event.Value) []string {
	var b event.Batch
	r.Route(&b, &event.Change{Table: table, Tx: &event.Tx{}, Op: event.Insert, After: []event.Value{v}})
	var all []string
	for i := range b.Len() {
		all = append(all, b.Key(i))
	}
	return all
}

// number and text are values as the canal hands them over.
func number(n int64) event.Value { return event.Value{Kind: event.Int, Num: uint64(n)} }
func text(s string) event.Value  { return event.Value{Kind: event.Text, Text: []byte(s)} }

// holds reports whether the text is one of the shape.
func holds(s Shape, text string) bool {
	rest, negative := strings.CutPrefix(text, "-")
	if s.Signed && negative {
		text = rest
	}
	for i := range len(text) {
		if !s.Set.Has(text[i]) {
			return false
		}
	}
	return s.Min <= len(text) && len(text) <= s.Max && (len(text)-s.Min)%max(1, s.Unit) == 0
}

// What is taken for the texts that a filter can make holds all that it makes.
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
		s := Of(&table.Columns[0])
		part := r.Mappings()[0].Actions[0].Key.Parts[0]
		for i := range part.Filters {
			s = s.Through(&part.Filters[i])
		}
		for _, made := range keys(r, table, values[class].Draw(t, "value")) {
			if !holds(s, made) {
				t.Fatalf("%s makes %q, which is not in %+v", key, made, s)
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
