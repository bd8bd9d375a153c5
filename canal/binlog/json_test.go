package binlog

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// jsonDocuments are SQL expressions of documents: every type of value, at its edges.
func jsonDocuments() []string {
	docs := []string{
		`'null'`, `'true'`, `'false'`, `'""'`, `'{}'`, `'[]'`, `'[[], {}, [{}]]'`, `'{"": {"": ""}}'`,
		`'[0, 1, -1, 32767, 32768, -32768, -32769, 65535, 65536]'`,
		`'[2147483647, 2147483648, -2147483648, -2147483649, 4294967295, 4294967296]'`,
		`'[9223372036854775807, -9223372036854775808, 9223372036854775808, 18446744073709551615, 18446744073709551616]'`,
		`'[1.0, -0.0, 0.1, 1e14, 1e15, 1e16, 1e17, 1e20, 1e21, 1e25, 1e308, 1.7976931348623157e308, 4.9e-324]'`,
		`'[1e-3, 1e-4, 1e-5, 1e-14, 1e-15, 1e-16, 1.5e-15, -1.2345678901234567e-6, 123456789012345680, 1234567890123456.5, -1.5e300, 9007199254740993.0]'`,
		`'{"b": 1, "a": 2, "aa": 3, "B": 4, "ü": 5, "日本": 6}'`,
		`json_array('a"b\\c/d', '\b\n\r\t', concat(char(12 using utf8mb4), char(0 using utf8mb4), char(31 using utf8mb4), char(127 using utf8mb4)), 'ü€💩', '\u2028')`,
		`json_object('k"\\\n', repeat('ü', 100))`,
		`json_quote(repeat('x', 127))`, `json_quote(repeat('x', 128))`, `json_quote(repeat('x', 16384))`,
		`json_quote(repeat('\n', 300000))`,
		`json_array(cast(1.10 as decimal(10,2)), cast(-0.05 as decimal(3,2)), cast(0 as decimal(1,0)), cast(12345678901234567890.123456789 as decimal(65,30)), cast(-999999999999 as decimal(12,0)))`,
		`json_array(cast('2024-02-29' as date), cast('0001-01-01' as date), cast('9999-12-31 23:59:59.999999' as datetime(6)), cast('2024-01-02 03:04:05' as datetime), cast('2024-01-02 03:04:05.5' as datetime(1)))`,
		`json_array(cast('10:11:12' as time), cast('-10:11:12.25' as time(2)), cast('838:59:59' as time), cast('-838:59:59' as time), cast('-00:00:00.000001' as time(6)), from_unixtime(1700000000.123456), timestamp'2024-01-02 03:04:05')`,
		`json_array(x'', x'00', x'00ff10', cast('abc' as binary), b'101', repeat(x'ab', 57), repeat(x'ab', 58), repeat(x'ab', 114), repeat(x'ab', 1000))`,
		`json_array(st_geomfromtext('point(1 2)'), 1=1, 2.5, 1e0, cast(1.5 as float), cast(3 as unsigned), cast('2024' as year))`,
		`concat(repeat('[', 100), repeat(']', 100))`,
		`concat(repeat('{"a":', 99), '[1]', repeat('}', 99))`,
	}
	// Large containers: entries of four bytes, in which 32-bit numbers stand themselves.
	long := strings.Repeat("x", 9000)
	var members, elements []string
	for i := range 12 {
		members = append(members, fmt.Sprintf(`"key %d": {"s": "%s", "n": [%d, true]}`, i, long, i<<20))
		elements = append(elements, fmt.Sprintf(`"%s", %d, %d, null, 1.5, [%d]`, long, i<<24, -i, i))
	}
	docs = append(docs, "'{"+strings.Join(members, ", ")+"}'", "'["+strings.Join(elements, ", ")+"]'")
	numbers := make([]string, 20000)
	for i := range numbers {
		numbers[i] = fmt.Sprint(i * 7)
	}
	return append(docs, "'["+strings.Join(numbers, ",")+"]'")
}

