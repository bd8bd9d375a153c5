package binlog

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/freshet/freshet/event"
)

// testType is a column type with SQL expressions of its values: those at the edges, and random ones.
type testType struct {
	sql    string
	edges  []string
	random func(r *rand.Rand) string
	// bytes is an SQL expression of a column's bytes, for a type that CONCAT refuses.
	bytes string
}

func quote(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", "''") + "'"
}

func integer(bits int) []testType {
	name := map[int]string{8: "tinyint", 16: "smallint", 24: "mediumint", 32: "int", 64: "bigint"}[bits]
	low, high := int64(-1)<<(bits-1), int64(1)<<(bits-1)-1
	top := uint64(1)<<bits - 1
	if bits == 64 {
		top = math.MaxUint64
	}
	return []testType{
		{
			sql: name, edges: []string{
				"0", "1", "-1", fmt.Sprint(low), fmt.Sprint(low + 1), fmt.Sprint(high),
				fmt.Sprint(high - 1),
			},
			random: func(r *rand.Rand) string { return fmt.Sprint(int64(r.Uint64()) >> (64 - bits)) },
		},
		{
			sql: name + " unsigned", edges: []string{"0", "1", fmt.Sprint(high), fmt.Sprint(uint64(high) + 1), fmt.Sprint(top)},
			random: func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() >> (64 - bits)) },
		},
		{
			sql: name + " zerofill", edges: []string{"0", "7", fmt.Sprint(top)},
			random: func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() >> (64 - bits)) },
		},
		{sql: name + "(25) zerofill", edges: []string{"0", "7", fmt.Sprint(top)}},
		{sql: name + "(255) zerofill", edges: []string{"0", "7", fmt.Sprint(top)}},
		{
			sql: name + "(2) zerofill", edges: []string{"0", "7", "100", fmt.Sprint(top)},
			random: func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() >> (64 - bits)) },
		},
	}
}

func decimalType(precision, scale int, suffix string) testType {
	nines := strings.Repeat("9", precision-scale) + "." + strings.Repeat("9", scale)
	sign := ""
	if suffix == "" {
		sign = "-"
	}
	return testType{
		sql: fmt.Sprintf("decimal(%d,%d) %s", precision, scale, suffix),
		edges: []string{
			"0", "1", sign + "1", nines, sign + nines, "0.1", sign + "0.01", sign + "0.0000000001", "10",
			"1000000000", "0.123456789",
		},
		random: func(r *rand.Rand) string {
			var b strings.Builder
			if sign != "" && r.IntN(2) == 0 {
				b.WriteByte('-')
			}
			for range r.IntN(precision - scale + 1) {
				b.WriteByte(byte('0' + r.IntN(10)))
			}
			b.WriteString("0.")
			for range r.IntN(scale + 1) {
				b.WriteByte(byte('0' + r.IntN(10)))
			}
			return b.String() + "0"
		},
	}
}

func realType(sql string) testType {
	edges := []string{
		"0", "-0e0", "1", "-1", "1e14", "1e15", "1e16", "-1e11", "1e11", "1e12", "1e-4", "1e-5", "-1e-10", "1e-14", "1e-15",
		"1e-16", "1.5e-15", "123456.7", "1234567", "9999995", "16777217", "0.1", "1e7", "3.4e38", "-3.4e38", "1.4e-45",
		"0.00001234", "1234567890123456.5e0", "9007199254740993e0", "1.2345678901234567e-8", "-1.2345678901234567e-6",
	}
	if strings.HasPrefix(sql, "double") {
		edges = append(edges, "1.7976931348623157e308", "-1.2345678901234567e-100", "4.9e-324", "2.2250738585072014e-308")
	}
	if strings.Contains(sql, "unsigned") || strings.Contains(sql, "zerofill") {
		for i := range edges {
			edges[i] = strings.TrimPrefix(edges[i], "-")
		}
	}
	return testType{sql: sql, edges: edges, random: func(r *rand.Rand) string {
		v := math.Float64frombits(r.Uint64())
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0) || r.IntN(3) == 0:
			v = (r.Float64() - 0.5) * math.Pow(10, float64(r.IntN(40)-20))
		case r.IntN(3) == 0 || strings.HasPrefix(sql, "float"):
			v = float64(math.Float32frombits(r.Uint32()))
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			v = 1.5
		}
		if strings.Contains(sql, "unsigned") || strings.Contains(sql, "zerofill") {
			v = math.Abs(v)
		}
		return fmt.Sprintf("%.17e", v)
	}}
}

