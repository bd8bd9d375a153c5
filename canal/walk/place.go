package walk

import (
	"strings"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
)

// Place is between two rows. Its zero value is before the first one. It holds values of the table's key, so it is as
// secret as the rows are.
type Place struct {
	// Key are the columns of the key, and After the values of the last row, as literals; none: there was none.
	Key   []string `json:"key,omitempty"`
	After []string `json:"after,omitempty"`
}

// key is the columns along which a table is walked.
type key []keyColumn

type keyColumn struct {
	name string
	how  how
	// charset is that of a text.
	charset string
}

// how says how a key column's value is printed, so that as a literal it is exactly that value, and compares as it does.
type how string

const (
	asNumber  how = "number"  // digits
	asOrdinal how = "ordinal" // ENUM, which is ordered by its number, and BIT
	asQuoted  how = "quoted"  // what the server prints
	asBytes   how = "bytes"   // the bytes, in the column's own character set
)

// howOf returns how a column's values stand in a place; "": not at all. FLOAT and DOUBLE are printed with fewer digits
// than they have, and a SET may have more bits than the number that it is compared as.
func howOf(c *event.Column) how {
	switch c.Class {
	case event.ClassInt, event.ClassDecimal:
		return asNumber
	case event.ClassTemporal:
		if c.IsYear() {
			return asNumber
		}
		return asQuoted
	case event.ClassUUID, event.ClassInet:
		return asQuoted
	case event.ClassText:
		return asBytes
	case event.ClassBinary:
		if strings.HasPrefix(strings.ToLower(c.Type), "bit") {
			return asOrdinal
		}
		return asBytes
	case event.ClassEnum:
		if strings.HasPrefix(strings.ToLower(c.Type), "enum") {
			return asOrdinal
		}
	}
	return ""
}

// names are those of the columns.
func (k key) names() (all []string) {
	for _, c := range k {
		all = append(all, c.name)
	}
	return all
}

// prints are what is selected to know where a row stands.
func (k key) prints() (all []string) {
	for _, c := range k {
		n := ddl.Quote(c.name)
		switch c.how {
		case asOrdinal:
			all = append(all, "CONCAT("+n+" + 0)")
		case asBytes:
			all = append(all, "HEX("+n+")")
		default:
			all = append(all, "CONCAT("+n+")")
		}
	}
	return all
}

// literals are what was printed, as it stands in a statement.
func (k key) literals(printed []string) (all []string) {
	for i, c := range k {
		switch {
		case c.how == asQuoted:
			all = append(all, text(printed[i]))
		case c.how == asBytes && c.charset != "":
			all = append(all, "_"+c.charset+" x'"+printed[i]+"'")
		case c.how == asBytes:
			all = append(all, "x'"+printed[i]+"'")
		default:
			all = append(all, printed[i])
		}
	}
	return all
}

// order is what rows are ordered by.
func (k key) order() string {
	var all []string
	for _, c := range k {
		all = append(all, ddl.Quote(c.name))
	}
	return strings.Join(all, ", ")
}

// after is the condition that a row comes after a place; "" for the place before the first one.
func (k key) after(place []string) string { return k.compare(place, ">", ">") }

// upTo is the condition that a row comes no later than a place; "" without one.
func (k key) upTo(place []string) string { return k.compare(place, "<", "<=") }

// compare writes out the comparison of two rows, each column for itself: each part of the OR is a range of the index,
// which servers do not see in (a, b) > (1, 2).
func (k key) compare(place []string, first, last string) string {
	if len(place) != len(k) {
		return ""
	}
	var parts []string
	for n := range k {
		var all []string
		for i := range n {
			all = append(all, ddl.Quote(k[i].name)+" = "+place[i])
		}
		op := first
		if n == len(k)-1 {
			op = last
		}
		parts = append(parts, strings.Join(append(all, ddl.Quote(k[n].name)+" "+op+" "+place[n]), " AND "))
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}
