package binlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/event"
)

// Describe makes the Definition of a table, without Needs, from its TABLE_MAP, and from info for what the TABLE_MAP
// does not say. With names in the TABLE_MAP (binlog_row_metadata=FULL) info may be nil, of another version of the
// table, or incomplete: it is matched by name, and gives what never stands in the binlog (ZEROFILL, the decimals of
// FLOAT(M,D), MariaDB's UUID and INET). Without names info must be exactly the columns of m in order; a difference in
// number or type is a [*MismatchError]. Collations may be nil: the well-known ones.
func Describe(m *TableMap, info []ColumnInfo, collations *charset.Collations) (*Definition, error) {
	d := describer{m: m, collations: collations}
	def := &Definition{
		Table:   &event.Table{Schema: m.Schema, Name: m.Name, Columns: make([]event.Column, len(m.Columns))},
		Columns: make([]Attributes, len(m.Columns)),
	}
	if !m.HasNames && len(info) != len(m.Columns) {
		return nil, d.mismatch(-1, fmt.Sprintf("%d columns are known, the rows have %d", len(info), len(m.Columns)))
	}
	for i := range m.Columns {
		mc := &m.Columns[i]
		ci, t, err := d.find(i, info)
		if err != nil {
			return nil, err
		}
		if err := d.attributes(&def.Columns[i], mc, ci, t); err != nil {
			return nil, fmt.Errorf("column %d: %w", i+1, err)
		}
		d.column(&def.Table.Columns[i], &def.Columns[i], mc, ci)
	}
	return def, nil
}

// MismatchError says that the columns given for a table cannot be those that the TABLE_MAP describes.
type MismatchError struct {
	Table string
	// Column is the ordinal of the first column that differs, or -1 if the number of columns does.
	Column int
	Reason string
}

// Error implements error.
func (e *MismatchError) Error() string {
	return "table " + e.Table + ": the definition that is known is not the one that the binlog was written with: " +
		e.Reason
}

type describer struct {
	m          *TableMap
	collations *charset.Collations
}

func (d *describer) mismatch(column int, reason string) error {
	return &MismatchError{Table: d.m.Schema + "." + d.m.Name, Column: column, Reason: reason}
}

// find returns what info says of column i, or nil. Information that cannot be of this column is an error without
// names, and passed over with names.
func (d *describer) find(i int, info []ColumnInfo) (*ColumnInfo, *sqlType, error) {
	mc := &d.m.Columns[i]
	var ci *ColumnInfo
	if !d.m.HasNames {
		ci = &info[i]
	} else {
		for j := range info {
			if strings.EqualFold(info[j].Name, mc.Name) {
				ci = &info[j]
				break
			}
		}
		if ci == nil {
			return nil, nil, nil
		}
	}
	t, err := parseSQLType(ci.Type)
	if err == nil && !d.compatible(mc, ci, &t) {
		err = fmt.Errorf("column %s is known as %s, its values are %s", ci.Name, ci.Type, mc)
	}
	switch {
	case err == nil:
		return ci, &t, nil
	case d.m.HasNames:
		return nil, nil, nil
	}
	return nil, nil, d.mismatch(i, err.Error())
}

// attributes sets a from the TABLE_MAP, and what it does not say from ci and its type t, which may be nil.
func (d *describer) attributes(a *Attributes, mc *MapColumn, ci *ColumnInfo, t *sqlType) error {
	a.Scale = NoScale
	a.Class = columnKinds[mc.Type].class
	a.Unsigned = mc.Unsigned
	if !d.m.HasSignedness && t != nil {
		a.Unsigned = t.unsigned
	}
	if t != nil {
		a.setZerofill(mc.Type, t)
	}
	switch mc.Type {
	case ColumnFloat, ColumnDouble:
		if t != nil && len(t.args) == 2 {
			a.Scale = uint8(min(t.args[1], NoScale))
		}
	case ColumnTime, ColumnDatetime, ColumnTimestamp:
		if t == nil && d.m.Flavor == event.MariaDB {
			return errors.New("its number of fractional digits is not known, and with it the length of its values")
		}
		a.Scale = 0
		if t != nil {
			a.Scale = uint8(t.arg(0, 0))
		}
	case ColumnEnum, ColumnSet:
		d.setLabels(a, mc, ci, t)
	case ColumnJSON: // its documents have a text, though no key is made of it
	case ColumnTypedArray, ColumnNull:
		a.Unknown = fmt.Errorf("a %s has no text", mc.Type)
	default:
		if mc.Type.isString() {
			d.setText(a, mc, ci, t)
		}
	}
	return nil
}

// setZerofill sets the width that ZEROFILL fills up to. A width that is not written is that of the widest number.
// Source: MySQL's field.h (MAX_*INT_WIDTH), MAX_FLOAT_STR_LENGTH, and 22 for DOUBLE.
func (a *Attributes) setZerofill(ct ColumnType, t *sqlType) {
	if !t.zerofill {
		return
	}
	width := map[ColumnType]int{
		ColumnTiny: 3, ColumnShort: 5, ColumnInt24: 8, ColumnLong: 10, ColumnLongLong: 20,
		ColumnFloat: 12, ColumnDouble: 22, ColumnNewDecimal: 1,
	}[ct]
	if n := t.arg(0, width); width > 0 && (len(t.args) == 2 || ct != ColumnFloat && ct != ColumnDouble) {
		width = n
	}
	a.Zerofill = uint8(min(max(width, 0), 255))
}