func fraction(r *rand.Rand, digits int) string {
	if digits == 0 {
		return ""
	}
	return fmt.Sprintf(".%0*d", digits, r.Int64N(int64(math.Pow10(digits))))
}

func temporal(digits int) []testType {
	suffix := ""
	if digits > 0 {
		suffix = fmt.Sprintf("(%d)", digits)
	}
	most := ""
	if digits > 0 {
		most = "." + strings.Repeat("9", digits)
	}
	return []testType{
		{
			sql: "datetime" + suffix,
			edges: []string{
				"'0000-00-00'", "'1000-01-01'", "'9999-12-31 23:59:59" + most + "'", "'2024-02-29 00:00:00'",
				"'0001-00-00 00:00:01'",
			},
			random: func(r *rand.Rand) string {
				return fmt.Sprintf("'%04d-%02d-%02d %02d:%02d:%02d%s'", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(28),
					r.IntN(24), r.IntN(60), r.IntN(60), fraction(r, digits))
			},
		},
		{
			sql: "timestamp" + suffix + " null",
			edges: []string{
				"'0000-00-00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07" + most + "'",
				"'2024-02-29 23:59:59'",
			},
			random: func(r *rand.Rand) string {
				return fmt.Sprintf("'%04d-%02d-%02d %02d:%02d:%02d%s'", 1971+r.IntN(60), 1+r.IntN(12), 1+r.IntN(28),
					r.IntN(24), r.IntN(60), r.IntN(60), fraction(r, digits))
			},
		},
		{
			sql: "time" + suffix,
			edges: []string{
				"'00:00:00'", "'-00:00:01'", "'-00:00:00" + most + "'", "'00:00:00" + most + "'", "'838:59:59'",
				"'-838:59:59'", "'-838:59:58" + most + "'", "'-01:00:00'",
			},
			random: func(r *rand.Rand) string {
				return fmt.Sprintf("'%s%02d:%02d:%02d%s'", []string{"", "-"}[r.IntN(2)], r.IntN(838), r.IntN(60), r.IntN(60),
					fraction(r, digits))
			},
		},
	}
}

// text returns runes that the character sets have, by chance, and some that they have not.
func text(r *rand.Rand, limit int) string {
	blocks := [][2]int{
		{0x20, 0x7e},
		{0x20, 0x7e},
		{0xa0, 0xff},
		{0x400, 0x45f},
		{0x3041, 0x30ff},
		{0x4e00, 0x9fa5},
		{0xac00, 0xd7a3},
		{0x1f300, 0x1f5ff},
		{0x100, 0x17f},
		{0x391, 0x3c9},
		{0x5d0, 0x5ea},
		{0xe01, 0xe3a},
		{0xff61, 0xff9f},
	}
	b := blocks[r.IntN(len(blocks))]
	var s strings.Builder
	for range r.IntN(limit + 1) {
		if r.IntN(4) == 0 {
			b = blocks[r.IntN(len(blocks))]
		}
		s.WriteRune(rune(b[0] + r.IntN(b[1]-b[0]+1)))
	}
	return s.String()
}

func character(sql string, limit int) testType {
	edges := []string{
		"''", "' '", "'a'", "'a '", "' a'", "'é'", "'€'", "'日本'", "'你好'", "'한국'", "'💩'", "'a''b\\\\c'",
		"'\\0'", "'ß'", "'~^'",
	}
	edges = append(edges, quote(strings.Repeat("x", limit)))
	return testType{sql: sql, edges: edges, random: func(r *rand.Rand) string { return quote(text(r, limit)) }}
}

