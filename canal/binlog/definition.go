package binlog

import (
	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/event"
)

// ColumnInfo is what a column of a table is according to the server (information_schema.COLUMNS) or to the DDL
// that defined it.
type ColumnInfo struct {
	// Name is COLUMN_NAME.
	Name string
	// Type is COLUMN_TYPE: int(5) unsigned zerofill, enum('a','b'), varchar(64), uuid. The synonyms of types that
	// statements use are known too. Labels are in utf8mb4, in single quotes, with backslash escapes and doubled
	// quotes, as COLUMN_TYPE has them.
	Type string
	// Collation is COLLATION_NAME: "" for columns that have none, and where it is not known.
	Collation string
}

// Definition says how the rows under one TABLE_MAP are decoded.
type Definition struct {
	// Table is handed on with every row.
	Table *event.Table
	// Needs are the columns to decode, in the order that the values get. It may be empty: the rows are then
	// handed on without values.
	Needs []event.Need
	// Columns are parallel to Table.Columns and to the columns of the TABLE_MAP.
	Columns []Attributes
	// Doubt, when not empty, says what about the definition is not certain: keys and values that are made under it may
	// be wrong.
	Doubt string
}

// Attributes are what decoding a column needs to know beyond its type and metadata in the TABLE_MAP.
type Attributes struct {
	// Class is the family of the type.
	Class event.Class
	// Unsigned is for numbers.
	Unsigned bool
	// Zerofill is the display width of a ZEROFILL number; 0: none.
	Zerofill uint8
	// Scale is the number of decimals of FLOAT(M,D) and DOUBLE(M,D), and the fractional digits of the old temporal
	// types of MariaDB; NoScale: none declared.
	Scale uint8
	// Charset converts text and labels; nil for binary columns.
	Charset *charset.Charset
	// Labels are those of an ENUM or SET, in utf8mb4. A value beyond them, or with one that is not known, is handed on as
	// [event.Absent].
	Labels []string
	// RowEnd marks the column that says until when a row held, of a table with MariaDB's system versioning. Rows that
	// hold no more are then not handed on, and one that ceases to hold is a DELETE, though it is logged as an UPDATE.
	RowEnd bool
	// Computed says that an expression makes the column's values, or that it is not known whether one does, on a server
	// that leaves such a column out of the image after an UPDATE though it may have changed: its value there is then
	// [event.Absent], and not that of the image before.
	Computed bool
	// Unknown, when not nil, says why the text of the column's values is not known, though its values can be
	// compared. Where the text is needed, values are [event.Absent], and it is the error of [Decoder.Rows].
	Unknown error
}

// NoScale is the [Attributes].Scale of a type without declared decimals.
const NoScale = 31

// Definer decides what is decoded. Its methods are called by [Decoder.TableMap].
type Definer interface {
	// Wanted is asked first, for every TABLE_MAP of a table that is new: false if no row of this table is wanted. The
	// slices are valid only during the call.
	Wanted(schema, table []byte) bool
	// Define returns how to decode the rows under m; nil if they are not wanted after all. The definition, or that it
	// cannot be known ([ErrUndefined]), holds until a TABLE_MAP differs, or [Decoder.Forget] or [Decoder.Reset] is
	// called. Any other error is that of [Decoder.TableMap].
	Define(m *TableMap) (*Definition, error)
}
