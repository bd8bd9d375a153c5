package document

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
)

func text(s string) event.Value     { return event.Value{Kind: event.Text, Text: []byte(s)} }
func decimal(s string) event.Value  { return event.Value{Kind: event.Decimal, Text: []byte(s)} }
func raw(s string) event.Value      { return event.Value{Kind: event.Bytes, Text: []byte(s)} }
func embedded(s string) event.Value { return event.Value{Kind: event.JSON, Text: []byte(s)} }
func signed(n int64) event.Value    { return event.Value{Kind: event.Int, Num: uint64(n)} }
func unsigned(n uint64) event.Value { return event.Value{Kind: event.Uint, Num: n} }
func filled(s string) event.Value {
	v := unsigned(0)
	v.Num, _ = strconv.ParseUint(s, 10, 64)
	v.Text = []byte(s)
	return v
}
func null() event.Value { return event.Value{Kind: event.Null} }
func column(typ string, c event.Class) *event.Column {
	return &event.Column{Name: "c", Type: typ, Class: c}
}

func TestEveryTypeHasItsForm(t *testing.T) {
	const leftOut = "\x00"
	number, temporal := event.ClassInt, event.ClassTemporal
	for _, c := range []struct {
		typ        string
		class      event.Class
		value      event.Value
		json, hash string
	}{
		{"int", number, signed(-5), "-5", "-5"},
		{"bigint", number, signed(math.MinInt64), "-9223372036854775808", "-9223372036854775808"},
		{"bigint unsigned", number, unsigned(math.MaxUint64), "18446744073709551615", "18446744073709551615"},
		{"int(5) unsigned zerofill", number, filled("00042"), "42", "42"},
		{"year", temporal, filled("2026"), "2026", "2026"},
		{"year", temporal, filled("0000"), "0", "0"},
		{"year", temporal, text("2026"), "2026", "2026"},
		{"decimal(10,2)", event.ClassDecimal, decimal("9.90"), `"9.90"`, "9.90"},
		{"double", event.ClassFloat, text("1.5e-10"), "1.5e-10", "1.5e-10"},
		{"double", event.ClassFloat, text("-0.25"), "-0.25", "-0.25"},
		{"float zerofill", event.ClassFloat, text("000000001.50"), "1.50", "000000001.50"},
		{"float", event.ClassFloat, text("1e38"), "1e38", "1e38"},
		{"float", event.ClassFloat, text("nan"), `"nan"`, "nan"},
		{"date", temporal, text("2026-01-02"), `"2026-01-02"`, "2026-01-02"},
		{"datetime", temporal, text("2026-01-02 03:04:05"), `"2026-01-02T03:04:05"`, "2026-01-02T03:04:05"},
		{
			"datetime(6)", temporal, text("2026-01-02 03:04:05.000070"), `"2026-01-02T03:04:05.000070"`,
			"2026-01-02T03:04:05.000070",
		},
		{"timestamp", temporal, text("2026-01-02 03:04:05"), `"2026-01-02T03:04:05Z"`, "2026-01-02T03:04:05Z"},
		{"timestamp2", temporal, text("2026-01-02 03:04:05.5"), `"2026-01-02T03:04:05.5Z"`, "2026-01-02T03:04:05.5Z"},
		{"TIMESTAMP(3)", temporal, text("2026-01-02 03:04:05.123"), `"2026-01-02T03:04:05.123Z"`, "2026-01-02T03:04:05.123Z"},
		{"time", temporal, text("-838:59:59"), `"-838:59:59"`, "-838:59:59"},
		{"time2", temporal, text("12:30:00.5"), `"12:30:00.5"`, "12:30:00.5"},
		{"date", temporal, text("0000-00-00"), "null", leftOut},
		{"datetime", temporal, text("0000-00-00 00:00:00"), "null", leftOut},
		{"timestamp(3)", temporal, text("0000-00-00 00:00:00.000"), "null", leftOut},
		{"date", temporal, text("2026-00-00"), `"2026-00-00"`, "2026-00-00"},
		{"datetime", temporal, text(`no "date"`), `"no \"date\""`, `no "date"`},
		{
			"varchar(64)", event.ClassText, text("a\"b\\c\n\x01é漢😀\u2028"), `"a\"b\\c\n\u0001é漢😀\u2028"`,
			"a\"b\\c\n\x01é漢😀\u2028",
		},
		{"varchar(64)", event.ClassText, text("a\xffb"), `"a\ufffdb"`, "a\xffb"},
		{"enum('live')", event.ClassEnum, text("live"), `"live"`, "live"},
		{"set('a','b')", event.ClassEnum, text("a,b"), `"a,b"`, "a,b"},
		{
			"uuid", event.ClassUUID, text("550e8400-e29b-41d4-a716-446655440000"), `"550e8400-e29b-41d4-a716-446655440000"`,
			"550e8400-e29b-41d4-a716-446655440000",
		},
		{"varbinary(16)", event.ClassBinary, raw("\x00\xff\x10"), `"AP8Q"`, "\x00\xff\x10"},
		{"blob", event.ClassBinary, raw(""), `""`, ""},
		{"vector(1)", event.ClassBinary, raw("\x00\x00\x80\x3f"), `"AACAPw=="`, "\x00\x00\x80\x3f"},
		{"bit(1)", event.ClassBinary, raw("\x01"), "1", "1"},
		{
			"bit(64)", event.ClassBinary, raw("\xff\xff\xff\xff\xff\xff\xff\xfe"), "18446744073709551614",
			"18446744073709551614",
		},
		{"json", event.ClassJSON, embedded(`{"a": [1, null]}`), `{"a": [1, null]}`, `{"a": [1, null]}`},
		{"json", event.ClassJSON, null(), "null", leftOut},
		{"", event.ClassUnknown, text("x"), `"x"`, "x"},
	} {
		w, err := New([]Field{{"f", column(c.typ, c.class)}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.JSON(nil, []event.Value{c.value})
		if want := `{"f":` + c.json + `}`; string(got) != want || err != nil || !json.Valid(got) {
			t.Errorf("%s %q: JSON %s %v, want %s", c.typ, c.value.Text, got, err, want)
		}
		hash, err := w.Hash(nil, []event.Value{c.value})
		want := event.AppendField(event.AppendField(nil, "f"), c.hash)
		if c.hash == leftOut {
			want = nil
		}
		if !bytes.Equal(hash, want) || err != nil {
			t.Errorf("%s %q: hash %q %v, want %q", c.typ, c.value.Text, hash, err, want)
		}
	}
}

func TestADocumentOfManyFields(t *testing.T) {
	w, err := New([]Field{
		{"id", column("bigint", event.ClassInt)},
		{`na"me`, column("text", event.ClassText)},
		{"price", column("decimal(20,2)", event.ClassDecimal)},
		{"gone", column("int", event.ClassInt)},
		{"extra", column("json", event.ClassJSON)},
	}, Options{DecimalNumbers: true})
	if err != nil {
		t.Fatal(err)
	}
	row := []event.Value{signed(7), text("x"), decimal("-000012345678901234567.90"), null(), embedded("[]")}
	got, err := w.JSON([]byte("before "), row)
	if want := `before {"id":7,"na\"me":"x","price":-12345678901234567.90,"gone":null,"extra":[]}`; err != nil ||
		string(got) != want {
		t.Errorf("got  %s %v\nwant %s", got, err, want)
	}
	hash, err := w.Hash(nil, row)
	if err != nil {
		t.Fatal(err)
	}
	all, err := event.Fields(hash).All()
	if got := string(bytes.Join(all, []byte("|"))); err != nil ||
		got != `id|7|na"me|x|price|-000012345678901234567.90|extra|[]` {
		t.Errorf("got %s %v", got, err)
	}
}

func TestNothingIsWrittenOfARowThatLacksAColumn(t *testing.T) {
	w, err := New([]Field{{"a", column("int", event.ClassInt)}, {"b", column("json", event.ClassJSON)}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []event.Kind{event.Absent, event.Opaque} {
		row := []event.Value{signed(1), {Kind: kind}}
		for name, write := range map[string]func([]byte, []event.Value) ([]byte, error){"JSON": w.JSON, "Hash": w.Hash} {
			if got, err := write([]byte("before"), row); !errors.Is(err, ErrAbsent) || string(got) != "before" {
				t.Errorf("%s: %q %v, want what was there before, and ErrAbsent", name, got, err)
			}
		}
	}
}

func TestFieldsThatCannotBe(t *testing.T) {
	_, err := New([]Field{
		{"a", column("int", event.ClassInt)},
		{"a", column("int", event.ClassInt)},
		{"", column("int", event.ClassInt)},
		{"j", column("JSON", event.ClassJSON)},
	}, Options{})
	want := "field \"a\" comes twice\nfield 3 (column c) has no name"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// plainly is what encoding/json makes from a text, without its escapes for HTML.
func plainly(t interface{ Fatal(...any) }, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func FuzzStringsAreThoseOfEncodingJSON(f *testing.F) {
	for _, s := range []string{
		"", "plain", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "é漢😀", "\u2028\u2029\u202a", "a\xffb\xc3",
		"\xed\xa0\x80", "<>&",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := appendString(nil, []byte(s)), plainly(t, s); !bytes.Equal(got, want) {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	})
}

func FuzzNumbersAreValidJSON(f *testing.F) {
	for _, s := range []string{
		"0", "-0", "007", "-007.50", "1e5", "1E+5", ".5", "5.", "1e", "-", "", "--1", "1 ", "0x1",
		"00", "1.e5",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := appendNumber(nil, []byte(s))
		if !json.Valid(got) {
			t.Fatalf("%q became %s, which is no JSON", s, got)
		}
		// What is a number already stays as it is.
		number := s != "" && strings.Trim(s, "-+.eE0123456789") == ""
		if number && json.Valid([]byte(s)) && string(got) != s {
			t.Errorf("%q became %s", s, got)
		}
	})
}

// Whatever the row, decoding the document gives back what went in.
func TestDocumentsDecodeToTheRow(t *testing.T) {
	type member struct {
		column *event.Column
		value  event.Value
		want   any
	}
	members := rapid.Custom(func(t *rapid.T) member {
		switch rapid.IntRange(0, 6).Draw(t, "type") {
		case 0:
			n := rapid.Int64().Draw(t, "int")
			return member{column("bigint", event.ClassInt), signed(n), json.Number(strconv.FormatInt(n, 10))}
		case 1:
			n := rapid.Uint64().Draw(t, "uint")
			return member{column("bigint unsigned", event.ClassInt), unsigned(n), json.Number(strconv.FormatUint(n, 10))}
		case 2:
			s := rapid.String().Draw(t, "text")
			return member{column("text", event.ClassText), text(s), s}
		case 3:
			b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
			return member{column("blob", event.ClassBinary), raw(string(b)), base64.StdEncoding.EncodeToString(b)}
		case 4:
			return member{column("int", event.ClassInt), null(), nil}
		case 5:
			s := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})\.[0-9]{1,9}`).Draw(t, "decimal")
			return member{column("decimal(30,9)", event.ClassDecimal), decimal(s), s}
		}
		s := rapid.String().Draw(t, "in json")
		return member{column("json", event.ClassJSON), embedded(string(plainly(t, []any{s, true}))), []any{s, true}}
	})
	rapid.Check(t, func(t *rapid.T) {
		row := map[string]member{}
		for _, name := range rapid.SliceOfDistinct(rapid.StringN(1, 8, -1), rapid.ID).Draw(t, "names") {
			row[name] = members.Draw(t, name)
		}
		var fields []Field
		var values []event.Value
		for name, m := range row {
			fields, values = append(fields, Field{name, m.column}), append(values, m.value)
		}
		w, err := New(fields, Options{})
		if err != nil {
			t.Fatal(err)
		}
		doc, err := w.JSON(nil, values)
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(bytes.NewReader(doc))
		d.UseNumber()
		var back map[string]any
		if err := d.Decode(&back); err != nil || len(back) != len(row) {
			t.Fatalf("%s: %v", doc, err)
		}
		for name, m := range row {
			if got, want := plainly(t, back[name]), plainly(t, m.want); !bytes.Equal(got, want) {
				t.Fatalf("%q: got %s, want %s", name, got, want)
			}
		}
	})
}

// rows returns what writes the same row again and again over itself.
func rows(t testing.TB, write func(*Writer, []byte, []event.Value) ([]byte, error)) func() {
	w, err := New([]Field{
		{"id", column("bigint", event.ClassInt)},
		{"name", column("varchar(64)", event.ClassText)},
		{"email", column("varchar(64)", event.ClassText)},
		{"price", column("decimal(10,2)", event.ClassDecimal)},
		{"made", column("datetime", event.ClassTemporal)},
		{"note", column("text", event.ClassText)},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	row := []event.Value{
		signed(1234567), text("Blue Jar"), text("ann@example.com"), decimal("9.90"),
		text("2026-01-02 03:04:05"), null(),
	}
	var dst []byte
	return func() {
		if dst, err = write(w, dst[:0], row); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWritingAllocatesNothing(t *testing.T) {
	for name, run := range map[string]func(){"JSON": rows(t, (*Writer).JSON), "Hash": rows(t, (*Writer).Hash)} {
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations a row, want 0", name, n)
		}
	}
}

func BenchmarkJSON(b *testing.B) { benchmark(b, rows(b, (*Writer).JSON)) }
func BenchmarkHash(b *testing.B) { benchmark(b, rows(b, (*Writer).Hash)) }

func benchmark(b *testing.B, run func()) {
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}