func binaryType(sql string, limit int) testType {
	return testType{
		sql: sql, edges: []string{
			"''", "x'00'", "x'0000'", "x'6100'", "x'00ff'", "'a '",
			fmt.Sprintf("repeat(x'ff',%d)", limit),
		},
		random: func(r *rand.Rand) string {
			b := make([]byte, r.IntN(limit+1))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return fmt.Sprintf("x'%x'", b)
		},
	}
}

func labels(kind string, set string, n int) testType {
	all := []string{"a", "b c", "it''s", "ü", "", "x\\\\y"}
	for i := len(all); i < n; i++ {
		all = append(all, fmt.Sprintf("label %d", i))
	}
	t := testType{sql: fmt.Sprintf("%s('%s')%s", kind, strings.Join(all[:n], "','"), set)}
	if kind == "enum" {
		t.edges = []string{"1", fmt.Sprint(n), "'no such label'"}
		t.random = func(r *rand.Rand) string { return fmt.Sprint(1 + r.IntN(n)) }
		return t
	}
	top := uint64(1)<<n - 1
	t.edges = []string{"0", "1", fmt.Sprint(top)}
	t.random = func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() & top) }
	return t
}

func bitType(n int) testType {
	top := uint64(1)<<n - 1
	return testType{
		sql: fmt.Sprintf("bit(%d)", n), edges: []string{"0", "1", fmt.Sprint(top)},
		random: func(r *rand.Rand) string { return fmt.Sprint(r.Uint64() & top) },
	}
}

func geometryType(sql string) testType {
	srid := 0
	if strings.Contains(sql, "4326") {
		srid = 4326
	}
	point := func(x, y any) string { return fmt.Sprintf("st_geomfromtext('point(%v %v)', %d)", x, y, srid) }
	t := testType{sql: sql, edges: []string{point(1, 2), point(0, 0), point(-1.5, 0.25)}}
	if sql == "geometry" {
		t.edges = append(t.edges, "st_geomfromtext('polygon((0 0,0 5,5 5,0 0))')",
			"st_geomfromtext('geometrycollection(point(1 1),linestring(0 0,1 1))')")
	}
	t.random = func(r *rand.Rand) string { return point(r.IntN(90), r.Float64()) }
	return t
}

// vectorType has values of fewer numbers than the type allows, too.
func vectorType() testType {
	of := func(numbers ...any) string {
		return "string_to_vector('" + strings.ReplaceAll(fmt.Sprintf("%v", numbers), " ", ",") + "')"
	}
	return testType{
		sql: "vector(3)", bytes: "cast(%s as binary)", edges: []string{of(1, 2, 3), of(0), of("-1.5", "3.4e38", "-2.5e-3")},
		random: func(r *rand.Rand) string { return of(r.Float32(), r.NormFloat64()) },
	}
}

