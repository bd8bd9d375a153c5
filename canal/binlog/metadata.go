package binlog

// Fields of the optional metadata of a TABLE_MAP.
// Source: MySQL's rows_event.h (Optional_metadata_field_type); the same numbers on MariaDB.
const (
	metaSignedness       = 1
	metaDefaultCharset   = 2
	metaColumnCharset    = 3
	metaNames            = 4
	metaSetLabels        = 5
	metaEnumLabels       = 6
	metaPrimaryKey       = 8
	metaPrimaryKeyPrefix = 9
	metaLabelsDefault    = 10
	metaLabelsCharset    = 11
	metaVisibility       = 12
)

// readOptional reads what binlog_row_metadata adds to a TABLE_MAP: fields with a number, a length and a value. Fields
// that are not known are passed over: they describe further what can be decoded without them.
func (m *TableMap) readOptional(b []byte) error {
	c := cursor{b: b}
	for len(c.b) > 0 {
		field := c.u8()
		v := cursor{b: c.bytes(c.size())}
		if c.bad || !m.readField(field, &v) || v.bad {
			return damaged(TypeTableMap, "table %s.%s: field %d of its metadata", m.Schema, m.Name, field)
		}
	}
	return nil
}

// readField reads one field and reports whether it is well-formed, reads beyond its end aside.
func (m *TableMap) readField(field uint8, v *cursor) bool {
	switch field {
	case metaSignedness:
		m.HasSignedness = true
		return m.readBits(v, m.hasSignedness, func(c *MapColumn) { c.Unsigned = true })
	case metaDefaultCharset:
		m.HasCharsets = true
		return m.readDefaultCharset(v, m.selected(m.hasCharset))
	case metaColumnCharset:
		m.HasCharsets = true
		return m.readCharsets(v, m.selected(m.hasCharset))
	case metaLabelsDefault:
		return m.readDefaultCharset(v, m.selected(m.hasLabels))
	case metaLabelsCharset:
		return m.readCharsets(v, m.selected(m.hasLabels))
	case metaNames:
		m.HasNames = true
		return m.readNames(v)
	case metaSetLabels:
		return m.readLabels(v, ColumnSet)
	case metaEnumLabels:
		return m.readLabels(v, ColumnEnum)
	case metaPrimaryKey, metaPrimaryKeyPrefix:
		return m.readPrimaryKey(v, field == metaPrimaryKeyPrefix)
	case metaVisibility:
		for i := range m.Columns {
			m.Columns[i].Invisible = true
		}
		return m.readBits(v, nil, func(c *MapColumn) { c.Invisible = false })
	}
	return true
}

func (m *TableMap) hasSignedness(c *MapColumn) bool { return c.Type.numeric() }
func (m *TableMap) hasCharset(c *MapColumn) bool    { return c.Type.hasCharset(m.Flavor) }
func (m *TableMap) hasLabels(c *MapColumn) bool     { return c.Type == ColumnEnum || c.Type == ColumnSet }

// selected returns the columns that a field speaks of: it numbers only these.
func (m *TableMap) selected(is func(*MapColumn) bool) []*MapColumn {
	var cols []*MapColumn
	for i := range m.Columns {
		if is == nil || is(&m.Columns[i]) {
			cols = append(cols, &m.Columns[i])
		}
	}
	return cols
}

// readBits reads one bit for each selected column, the highest of a byte first, and calls set for those that are on.
func (m *TableMap) readBits(v *cursor, is func(*MapColumn) bool, set func(*MapColumn)) bool {
	cols := m.selected(is)
	bits := v.rest()
	if len(bits) < (len(cols)+7)/8 {
		return false
	}
	for i, c := range cols {
		if bits[i/8]&(0x80>>(i%8)) != 0 {
			set(c)
		}
	}
	return true
}

// readDefaultCharset reads the most frequent collation, and then ordinal and collation of each column that has another.
func (m *TableMap) readDefaultCharset(v *cursor, cols []*MapColumn) bool {
	id := v.packed()
	for _, c := range cols {
		c.Collation = uint32(id)
	}
	for len(v.b) > 0 {
		i, id := v.packed(), v.packed()
		if v.bad || i >= uint64(len(cols)) {
			return false
		}
		cols[i].Collation = uint32(id)
	}
	return true
}

// readCharsets reads the collation of each column.
func (m *TableMap) readCharsets(v *cursor, cols []*MapColumn) bool {
	for _, c := range cols {
		c.Collation = uint32(v.packed())
	}
	return len(v.b) == 0
}

func (m *TableMap) readNames(v *cursor) bool {
	for i := range m.Columns {
		m.Columns[i].Name = string(v.bytes(v.size()))
		if m.Columns[i].Name == "" {
			return false
		}
	}
	return len(v.b) == 0
}

func (m *TableMap) readLabels(v *cursor, t ColumnType) bool {
	for i := range m.Columns {
		c := &m.Columns[i]
		if c.Type != t {
			continue
		}
		n := v.size()
		if t == ColumnSet && n > 64 {
			return false
		}
		c.Labels = make([][]byte, n)
		for j := range c.Labels {
			c.Labels[j] = v.bytes(v.size())
		}
	}
	return len(v.b) == 0
}

func (m *TableMap) readPrimaryKey(v *cursor, prefix bool) bool {
	for len(v.b) > 0 {
		i := v.packed()
		if prefix {
			v.packed()
		}
		if v.bad || i >= uint64(len(m.Columns)) {
			return false
		}
		m.Columns[i].PrimaryKey = true
	}
	return true
}
