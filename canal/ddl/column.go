package ddl

import (
	"bytes"
	"strconv"
	"strings"
)

// columnType reads the type of a column, up to its attributes. A type that is not known has no Base and is no error:
// its words are passed over. False: it is not to be read at all, not even passed over.
func (p *parser) columnType() (Type, bool) {
	var t Type
	k := p.keyword()
	if k == "" {
		return t, false
	}
	p.advance()
	start := *p
	var ok bool
	switch k {
	case "TINYINT", "INT1", "SMALLINT", "INT2", "MEDIUMINT", "INT3", "MIDDLEINT", "INT", "INTEGER", "INT4", "BIGINT",
		"INT8", "BOOL", "BOOLEAN", "SERIAL", "DECIMAL", "DEC", "NUMERIC", "FIXED", "FLOAT", "FLOAT4", "DOUBLE",
		"FLOAT8", "REAL", "BIT":
		t, ok = p.number(k)
	case "ENUM", "SET":
		t, ok = p.labels(k)
	case "CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER", "NCHAR", "NVARCHAR", "NATIONAL", "BINARY", "VARBINARY",
		"TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "LONG":
		t, ok = p.stringType(k)
	default:
		t, ok = p.otherType(k)
	}
	if ok && !p.session.foreignTypes() {
		return t, true
	}
	*p = start
	return Type{}, !p.atSymbol('(') || p.skipGroup()
}

// args reads up to max numbers in parentheses, if there are any.
func (p *parser) args(max int) ([]uint64, bool) {
	if !p.acceptSymbol('(') {
		return nil, true
	}
	var out []uint64
	for {
		n, err := strconv.ParseUint(string(p.tok.text), 10, 32)
		if p.tok.kind != word || err != nil || len(out) == max {
			return nil, false
		}
		out = append(out, n)
		p.advance()
		if p.acceptSymbol(')') {
			return out, true
		}
		if !p.acceptSymbol(',') {
			return nil, false
		}
	}
}

// integers are the integer types with the width at which ZEROFILL pads when none is given.
var integers = map[string]struct {
	name  string
	width uint64
}{
	"TINYINT": {"tinyint", 3}, "INT1": {"tinyint", 3}, "BOOL": {"tinyint", 3}, "BOOLEAN": {"tinyint", 3},
	"SMALLINT": {"smallint", 5}, "INT2": {"smallint", 5},
	"MEDIUMINT": {"mediumint", 8}, "INT3": {"mediumint", 8}, "MIDDLEINT": {"mediumint", 8},
	"INT": {"int", 10}, "INTEGER": {"int", 10}, "INT4": {"int", 10},
	"BIGINT": {"bigint", 20}, "INT8": {"bigint", 20}, "SERIAL": {"bigint", 20},
}

// number reads the rest of a numeric type.
func (p *parser) number(k string) (Type, bool) {
	if k == "DOUBLE" {
		p.accept("PRECISION")
	}
	args, ok := p.args(2)
	if !ok {
		return Type{}, false
	}
	unsigned, zerofill := k == "SERIAL", false
	for {
		switch {
		case p.accept("UNSIGNED"):
			unsigned = true
		case p.accept("ZEROFILL"):
			unsigned, zerofill = true, true
		case p.accept("SIGNED"):
		default:
			t := p.numeric(k, args, unsigned, zerofill)
			if unsigned {
				t.Suffix = " unsigned"
			}
			if zerofill {
				t.Suffix += " zerofill"
			}
			return t, true
		}
	}
}