// testTypes returns every column type of a server.
func testTypes(flavor event.Flavor) []testType {
	var all []testType
	for _, n := range []int{8, 16, 24, 32, 64} {
		all = append(all, integer(n)...)
	}
	all = append(all, decimalType(10, 2, ""), decimalType(65, 30, ""), decimalType(1, 0, ""), decimalType(9, 9, ""),
		decimalType(18, 9, ""), decimalType(19, 8, ""),
		decimalType(20, 20, ""), decimalType(10, 3, "unsigned"), decimalType(10, 3, "zerofill"),
		decimalType(12, 0, "zerofill"),
		decimalType(65, 30, "zerofill"), decimalType(65, 0, "zerofill"), realType("float(255,30) zerofill"),
		realType("double(255,30) zerofill"),
		realType("float"), realType("double"), realType("float unsigned"), realType("float zerofill"),
		realType("double zerofill"), realType("float(10,3)"),
		realType("double(20,5)"), realType("float(7,4) zerofill"), realType("float(30)"), realType("double(12,0)"))
	for digits := range 7 {
		all = append(all, temporal(digits)...)
	}
	all = append(
		all,
		testType{
			sql: "date", edges: []string{"'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'2024-02-29'", "'2024-00-00'"},
			random: func(r *rand.Rand) string {
				return fmt.Sprintf("'%04d-%02d-%02d'", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(28))
			},
		},
		testType{
			sql: "year", edges: []string{"0", "1901", "2155", "2024"},
			random: func(r *rand.Rand) string { return fmt.Sprint(1901 + r.IntN(255)) },
		},
		bitType(1), bitType(7), bitType(8), bitType(9), bitType(33), bitType(63), bitType(64),
		binaryType("binary(1)", 1), binaryType("binary(16)", 16), binaryType("binary(255)", 255),
		binaryType("varbinary(10)", 10),
		binaryType("varbinary(300)", 300), binaryType("tinyblob", 20), binaryType("blob", 300), binaryType("mediumblob", 30),
		binaryType("longblob", 30),
		labels("enum", "", 6), labels("enum", " character set gbk", 6), labels("enum", " character set utf16", 300),
		labels("set", "", 3),
		labels("set", " character set latin1", 4), labels("set", " character set ucs2", 17), labels("set", "", 64),
	)
	for i, set := range []string{
		"latin1", "gbk", "sjis", "utf16", "utf8mb4", "utf8mb3", "ucs2", "utf32", "utf16le", "ujis", "cp932", "eucjpms",
		"euckr", "big5",
		"gb2312", "ascii", "cp1250", "cp1251", "cp1256", "cp1257", "koi8r", "latin2", "latin5", "latin7", "greek", "hebrew",
		"tis620", "macroman",
		"cp850", "cp852", "cp866", "swe7",
	} {
		kind := []string{
			"varchar(40)", "char(30)", "text", "tinytext", "varchar(300)", "mediumtext", "longtext",
			"char(90)",
		}[i%8]
		all = append(all, character(kind+" character set "+set, 30))
	}
	all = append(all, character("char(255) character set utf8mb4", 100),
		character("varchar(63) character set utf8mb4 collate utf8mb4_bin", 63),
		character("char(1)", 1), character("national varchar(20)", 20))
	if flavor == event.MySQL {
		return append(all, character("varchar(40) character set gb18030", 30),
			testType{sql: "json", edges: []string{"'{}'", `'{"a": [1, 2]}'`}},
			geometryType("geometry"), geometryType("point srid 4326"), vectorType())
	}
	return append(all,
		geometryType("geometry"), geometryType("point"),
		testType{sql: "json", edges: []string{"'{}'", `'{"a": "ü"}'`}},
		character("varchar(100) compressed character set latin1", 90),
		character("text compressed character set utf8mb4", 200),
		character("varchar(300) compressed character set gbk", 300), binaryType("blob compressed", 300),
		binaryType("varbinary(200) compressed", 200),
		testType{sql: "uuid", edges: []string{
			"'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
			"'123e4567-e89b-12d3-a456-426655440000'", "'018f6a1e-0000-7000-8000-000000000000'",
		}, random: func(r *rand.Rand) string {
			return fmt.Sprintf("'%08x-%04x-%04x-%04x-%012x'", r.Uint32(), r.IntN(1<<16), r.IntN(1<<16), r.IntN(1<<16),
				r.Uint64()>>16)
		}},
		testType{
			sql: "inet4", edges: []string{"'0.0.0.0'", "'255.255.255.255'", "'10.0.0.0'"},
			random: func(r *rand.Rand) string {
				return fmt.Sprintf("'%d.%d.%d.%d'", r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256))
			},
		},
		testType{sql: "inet6", edges: []string{
			"'::'", "'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:1.2.3.4'", "'::1.2.3.4'", "'1::'", "'fe80::1:0:0:0'",
			"'1:0:0:2:0:0:0:3'", "'1:0:2:0:3:0:4:0'", "'0:0:1::'", "'::1:2'", "'::ffff:0:0'", "'::0.1.2.3'",
			"'64:ff9b::1.2.3.4'",
		}, random: func(r *rand.Rand) string {
			var parts []string
			for range 8 {
				if r.IntN(2) == 0 {
					parts = append(parts, "0")
				} else {
					parts = append(parts, fmt.Sprintf("%x", r.IntN(1<<16)))
				}
			}
			return quote(strings.Join(parts, ":"))
		}})
}
