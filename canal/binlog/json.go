package binlog

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/float"
)

// The types of values within a JSON document.
// Source: MySQL's json_binary.h, whose comment at the top defines the format.
const (
	jsonSmallObject byte = 0x0
	jsonLargeObject byte = 0x1
	jsonSmallArray  byte = 0x2
	jsonLargeArray  byte = 0x3
	jsonLiteral     byte = 0x4
	jsonInt16       byte = 0x5
	jsonUint16      byte = 0x6
	jsonInt32       byte = 0x7
	jsonUint32      byte = 0x8
	jsonInt64       byte = 0x9
	jsonUint64      byte = 0xa
	jsonDouble      byte = 0xb
	jsonString      byte = 0xc
	jsonOpaque      byte = 0xf
)

const (
	// maxJSONDepth is how deep MySQL lets documents be nested (JSON_DOCUMENT_MAX_DEPTH).
	maxJSONDepth = 100
	// maxJSONText bounds the text of one document. What is larger is no value for a cache, and has no text.
	maxJSONText = 64 << 20
	// jsonGrowth is how many bytes of text a byte of a document can become at most: 6, for a control character
	// (\u0001). Damaged offsets can let many members share one value; the bound ends that.
	jsonGrowth = 8
)

// jsonScalarSize is the length of literals and numbers, by type.
var jsonScalarSize = [jsonDouble + 1]uint8{
	jsonLiteral: 1, jsonInt16: 2, jsonUint16: 2, jsonInt32: 4, jsonUint32: 4, jsonInt64: 8, jsonUint64: 8, jsonDouble: 8,
}

// jsonWriter prints a document as the server does.
// Source: MySQL's json_dom.cc (Json_wrapper::to_string).
type jsonWriter struct {
	out   []byte
	limit int // of len(out)
	depth int
}

// appendJSON appends the text of a document in MySQL's binary format; ok is false when it is damaged, too deep or of
// more than most bytes, and dst is then returned as it was. A document without any bytes stands for null: MySQL stores
// that where a NOT NULL column got no value (Field_json::val_json).
func appendJSON(dst, doc []byte, most int) (out []byte, ok bool) {
	if len(doc) == 0 {
		return append(dst, "null"...), true
	}
	w := jsonWriter{out: dst, limit: len(dst) + min(jsonGrowth*len(doc)+64, most)}
	if !w.value(doc[0], doc[1:]) || len(w.out) > w.limit {
		return dst, false
	}
	return w.out, true
}

// value appends a value that begins at b.
func (w *jsonWriter) value(typ byte, b []byte) bool {
	if len(w.out) > w.limit {
		return false
	}
	switch typ {
	case jsonSmallObject, jsonLargeObject, jsonSmallArray, jsonLargeArray:
		if w.depth == maxJSONDepth {
			return false
		}
		w.depth++
		ok := w.container(typ, b)
		w.depth--
		return ok
	case jsonString:
		s, ok := jsonData(b)
		return ok && w.string(s) && len(w.out) <= w.limit
	case jsonOpaque:
		if len(b) == 0 {
			return false
		}
		data, ok := jsonData(b[1:])
		return ok && w.opaque(ColumnType(b[0]), data) && len(w.out) <= w.limit
	}
	return w.scalar(typ, b)
}

// scalar appends a literal or a number.
func (w *jsonWriter) scalar(typ byte, b []byte) bool {
	if typ > jsonDouble || len(b) < int(jsonScalarSize[typ]) {
		return false
	}
	b = b[:jsonScalarSize[typ]]
	switch typ {
	case jsonLiteral:
		if b[0] > 2 {
			return false
		}
		w.out = append(w.out, [...]string{"null", "true", "false"}[b[0]]...)
	case jsonInt16, jsonInt32, jsonInt64:
		w.out = strconv.AppendInt(w.out, int64(signed(b)), 10)
	case jsonDouble:
		return w.double(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	default:
		w.out = strconv.AppendUint(w.out, unsigned(b), 10)
	}
	return true
}

// double appends a number as MySQL prints a DOUBLE, and .0 after a whole one, so that it stays a double when it is
// read again.
func (w *jsonWriter) double(v float64) bool {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return false
	}
	begin := len(w.out)
	w.out = float.Format{Decimals: float.NoDecimals, Width: float.Unlimited}.Append(w.out, v)
	for _, c := range w.out[begin:] {
		if c == '.' || c == 'e' {
			return true
		}
	}
	w.out = append(w.out, ".0"...)
	return true
}

// jsonData takes a length, of seven bits in each byte, the lowest first, and as many bytes from b.
func jsonData(b []byte) ([]byte, bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || size > 5 || n > uint64(len(b)-size) {
		return nil, false
	}
	return b[size : size+int(n)], true
}

// container appends an object or an array: a count and a size, entries of keys (offset and length) and of values (type
// and offset, or a small value itself), and what they point to, counted from the beginning of the container.
func (w *jsonWriter) container(typ byte, b []byte) bool {
	width := 2
	if typ == jsonLargeObject || typ == jsonLargeArray {
		width = 4
	}
	if len(b) < 2*width {
		return false
	}
	count, size := littleEndianUint(b[:width]), littleEndianUint(b[width:2*width])
	object := typ == jsonSmallObject || typ == jsonLargeObject
	entry, keyEntry := 1+width, 0
	if object {
		keyEntry = width + 2
	}
	if size > uint64(len(b)) || count > size || 2*uint64(width)+count*uint64(entry+keyEntry) > size {
		return false
	}
	b = b[:size]
	keys := b[2*width:]
	values := keys[int(count)*keyEntry:]
	brackets := "[]"
	if object {
		brackets = "{}"
	}
	w.out = append(w.out, brackets[0])
	for i := range int(count) {
		if i > 0 {
			w.out = append(w.out, ", "...)
		}
		if object && !w.key(b, keys[i*keyEntry:(i+1)*keyEntry]) {
			return false
		}
		if !w.entry(b, values[i*entry:(i+1)*entry]) {
			return false
		}
	}
	w.out = append(w.out, brackets[1])
	return true
}