func (p *parser) numeric(k string, args []uint64, unsigned, zerofill bool) Type {
	if i, ok := integers[k]; ok {
		t := Type{Base: i.name}
		switch {
		case zerofill && (len(args) == 0 || args[0] == 0):
			t.Args = parens(i.width)
		case zerofill:
			t.Args = parens(args[0])
		case k == "BOOL", k == "BOOLEAN", i.name == "tinyint" && !unsigned && len(args) > 0 && args[0] == 1:
			t.Args = "(1)"
		}
		return t
	}
	switch k {
	case "DECIMAL", "DEC", "NUMERIC", "FIXED":
		m, d := uint64(10), uint64(0)
		if len(args) > 0 && args[0] > 0 {
			m = args[0]
		}
		if len(args) > 1 {
			d = args[1]
		}
		return Type{Base: "decimal", Args: parens(m, d)}
	case "BIT":
		if len(args) == 0 || args[0] == 0 {
			args = []uint64{1}
		}
		return Type{Base: "bit", Args: parens(args[0])}
	}
	t := Type{Base: "double"}
	if k == "FLOAT" && (len(args) != 1 || args[0] <= 24) || k == "FLOAT4" || k == "REAL" &&
		p.session.has(modeRealAsFloat) {
		t.Base = "float"
	}
	if len(args) == 2 {
		t.Args = parens(args...)
	}
	return t
}

// labels reads the rest of ENUM or SET.
func (p *parser) labels(k string) (Type, bool) {
	if !p.acceptSymbol('(') {
		return Type{}, false
	}
	t := Type{Base: strings.ToLower(k)}
	var labels, kept []string
	blanks := false
	for {
		written := p.tok.kind != literal
		l, ok := p.bytes()
		if !ok || written && !ascii(l) {
			return Type{}, false // what bytes beyond ASCII mean depends on the character set of the column
		}
		// Both servers cut trailing blanks off labels, but for those that are binary.
		cut := bytes.TrimRight(l, " ")
		t.Bytes, blanks = t.Bytes || written, blanks || len(cut) < len(l)
		labels, kept = append(labels, p.session.text(cut)), append(kept, p.session.text(l))
		if p.acceptSymbol(')') {
			break
		}
		if !p.acceptSymbol(',') {
			return Type{}, false
		}
	}
	t.Args = quoteLabels(labels)
	if blanks {
		t.Blanks = quoteLabels(kept)
	}
	return t, p.typeCharset(&t)
}

// stringType reads the rest of a string type.
func (p *parser) stringType(k string) (Type, bool) {
	t := Type{Base: p.stringBase(k)}
	args, ok := p.args(1)
	if !ok || !t.setLength(args) {
		return t, false
	}
	p.compressed(&t)
	switch {
	case k == "NATIONAL", k == "NCHAR", k == "NVARCHAR":
		t.Charset.Charset = "utf8mb3"
		t.Binary = p.accept("BINARY")
	case t.HasCharset() && !p.typeCharset(&t):
		return t, false
	}
	p.compressed(&t)
	return t, true
}

// stringBase reads the rest of the name of a string type, and returns its usual form.
func (p *parser) stringBase(k string) string {
	switch k {
	case "NATIONAL", "NCHAR", "NVARCHAR", "CHAR", "CHARACTER", "VARCHARACTER":
		varying := k == "NVARCHAR" || k == "VARCHARACTER"
		for {
			switch {
			case p.accept("VARYING"), k[0] == 'N' && (p.accept("VARCHAR") || p.accept("VARCHARACTER")):
				varying = true
			case k == "NATIONAL" && (p.accept("CHAR") || p.accept("CHARACTER")):
			case varying:
				return "varchar"
			default:
				return "char"
			}
		}
	case "LONG":
		if p.accept("VARBINARY") {
			return "mediumblob"
		}
		if !p.acceptPair("CHAR", "VARYING") && !p.acceptPair("CHARACTER", "VARYING") {
			p.acceptAny("VARCHAR", "VARCHARACTER")
		}
		return "mediumtext"
	}
	return strings.ToLower(k)
}

// compressed reads COMPRESSED[=zlib], which MariaDB has.
func (p *parser) compressed(t *Type) {
	if p.accept("COMPRESSED") {
		if p.acceptSymbol('=') {
			p.advance()
		}
		t.Suffix = " /*M!100301 COMPRESSED*/"
	}
}

