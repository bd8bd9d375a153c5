package oracle

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// kind is what templates and predicates see in a column.
type kind uint8

const (
	integer     kind = iota // digits, whole
	decimal                 // digits with a point
	approximate             // FLOAT and DOUBLE: values that differ may print alike
	text                    // characters
	binary                  // bytes
	opaque                  // no key is made of it: JSON
)

// columnType is a type of columns, with values for it.
type columnType struct {
	sql   string
	kind  kind
	long  bool // its values are too long for a key
	print string
	value func(r *rand.Rand) string // an SQL literal
}

// How a column's value is printed, with %s for the column. The outcome is hexadecimal, so that bytes stay bytes.
const (
	asText = "HEX(CONVERT(CONCAT(%s) USING utf8mb4))"
	asRaw  = "HEX(CONCAT(%s))"
	asUTC  = "HEX(CONCAT(IF(CONCAT(%[1]s) LIKE '0000-00-00%%', %[1]s, CONVERT_TZ(%[1]s, @@session.time_zone, '+00:00'))))"
	asJSON = "HEX(CAST(%s AS CHAR CHARACTER SET utf8mb4))"
)

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func oneIn(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// quoted is a text as an SQL literal that means the same in every sql_mode.
func quoted(s string) string {
	if s == "" {
		return "''"
	}
	return fmt.Sprintf("_utf8mb4 x'%x'", s)
}

func hexLiteral(b []byte) string { return fmt.Sprintf("x'%x'", b) }

// of returns one of some literals.
func of(literals ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return pick(r, literals...) }
}

// between returns small numbers, and those at the ends of a type's range.
func between(low, high string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		if oneIn(r, 3) {
			return pick(r, low, high)
		}
		n := r.IntN(100)
		if low != "0" && oneIn(r, 3) {
			n = -n
		}
		return fmt.Sprint(n)
	}
}

// words returns texts of an alphabet, of at most n characters.
func words(n int, alphabet string) func(*rand.Rand) string {
	letters := []rune(alphabet)
	return func(r *rand.Rand) string {
		var b strings.Builder
		for range r.IntN(min(n, 12) + 1) {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		return quoted(b.String())
	}
}

// blobs returns random bytes, at most n of them.
func blobs(n int) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		b := make([]byte, r.IntN(n+1))
		for i := range b {
			b[i] = pick(r, 0, ' ', '\n', 'a', 'Z', 0x7f, 0x80, 0xc3, 0xff, byte(r.IntN(256)))
		}
		return hexLiteral(b)
	}
}

// long returns a text or bytes of up to n, by repetition.
func long(n int, of string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		return fmt.Sprintf("REPEAT(%s, %d)", of, r.IntN(n))
	}
}

const (
	ascii  = "abcXYZ 0129-_:.,;!?/\\'\"%{}|*"
	latin  = ascii + "äÖßéñ"
	multi  = latin + "日本語Жя€ǆİı𝄞😀\t"
	anyday = "'2024-02-29'"
)

func typ(sql string, k kind, value func(*rand.Rand) string) columnType {
	print := asText
	if k == binary {
		print = asRaw
	}
	return columnType{sql: sql, kind: k, print: print, value: value}
}

// times are literals with more digits than any column has, which the server rounds.
func times(r *rand.Rand) string {
	return fmt.Sprintf("'20%02d-%02d-%02d %02d:%02d:%02d.%06d'", 1+r.IntN(36), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24),
		r.IntN(60), r.IntN(59), r.IntN(1e6))
}

func durations(r *rand.Rand) string {
	return fmt.Sprintf("'%s%d:%02d:%02d.%06d'", pick(r, "", "-"), r.IntN(838), r.IntN(60), r.IntN(59), r.IntN(1e6))
}

func decimals(r *rand.Rand) string {
	return pick(r, "0", "-0.005", "0.5", "1.5", "-1", fmt.Sprintf("%d.%03d", r.IntN(200)-100, r.IntN(1000)))
}

