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

// String returns the name of the type as the servers' sources write it, in lower case.
func (t ColumnType) String() string {
	if n, ok := columnTypeNames[t]; ok {
		return n
	}
	return "type " + strconv.Itoa(int(t))
}

// columnTypeNames is never written to.
var columnTypeNames = map[ColumnType]string{
	ColumnDecimalOld: "decimal (before MySQL 5.0)", ColumnTiny: "tiny", ColumnShort: "short", ColumnLong: "long",
	ColumnFloat: "float", ColumnDouble: "double", ColumnNull: "null", ColumnTimestamp: "timestamp",
	ColumnLongLong: "longlong", ColumnInt24: "int24", ColumnDate: "date", ColumnTime: "time",
	ColumnDatetime: "datetime", ColumnYear: "year", ColumnNewDate: "newdate", ColumnVarchar: "varchar",
	ColumnBit: "bit", ColumnTimestamp2: "timestamp2", ColumnDatetime2: "datetime2", ColumnTime2: "time2",
	ColumnTypedArray: "typed array", ColumnBlobCompressed: "compressed blob", ColumnVarcharCompressed: "compressed varchar",
	ColumnVector: "vector", ColumnJSON: "json", ColumnNewDecimal: "newdecimal", ColumnEnum: "enum", ColumnSet: "set",
	ColumnTinyBlob: "tiny blob", ColumnMediumBlob: "medium blob", ColumnLongBlob: "long blob", ColumnBlob: "blob",
	ColumnVarString: "var string", ColumnString: "string", ColumnGeometry: "geometry",
}

// numeric reports whether the SIGNEDNESS of a TABLE_MAP has a bit for columns of this type.
func (t ColumnType) numeric() bool {
	switch t {
	case ColumnTiny, ColumnShort, ColumnInt24, ColumnLong, ColumnLongLong, ColumnDecimalOld, ColumnNewDecimal,
		ColumnFloat, ColumnDouble, ColumnYear:
		return true
	}
	return false
}

// isString reports whether columns of this type hold text, or bytes.
func (t ColumnType) isString() bool {
	switch t {
	case ColumnString, ColumnVarString, ColumnVarchar, ColumnBlob, ColumnBlobCompressed, ColumnVarcharCompressed:
		return true
	}
	return false
}

// hasCharset reports whether the character sets of a TABLE_MAP have an entry for columns of this type. MySQL has one
// for VECTOR too, MariaDB for geometry.
func (t ColumnType) hasCharset(flavor event.Flavor) bool {
	return t.isString() || t == ColumnVector || t == ColumnGeometry && flavor == event.MariaDB
}
