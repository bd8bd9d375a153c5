package binlog

import (
	"fmt"
	"strconv"
	"strings"
)

// sqlType is a column's type as SQL writes it, taken apart.
type sqlType struct {
	// base is the first word, in lower case, with synonyms resolved: int, varchar, double.
	base string
	// args are the numbers in parentheses.
	args []int
	// labels are those of an ENUM or SET.
	labels   []string
	unsigned bool
	zerofill bool
}

// arg returns number i in the parentheses, or otherwise.
func (t *sqlType) arg(i, otherwise int) int {
	if i < len(t.args) {
		return t.args[i]
	}
	return otherwise
}

// parseSQLType reads a type as information_schema.COLUMNS.COLUMN_TYPE has it, or as a statement writes it: int(5)
// unsigned zerofill, enum('a','b'), float(7,3), varchar(64), DOUBLE PRECISION, datetime /* mariadb-5.3 */. Labels are
// in single quotes, of which one within is doubled, and with backslash escapes (also COLUMN_TYPE has these).
func parseSQLType(text string) (sqlType, error) {
	var t sqlType
	rest := strings.TrimSpace(text)
	t.base, rest = word(rest)
	rest = t.resolve(rest)
	if t.base == "" {
		return t, fmt.Errorf("column type %q: no type", text)
	}
	rest = strings.TrimSpace(rest)
	if strings.HasPrefix(rest, "(") {
		var ok bool
		if rest, ok = t.parseArgs(rest[1:]); !ok {
			return t, fmt.Errorf("column type %q: what is in parentheses cannot be read", text)
		}
	}
	for {
		var w string
		rest = strings.TrimSpace(rest)
		if w, rest = word(rest); w == "" {
			break
		}
		switch w {
		case "unsigned":
			t.unsigned = true
		case "zerofill": // implies UNSIGNED
			t.unsigned, t.zerofill = true, true
		}
	}
	return t, nil
}

// word takes a word of letters, digits and underscores off s, in lower case.
func word(s string) (string, string) {
	n := strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	if n < 0 {
		n = len(s)
	}
	return strings.ToLower(s[:n]), s[n:]
}

// synonyms are the other names of types. It is never written to.
// Source: MySQL Reference Manual, "Numeric Data Type Syntax", "Using Data Types from Other Database Engines".
var synonyms = map[string]string{
	"integer": "int", "int4": "int", "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint",
	"int8": "bigint", "bool": "tinyint", "boolean": "tinyint", "serial": "bigint",
	"dec": "decimal", "numeric": "decimal", "fixed": "decimal", "number": "decimal",
	"float4": "float", "float8": "double", "real": "double",
	"character": "char", "nchar": "char", "nvarchar": "varchar", "varcharacter": "varchar", "varchar2": "varchar",
	"geometrycollection": "geomcollection", "long": "mediumtext",
}

// resolve replaces synonyms of the base, also those of two words, and returns what follows.
func (t *sqlType) resolve(rest string) string {
	next, after := word(strings.TrimSpace(rest))
	switch {
	case t.base == "national" && next != "":
		t.base, rest = next, after
		next, after = word(strings.TrimSpace(rest))
	case t.base == "double" && next == "precision":
		return after
	case t.base == "long" && next == "varbinary":
		t.base = "mediumblob"
		return after
	case t.base == "serial":
		t.unsigned = true
	}
	if next == "varying" {
		switch t.base {
		case "char", "character", "nchar":
			t.base = "varchar"
			return after
		}
	}
	if s, ok := synonyms[t.base]; ok {
		t.base = s
	}
	return rest
}

// parseArgs reads numbers or labels up to the closing parenthesis and returns what follows it.
func (t *sqlType) parseArgs(s string) (string, bool) {
	for {
		s = strings.TrimSpace(s)
		var ok bool
		if strings.HasPrefix(s, "'") {
			var label string
			if label, s, ok = quoted(s); ok {
				t.labels = append(t.labels, label)
			}
		} else {
			var w string
			w, s = word(s)
			n, err := strconv.Atoi(w)
			ok = err == nil
			t.args = append(t.args, n)
		}
		s = strings.TrimSpace(s)
		switch {
		case !ok || s == "":
			return s, false
		case s[0] == ')':
			return s[1:], true
		case s[0] != ',':
			return s, false
		}
		s = s[1:]
	}
}

// quoted takes a label in single quotes off s.
func quoted(s string) (label, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(unescape(s[i]))
		case s[i] != '\'':
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == '\'':
			b.WriteByte('\'')
			i++
		default:
			// The servers store labels without trailing spaces.
			return strings.TrimRight(b.String(), " "), s[i+1:], true
		}
	}
	return "", "", false
}

// unescape returns what a backslash and c stand for.
// Source: MySQL Reference Manual, "String Literals".
func unescape(c byte) byte {
	switch c {
	case '0':
		return 0
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'Z':
		return 0x1a
	}
	return c
}
