package binlog

// TableMap describes a table as the rows events that follow it carry it.
type TableMap struct {
	ID           uint64
	Schema, Name string
	Columns      []MapColumn
	// HasNames says that the columns' names (and all else that binlog_row_metadata=FULL brings) are known.
	HasNames bool
	// HasSignedness and HasCharsets say the same of what binlog_row_metadata=MINIMAL brings.
	HasSignedness, HasCharsets bool
}

// MapColumn is one column of a [TableMap].
type MapColumn struct {
	// Name is "" when the event has no names.
	Name string
	// Labels are the labels of an ENUM or SET, in the column's character set; nil when the event has none.
	Labels [][]byte
	// Collation is the id of the collation of a text, ENUM or SET column; 0 when the event does not say.
	Collation uint32
	// Meta is the metadata of the type, as the event has it for ENUM, SET and CHAR: with the type taken out.
	Meta     uint16
	Type     ColumnType
	Nullable bool
	// Unsigned is only meaningful with [TableMap].HasSignedness.
	Unsigned bool
	// Invisible is set for invisible columns, with FULL metadata.
	Invisible bool
	// PrimaryKey is set for columns of the primary key, with FULL metadata.
	PrimaryKey bool
}

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
