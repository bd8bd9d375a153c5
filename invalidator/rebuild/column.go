package rebuild

import (
	"bytes"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/float"
)

// binaryCharset is the number of the character set of bytes.
// Source: MySQL client/server protocol, "Character Set".
const binaryCharset = 63

// column is a column of a result.
type column struct {
	event.Column
	typ      uint8
	decimals int
	// stored says that it is a column of a table, also of one that the server made for a view.
	stored bool
	// real is how a FLOAT or DOUBLE is printed.
	real float.Format
}

// columnsOf describes the columns of a result.
func columnsOf(fields []*mysql.Field, maria bool) []column {
	all := make([]column, len(fields))
	for i, f := range fields {
		all[i] = columnOf(f, maria)
	}
	return all
}

// columnOf describes a column of a result as the binlog would.
func columnOf(f *mysql.Field, maria bool) column {
	c := column{typ: f.Type, decimals: int(f.Decimal), stored: len(f.Schema) > 0}
	c.Name = string(f.Name)
	c.Unsigned = f.Flag&mysql.UNSIGNED_FLAG != 0
	c.Type, c.Class = typeOf(f)
	if c.Class == event.ClassFloat {
		single := f.Type == mysql.MYSQL_TYPE_FLOAT
		c.real = float.Format{Single: single, Decimals: f.Decimal, Width: float.Width(single, maria)}
		if f.Flag&mysql.ZEROFILL_FLAG != 0 {
			c.real.Zerofill = uint8(min(f.ColumnLength, 255))
		}
	}
	return c
}

// typeOf returns a column's type as SQL writes it, as far as it matters to the document, and its class.
func typeOf(f *mysql.Field) (string, event.Class) {
	switch f.Type {
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_LONG,
		mysql.MYSQL_TYPE_LONGLONG:
		return "bigint", event.ClassInt
	case mysql.MYSQL_TYPE_YEAR:
		return "year", event.ClassTemporal
	case mysql.MYSQL_TYPE_DECIMAL, mysql.MYSQL_TYPE_NEWDECIMAL:
		return "decimal", event.ClassDecimal
	case mysql.MYSQL_TYPE_FLOAT:
		return "float", event.ClassFloat
	case mysql.MYSQL_TYPE_DOUBLE:
		return "double", event.ClassFloat
	case mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDATE:
		return "date", event.ClassTemporal
	case mysql.MYSQL_TYPE_TIME:
		return "time", event.ClassTemporal
	case mysql.MYSQL_TYPE_DATETIME:
		return "datetime", event.ClassTemporal
	case mysql.MYSQL_TYPE_TIMESTAMP:
		return "timestamp", event.ClassTemporal
	case mysql.MYSQL_TYPE_BIT:
		return "bit", event.ClassBinary
	case mysql.MYSQL_TYPE_JSON:
		return "json", event.ClassJSON
	case mysql.MYSQL_TYPE_GEOMETRY:
		return "geometry", event.ClassBinary
	case mysql.MYSQL_TYPE_VECTOR:
		return "vector", event.ClassBinary
	}
	switch {
	case f.Flag&(mysql.ENUM_FLAG|mysql.SET_FLAG) != 0:
		return "enum", event.ClassEnum
	case f.Charset == binaryCharset && f.Type != mysql.MYSQL_TYPE_NULL:
		return "varbinary", event.ClassBinary
	}
	return "varchar", event.ClassText
}

// value sets v to what a row holds for the column. Texts that must be made are appended to text.
func (c *column) value(v *event.Value, f *mysql.FieldValue, text []byte) []byte {
	*v = event.Value{}
	switch f.Type {
	case mysql.FieldValueTypeUnsigned:
		v.Kind, v.Num = event.Uint, f.AsUint64()
	case mysql.FieldValueTypeSigned:
		v.Kind, v.Num = event.Int, uint64(f.AsInt64())
	case mysql.FieldValueTypeFloat:
		begin := len(text)
		text = c.real.Append(text, f.AsFloat64())
		v.Kind, v.Text = event.Text, text[begin:len(text):len(text)]
	case mysql.FieldValueTypeString:
		v.Kind, v.Text = event.Text, f.AsString()
		switch c.Class {
		case event.ClassDecimal:
			v.Kind = event.Decimal
		case event.ClassBinary:
			v.Kind = event.Bytes
		case event.ClassJSON:
			v.Kind = event.JSON
		case event.ClassTemporal:
			begin := len(text)
			text = appendTemporal(text, v.Text, c.typ, c.decimals)
			v.Text = text[begin:len(text):len(text)]
		}
	default:
		v.Kind = event.Null
	}
	return text
}

// appendTemporal appends a date or time with as many decimals as its column has: the protocol leaves out a fraction
// that is zero, and has six digits of any other. Source: MySQL client/server protocol, "Binary Protocol Resultset Row",
// of temporal values.
func appendTemporal(dst, text []byte, typ uint8, decimals int) []byte {
	if typ == mysql.MYSQL_TYPE_DATE || typ == mysql.MYSQL_TYPE_NEWDATE || decimals > 6 {
		return append(dst, text...)
	}
	whole, fraction, _ := bytes.Cut(text, []byte{'.'})
	dst = append(dst, whole...)
	if decimals == 0 {
		return dst
	}
	dst = append(dst, '.')
	for i := range decimals {
		if i < len(fraction) {
			dst = append(dst, fraction[i])
		} else {
			dst = append(dst, '0')
		}
	}
	return dst
}

// called quotes a name for a sentence.
func called(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