// numbers are the numeric types.
func numbers() []columnType {
	var all []columnType
	for _, w := range []struct{ name, low, high, unsigned string }{
		{"TINYINT", "-128", "127", "255"},
		{"SMALLINT", "-32768", "32767", "65535"},
		{"MEDIUMINT", "-8388608", "8388607", "16777215"},
		{"INT", "-2147483648", "2147483647", "4294967295"},
		{"BIGINT", "-9223372036854775808", "9223372036854775807", "18446744073709551615"},
	} {
		all = append(all, typ(w.name, integer, between(w.low, w.high)),
			typ(w.name+" UNSIGNED", integer, between("0", w.unsigned)),
			typ(w.name+"(7) ZEROFILL", integer, between("0", w.unsigned)))
	}
	approximates := of("0", "1.5", "-2.25", "1e10", "3.14159265358979", "1e-5", "123456.789", "-0.0")
	fixed := of("0", "1.5", "-2.25", "12.345", "99.99", "-0.004")
	return append(all,
		typ("BOOL", integer, between("0", "1")), typ("YEAR", integer, of("1901", "2024", "2155", "'0000'")),
		typ("DECIMAL(10,2)", decimal, decimals), typ("DECIMAL(5)", integer, between("-99999", "99999")),
		typ("DECIMAL(9,3) UNSIGNED", decimal, of("0", "1.005", "77.5")),
		typ("DECIMAL(12,4) ZEROFILL", decimal, of("0", "1.005", "77.5")), typ("DECIMAL(65,30)", decimal, decimals),
		typ("FLOAT", approximate, approximates), typ("DOUBLE", approximate, approximates),
		typ("FLOAT(8,3)", approximate, fixed),
		typ("DOUBLE(9,2)", approximate, fixed), typ("DOUBLE(9,2) ZEROFILL", approximate, of("0", "1.5", "12.345")),
		typ("FLOAT UNSIGNED", approximate, of("0", "0.1", "7e7")),
		typ("BIT", binary, of("b'0'", "b'1'")), typ("BIT(9)", binary, of("b'0'", "b'100000001'", "b'111111111'")),
		typ("BIT(64)", binary, of("b'1'", "18446744073709551615")))
}

// moments are the temporal types.
func moments() []columnType {
	all := []columnType{
		typ("DATE", text, of(anyday, "'1000-01-01'", "'9999-12-31'")), typ("TIME", text, durations),
		typ("DATETIME", text, times),
	}
	for _, n := range []int{1, 3, 6} {
		all = append(all, typ(fmt.Sprintf("TIME(%d)", n), text, durations), typ(fmt.Sprintf("DATETIME(%d)", n), text, times))
	}
	for _, n := range []int{0, 2, 6} {
		c := typ(fmt.Sprintf("TIMESTAMP(%d) NULL", n), text, times)
		c.print = asUTC
		all = append(all, c)
	}
	return all
}