// randomJSON returns any document.
func randomJSON(r *rand.Rand, depth int) any {
	kinds := 9
	if depth == 0 {
		kinds = 7
	}
	switch r.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		return int64(r.Uint64()) >> r.IntN(64)
	case 3:
		return r.Uint64() >> r.IntN(64)
	case 4:
		if f := math.Float64frombits(r.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) && math.Abs(f) > 1e-307 {
			return f
		}
		return r.Float64() * math.Pow(10, float64(r.IntN(40)-20))
	case 5, 6:
		return text(r, 30)
	case 7:
		list := make([]any, r.IntN(6))
		for i := range list {
			list[i] = randomJSON(r, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range r.IntN(6) {
		object[text(r, 12)] = randomJSON(r, depth-1)
	}
	return object
}

// The text of a document is byte by byte what SELECT prints.
func TestJSONIsWhatTheServerPrints(t *testing.T) {
	t.Parallel()
	s := newSource(t, event.MySQL)
	r := random(t)
	docs := jsonDocuments()
	for range rounds(300) {
		b, err := json.Marshal(randomJSON(r, 4))
		testbed.Must(t, err)
		docs = append(docs, quote(string(b)))
	}
	w := &wants{needs: allColumns, info: map[string][]ColumnInfo{}}
	var want map[string]string
	events := record(t, s.Server, func() {
		s.do(t, "create table d.j (id int primary key auto_increment, doc json, stamp timestamp(6) null, e enum('é','b') "+
			"null)")
		w.info["j"] = s.info(t, "j")
		for _, doc := range docs {
			s.do(t, "insert into d.j (doc) values ("+doc+")")
		}
		// Of columns that have no literals: a TIMESTAMP, an ENUM, a document within another.
		s.do(t, "insert into d.j (doc, stamp, e) values ('[1]', '2024-05-06 07:08:09.100', 'é')",
			"update d.j set doc=json_array(stamp, e, doc, cast(e as binary)) where stamp is not null")
		// Documents that were changed in place have gaps, and members in an order of their own.
		s.do(t, `insert into d.j (doc) values ('{"a": "long enough to be replaced", "b": [1, 2, 3], "c": {"d": 1}}')`,
			`update d.j set doc=json_set(doc, '$.a', 'short', '$.c.d', 70000, '$.e', 'new') where json_value(doc, '$.c.d') = 1`,
			`update d.j set doc=json_remove(doc, '$.b[0]') where json_value(doc, '$.c.d') = 70000`)
		want = map[string]string{}
		for _, row := range s.rows(t, "select id, doc from d.j") {
			want[*row[0]] = *row[1]
		}
	})
	d, err := New(w, Options{})
	testbed.Must(t, err)
	got := map[string]string{}
	testbed.Must(t, decode(t, d, events, func(c *event.Change) error {
		if v := &c.After[1]; v.Kind == event.JSON {
			got[string(c.After[0].AppendText(nil))] = string(v.Text)
		} else {
			t.Errorf("document %s: kind %d, raw %.100x", c.After[0].AppendText(nil), v.Kind, v.Raw)
		}
		return nil
	}))
	if len(got) != len(want) {
		t.Fatalf("%d documents, want %d", len(got), len(want))
	}
	for id, text := range want {
		if got[id] != text {
			t.Errorf("document %s\n got %.2000s\nwant %.2000s", id, got[id], text)
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("document %s is no JSON: %.200s", id, text)
		}
	}
}

// MariaDB's JSON is a text, as its server says.
func TestJSONOfMariaDBIsText(t *testing.T) {
	t.Parallel()
	s := newSource(t, event.MariaDB)
	w := &wants{needs: allColumns, info: map[string][]ColumnInfo{}}
	events := record(t, s.Server, func() {
		s.do(t, "create table d.j (id int primary key, doc json)", `insert into d.j values (1, '{"a":  [1,2]}')`)
		w.info["j"] = s.info(t, "j")
	})
	d, err := New(w, Options{})
	testbed.Must(t, err)
	rows := 0
	testbed.Must(t, decode(t, d, events, func(c *event.Change) error {
		rows++
		if v := &c.After[1]; v.Kind != event.Text || string(v.Text) != `{"a":  [1,2]}` {
			t.Errorf("kind %d, %s", v.Kind, v.Text)
		}
		return nil
	}))
	if rows != 1 {
		t.Errorf("%d rows", rows)
	}
}

// smallArray makes a document: an array whose members are given as entries, and what stands after them.
func smallArray(entries string, rest string) []byte {
	b := []byte{jsonSmallArray}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(entries)/3))
	b = binary.LittleEndian.AppendUint16(b, uint16(4+len(entries)+len(rest)))
	return append(append(b, entries...), rest...)
}