// key appends the key of an entry of an object, and the colon.
func (w *jsonWriter) key(container, entry []byte) bool {
	width := len(entry) - 2
	offset, n := littleEndianUint(entry[:width]), littleEndianUint(entry[width:])
	if offset+n > uint64(len(container)) || !w.string(container[offset:offset+n]) {
		return false
	}
	w.out = append(w.out, ": "...)
	return true
}

// entry appends the value of an entry: it stands in the entry itself if it fits.
func (w *jsonWriter) entry(container, entry []byte) bool {
	typ, rest := entry[0], entry[1:]
	switch typ {
	case jsonLiteral, jsonInt16, jsonUint16:
		return w.value(typ, rest)
	case jsonInt32, jsonUint32:
		if len(rest) == 4 {
			return w.value(typ, rest)
		}
	}
	offset := littleEndianUint(rest)
	// Nothing stands before the entries; a container that contained itself would go on until its depth ends it.
	if offset < uint64(2*len(rest)) || offset > uint64(len(container)) {
		return false
	}
	return w.value(typ, container[offset:])
}

// string appends a string in quotes; it reports whether it is UTF-8.
func (w *jsonWriter) string(s []byte) bool {
	if !utf8.Valid(s) {
		return false
	}
	const hexits = "0123456789abcdef"
	w.out = append(w.out, '"')
	from := 0
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		w.out = append(w.out, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			w.out = append(w.out, '\\', c)
		case '\b':
			w.out = append(w.out, `\b`...)
		case '\f':
			w.out = append(w.out, `\f`...)
		case '\n':
			w.out = append(w.out, `\n`...)
		case '\r':
			w.out = append(w.out, `\r`...)
		case '\t':
			w.out = append(w.out, `\t`...)
		default:
			w.out = append(w.out, '\\', 'u', '0', '0', hexits[c>>4], hexits[c&15])
		}
	}
	w.out = append(append(w.out, s[from:]...), '"')
	return true
}

// opaque appends a value that has no type of JSON's own: decimals, temporal values, and bytes.
func (w *jsonWriter) opaque(typ ColumnType, data []byte) bool {
	switch typ {
	case ColumnNewDecimal:
		if len(data) < 2 || data[0] == 0 || data[1] > data[0] || len(data)-2 != decimalSize(int(data[0]), int(data[1])) {
			return false
		}
		var ok bool
		w.out, ok = appendDecimal(w.out, data[2:], int(data[0]), int(data[1]), false)
		return ok
	case ColumnDate, ColumnDatetime, ColumnTimestamp, ColumnTime:
		if len(data) != 8 {
			return false
		}
		w.out = append(appendPackedTime(append(w.out, '"'), typ, int64(binary.LittleEndian.Uint64(data))), '"')
		return true
	}
	w.out = append(w.out, `"base64:type`...)
	w.out = strconv.AppendUint(w.out, uint64(typ), 10)
	w.out = append(w.out, ':')
	w.base64(data)
	w.out = append(w.out, '"')
	return true
}

// base64 appends data in base64, with a line feed (escaped) after each 76 characters, except after the last ones.
// Source: MySQL's base64.cc (base64_encode).
func (w *jsonWriter) base64(data []byte) {
	const line = 76 / 4 * 3
	for len(data) > line {
		w.out = append(base64.StdEncoding.AppendEncode(w.out, data[:line]), `\n`...)
		data = data[line:]
	}
	w.out = base64.StdEncoding.AppendEncode(w.out, data)
}

// appendPackedTime prints a temporal value as MySQL packs it into 64 bits.
// Source: MySQL's my_time.cc (TIME_from_longlong_datetime_packed, TIME_from_longlong_time_packed).
func appendPackedTime(dst []byte, typ ColumnType, packed int64) []byte {
	if packed < 0 {
		packed = -packed
		dst = append(dst, '-')
	}
	v := uint64(packed)
	micros, hms, ymd := v&(1<<24-1), v>>24&(1<<17-1), v>>41
	if typ == ColumnTime {
		hms = v >> 24
		dst = appendClock(dst, hms>>12&0x3ff, hms>>6&63, hms&63)
		return appendFraction(dst, micros, 6)
	}
	dst = appendDate(dst, ymd>>5/13, ymd>>5%13, ymd&31)
	if typ == ColumnDate {
		return dst
	}
	dst = appendClock(append(dst, ' '), hms>>12, hms>>6&63, hms&63)
	return appendFraction(dst, micros, 6)
}

// printJSON sets the text of a value of a JSON column. One that cannot be printed has none: code that needs it must do
// without, and the stream goes on. MySQL before 5.7.22 itself logged broken documents for generated columns
// (bugs.mysql.com/88791), and a partial update is no document at all (see dropDiffs).
func (r *rowReader) printJSON(v *event.Value, raw []byte) {
	begin := len(r.text)
	var ok bool
	if r.text, ok = appendJSON(r.text, raw, maxJSONText); !ok {
		v.Kind = event.Opaque
		return
	}
	v.Kind, v.Text = event.JSON, r.text[begin:len(r.text):len(r.text)]
}
