package schema

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
)

// Describe returns the definition of the table that a TABLE_MAP describes, without Needs. The error wraps [ErrDoubt]
// if it is not known, or what is known contradicts the TABLE_MAP; [Tracker.Resolve] is then to be called.
func (t *Tracker) Describe(m *binlog.TableMap) (*binlog.Definition, error) {
	n := t.key(ddl.Name{Schema: m.Schema, Table: m.Name})
	e := t.get(n)
	if e.status != known && (e.status != hinted || !m.HasNames) {
		return nil, fmt.Errorf("table %s.%s: %w", m.Schema, m.Name, ErrDoubt)
	}
	d, err := t.describe(m, &e)
	if mismatch := (*binlog.MismatchError)(nil); errors.As(err, &mismatch) {
		t.doubt(n)
		return nil, fmt.Errorf("%w: %w", err, ErrDoubt)
	}
	return d, err
}

// describe makes the definition of what is known of the table. The error is a [*binlog.MismatchError] if that
// contradicts the TABLE_MAP.
func (t *Tracker) describe(m *binlog.TableMap, e *entry) (*binlog.Definition, error) {
	info := e.def.info()
	if !m.HasNames {
		info = t.addHidden(m, info)
	}
	d, err := binlog.Describe(m, info, t.o.Collations)
	if err != nil {
		return nil, err
	}
	if e.status == known {
		if err := t.contradiction(m, e.def); err != nil {
			return nil, err
		}
	}
	for i := range d.Columns {
		if j := e.def.find(d.Table.Columns[i].Name); e.unproven && j >= 0 && e.def.columns[j].special() {
			d.Columns[i].Unknown = fmt.Errorf("the table was altered since, and the binlog does not tell whether the column "+
				"was a %s then", e.def.columns[j].typ)
		}
	}
	return d, nil
}

// addHidden adds to the columns those that information_schema does not show and rows have: of MariaDB's system
// versioning, and of its unique keys over BLOBs. They stand at the end, in this order, also after columns are added.
// Observed on MariaDB 10.11; sql_table.cc, mysql_prepare_create_table.
func (t *Tracker) addHidden(m *binlog.TableMap, info []binlog.ColumnInfo) []binlog.ColumnInfo {
	if !t.o.MariaDB || len(m.Columns) <= len(info) {
		return info
	}
	rest := m.Columns[len(info):]
	const rowTime = binlog.ColumnTimestamp2
	if len(rest) >= 2 && rest[0].Type == rowTime && rest[1].Type == rowTime {
		info = append(info, binlog.ColumnInfo{Name: "row_start", Type: "timestamp(6)"},
			binlog.ColumnInfo{Name: "row_end", Type: "timestamp(6)"})
		rest = rest[2:]
	}
	for i := range rest {
		if rest[i].Type != binlog.ColumnLongLong {
			return info
		}
		info = append(info, binlog.ColumnInfo{Name: "DB_ROW_HASH_" + strconv.Itoa(i+1), Type: "bigint unsigned"})
	}
	return info
}

// contradiction compares with the TABLE_MAP what package binlog does not: it takes the names, the sign and the
// character set from the TABLE_MAP where it has them. A definition that differs in one of these is not the one that
// the rows were written under, though it would do for their lengths.
func (t *Tracker) contradiction(m *binlog.TableMap, d *definition) error {
	for i := range d.columns {
		if i >= len(m.Columns) {
			return t.differs(m, -1, "it has fewer columns")
		}
		c, mc := &d.columns[i], &m.Columns[i]
		if m.HasNames && !strings.EqualFold(c.name, mc.Name) {
			return t.differs(m, i, "column "+c.name+" is named "+mc.Name)
		}
		if unsigned := strings.Contains(c.typ, " unsigned"); m.HasSignedness && numeric(mc.Type) && unsigned != mc.Unsigned {
			return t.differs(m, i, "column "+c.name+" has another sign")
		}
		if !c.text {
			continue
		}
		col, ok := t.o.Collations.ByID(mc.Collation)
		switch {
		case mc.Collation == 0:
			if c.charset == "" && !m.HasCharsets {
				return t.differs(m, i, "the character set of column "+c.name+" is not known")
			}
		case ok && c.charset != "" && ddl.CharsetOf(col.Name) != c.charset:
			return t.differs(m, i, "column "+c.name+" is in "+col.Charset+", not "+c.charset)
		}
	}
	return nil
}

func (t *Tracker) differs(m *binlog.TableMap, column int, reason string) error {
	return &binlog.MismatchError{Table: m.Schema + "." + m.Name, Column: column, Reason: reason}
}

// numeric reports whether a TABLE_MAP tells the sign of columns of the type.
func numeric(t binlog.ColumnType) bool {
	switch t {
	case binlog.ColumnTiny, binlog.ColumnShort, binlog.ColumnInt24, binlog.ColumnLong, binlog.ColumnLongLong,
		binlog.ColumnNewDecimal, binlog.ColumnFloat, binlog.ColumnDouble:
		return true
	}
	return false
}
