package router

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/config/spec/spectest"
)

func TestAFilterMakesTextOfText(t *testing.T) {
	for _, c := range []struct {
		filters string
		in      any
		want    string
	}{
		{"lower", "Ab Ç ẞ İ 日", "ab ç ß i 日"},
		{"upper", "Ab ç ÿ ß ı", "AB Ç Ÿ ß I"},
		{"lower", "A\xffB\xc3", "a\xffb\xc3"},
		{"lower", -5, "-5"},
		{"lower", "", ""},
		{"trim", " \t\r\n\v\fa b\u00a0 ", "a b\u00a0"},
		{"trim", "   ", ""},
		{"hex", "aÿ", "61c3bf"},
		{"hex", 255, "323535"},
		{"hex", []byte{0, 1, 0xfe}, "0001fe"},
		{"hex|upper", []byte{0xab}, "AB"},
		{"base64", []byte{0xfb, 0xff}, "+/8="},
		{"base64", "", ""},
		{"md5", "", "d41d8cd98f00b204e9800998ecf8427e"},
		{"md5", 17, "70efdf2ec9b086079795c442636b55fb"},
		{"sha1", "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
		{"sha256", "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"crc32", "MySQL", "3259397556"},
		{"crc32", "", "0"},
		{"mod:16", uint64(1<<64 - 1), "15"},
		{"mod:16", -1 << 63, "0"},
		{"mod:10", -17, "-7"},
		{"mod:1", -17, "0"},
		{"mod:1000000000000000000", uint64(1<<64 - 1), "446744073709551615"},
		{"crc32|mod:64|pad:2", "MySQL", "52"},
		{"pad:5", 17, "00017"},
		{"pad:5", -17, "-0017"},
		{"pad:2", 12345, "12345"},
		{"pad:4", "éa", "00éa"},
		{"pad:4", "-éa", "-0éa"},
		{"pad:1", "", "0"},
		{"pad:3|mod:7", 9, "2"},
		{"urlencode", "a b/ü~-._:%", "a%20b%2F%C3%BC~-._%3A%25"},
		{"default:x", "v", "v"},
		{"default:x", null{}, "x"},
		{"default:", null{}, ""},
		{"default: a b ", null{}, " a b "},
		{"lower|default:X", null{}, "X"},
		{"default:X|lower", null{}, "x"},
		{"hex|default:X|lower|md5", null{}, "9dd4e461268c8034f5c8564e155c67a6"},
		{"default:17|mod:10", null{}, "7"},
	} {
		table := spectest.Product()
		column := "name"
		if _, ok := c.in.(int); ok {
			column = "category_id"
		} else if _, ok := c.in.(uint64); ok || strings.Contains(c.filters, "17|mod") {
			column = "id"
		}
		f := newFeed(t, mustNew(t, spectest.Keys("k:{"+column+"|"+c.filters+"}")), table)
		f.change(nil, row{column: c.in})
		if got := f.keys(); len(got) != 1 || got[0] != "k:"+c.want {
			t.Errorf("%v|%s makes %q, want %q", c.in, c.filters, got, "k:"+c.want)
		}
	}
}

func TestModIsRefusedWhereTheColumnIsNoInteger(t *testing.T) {
	for column, ok := range map[string]bool{
		"id": true, "category_id": true, "made": true, "bar_code": true, "batch": true,
		"name": false, "price": false, "status": false, "thumb": false, "score": false,
	} {
		_, err := mustNew(t, spectest.Keys("k:{"+column+"|mod:4}")).Bind(spectest.Product())
		if (err == nil) != ok {
			t.Errorf("%s|mod:4: %v", column, err)
		}
		if err != nil && !strings.Contains(err.Error(), "f.yaml:5:") {
			t.Errorf("%s|mod:4: %v does not say where", column, err)
		}
		if _, err := mustNew(t, spectest.Keys("k:{"+column+"|crc32|mod:4}")).Bind(spectest.Product()); err != nil {
			t.Errorf("%s|crc32|mod:4: %v", column, err)
		}
	}
	_, err := mustNew(t, spectest.Keys("k:{name|lower|mod:4}")).Bind(spectest.Product())
	want := `f.yaml:5:24: key "k:{name|lower|mod:4}": mod needs an integer, and column name of shop.product, VARCHAR(64), is none: write crc32|mod:4`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// A filter that is not written to change its text back and forth must not make one text of two.
func TestEncodingsKeepDifferentTextsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 20)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		for _, name := range []string{"hex", "base64", "urlencode"} {
			f := (&Filter{Name: name}).compile()
			x, _ := f(nil, a)
			y, _ := f([]byte("kept"), b)
			if !strings.HasPrefix(string(y), "kept") || (string(a) == string(b)) != (string(x) == string(y[4:])) {
				t.Fatalf("%s makes %q of %q and %q of %q", name, x, a, y, b)
			}
		}
	})
}

func TestUnicodeMappingsMayGrowOrShrinkTheText(t *testing.T) {
	for _, s := range []string{"Ⱥ", "ⱥ", strings.Repeat("Ⱥ", 40)} {
		for _, name := range []string{"lower", "upper"} {
			out, _ := (&Filter{Name: name}).compile()(nil, []byte(s))
			if !utf8.Valid(out) || utf8.RuneCount(out) != utf8.RuneCountInString(s) {
				t.Errorf("%s of %q is %q", name, s, out)
			}
		}
	}
}

func TestSpacesNextToTheBarsDoNotCount(t *testing.T) {
	f := newFeed(t, mustNew(t, spectest.Keys("{id|pad:5 |crc32}", "{ id | mod:64 }", "{id | pad:3\t}",
		"{sku|default: x }")), spectest.Product())
	f.change(nil, row{"id": uint64(70), "sku": null{}})
	g := newFeed(t, mustNew(t, spectest.Keys("{id|pad:5|crc32}", "{id|mod:64}", "{id|pad:3}", "{sku|default: x }")),
		spectest.Product())
	g.change(nil, row{"id": uint64(70), "sku": null{}})
	got := f.keys()
	if want := g.keys(); !slices.Equal(got, want) || got[3] != " x " {
		t.Errorf("%q, want %q", got, want)
	}
}
