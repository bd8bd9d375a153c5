package event

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// Op is what happened to a row.
type Op uint8

// The three kinds of row change. A REPLACE that changes the primary key arrives as an Update.
const (
	Insert Op = iota + 1
	Update
	Delete
)

// String returns the operation's name as it is written in a mapping's `events`.
func (o Op) String() string {
	switch o {
	case Insert:
		return "insert"
	case Update:
		return "update"
	case Delete:
		return "delete"
	}
	return "op(" + strconv.Itoa(int(o)) + ")"
}

// Kind says what a [Value] holds.
type Kind uint8

// The kinds of value. Text-like kinds carry in Value.Text what MySQL itself prints for the value with
// time_zone='+00:00' and character set utf8mb4.
const (
	// Absent: the row image does not hold the column (binlog_row_image MINIMAL or NOBLOB, a partial JSON update).
	Absent Kind = iota
	// Null is SQL NULL.
	Null
	// Int is a signed integer; Num holds it as two's complement.
	Int
	// Uint is an unsigned integer, in Num. YEAR is one as well.
	Uint
	// Decimal is an exact number; Text holds its digits.
	Decimal
	// Text is everything else that has a text: strings, dates, floats, ENUM and SET labels, UUID, INET.
	Text
	// Bytes is what a column of [ClassBinary] holds: Text has the raw bytes.
	Bytes
	// Opaque can only be compared: its text was not asked for ([Need].Text false), or cannot be known.
	Opaque
	// JSON is a JSON column whose text was asked for: Text is the document as the server prints it. No key is made of
	// it.
	JSON
)

// Value is one column of one row image. Its slices alias buffers of the decoder and are valid only while
// the [Change] is.
type Value struct {
	// Raw is the column as it stands in the row image, for comparing; empty when Absent or Null.
	Raw []byte
	// Text is the printed value for Decimal, Text and Bytes. Int and Uint print from Num; a Uint has a Text only where
	// that would not do: ZEROFILL columns and YEAR, which print leading zeros.
	Text []byte
	Num  uint64
	Kind Kind
}

// AppendText appends the value's text to dst. It must be called only on kinds that have one: Int, Uint, Decimal,
// Text and Bytes.
func (v *Value) AppendText(dst []byte) []byte {
	switch v.Kind {
	case Int:
		return strconv.AppendInt(dst, int64(v.Num), 10)
	case Uint:
		if len(v.Text) == 0 {
			return strconv.AppendUint(dst, v.Num, 10)
		}
	}
	return append(dst, v.Text...)
}

// Same reports whether two images surely hold the same value of a column. An absent value is never surely the
// same: an absent column counts as changed.
func (v *Value) Same(o *Value) bool {
	return v.Kind != Absent && v.Kind == o.Kind && bytes.Equal(v.Raw, o.Raw)
}

// Class is the family of a column's type, as far as keys and predicates are concerned.
type Class uint8

// The classes of column type.
const (
	ClassUnknown  Class = iota
	ClassInt            // all integer types, BOOL
	ClassDecimal        // DECIMAL
	ClassFloat          // FLOAT, DOUBLE: their text is rounded, so they make poor keys
	ClassTemporal       // DATE, TIME, DATETIME, TIMESTAMP, YEAR
	ClassText           // CHAR, VARCHAR, TEXT with a character set
	ClassBinary         // BINARY, VARBINARY, BLOB, BIT, GEOMETRY and its subtypes, VECTOR
	ClassEnum           // ENUM, SET
	ClassUUID           // MariaDB UUID
	ClassInet           // MariaDB INET4, INET6
	ClassJSON           // JSON of MySQL: values can hold it, but no key is made of it
)

// Column describes one column of a table as its row events carry it.
type Column struct {
	Name string
	// Type is the column's type as SQL writes it (bigint unsigned, varchar(64)) where it is known, else the
	// binlog's name for it.
	Type     string
	Class    Class
	Unsigned bool
	// Collation is the name of a text column's collation, "" where it is not known or the column has none.
	Collation string
	// Hidden says that the server made the column by itself and shows it nowhere, not even in information_schema; rows
	// have it all the same (MariaDB's system versioning, and its unique keys over BLOBs). It is none of the row's
	// values.
	Hidden bool
	// Computed says that an expression makes the column's values, on MariaDB: some of its versions leave such a column out
	// of row images, whatever binlog_row_image is.
	Computed bool
}

// IsYear reports whether the column is a YEAR, the one temporal type that is a number.
func (c *Column) IsYear() bool {
	return c.Class == ClassTemporal && len(c.Type) >= 4 && strings.EqualFold(c.Type[:4], "year")
}

// IsNumber reports whether the column's values are exact numbers: integers, DECIMAL and YEAR.
func (c *Column) IsNumber() bool {
	return c.Class == ClassInt || c.Class == ClassDecimal || c.IsYear()
}

// TypeName is the column's type for a sentence.
func (c *Column) TypeName() string {
	if c.Type == "" {
		return "of another type"
	}
	return strings.ToUpper(c.Type)
}

// Table is one definition of a table: what the columns were while a stretch of the binlog was written. A later
// ALTER makes a new Table; the pointer identifies the definition.
type Table struct {
	Schema, Name string
	Columns      []Column
	// FoldNames says that the source compares names of schemas and tables without letter case: its
	// lower_case_table_names is not 0.
	FoldNames bool
}

// String returns schema.table.
func (t *Table) String() string { return t.Schema + "." + t.Name }

// Column returns the ordinal of the named column (names compare without case, as in MySQL), or -1.
func (t *Table) Column(name string) int {
	for i := range t.Columns {
		if equalFold(t.Columns[i].Name, name) {
			return i
		}
	}
	return -1
}

func equalFold(a, b string) bool { return bytes.EqualFold([]byte(a), []byte(b)) }

// Need is one column that a consumer wants decoded.
type Need struct {
	// Column is its ordinal in [Table].Columns.
	Column int
	// Text asks for the value's text and number; without it the value is only good for [Value.Same].
	Text bool
}

// Tx is the transaction that a change belongs to.
type Tx struct {
	// GTID identifies it; the zero GTID where the source has none.
	GTID GTID
	// Committed is when the source says that it committed: to the microsecond on MySQL 8.0 and later, else to the
	// second. For display and latency only; it is another machine's clock.
	Committed time.Time
	// XID identifies an XA transaction, as XA statements write it (X'..',X'..',1); empty for all others.
	XID string
}

// Change is one row change. It, and all it points to except Table, is valid only during the call that hands it over.
type Change struct {
	Table *Table
	Tx    *Tx
	// Before and After hold the values of the needed columns, in the order of the [Need]s that the consumer gave
	// for this Table. Before is nil for Insert, After for Delete. A column that the after-image of an UPDATE lacks
	// has been filled in from the before-image; what is Absent still is unknown.
	Before, After []Value
	Version       Version
	Op            Op
}
