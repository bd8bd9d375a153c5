package lint

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/router/shape"
)

func members(s shape.Set) (out []byte) {
	for c := range 256 {
		if s.Has(byte(c)) {
			out = append(out, byte(c))
		}
	}
	return out
}

// A key that two templates are said to share is made by both; one that both make is found.
func TestCommonFindsAKeyOfBothLanguages(t *testing.T) {
	shapes := []shape.Shape{
		{Set: shape.Bytes("0-9"), Min: 1, Max: 3, Signed: true},
		{Set: shape.Bytes("0-9a-f"), Min: 2, Max: 2},
		{Set: shape.AnyByte(), Max: shape.Endless},
		{Set: shape.Bytes("a-z:"), Min: 1, Max: shape.Endless},
		{Set: shape.Bytes("0-9"), Max: shape.Endless, Unit: 2},
		{Set: shape.Bytes("a1"), Max: 8, Unit: 4},
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
