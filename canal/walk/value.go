package walk

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
)

// printable refuses columns whose text is needed and is not known here.
func (t *table) printable(needs []event.Need) error {
	for _, n := range needs {
		if c := &t.Columns[n.Column]; n.Text && kindOf(c) == event.Opaque {
			return refuse("the text of column %s of %s, a %s, is not known: a mapping that uses it cannot be walked", c.Name,
				t.String(), c.TypeName())
		}
	}
	return nil
}

// kindOf returns what values of a column are, other than NULL, as package binlog has them.
func kindOf(c *event.Column) event.Kind {
	switch c.Class {
	case event.ClassInt:
		if c.Unsigned {
			return event.Uint
		}
		return event.Int
	case event.ClassDecimal:
		return event.Decimal
	case event.ClassTemporal:
		if c.IsYear() {
			return event.Uint
		}
		return event.Text
	case event.ClassFloat, event.ClassText, event.ClassEnum, event.ClassUUID, event.ClassInet:
		return event.Text
	case event.ClassBinary:
		return event.Bytes
	case event.ClassJSON:
		return event.JSON
	}
	return event.Opaque
}

// padded reports whether a column's numbers are printed with leading zeros.
func padded(c *event.Column) bool {
	return c.IsYear() || c.Class == event.ClassInt && strings.Contains(strings.ToLower(c.Type), "zerofill")
}

// print is what is selected for a column.
func (t *table) print(n event.Need) string {
	c := &t.Columns[n.Column]
	switch {
	case !n.Text:
		return "NULL" // it would only be compared with what was before
	case padded(c) || c.Class == event.ClassFloat:
		return "CONCAT(" + ddl.Quote(c.Name) + ")"
	}
	return ddl.Quote(c.Name)
}

// value sets v to what a row holds for a column.
func (t *table) value(v *event.Value, f *mysql.FieldValue, n event.Need) (err error) {
	c := &t.Columns[n.Column]
	*v = event.Value{Kind: event.Opaque}
	if !n.Text {
		return nil
	}
	v.Kind = kindOf(c)
	number, fits := (v.Kind == event.Int || v.Kind == event.Uint) && !padded(c), true
	switch f.Type {
	case mysql.FieldValueTypeNull:
		v.Kind = event.Null
	case mysql.FieldValueTypeUnsigned:
		v.Num, fits = f.AsUint64(), number
	case mysql.FieldValueTypeSigned:
		v.Num, fits = uint64(f.AsInt64()), number
	case mysql.FieldValueTypeString:
		v.Text, fits = f.AsString(), !number
		if padded(c) {
			v.Num, err = strconv.ParseUint(string(v.Text), 10, 64)
		}
	default:
		fits = false
	}
	if !fits || err != nil {
		return fmt.Errorf("column %s of %s has another type than it had a moment ago", c.Name, t.String())
	}
	return nil
}
