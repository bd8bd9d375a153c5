package binlog

import (
	"strconv"

	"github.com/freshet/freshet/event"
)

// ColumnType is the code of a column's type in a TABLE_MAP.
// Source: MySQL's field_types.h (enum_field_types); MariaDB's mysql_com.h for 140 and 141.
type ColumnType uint8

// The column types that appear in a TABLE_MAP.
const (
	ColumnDecimalOld        ColumnType = 0
	ColumnTiny              ColumnType = 1
	ColumnShort             ColumnType = 2
	ColumnLong              ColumnType = 3
	ColumnFloat             ColumnType = 4
	ColumnDouble            ColumnType = 5
	ColumnNull              ColumnType = 6
	ColumnTimestamp         ColumnType = 7
	ColumnLongLong          ColumnType = 8
	ColumnInt24             ColumnType = 9
	ColumnDate              ColumnType = 10
	ColumnTime              ColumnType = 11
	ColumnDatetime          ColumnType = 12
	ColumnYear              ColumnType = 13
	ColumnNewDate           ColumnType = 14
	ColumnVarchar           ColumnType = 15
	ColumnBit               ColumnType = 16
	ColumnTimestamp2        ColumnType = 17
	ColumnDatetime2         ColumnType = 18
	ColumnTime2             ColumnType = 19
	ColumnTypedArray        ColumnType = 20
	ColumnBlobCompressed    ColumnType = 140
	ColumnVarcharCompressed ColumnType = 141
	ColumnVector            ColumnType = 242
	ColumnJSON              ColumnType = 245
	ColumnNewDecimal        ColumnType = 246
	ColumnEnum              ColumnType = 247
	ColumnSet               ColumnType = 248
	ColumnTinyBlob          ColumnType = 249
	ColumnMediumBlob        ColumnType = 250
	ColumnLongBlob          ColumnType = 251
	ColumnBlob              ColumnType = 252
	ColumnVarString         ColumnType = 253
	ColumnString            ColumnType = 254
	ColumnGeometry          ColumnType = 255
)

// columnKind is what there is to know of a column type by itself.
type columnKind struct {
	// name is what the servers' sources call the type, in lower case; sql, what SQL calls it, "": the same.
	name, sql string
	// class is that of its columns. That of a string depends on its character set: see [describer.setText].
	class event.Class
	// signed: the SIGNEDNESS of a TABLE_MAP has a bit for columns of this type.
	signed bool
	// str: columns of this type hold text, or bytes.
	str bool
}

// columnKinds are all column types. A new one needs a line here, and what "A new column type" in the package's comment
// names. It is never written to.
var columnKinds = [256]columnKind{
	ColumnDecimalOld:        {name: "decimal (before MySQL 5.0)", signed: true},
	ColumnTiny:              {name: "tiny", sql: "tinyint", class: event.ClassInt, signed: true},
	ColumnShort:             {name: "short", sql: "smallint", class: event.ClassInt, signed: true},
	ColumnLong:              {name: "long", sql: "int", class: event.ClassInt, signed: true},
	ColumnFloat:             {name: "float", class: event.ClassFloat, signed: true},
	ColumnDouble:            {name: "double", class: event.ClassFloat, signed: true},
	ColumnNull:              {name: "null"},
	ColumnTimestamp:         {name: "timestamp", class: event.ClassTemporal},
	ColumnLongLong:          {name: "longlong", sql: "bigint", class: event.ClassInt, signed: true},
	ColumnInt24:             {name: "int24", sql: "mediumint", class: event.ClassInt, signed: true},
	ColumnDate:              {name: "date", class: event.ClassTemporal},
	ColumnTime:              {name: "time", class: event.ClassTemporal},
	ColumnDatetime:          {name: "datetime", class: event.ClassTemporal},
	ColumnYear:              {name: "year", class: event.ClassTemporal, signed: true},
	ColumnNewDate:           {name: "newdate", sql: "date", class: event.ClassTemporal},
	ColumnVarchar:           {name: "varchar", str: true},
	ColumnBit:               {name: "bit", class: event.ClassBinary},
	ColumnTimestamp2:        {name: "timestamp2", sql: "timestamp", class: event.ClassTemporal},
	ColumnDatetime2:         {name: "datetime2", sql: "datetime", class: event.ClassTemporal},
	ColumnTime2:             {name: "time2", sql: "time", class: event.ClassTemporal},
	ColumnTypedArray:        {name: "typed array"},
	ColumnBlobCompressed:    {name: "compressed blob", str: true},
	ColumnVarcharCompressed: {name: "compressed varchar", str: true},
	ColumnVector:            {name: "vector", class: event.ClassBinary},
	ColumnJSON:              {name: "json", class: event.ClassJSON},
	ColumnNewDecimal:        {name: "newdecimal", class: event.ClassDecimal, signed: true},
	ColumnEnum:              {name: "enum", class: event.ClassEnum},
	ColumnSet:               {name: "set", class: event.ClassEnum},
	ColumnTinyBlob:          {name: "tiny blob"},
	ColumnMediumBlob:        {name: "medium blob"},
	ColumnLongBlob:          {name: "long blob"},
	ColumnBlob:              {name: "blob", str: true},
	ColumnVarString:         {name: "var string", sql: "varchar", str: true},
	ColumnString:            {name: "string", sql: "char", str: true},
	ColumnGeometry:          {name: "geometry", class: event.ClassBinary},
}

// String returns the name of the type as the servers' sources write it, in lower case.
func (t ColumnType) String() string {
	if n := columnKinds[t].name; n != "" {
		return n
	}
	return "type " + strconv.Itoa(int(t))
}

// sql returns the name of the type as SQL writes it, as far as it has one.
func (t ColumnType) sql() string {
	if n := columnKinds[t].sql; n != "" {
		return n
	}
	return t.String()
}

func (t ColumnType) numeric() bool { return columnKinds[t].signed }

func (t ColumnType) isString() bool { return columnKinds[t].str }

// hasCharset reports whether the character sets of a TABLE_MAP have an entry for columns of this type. MySQL has one
// for VECTOR too, MariaDB for geometry.
func (t ColumnType) hasCharset(flavor event.Flavor) bool {
	return t.isString() || t == ColumnVector || t == ColumnGeometry && flavor == event.MariaDB
}
