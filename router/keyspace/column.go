package keyspace

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router/shape"
)

const (
	hexit = "[0-9a-f]"
	date  = "[0-9]{4}-(?:0[0-9]|1[0-2])-(?:[0-2][0-9]|3[01])"
	clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
	// span is a TIME: up to 838 hours.
	span  = "-?(?:[0-9]{2}|[1-8][0-9]{2}):[0-5][0-9]:[0-5][0-9]"
	uuid  = hexit + "{8}(?:-" + hexit + "{4}){3}-" + hexit + "{12}"
	octet = "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])"
	inet4 = octet + `(?:\.` + octet + "){3}"
	// MariaDB shortens a single group of zeros too, so that there are up to eight colons.
	word  = "(?:0|[1-9a-f]" + hexit + "{0,3})"
	inet6 = "(?:" + word + "?:){2,8}" + word + "?|::(?:ffff:)?" + inet4
)

// sqlType is a type as SQL writes it: its first word, and what it has in parentheses.
var sqlType = regexp.MustCompile(`^(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?`)

// column is a column whose type was taken apart.
type column struct {
	*event.Column
	// base is the type's first word; "" where the type is not known.
	base string
	// first and second are the numbers in parentheses; -1 where there are none.
	first, second int
	zerofill      bool
}

func parseColumn(c *event.Column) column {
	lower := strings.ToLower(c.Type)
	out := column{Column: c, first: -1, second: -1, zerofill: strings.Contains(lower, "zerofill")}
	if m := sqlType.FindStringSubmatch(lower); m != nil {
		out.base = m[1]
		if n, err := strconv.Atoi(m[2]); err == nil {
			out.first = n
		}
		if n, err := strconv.Atoi(m[3]); err == nil {
			out.second = n
		}
	}
	return out
}

// textOf returns what the text of a column can be.
func textOf(of *event.Column) text {
	c, t := parseColumn(of), text{shape: shape.Of(of)}
	switch c.Class {
	case event.ClassInt:
		t.number = c.integers()
	case event.ClassDecimal:
		t.exact = c.decimal()
	case event.ClassFloat:
		t.exact = `-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e-?[0-9]{1,3})?`
		if c.zerofill {
			t.exact = "0*(?:" + t.exact + ")"
		}
	case event.ClassTemporal:
		t.exact = c.temporal()
	case event.ClassUUID:
		t.exact = uuid
	case event.ClassInet:
		t.exact = map[string]string{"inet4": inet4, "inet6": inet6}[c.base]
		if t.exact == "" {
			t.exact = inet4 + "|" + inet6
		}
	default:
		t.free = true
	}
	return t
}

// integers are those of the type. The widest stands for one that is not known.
func (c *column) integers() *integers {
	bits, known := map[string]int{"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32}[c.base]
	if !known {
		bits = 64
	}
	most := uint64(1)<<(bits-1) - 1
	if !c.Unsigned && !c.zerofill {
		return &integers{most: strconv.FormatUint(most, 10), least: strconv.FormatUint(most+1, 10)}
	}
	n := &integers{most: strconv.FormatUint(most*2+1, 10)}
	if c.zerofill {
		// A width that is not written is that of the widest number, and BIGINT's is the one with a sign.
		n.width = map[int]int{8: 3, 16: 5, 24: 8, 32: 10, 64: 20}[bits]
		if c.first >= 0 {
			n.width = min(c.first, 255)
		}
	}
	return n
}

func (c *column) decimal() string {
	whole, scale := c.first, max(0, c.second)
	switch {
	case c.base == "":
		return `-?(?:0|[1-9][0-9]{0,64})(?:\.[0-9]{1,38})?`
	case whole < 0:
		whole = 10
	}
	whole -= scale
	e := "0"
	switch {
	case c.zerofill && whole > 0:
		e = "[0-9]" + times(whole, whole)
	case whole > 0:
		e = "(?:0|[1-9][0-9]" + times(0, whole-1) + ")"
	}
	if scale > 0 {
		e += `\.[0-9]` + times(scale, scale)
	}
	if !c.Unsigned {
		e = "-?" + e
	}
	return e
}

func (c *column) temporal() string {
	fraction := ""
	switch {
	case c.base == "":
		fraction = `(?:\.[0-9]{1,6})?`
	case c.first > 0:
		fraction = `\.[0-9]` + times(c.first, c.first)
	}
	switch c.base {
	case "date":
		return date
	case "datetime", "timestamp":
		return date + " " + clock + fraction
	case "time":
		return span + fraction
	case "year":
		return "0000|" + numbers("1901", "2155", 4)
	}
	return date + "(?: " + clock + fraction + ")?|" + span + fraction
}

// labels returns the labels of an ENUM, and the empty text that stands for an invalid value; nil where they are not
// certain. The servers show ? for characters that utf8mb3 lacks, and backslashes by what sql_mode says; labels of bytes
// are not shown as they are.
func labels(c *event.Column) []string {
	const begin = "enum("
	if c.Class != event.ClassEnum || len(c.Type) < len(begin) || !strings.EqualFold(c.Type[:len(begin)], begin) ||
		strings.ContainsAny(c.Type, `\?`) || !utf8.ValidString(c.Type) {
		return nil
	}
	if !ascii(c.Type) && (c.Collation == "" || c.Collation == "binary") {
		return nil
	}
	all, rest := []string{""}, c.Type[len(begin):]
	for {
		m := label.FindStringSubmatch(rest)
		if m == nil {
			return nil
		}
		// The servers store labels without trailing spaces.
		all = append(all, strings.TrimRight(strings.ReplaceAll(m[1], "''", "'"), " "))
		if m[2] == ")" {
			return all
		}
		rest = rest[len(m[0]):]
	}
}

// label is a text in single quotes, of which one within is doubled, and what ends it.
var label = regexp.MustCompile(`^ *'((?:[^']|'')*)' *([,)])`)

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}
