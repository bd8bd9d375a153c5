package schema

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
)

// Describe returns the definition of the table that a TABLE_MAP describes, without Needs. The error wraps [ErrDoubt]
// if it is not known, or what is known contradicts the TABLE_MAP; [Tracker.Resolve] is then to be called.
func (t *Tracker) Describe(m *binlog.TableMap) (*binlog.Definition, error) {
	n := t.key(ddl.Name{Schema: m.Schema, Table: m.Name})
	e := t.get(n)
	asked := e.of != nil && sameColumns(e.of, m)
	switch {
	case e.status == unknown && asked:
		return nil, e.why
	case e.status != known && (e.status != hinted && e.status != partial || !m.HasNames):
		return nil, fmt.Errorf("table %s.%s: %w", m.Schema, m.Name, ErrDoubt)
	}
	d, err := t.describe(m, &e)
	mismatch := (*binlog.MismatchError)(nil)
	switch {
	case errors.As(err, &mismatch):
		t.doubt(n)
		return nil, fmt.Errorf("%w: %w", err, ErrDoubt)
	case err != nil && (asked || e.status == known):
		return nil, fmt.Errorf("%w: %w", ErrUnknownSchema, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", err, ErrDoubt)
	case !t.complete(m, &e, d) && e.status != known && !asked:
		return nil, fmt.Errorf("table %s.%s: %w", m.Schema, m.Name, ErrDoubt)
	}
	return d, nil
}

// sameColumns reports whether two TABLE_MAPs say the same of the columns.
func sameColumns(a, b *binlog.TableMap) bool {
	return a.HasNames == b.HasNames && a.HasSignedness == b.HasSignedness && a.HasCharsets == b.HasCharsets &&
		slices.EqualFunc(a.Columns, b.Columns, func(x, y binlog.MapColumn) bool {
			return x.Name == y.Name && x.Type == y.Type && x.Meta == y.Meta && x.Unsigned == y.Unsigned &&
				x.Collation == y.Collation && slices.EqualFunc(x.Labels, y.Labels, bytes.Equal)
		})
}

// describe makes the definition of what is known of the table. The error is a [*binlog.MismatchError] if that
// contradicts the TABLE_MAP.
func (t *Tracker) describe(m *binlog.TableMap, e *entry) (*binlog.Definition, error) {
	info := e.def.info()
	if !m.HasNames {
		info = t.addHidden(m, info, e.def.hides())
	}
	d, err := binlog.Describe(m, info, t.o.Collations)
	if err != nil {
		return nil, err
	}
	if e.status == known {
		if err := t.contradiction(m, e.def, d.Table); err != nil {
			return nil, err
		}
	}
	t.markRowEnd(m, e, d)
	t.markHidden(e, d)
	t.markComputed(e, d)
	return d, nil
}

// markComputed marks the columns that MariaDB may leave out of a row image though they have changed: those that an
// expression makes. What is not known of a column may be one.
func (t *Tracker) markComputed(e *entry, d *binlog.Definition) {
	if !t.o.MariaDB {
		return
	}
	for i := range d.Columns {
		c := &d.Table.Columns[i]
		at := e.def.find(c.Name)
		c.Computed = at >= 0 && e.def.columns[at].computed
		d.Columns[i].Computed = c.Computed || at < 0 && !c.Hidden
	}
}

// markHidden marks the columns that rows have and information_schema does not show.
func (t *Tracker) markHidden(e *entry, d *binlog.Definition) {
	if !t.o.MariaDB {
		return
	}
	for i := range d.Table.Columns {
		c := &d.Table.Columns[i]
		if e.def.find(c.Name) >= 0 {
			continue
		}
		switch {
		case strings.HasPrefix(c.Name, hiddenHash):
			c.Hidden = true
		case d.Columns[i].RowEnd && c.Name == hiddenRowEnd && i > 0 && d.Table.Columns[i-1].Name == hiddenRowStart:
			c.Hidden, d.Table.Columns[i-1].Hidden = true, true
		}
	}
}

// markRowEnd marks the ROW END column of a table with system versioning.
func (t *Tracker) markRowEnd(m *binlog.TableMap, e *entry, d *binlog.Definition) {
	for i := range d.Columns {
		d.Columns[i].RowEnd = e.def.rowEnd != "" && strings.EqualFold(d.Table.Columns[i].Name, e.def.rowEnd)
	}
	if i := findHidden(m); t.o.MariaDB && e.status != known && !e.def.hides() && i >= 0 && e.def.find(hiddenRowEnd) < 0 {
		d.Columns[i].RowEnd = true
		d.Doubt = "rows of it were written while it had columns " + hiddenRowStart + " and " + hiddenRowEnd +
			", which it has no more: " +
			"they are taken for those of system versioning, and the binlog does not tell"
	}
}

// complete reports whether e tells all that matters of the columns, whose names come from the TABLE_MAP. It marks those
// of d of which it does not.
func (t *Tracker) complete(m *binlog.TableMap, e *entry, d *binlog.Definition) bool {
	all := true
	if !m.HasNames {
		return all
	}
	for i := range m.Columns {
		mc, c := &m.Columns[i], &d.Table.Columns[i]
		if !maySpecial(m, mc) || e.def.find(c.Name) < 0 && hash(m, mc) {
			continue
		}
		// What the TABLE_MAP contradicts, package binlog has passed over.
		if j := e.def.find(c.Name); e.status != hinted && j >= 0 && c.Type == e.def.columns[j].typ {
			continue
		}
		all = false
		switch {
		case !numeric(mc.Type):
		case e.why != nil:
			d.Columns[i].Unknown = fmt.Errorf("whether it is zero-filled, or how many decimals it has, is not known: %w", e.why)
		default:
			d.Columns[i].Unknown = errors.New("the table was altered since these rows were written, and neither the binlog " +
				"nor " +
				"the table as it is now tells whether the column was zero-filled then, or how many decimals it had")
		}
	}
	return all
}

// maySpecial reports whether a column of a TABLE_MAP may have an attribute that never stands there: ZEROFILL, which is
// always unsigned, the decimals of FLOAT(M,D), and on MariaDB UUID, INET4, INET6 and the digits of old temporal types.
func maySpecial(m *binlog.TableMap, c *binlog.MapColumn) bool {
	switch c.Type {
	case binlog.ColumnFloat, binlog.ColumnDouble:
		return true
	case binlog.ColumnString:
		return m.Flavor == event.MariaDB && (c.Meta == 16 || c.Meta == 4)
	case binlog.ColumnTime, binlog.ColumnDatetime, binlog.ColumnTimestamp:
		return m.Flavor == event.MariaDB
	}
	return numeric(c.Type) && (c.Unsigned || !m.HasSignedness)
}

// addHidden adds to the columns those that information_schema does not show and rows have: of MariaDB's system
// versioning, and of its unique keys over BLOBs. They stand at the end, in this order, also after columns are added.
// Observed on MariaDB 10.11; sql_table.cc, mysql_prepare_create_table.
func (t *Tracker) addHidden(m *binlog.TableMap, info []binlog.ColumnInfo, versioned bool) []binlog.ColumnInfo {
	if !t.o.MariaDB || len(m.Columns) <= len(info) {
		return info
	}
	rest := m.Columns[len(info):]
	if versioned {
		if len(rest) < 2 {
			return info
		}
		info = append(info, binlog.ColumnInfo{Name: hiddenRowStart, Type: "timestamp(6)"},
			binlog.ColumnInfo{Name: hiddenRowEnd, Type: "timestamp(6)"})
		rest = rest[2:]
	}
	for i := range rest {
		if rest[i].Type != binlog.ColumnLongLong {
			return info
		}
		info = append(info, binlog.ColumnInfo{Name: hiddenHash + strconv.Itoa(i+1), Type: "bigint unsigned"})
	}
	return info
}

// hash reports whether a column is by its name and type one that MariaDB adds by itself to a table with a unique key
// over a BLOB. It is a plain BIGINT UNSIGNED.
func hash(m *binlog.TableMap, c *binlog.MapColumn) bool {
	return m.Flavor == event.MariaDB && c.Type == binlog.ColumnLongLong && strings.HasPrefix(c.Name, hiddenHash)
}

// findHidden returns the ordinal of the ROW END column that a versioned table has by itself, or -1, by its name, type
// and place.
func findHidden(m *binlog.TableMap) int {
	isTime := func(c *binlog.MapColumn) bool { return c.Type == binlog.ColumnTimestamp2 && c.Meta == 6 && !c.Nullable }
	for i := 1; i < len(m.Columns); i++ {
		a, b := &m.Columns[i-1], &m.Columns[i]
		if a.Name == hiddenRowStart && b.Name == hiddenRowEnd && isTime(a) && isTime(b) {
			return i
		}
	}
	return -1
}

// contradiction compares with the TABLE_MAP what package binlog does not: it takes the names, the sign and the
// character set from the TABLE_MAP where it has them. A definition that differs in one of these is not the one that
// the rows were written under, though it would do for their lengths.
func (t *Tracker) contradiction(m *binlog.TableMap, d *definition, described *event.Table) error {
	for i := range d.columns {
		if i >= len(m.Columns) {
			return t.differs(m, -1, "it has fewer columns")
		}
		c, at := &d.columns[i], i
		if m.HasNames {
			// By name: the servers have columns that information_schema need not show, as MySQL's own primary key, the
			// first.
			if at = described.Column(c.name); at < 0 {
				return t.differs(m, i, "it has no column "+c.name)
			}
			if described.Columns[at].Type != c.typ {
				return t.differs(m, at, "column "+c.name+" is known as "+c.typ+", its values are "+m.Columns[at].String())
			}
		}
		mc := &m.Columns[at]
		if unsigned := strings.Contains(c.typ, " unsigned"); m.HasSignedness && numeric(mc.Type) && unsigned != mc.Unsigned {
			return t.differs(m, i, "column "+c.name+" has another sign")
		}
		if !c.text {
			continue
		}
		col, ok := t.o.Collations.ByID(mc.Collation)
		switch {
		case mc.Collation == 0:
			if c.charset == "" && !m.HasCharsets && !c.labelled() {
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
