package schema

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
)

// charsets is a character set with a collation. The zero value: not known.
type charsets struct {
	// charset is in the servers' present spelling (utf8mb3); "" when it is not known.
	charset string
	// collation is "" where only the character set is known: it has the server's usual one.
	collation string
}

// column is a column of a table.
type column struct {
	name string
	// typ is COLUMN_TYPE.
	typ string
	// charset is empty for columns without one, and, with text, where it is not known.
	text bool
	charsets
	// computed: an expression makes its values.
	computed bool
}

// definition is what a table is defined as. It is never changed.
type definition struct {
	columns []column
	// charset is the table's default.
	charset charsets
	// rowEnd is the column that says until when a row held, of a table with system versioning; "": it has none. The
	// column is not among columns where the server adds it by itself, after all others and invisible.
	rowEnd string
}

// hiddenRowEnd and hiddenRowStart are the columns of a table with system versioning for which it names none.
// Source: MariaDB Knowledge Base, "System-Versioned Tables", "Creating a System-Versioned Table".
const hiddenRowStart, hiddenRowEnd = "row_start", "row_end"

// hiddenHash begins the names of the columns that MariaDB adds for unique keys over BLOBs.
const hiddenHash = "DB_ROW_HASH_"

// hides reports whether the table has the columns of its versioning by itself.
func (d *definition) hides() bool { return d.rowEnd != "" && d.find(d.rowEnd) < 0 }

// rowEndOf returns the name of the ROW END column of a versioned table, of which the columns are known that are
// defined.
func rowEndOf(columns []ddl.Column) string {
	for _, c := range columns {
		if c.RowEnd {
			return c.Name
		}
	}
	return hiddenRowEnd
}

// find returns the ordinal of a column, or -1. Names compare without case.
func (d *definition) find(name string) int { return find(d.columns, name) }

func find(columns []column, name string) int {
	for i := range columns {
		if strings.EqualFold(columns[i].name, name) {
			return i
		}
	}
	return -1
}

// ambiguous reports whether two columns have the same name, which no table can have.
func (d *definition) ambiguous() bool {
	for i, c := range d.columns {
		if find(d.columns[:i], c.name) >= 0 {
			return true
		}
	}
	return false
}

// info returns the columns as package binlog wants them.
func (d *definition) info() []binlog.ColumnInfo {
	out := make([]binlog.ColumnInfo, len(d.columns))
	for i, c := range d.columns {
		out[i] = binlog.ColumnInfo{Name: c.name, Type: c.typ, Collation: c.collation}
		if c.collation == "" && c.charset != "" {
			// Only the character set is known: any of its collations tells it, and this is one that every one has.
			out[i].Collation = binCollation(c.charset)
		}
	}
	return out
}

// special reports whether a column has an attribute that never stands in the binlog.
func (d *definition) special() bool {
	if d.rowEnd != "" {
		return true
	}
	for i := range d.columns {
		if d.columns[i].special() {
			return true
		}
	}
	return false
}

func (c *column) special() bool {
	t := strings.ToLower(c.typ)
	switch base, _, args := strings.Cut(t, "("); base {
	case "float", "double":
		return args
	case "uuid", "inet4", "inet6":
		return true
	}
	return strings.Contains(t, "zerofill") || strings.Contains(t, "mariadb-5.3")
}

// labelled reports whether the column is an ENUM or SET. The labels of one whose character set is not known are ASCII,
// or the definition would not be known either: see holds.
func (c *column) labelled() bool {
	base, _, _ := strings.Cut(strings.ToLower(c.typ), "(")
	return base == "enum" || base == "set"
}

func binCollation(charset string) string {
	if charset == "binary" {
		return "binary"
	}
	return charset + "_bin"
}

// with returns the default d as a clause changes it. own is what CHARACTER SET DEFAULT means.
func (d charsets) with(c ddl.CharsetClause, own charsets) charsets {
	switch {
	case c.Default:
		return own
	case c.Charset != "":
		return charsets{c.Charset, c.Collation}
	case c.Collation == "":
		return d
	}
	if cs := ddl.CharsetOf(c.Collation); cs != "" {
		return charsets{cs, c.Collation}
	}
	// MariaDB's collations that belong to several character sets: the character set stays.
	if d.charset == "" {
		return charsets{}
	}
	return charsets{d.charset, d.charset + "_" + c.Collation}
}

// define returns the column that a statement defines in a table with the default character set d. False: what it is
// cannot be known.
func define(c ddl.Column, d charsets) (column, bool) {
	out := column{name: c.Name, computed: c.Generated}
	if !c.Type.HasCharset() {
		out.typ = c.Type.String()
		return out, out.typ != ""
	}
	cs := d.with(c.Type.Charset, d)
	if c.Type.Binary && cs.charset != "" {
		cs.collation = binCollation(cs.charset)
	}
	typ, ok := c.Type.In(cs.charset)
	if !holds(cs.charset, c.Type) {
		return out, false
	}
	out.typ = typ
	if t, known := ddl.ParseType(typ, false); known && t.HasCharset() {
		out.text, out.charsets = true, cs
	}
	return out, ok
}

// holds reports whether the labels of an ENUM or SET are surely kept as written in the character set. The servers
// replace characters that it does not have; which these are is looked into for Unicode and where they are single bytes.
func holds(cs string, t ddl.Type) bool {
	if t.Base != "enum" && t.Base != "set" {
		return true
	}
	if t.Bytes && (cs == "" || wide(cs)) {
		return false
	}
	beyond := ""
	for _, r := range t.Args {
		switch {
		case r < utf8.RuneSelf, cs == "utf8mb4", cs == "utf8mb3" && r <= 0xffff:
			continue
		case beyond == "":
			beyond = singles(cs)
		}
		if r == utf8.RuneError || !strings.ContainsRune(beyond, r) {
			return false
		}
	}
	return true
}

// singles returns the characters beyond ASCII that a character set of single bytes has on both servers; "" of any
// other.
func singles(name string) string {
	width, known := ddl.CharacterWidth(name)
	mysql, ok := charset.Find(name, event.MySQL)
	mariaDB, also := charset.Find(name, event.MariaDB)
	if !known || width != 1 || name == "binary" || !ok || !also {
		return ""
	}
	var all []byte
	for b := 0x80; b <= 0xff; b++ {
		at := len(all)
		all = mysql.Append(all, []byte{byte(b)})
		if !bytes.Equal(all[at:], mariaDB.Append(nil, []byte{byte(b)})) {
			all = all[:at]
		}
	}
	return string(all)
}

// create returns the definition that CREATE TABLE makes in a schema with the character set schema, nil if it cannot
// be known.
func create(d *ddl.Definition, schema charsets) *definition {
	out := &definition{charset: schema.with(d.Charset, schema)}
	for _, c := range d.Columns {
		col, ok := define(c, out.charset)
		if !ok {
			return nil
		}
		out.columns = append(out.columns, col)
	}
	if d.Versioned {
		out.rowEnd = rowEndOf(d.Columns)
	}
	if len(out.columns) == 0 || out.ambiguous() {
		return nil
	}
	return out
}