// setLength applies the length in parentheses.
func (t *Type) setLength(args []uint64) bool {
	n := uint64(0)
	if len(args) == 1 {
		n = args[0]
	}
	switch t.Base {
	case "char", "binary":
		if len(args) == 0 {
			n = 1
		}
		t.Length, t.Args = n, parens(n)
	case "varchar", "varbinary":
		t.Length, t.Args = n, parens(n)
		// A longer VARBINARY becomes a BLOB, unless the session was strict; for VARCHAR see In.
		return len(args) == 1 && (t.Base == "varchar" || n <= 1<<16-1)
	case "blob":
		if n > 0 {
			t.Base = sized(n, "blob")
		}
	case "text":
		t.Length, t.Sized = n, n > 0
	default:
		return len(args) == 0
	}
	return true
}

// typeCharset reads the character set after a string type: CHARACTER SET x, ASCII, UNICODE, BYTE, BINARY.
func (p *parser) typeCharset(t *Type) bool {
	for {
		switch {
		case p.accept("ASCII"):
			t.Charset.Charset = "latin1"
		case p.accept("UNICODE"):
			t.Charset.Charset = "ucs2"
		case p.accept("BYTE"):
			t.Charset.Charset = "binary"
		case p.accept("BINARY"):
			t.Binary = true
		case p.accept("CHARSET"), p.acceptPair("CHARACTER", "SET"), p.acceptPair("CHAR", "SET"):
			if !p.charsetName(&t.Charset) {
				return false
			}
		default:
			return true
		}
	}
}

// otherType reads the rest of a type that is neither number nor string.
func (p *parser) otherType(k string) (Type, bool) {
	args, ok := p.args(1)
	if !ok {
		return Type{}, false
	}
	t := Type{Base: strings.ToLower(k)}
	switch k {
	case "DATE", "YEAR", "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON",
		"GEOMETRYCOLLECTION":
	case "GEOMCOLLECTION":
		t.Base = "geometrycollection"
	case "UUID", "INET4", "INET6":
		return t, p.session.MariaDB
	case "TIME", "DATETIME", "TIMESTAMP":
		if len(args) == 1 && args[0] > 0 {
			t.Args = parens(args[0])
		}
	case "VECTOR":
		t.Args = "(2048)"
		if len(args) == 1 {
			t.Args = parens(args[0])
		}
	case "JSON":
		if p.session.MariaDB {
			t.Base, t.Charset = "longtext", CharsetClause{Charset: "utf8mb4", Collation: "utf8mb4_bin"}
		}
	default:
		return Type{}, false
	}
	return t, true
}

// column reads the definition of a column after its name, up to the comma or parenthesis that ends it. In ALTER TABLE
// it may end with its place, which goes to place.
func (p *parser) column(name string, place *Clause) (Column, bool) {
	t, ok := p.columnType()
	if !ok {
		return Column{}, false
	}
	c := Column{Name: name}
	for !p.atSymbol(',') && !p.atSymbol(')') && !p.atEnd() {
		ok = true
		switch {
		case p.acceptPair("NOT", "NULL"), p.acceptPair("PRIMARY", "KEY"):
			c.NotNull = true
		case p.accept("NULL"): // as in DEFAULT NULL, too
			c.Null = true
		case p.acceptPair("ROW", "END"):
			c.RowEnd = true
		case p.at("AS"):
			p.advance()
			c.Generated = c.Generated || p.atSymbol('(')
		case p.at("WITH") && p.peek().is("SYSTEM"):
			p.advance()
			c.versioned = p.acceptPair("SYSTEM", "VERSIONING")
		case p.accept("COLLATE"):
			ok = p.collation(&t.Charset)
		case p.accept("REFERENCES"):
			_, ok = p.name()
		case place != nil && p.accept("FIRST"):
			place.First = true
		case place != nil && p.accept("AFTER"):
			place.After, ok = p.identifier()
		default:
			ok = p.skip()
		}
		if !ok {
			return Column{}, false
		}
	}
	if t.Base != "" && !t.HasCharset() {
		t.Charset = CharsetClause{}
	}
	c.Type = t
	return c, true
}