func TestDamagedJSONHasNoText(t *testing.T) {
	// An array in which each member is the one array after it, 30 times over: 10^30 numbers.
	bomb := []byte{0, 0, 4, 0}
	for range 30 {
		var entries []byte
		for range 10 {
			entries = append(entries, jsonSmallArray, 34, 0)
		}
		inner := append(binary.LittleEndian.AppendUint16([]byte{10, 0}, uint16(34+len(bomb))), entries...)
		bomb = append(inner, bomb...)
	}
	for name, doc := range map[string][]byte{
		"a type that is none":       {0x0d},
		"a literal that is none":    {jsonLiteral, 3},
		"a number that ends early":  {jsonInt32, 1, 2, 3},
		"no number":                 {jsonDouble, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f},
		"a string that ends early":  {jsonString, 3, 'a', 'b'},
		"a string without a length": {jsonString},
		"a length that never ends":  {jsonString, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01},
		"a string that is no UTF-8": {jsonString, 1, 0xff},
		"opaque without a type":     {jsonOpaque},
		"a decimal of no digits":    {jsonOpaque, byte(ColumnNewDecimal), 2, 0, 0},
		"a decimal of less digits":  {jsonOpaque, byte(ColumnNewDecimal), 3, 20, 2, 0x80},
		"a date of 7 bytes":         {jsonOpaque, byte(ColumnDate), 7, 0, 0, 0, 0, 0, 0, 0},
		"a header that ends early":  {jsonLargeArray, 1, 0, 0, 0},
		"more entries than bytes":   {jsonSmallArray, 9, 0, 4, 0},
		"larger than there is":      {jsonSmallArray, 0, 0, 5, 0},
		"a key outside":             {jsonSmallObject, 1, 0, 11, 0, 20, 0, 1, 0, jsonLiteral, 0, 0},
		"a value outside":           smallArray("\x0c\xff\x00", ""),
		"a value in the header":     smallArray("\x0c\x00\x00", ""),
		"too deep":                  append(smallArray("\x02\x04\x00", ""), 0),
		"too much":                  append([]byte{jsonSmallArray}, bomb...),
	} {
		if out, ok := appendJSON([]byte("before"), doc, maxJSONText); ok || string(out) != "before" {
			t.Errorf("%s: %.100s %v", name, out, ok)
		}
	}
	if out, ok := appendJSON(nil, nil, 0); !ok || string(out) != "null" {
		t.Errorf("no document: %s %v", out, ok)
	}
}

func TestTooLargeJSONHasNoText(t *testing.T) {
	doc := smallArray("\x0c\x07\x00", "\x05bytes")
	for most, want := range map[int]bool{9: true, 8: false} { // ["bytes"]
		if out, ok := appendJSON(nil, doc, most); ok != want {
			t.Errorf("at most %d bytes: %s %v", most, out, ok)
		}
	}
}

// FuzzJSON looks for panics, for text that is no JSON, and for text out of proportion.
func FuzzJSON(f *testing.F) {
	f.Add([]byte{jsonLiteral, 1})
	f.Add([]byte{jsonOpaque, byte(ColumnNewDecimal), 4, 3, 2, 0x81, 0x0a})
	f.Add([]byte{jsonOpaque, byte(ColumnTime), 8, 1, 2, 3, 4, 5, 6, 7, 0xff})
	f.Add([]byte{jsonOpaque, byte(ColumnBlob), 3, 1, 2, 3})
	f.Add(smallArray("\x05\x01\x00\x0c\x0a\x00", "\x02\"\n"))
	f.Add([]byte{jsonSmallObject, 1, 0, 13, 0, 11, 0, 1, 0, jsonString, 12, 0, 'k', 0})
	f.Add([]byte{jsonLargeArray, 1, 0, 0, 0, 13, 0, 0, 0, jsonInt32, 1, 2, 3, 4})
	each(f, func(_ bool, h Header, body []byte) {
		for i, c := range body {
			if h.Type.IsRows() && c == '{' && i > 40 {
				f.Add(body[i-40:])
			}
		}
	})
	f.Fuzz(func(t *testing.T, doc []byte) {
		out, ok := appendJSON(nil, doc, maxJSONText)
		if !ok {
			return
		}
		if !json.Valid(out) {
			t.Errorf("%x is printed as %s", doc, out)
		}
		if len(out) > 2*jsonGrowth*len(doc)+128 {
			t.Errorf("%d bytes became %d", len(doc), len(out))
		}
	})
}

func TestPrintingJSONAllocatesNothing(t *testing.T) {
	doc := smallArray("\x05\x01\x00\x0c\x0a\x00", "\x02\"\n")
	dst := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := appendJSON(dst, doc, maxJSONText); !ok {
			t.Fatal("damaged")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