// strings are the types of characters and bytes.
func characters() []columnType {
	json := columnType{
		sql: "JSON", kind: opaque, print: asJSON,
		value: of(`'{"a": [1, 2.5, null], "b": "x"}'`, `'[]'`, `'"text"'`, `'{"n": 18446744073709551615}'`),
	}
	blob := typ("MEDIUMBLOB", binary, long(90000, "x'00ff61'"))
	blob.long = true
	note := typ("MEDIUMTEXT CHARACTER SET utf8mb4", text, long(60000, "'lorem'"))
	note.long = true
	return []columnType{
		typ("CHAR(10)", text, words(10, latin)), typ("CHAR(6) CHARACTER SET utf8mb4", text, words(6, multi)),
		typ("VARCHAR(40) CHARACTER SET utf8mb4", text, words(40, multi)),
		typ("VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", text, words(12, multi)),
		typ("VARCHAR(20) CHARACTER SET latin1", text, words(12, latin+"€")),
		typ("CHAR(8) CHARACTER SET ucs2", text, words(8, latin+"日Жя")),
		typ("VARCHAR(20) CHARACTER SET utf16", text, words(12, multi)),
		typ("VARCHAR(20) CHARACTER SET utf16le", text, words(12, multi)),
		typ("VARCHAR(20) CHARACTER SET utf32", text, words(12, multi)),
		typ("VARCHAR(20) CHARACTER SET gbk", text, words(12, ascii+"日本语")),
		typ("VARCHAR(20) CHARACTER SET sjis", text, words(12, "abc日本語ソ表")),
		typ("VARCHAR(20) CHARACTER SET cp1251", text, words(12, ascii+"Жя")),
		typ("VARCHAR(20) CHARACTER SET koi8r", text, words(12, ascii+"Жя")),
		typ("VARCHAR(20) CHARACTER SET big5", text, words(12, ascii+"日本")),
		typ("VARCHAR(20) CHARACTER SET euckr", text, words(12, ascii+"한국")),
		typ("TINYTEXT CHARACTER SET utf8mb3", text, words(12, latin+"日Ж")),
		typ("TEXT CHARACTER SET utf8mb4", text, words(12, multi)), note,
		typ("BINARY(5)", binary, blobs(5)), typ("VARBINARY(30)", binary, blobs(30)), typ("TINYBLOB", binary, blobs(20)),
		typ("BLOB", binary, blobs(40)), blob,
		typ("ENUM('a','B b','c''d')", text, of("'a'", "'B b'", "'c''d'", "1")),
		typ("ENUM('ж','日') CHARACTER SET utf8mb4", text, of("1", "2")),
		typ("ENUM('ä','ö') CHARACTER SET latin1", text, of("1", "2")),
		typ("SET('x','y','Z z')", text, of("''", "'x'", "'x,y'", "7")),
		typ("SET('ä','ж') CHARACTER SET utf8mb4", text, of("0", "1", "3")), json,
	}
}

// shapes are geometries, as SQL expressions.
func shapes(r *rand.Rand) string {
	text := pick(r, "POINT(1 2)", "LINESTRING(0 0,1 2,3 3)", "POLYGON((0 0,0 5,5 5,0 0))")
	return fmt.Sprintf("ST_GEOMFROMTEXT('%s', %d)", text, pick(r, 0, 3857))
}

// types are all that columns are made of.
func types(mariaDB bool) []columnType {
	all := append(append(numbers(), moments()...), characters()...)
	all = append(all, typ("GEOMETRY", binary, shapes), typ("POINT", binary, of("POINT(1, -2.5)", "POINT(0, 0)")))
	if !mariaDB {
		vector := typ("VECTOR(3)", binary, of("TO_VECTOR('[1,2,3]')", "TO_VECTOR('[0]')", "TO_VECTOR('[-1.5,2e9]')"))
		vector.print = "HEX(%s)"
		return append(all, vector)
	}
	return append(all,
		typ("UUID", text, of("'123e4567-e89b-12d3-a456-426614174000'", "'ffffffff-ffff-1fff-bfff-ffffffffffff'")),
		typ("INET6", text, of("'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:192.0.2.1'", "'::'")),
		typ("INET4", text, of("'192.0.2.1'", "'0.0.0.0'")),
		typ("VARCHAR(50) COMPRESSED CHARACTER SET utf8mb4", text, words(12, multi)),
		typ("BLOB COMPRESSED", binary, blobs(40)))
}

// Column is a type of columns, for tests with tables of their own.
type Column struct {
	SQL string
	// Value returns an SQL literal of the type.
	Value func(r *rand.Rand) string
	// Keyless says that no key can be made of it: it is a JSON, or its text is too long.
	Keyless bool
}

// Columns returns all types.
func Columns(mariaDB bool) (all []Column) {
	for _, t := range types(mariaDB) {
		all = append(all, Column{t.sql, t.value, t.long || t.kind == opaque})
	}
	return all
}