// setText sets the character set of a text column, and tells binary columns and MariaDB's own types from it.
func (d *describer) setText(a *Attributes, mc *MapColumn, ci *ColumnInfo, t *sqlType) {
	if t != nil {
		switch t.base {
		case "uuid":
			a.Class = event.ClassUUID
			return
		case "inet4", "inet6":
			a.Class = event.ClassInet
			return
		}
	}
	switch cs, known, err := d.charset(mc, ci, t); {
	case !known:
		a.Unknown = err
	case cs != nil:
		a.Charset, a.Class = cs, event.ClassText
	default:
		a.Class = event.ClassBinary
		if t == nil && d.m.Flavor == event.MariaDB && mc.Type == ColumnString && (mc.Meta == 16 || mc.Meta == 4) {
			a.Class = event.ClassUnknown
			a.Unknown = fmt.Errorf("it may be a binary(%d), or a uuid, inet4 or inet6, which the binlog does not tell", mc.Meta)
		}
	}
}

// charset returns the character set of a column, nil for binary; known is false when it cannot be determined, for the
// reason in the error.
func (d *describer) charset(mc *MapColumn, ci *ColumnInfo, t *sqlType) (cs *charset.Charset, known bool, err error) {
	var c charset.Collation
	found := false
	switch {
	case mc.Collation != 0:
		if c, found = d.collations.ByID(mc.Collation); !found {
			err = fmt.Errorf("its collation, number %d, is not known", mc.Collation)
		}
	case t != nil && binaryTypes[t.base]:
		return nil, true, nil
	}
	if !found && ci != nil && ci.Collation != "" {
		if c, found = d.collations.ByName(ci.Collation); !found {
			err = fmt.Errorf("its collation %s is not known", ci.Collation)
		}
	}
	switch {
	case found && c.Charset == "binary":
		return nil, true, nil
	case found:
		cs, ok := charset.Find(c.Charset, d.m.Flavor)
		if !ok {
			return nil, false, fmt.Errorf("its character set %s is not known", c.Charset)
		}
		return cs, true, nil
	case err == nil:
		err = errors.New("its character set is not known")
	}
	return nil, false, err
}

// binaryTypes are the types of strings without a character set. It is never written to.
var binaryTypes = map[string]bool{
	"binary": true, "varbinary": true, "tinyblob": true, "blob": true, "mediumblob": true, "longblob": true,
	"vector": true, // of MariaDB
}

// setLabels sets the labels of an ENUM or SET.
func (d *describer) setLabels(a *Attributes, mc *MapColumn, ci *ColumnInfo, t *sqlType) {
	if t != nil && len(t.labels) > 0 && (mc.Labels == nil || len(mc.Labels) == len(t.labels)) {
		// Preferred where both are the same, since they need no conversion; decided below where they differ.
		a.Labels = d.told(t.labels, mc, ci, t)
	}
	if mc.Labels == nil {
		if a.Labels == nil {
			a.Unknown = errors.New("its labels are not known")
		}
		return
	}
	cs, known, err := d.charset(mc, ci, t)
	labels := make([]string, len(mc.Labels))
	for i, l := range mc.Labels {
		switch {
		case known && cs != nil:
			labels[i] = string(cs.Append(nil, l))
		case known || isASCII(l):
			labels[i] = string(l)
		case a.Labels != nil:
			labels[i] = a.Labels[i]
		default:
			a.Unknown = err
		}
	}
	a.Labels = labels
}

// notTold stands for a label that is not known. It is not UTF-8, as every label is.
const notTold = "\xff"

// told returns the labels that a definition tells. Both servers say in utf8mb3 what a column is, with a question mark
// for each character that utf8mb3 does not have: a label with one may be another label. Observed on MySQL 9.7 and
// MariaDB 10.11, in information_schema and in SHOW CREATE TABLE.
func (d *describer) told(labels []string, mc *MapColumn, ci *ColumnInfo, t *sqlType) []string {
	marked := func(l string) bool { return strings.Contains(l, "?") }
	if cs, known, _ := d.charset(mc, ci, t); known && (cs == nil || !beyondUTF8MB3[cs.Name()]) ||
		!slices.ContainsFunc(labels, marked) {
		return labels
	}
	labels = slices.Clone(labels)
	for i, l := range labels {
		if marked(l) {
			labels[i] = notTold
		}
	}
	return labels
}

// beyondUTF8MB3 are the character sets with characters that utf8mb3 does not have. It is never written to.
var beyondUTF8MB3 = map[string]bool{"utf8mb4": true, "utf16": true, "utf16le": true, "utf32": true, "gb18030": true}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// column sets what goes along with every row.
func (d *describer) column(c *event.Column, a *Attributes, mc *MapColumn, ci *ColumnInfo) {
	c.Name, c.Type, c.Class, c.Unsigned = mc.Name, mc.String(), a.Class, a.Unsigned
	if ci != nil {
		c.Type = ci.Type
		if c.Name == "" {
			c.Name = ci.Name
		}
	}
	if a.Class != event.ClassText && a.Class != event.ClassEnum {
		return
	}
	if found, ok := d.collations.ByID(mc.Collation); ok && mc.Collation != 0 {
		c.Collation = found.Name
	} else if ci != nil {
		c.Collation = ci.Collation
	}
}
