package config

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/freshet/freshet/config/spec"
)

// In every text § marks the character that is looked for: it must be found where it stands in the file.
func TestATextKnowsWhereItsCharactersStand(t *testing.T) {
	for name, scalar := range map[string]string{
		"plain":                      `product:{id§}`,
		"plain, first":               `§product`,
		"plain, last":                `product§`,
		"double quoted":              `"product:{id§}"`,
		"single quoted":              `'product:{id§}'`,
		"wide characters":            `"größe:日本:{§}"`,
		"after an escaped quote":     `"a \"b\" {§}"`,
		"after escapes":              `"\u00e9\x41\U0001F600\n\\{§}"`,
		"after a doubled quote":      `'row.name == ''x'' || {§}'`,
		"with an anchor":             `&a "x{§}"`,
		"with a tag":                 `!!str 'x{§}'`,
		"with tag and anchor":        `!!str &a x{§}`,
		"with a tag on its own line": "!!str\n      x{§}",
		"on the next line":           "\n      x{§}",
		"plain, folded":              "row.a ==\n      1 &&  row.b ==\n\n      {§}",
		"plain, at a fold":           "row.a ==\n      §1 && row.b",
		"double quoted, folded":      "\"row.a == \n      {§}\"",
		"double quoted, joined":      "\"row.a == \\\n      {§}\"",
		"single quoted, folded":      "'row.a == ''x''\n\n      {§}'",
		"literal":                    "|\n      row.a ==\n        1 {§}\n",
		"literal, first":             "|\n      §row.a\n",
		"literal, comment":           "|- # why\n\n      row.a {§}\n",
		"folded":                     ">-\n      row.a ==\n      1 &&\n\n      {§}\n",
		"folded, more indented":      ">\n      row.a\n        {§}\n",
		"with an indentation":        "|2\n        row.a {§}\n",
	} {
		t.Run(name, func(t *testing.T) {
			text := minimal + "  - keys: [x]\n    table: a.b\n    when: " + scalar + "\n    columns: [a]\n"
			when := mustParse(t, text).Mappings[1].When
			got := when.At(strings.Index(when.Value, "§"))
			before := text[:strings.Index(text, "§")]
			want := spec.At("freshet.yaml", 1+strings.Count(before, "\n"), 1+
				utf8.RuneCountInString(before[strings.LastIndex(before, "\n")+1:]))
			if got != want {
				t.Errorf("%s\nfound at %v, is at %v", text, got, want)
			}
		})
	}
}

func TestATextHasNoPlaceOutsideOfItself(t *testing.T) {
	text := mustParse(t, minimal).Mappings[0].Keys[0] // product:{id} at 8:13
	for offset, want := range map[int]int{-1: 13, 0: 13, 12: 25, 13: 25, 1 << 30: 25} {
		if got := text.At(offset); got != spec.At("freshet.yaml", 8, want) {
			t.Errorf("offset %d: %v, want column %d", offset, got, want)
		}
	}
	if got := (spec.Text{Value: "made"}).At(2); got != (spec.Pos{}) {
		t.Errorf("a text that is from no file stands at %v", got)
	}
}

func TestATextIsFoundInFilesOfOtherSystems(t *testing.T) {
	text := strings.ReplaceAll(minimal+"  - table: a.b\n    keys: [x]\n    when: 'row.a ==\n\n      {§}'\n", "\n", "\r\n")
	when := mustParse(t, text).Mappings[1].When
	if got := when.At(strings.Index(when.Value, "§")); got != spec.At("freshet.yaml", 13, 8) {
		t.Error(got)
	}
}
