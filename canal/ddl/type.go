package ddl

import (
	"strconv"
	"strings"
)

// Type is the type of a column. What it comes to may depend on the character set of the table, see [Type.In].
type Type struct {
	// Base is the name of the type in its usual form (int, decimal, varchar); "" if the type is not known.
	Base string
	// Args is the text in parentheses after it, with the parentheses; empty where the type has none or the
	// usual ones. Suffix is what follows: " unsigned zerofill".
	Args, Suffix string
	// Length is the length of CHAR, VARCHAR, BINARY and VARBINARY, in characters. With Sized, it is the length that
	// a TEXT must be able to hold, in characters.
	Length uint64
	Sized  bool
	// Charset is what the column says of its character set, Binary that it asks for the _bin collation.
	Charset CharsetClause
	Binary  bool
	// Bytes says that a label of an ENUM or SET was written as bytes (0x41): the text in Args holds in character sets
	// in which ASCII takes one byte. Blanks is Args with the blanks that labels ended with, if any did: only binary
	// keeps them.
	Bytes  bool
	Blanks string
}

// String returns the type as information_schema writes it, before the character set of the table is known. The
// display width of integers is left out where it has no effect.
func (t Type) String() string { return t.Base + t.Args + t.Suffix }

// HasCharset reports whether values of the type are text in some character set.
func (t Type) HasCharset() bool {
	switch t.Base {
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set":
		return true
	}
	return false
}

// ParseType reads a type as information_schema.COLUMNS.COLUMN_TYPE has it. False: the type is not known.
func ParseType(text string, mariaDB bool) (Type, bool) {
	p := newParser([]byte(text), &Session{MariaDB: mariaDB})
	t, ok := p.columnType()
	return t, ok && p.atEnd()
}

// blobSizes are the sizes of TEXT and BLOB with what stands before their name.
var blobSizes = [...]struct {
	max    uint64
	prefix string
}{{1<<8 - 1, "tiny"}, {1<<16 - 1, ""}, {1<<24 - 1, "medium"}, {1<<32 - 1, "long"}}

// SizedText returns the smallest of TINYTEXT, TEXT, MEDIUMTEXT and LONGTEXT that holds the given number of bytes.
func SizedText(bytes uint64) string { return sized(bytes, "text") }

func sized(bytes uint64, base string) string {
	for _, s := range blobSizes {
		if bytes <= s.max {
			return s.prefix + base
		}
	}
	return "long" + base
}

// TextSize returns how many bytes a TEXT type holds, 0 for other types.
func TextSize(base string) uint64 {
	for _, s := range blobSizes {
		if base == s.prefix+"text" {
			return s.max
		}
	}
	return 0
}

// In returns what the type comes to in the given character set. False: that is not known.
// Source: MySQL Reference Manual, "String Data Type Syntax", "The binary Collation".
func (t Type) In(charset string) (string, bool) {
	width, known := CharacterWidth(charset)
	switch {
	case t.Base == "":
		return "", false
	case t.Blanks != "" && charset == "":
		return "", false
	case t.Blanks != "" && charset == "binary":
		return t.Base + t.Blanks, true
	case !t.HasCharset(), t.Base == "enum", t.Base == "set":
		return t.String(), true
	case charset == "":
		return t.String(), !t.Sized // the character set will be learnt; it does not change the type
	case !known:
		return t.String(), !t.Sized
	case t.Base == "varchar" && t.Length*width > 1<<16-1:
		return "", false // becomes a TEXT, unless the session was strict
	case t.Sized:
		t.Base = SizedText(t.Length * width)
	}
	if charset == "binary" {
		t.Base = binaryTypes[t.Base]
	}
	return t.String(), true
}

var binaryTypes = map[string]string{
	"char": "binary", "varchar": "varbinary", "tinytext": "tinyblob", "text": "blob", "mediumtext": "mediumblob",
	"longtext": "longblob",
}

// CharacterWidth returns the number of bytes that a character takes at most in the character set.
// Source: information_schema.CHARACTER_SETS.MAXLEN of MySQL 9.7 and MariaDB 10.11, where they agree.
func CharacterWidth(charset string) (uint64, bool) {
	switch charset {
	case "utf8mb4", "utf16", "utf16le", "utf32", "gb18030":
		return 4, true
	case "utf8mb3", "ujis", "eucjpms":
		return 3, true
	case "ucs2", "gbk", "gb2312", "sjis", "cp932", "big5", "euckr":
		return 2, true
	case "armscii8", "ascii", "binary", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "dec8",
		"geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7",
		"macce", "macroman", "swe7", "tis620":
		return 1, true
	}
	return 0, false
}

// CharsetOf returns the character set of a collation, "" for one that belongs to no single character set (MariaDB's
// uca1400_ai_ci) or is not known.
func CharsetOf(collation string) string {
	name, _, _ := strings.Cut(modernCollation(strings.ToLower(collation)), "_")
	if _, ok := CharacterWidth(name); ok {
		return name
	}
	return ""
}

// modernCharset returns the name that servers use today: what they call utf8 is utf8mb3 (or, on a MariaDB with
// old_mode emptied, utf8mb4, whose text is read in the same way).
func modernCharset(name string) string {
	name = strings.ToLower(name)
	if name == "utf8" {
		return "utf8mb3"
	}
	return name
}

func modernCollation(name string) string {
	name = strings.ToLower(name)
	if rest, ok := strings.CutPrefix(name, "utf8_"); ok {
		return "utf8mb3_" + rest
	}
	return name
}

// quoteLabels writes the labels of an ENUM or SET as information_schema does.
func quoteLabels(labels []string) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, l := range labels {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\'')
		for j := range len(l) {
			switch c := l[j]; c {
			case 0:
				b.WriteString(`\0`)
			case '\n':
				b.WriteString(`\n`)
			case '\r':
				b.WriteString(`\r`)
			case '\\':
				b.WriteString(`\\`)
			case '\'':
				b.WriteString(`''`)
			default:
				b.WriteByte(c)
			}
		}
		b.WriteByte('\'')
	}
	b.WriteByte(')')
	return b.String()
}

func parens(n ...uint64) string {
	b := []byte{'('}
	for i, v := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, v, 10)
	}
	return string(append(b, ')'))
}
