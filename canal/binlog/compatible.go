package binlog

import (
	"fmt"

	"github.com/freshet/freshet/event"
)

// columnTypes are the types that values of an SQL type may have in the binlog. Types that are not here are not checked.
// It is never written to.
var columnTypes = map[string][]ColumnType{
	"tinyint": {ColumnTiny}, "smallint": {ColumnShort}, "mediumint": {ColumnInt24}, "int": {ColumnLong},
	"bigint": {ColumnLongLong}, "decimal": {ColumnNewDecimal},
	// FLOAT(25) and more is a DOUBLE; REAL is a FLOAT with sql_mode REAL_AS_FLOAT.
	"float": {ColumnFloat, ColumnDouble}, "double": {ColumnDouble, ColumnFloat},
	"year": {ColumnYear}, "bit": {ColumnBit}, "date": {ColumnDate, ColumnNewDate},
	"time": {ColumnTime2, ColumnTime}, "datetime": {ColumnDatetime2, ColumnDatetime},
	"timestamp": {ColumnTimestamp2, ColumnTimestamp},
	"char":      {ColumnString}, "binary": {ColumnString},
	"varchar":   {ColumnVarchar, ColumnVarString, ColumnVarcharCompressed},
	"varbinary": {ColumnVarchar, ColumnVarString, ColumnVarcharCompressed},
	"tinyblob":  {ColumnBlob, ColumnBlobCompressed}, "tinytext": {ColumnBlob, ColumnBlobCompressed},
	"blob": {ColumnBlob, ColumnBlobCompressed}, "text": {ColumnBlob, ColumnBlobCompressed},
	"mediumblob": {ColumnBlob, ColumnBlobCompressed}, "mediumtext": {ColumnBlob, ColumnBlobCompressed},
	"longblob": {ColumnBlob, ColumnBlobCompressed}, "longtext": {ColumnBlob, ColumnBlobCompressed},
	"enum": {ColumnEnum}, "set": {ColumnSet},
	"json": {ColumnJSON, ColumnBlob}, // MariaDB: another name of longtext
	"uuid": {ColumnString}, "inet4": {ColumnString}, "inet6": {ColumnString},
	"vector":   {ColumnVector, ColumnVarchar}, // MariaDB: a varbinary
	"geometry": {ColumnGeometry}, "point": {ColumnGeometry}, "linestring": {ColumnGeometry}, "polygon": {ColumnGeometry},
	"multipoint": {ColumnGeometry}, "multilinestring": {ColumnGeometry}, "multipolygon": {ColumnGeometry},
	"geomcollection": {ColumnGeometry},
}

// compatible reports whether values of mc can be of the type that is known of the column. It is what notices that a
// definition is not the one that the binlog was written with, as far as the binlog has anything to compare.
func (d *describer) compatible(mc *MapColumn, ci *ColumnInfo, t *sqlType) bool {
	types, ok := columnTypes[t.base]
	if !ok {
		return true
	}
	ok = false
	for _, ct := range types {
		ok = ok || ct == mc.Type
	}
	if !ok {
		return false
	}
	meta := int(mc.Meta)
	switch t.base {
	case "decimal":
		return meta == t.arg(0, 10)<<8|t.arg(1, 0)
	case "bit":
		return meta>>8*8+meta&0xff == t.arg(0, 1)
	case "time", "datetime", "timestamp":
		return meta == t.arg(0, 0) || mc.Type == ColumnTime || mc.Type == ColumnDatetime || mc.Type == ColumnTimestamp
	case "binary":
		return meta == t.arg(0, 1)
	case "varbinary":
		return meta == t.arg(0, meta) || mc.Type == ColumnVarcharCompressed
	case "char", "varchar":
		return mc.Type == ColumnVarcharCompressed || d.fits(mc, ci, t)
	case "tinyblob", "tinytext":
		return meta == 1
	case "blob", "text":
		return meta == 2 || len(t.args) > 0 // BLOB(n) takes the smallest that holds n
	case "mediumblob", "mediumtext":
		return meta == 3
	case "longblob", "longtext":
		return meta == 4
	case "json":
		return mc.Type == ColumnJSON || d.m.Flavor == event.MariaDB && meta == 4
	case "uuid", "inet6":
		return meta == 16
	case "inet4":
		return meta == 4
	case "enum":
		return mc.Labels == nil || len(mc.Labels) == len(t.labels)
	case "set":
		return (meta == 8 || meta*8 >= len(t.labels)) && (mc.Labels == nil || len(mc.Labels) == len(t.labels))
	}
	return true
}

// fits compares the length in characters with the one in bytes, as far as the character set is known.
func (d *describer) fits(mc *MapColumn, ci *ColumnInfo, t *sqlType) bool {
	cs, known, _ := d.charset(mc, ci, t)
	if !known || len(t.args) == 0 && t.base != "char" {
		return true
	}
	width := 1
	if cs != nil {
		width = cs.MaxBytes()
	}
	return int(mc.Meta) == t.arg(0, 1)*width
}

// String returns the type as SQL writes it, as far as the binlog tells.
func (c *MapColumn) String() string {
	meta := int(c.Meta)
	name := c.Type.sql()
	switch c.Type {
	case ColumnNewDecimal:
		name = fmt.Sprintf("decimal(%d,%d)", meta>>8, meta&0xff)
	case ColumnBit:
		name = fmt.Sprintf("bit(%d)", meta>>8*8+meta&0xff)
	case ColumnString, ColumnVarchar, ColumnVarString:
		name = fmt.Sprintf("%s of %d bytes", name, meta)
	case ColumnTime2, ColumnDatetime2, ColumnTimestamp2:
		if meta > 0 {
			name = fmt.Sprintf("%s(%d)", name, meta)
		}
	case ColumnBlob:
		name = [5]string{"blob", "tinyblob", "blob", "mediumblob", "longblob"}[min(meta, 4)]
	}
	if c.Unsigned {
		name += " unsigned"
	}
	return name
}
