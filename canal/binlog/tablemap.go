package binlog

import (
	"fmt"

	"github.com/freshet/freshet/event"
)

// TableMap describes a table as the rows events that follow it carry it.
type TableMap struct {
	ID           uint64
	Schema, Name string
	// Flavor is that of the server that wrote the event.
	Flavor  event.Flavor
	Columns []MapColumn
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

// maxColumns is the highest number of columns of a table.
// Source: MySQL's rows_event.h (Rows_event::max_fields); MariaDB has the same limit.
const maxColumns = 4096

// parseTableMap reads the body of a TABLE_MAP. What it returns aliases the body.
// Source: MySQL's rows_event.h (Table_map_event).
func parseTableMap(body []byte, f *Format) (*TableMap, error) {
	c := cursor{b: body}
	m := &TableMap{ID: c.uint(f.idSize()), Flavor: f.flavor()}
	c.skip(2) // flags
	m.Schema = string(c.name())
	m.Name = string(c.name())
	types := c.bytes(c.size())
	meta := cursor{b: c.bytes(c.size())}
	nulls := c.bytes((len(types) + 7) / 8)
	if c.bad {
		return nil, damaged(TypeTableMap, "truncated")
	}
	if len(types) > maxColumns {
		return nil, damaged(TypeTableMap, "table %s.%s: %d columns", m.Schema, m.Name, len(types))
	}
	m.Columns = make([]MapColumn, len(types))
	for i, t := range types {
		col := &m.Columns[i]
		col.Nullable = nulls[i/8]&(1<<(i%8)) != 0
		if err := col.readType(ColumnType(t), &meta); err != nil {
			return nil, fmt.Errorf("table %s.%s: column %d: %w", m.Schema, m.Name, i+1, err)
		}
	}
	if meta.bad || len(meta.b) != 0 {
		return nil, damaged(TypeTableMap, "table %s.%s: the metadata of its columns does not fit their types", m.Schema,
			m.Name)
	}
	return m, m.readOptional(c.rest())
}

// name reads a name with a length before it and a zero after it.
func (c *cursor) name() []byte {
	n := c.bytes(c.size())
	c.skip(1)
	return n
}

// idSize returns the length of a table id.
func (f *Format) idSize() int {
	if f != nil && f.shortIDs {
		return 4
	}
	return 6
}

// flavor returns the flavor of the server that wrote the stream, MySQL until that is known.
func (f *Format) flavor() event.Flavor {
	if f != nil {
		return f.Flavor
	}
	return event.MySQL
}

// readType sets the type and its metadata. The length of the metadata depends on the type, so that an unknown type ends
// the reading.
func (col *MapColumn) readType(t ColumnType, meta *cursor) error {
	col.Type = t
	switch t {
	case ColumnTiny, ColumnShort, ColumnInt24, ColumnLong, ColumnLongLong, ColumnNull, ColumnYear,
		ColumnDate, ColumnNewDate, ColumnTimestamp, ColumnTime, ColumnDatetime:
	case ColumnFloat, ColumnDouble, ColumnBlob, ColumnGeometry, ColumnJSON, ColumnVector, ColumnBlobCompressed,
		ColumnTimestamp2, ColumnDatetime2, ColumnTime2:
		col.Meta = uint16(meta.u8())
	case ColumnVarchar, ColumnVarString, ColumnVarcharCompressed, ColumnBit:
		col.Meta = meta.u16()
	case ColumnNewDecimal:
		col.Meta = uint16(meta.u8())<<8 | uint16(meta.u8())
	case ColumnString, ColumnEnum, ColumnSet:
		// The first byte is the real type; for a CHAR of more than 255 bytes two of its bits are of the length.
		b0, b1 := meta.u8(), meta.u8()
		col.Type = ColumnType(b0 | 0x30)
		col.Meta = uint16(b1) | uint16(b0&0x30^0x30)<<4
		if col.Type != ColumnString && col.Type != ColumnEnum && col.Type != ColumnSet {
			return damaged(TypeTableMap, "%s within string", col.Type)
		}
	default:
		return fmt.Errorf("unsupported column %s", t)
	}
	return col.checkMeta()
}

// checkMeta makes sure of what the decoding of values relies on.
func (col *MapColumn) checkMeta() error {
	ok := true
	m := col.Meta
	switch col.Type {
	case ColumnFloat:
		ok = m == 4
	case ColumnDouble:
		ok = m == 8
	case ColumnBlob, ColumnGeometry, ColumnJSON, ColumnVector, ColumnBlobCompressed:
		ok = m >= 1 && m <= 4
	case ColumnTimestamp2, ColumnDatetime2, ColumnTime2:
		ok = m <= 6
	case ColumnNewDecimal:
		precision, scale := m>>8, m&0xff
		ok = precision >= 1 && precision <= 65 && scale <= precision && scale <= 38
	case ColumnBit:
		ok = m>>8 <= 8 && m&0xff <= 7 && m != 0 && m>>8*8+m&0xff <= 64
	case ColumnEnum:
		ok = m == 1 || m == 2
	case ColumnSet:
		ok = m >= 1 && m <= 8
	}
	if !ok {
		return damaged(TypeTableMap, "metadata %#x of a column %s", m, col.Type)
	}
	return nil
}
