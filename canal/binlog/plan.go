package binlog

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/float"
)

// column is how one column lies in a row image, and how it is rendered if it is needed.
type column struct {
	// prefix is the length in bytes of the length before a value; 0: values are size bytes long.
	prefix uint8
	render render
	// digits is the number of fractional digits, the scale of a DECIMAL, or the declared decimals of a FLOAT.
	digits uint8
	// precision is that of a DECIMAL.
	precision uint8
	// zerofill is the width to fill up to.
	zerofill uint8
	// size is the length of values without prefix; with prefix, the length that BINARY values are padded to.
	size uint16
	// real is how a FLOAT or DOUBLE is printed.
	real       float.Format
	attributes *Attributes
	// ordinal is the column's, from 1.
	ordinal uint16
}

// imagePlan is how row images with certain columns present are gone through.
type imagePlan struct {
	present   []byte
	nullBytes int
	// nullMask has the bits of the last byte of a null bitmap that mean something: servers set the rest.
	nullMask byte
	// steps are for a row without NULL: what is stepped over between two needed columns is one step, if that can be.
	steps []step
	// columns are those that are present, in order, for a row with NULLs.
	columns []presentColumn
	// absent are the needs that the image does not have. unchanged are those of them that, in the image after an UPDATE,
	// have the values of the image before.
	absent, unchanged []int32
}

type presentColumn struct {
	column *column
	need   int32 // -1: none
}

// stepKind says what a step does.
type stepKind uint8

const (
	skipFixed   stepKind = iota // skip n bytes
	skipPrefix1                 // skip a length of 1 byte and as many bytes
	skipPrefix2
	skipPrefixN // skip a length of n bytes and as many bytes
	take        // take the value of a needed column
)

type step struct {
	kind   stepKind
	need   int32
	n      uint32
	column *column
}

// tablePlan is what is compiled once for a definition of a table.
type tablePlan struct {
	schema  string
	name    string
	table   *event.Table
	columns []column
	// needOf is, for each column, the index of its need, or -1.
	needOf []int32
	// json are the ordinals of JSON columns.
	json []int
	// before and after are where the values of an image go.
	before, after []event.Value
	images        []*imagePlan
	// unknown says which needed text is not known, if there is one.
	unknown *TableError
	// needs is how many of the values are handed on. rowEnd is the place of the ROW END among all, -1: none.
	needs, rowEnd int
}

// maxImages bounds how many different sets of present columns have their plan kept.
const maxImages = 32

// newTablePlan compiles a plan. With a nil definition rows are only counted.
func newTablePlan(m *TableMap, def *Definition) (*tablePlan, error) {
	p := &tablePlan{
		schema: m.Schema, name: m.Name, columns: make([]column, len(m.Columns)),
		needOf: make([]int32, len(m.Columns)), rowEnd: -1,
	}
	for i := range p.needOf {
		p.needOf[i] = -1
	}
	if def != nil {
		if err := p.addNeeds(m, def); err != nil {
			return nil, err
		}
	}
	for i := range m.Columns {
		mc, c := &m.Columns[i], &p.columns[i]
		c.ordinal = uint16(i + 1)
		if def != nil {
			c.attributes = &def.Columns[i]
		}
		if err := c.setLayout(mc); err != nil {
			return nil, fmt.Errorf("column %d: %w", i+1, err)
		}
		if mc.Type == ColumnJSON {
			p.json = append(p.json, i)
		}
		if n := p.needOf[i]; n >= 0 && int(n) < p.needs && def.Needs[n].Text {
			if err := c.setRender(mc, m.Flavor); err != nil {
				c.render = renderUnknown
				p.unknown = p.fault(c.ordinal, err)
			}
		}
	}
	return p, nil
}

func (p *tablePlan) addNeeds(m *TableMap, def *Definition) error {
	n := len(m.Columns)
	switch {
	case def.Table == nil:
		return errors.New("a definition without a table")
	case len(def.Columns) != n || len(def.Table.Columns) != n:
		return fmt.Errorf("a definition of %d columns (%d attributes) for %d", len(def.Table.Columns), len(def.Columns), n)
	}
	p.table = def.Table
	for i, need := range def.Needs {
		if need.Column < 0 || need.Column >= n || p.needOf[need.Column] >= 0 {
			return fmt.Errorf("column %d is needed twice, or there is none", need.Column+1)
		}
		p.needOf[need.Column] = int32(i)
	}
	p.needs = len(def.Needs)
	values := p.needs
	for i := range def.Columns {
		if !def.Columns[i].RowEnd {
			continue
		}
		if p.needOf[i] < 0 {
			p.needOf[i] = int32(values)
			values++
		}
		p.rowEnd = int(p.needOf[i])
	}
	p.before, p.after = make([]event.Value, values), make([]event.Value, values)
	return nil
}

// fault says where an error is: in the column with an ordinal from 1, or (0) not in one.
func (p *tablePlan) fault(ordinal uint16, err error) *TableError {
	e := &TableError{Schema: p.schema, Table: p.name, Err: err}
	if ordinal > 0 && p.table != nil {
		e.Column = p.table.Columns[ordinal-1].Name
	}
	return e
}

// setLayout sets how long values are.
func (c *column) setLayout(m *MapColumn) error {
	meta := m.Meta
	switch m.Type {
	case ColumnNull:
		c.size = 0
	case ColumnTiny, ColumnYear:
		c.size = 1
	case ColumnShort:
		c.size = 2
	case ColumnInt24, ColumnDate, ColumnNewDate:
		c.size = 3
	case ColumnLong, ColumnFloat:
		c.size = 4
	case ColumnLongLong, ColumnDouble:
		c.size = 8
	case ColumnTimestamp, ColumnTime, ColumnDatetime:
		c.size = oldTemporalSize(m.Type, c.attributes)
	case ColumnTimestamp2:
		c.size = 4 + (meta+1)/2
	case ColumnDatetime2:
		c.size = 5 + (meta+1)/2
	case ColumnTime2:
		c.size = 3 + (meta+1)/2
	case ColumnNewDecimal:
		c.size = uint16(decimalSize(int(meta>>8), int(meta&0xff)))
	case ColumnBit:
		c.size = (meta>>8*8 + meta&0xff + 7) / 8
	case ColumnEnum, ColumnSet:
		c.size = meta
	case ColumnVarchar, ColumnVarString, ColumnString, ColumnVarcharCompressed:
		c.prefix, c.size = 1, meta
		if meta > 255 {
			c.prefix = 2
		}
	case ColumnBlob, ColumnGeometry, ColumnJSON, ColumnVector, ColumnBlobCompressed:
		c.prefix = uint8(meta)
	default:
		return fmt.Errorf("unsupported column %s", m.Type)
	}
	return nil
}

// oldTemporalSize returns the length of TIMESTAMP, TIME and DATETIME of before MySQL 5.6 and MariaDB 10.0. Those of
// MariaDB with declared digits are longer, which does not stand in the binlog.
func oldTemporalSize(t ColumnType, a *Attributes) uint16 {
	digits := 0
	if a != nil && a.Scale <= 6 {
		digits = int(a.Scale)
	}
	switch {
	case t == ColumnTimestamp:
		return 4 + uint16(hiresFractionSize[digits])
	case t == ColumnTime && digits == 0:
		return 3
	case t == ColumnTime:
		return uint16(hiresTimeSize[digits])
	case digits == 0:
		return 8
	}
	return uint16(hiresDatetimeSize[digits])
}

// image returns the plan for images with the given columns present.
func (p *tablePlan) image(present []byte) *imagePlan {
	for _, i := range p.images {
		if bytes.Equal(i.present, present) {
			return i
		}
	}
	if len(p.images) >= maxImages {
		p.images = p.images[:0]
	}
	i := p.compile(bytes.Clone(present))
	p.images = append(p.images, i)
	return i
}

func (p *tablePlan) compile(present []byte) *imagePlan {
	ip := &imagePlan{present: present}
	for i := range p.columns {
		c, need := &p.columns[i], p.needOf[i]
		if present[i/8]&(1<<(i%8)) == 0 {
			if need >= 0 {
				ip.absent = append(ip.absent, need)
				// MariaDB 11.4 with binlog_row_image=FULL_NODUP logs a VIRTUAL column before an UPDATE, and leaves it out
				// after it though what it is made of has changed. Observed on 11.4.5.
				if c.attributes == nil || !c.attributes.Computed {
					ip.unchanged = append(ip.unchanged, need)
				}
			}
			continue
		}
		ip.columns = append(ip.columns, presentColumn{column: c, need: need})
		ip.add(c, need)
	}
	n := len(ip.columns)
	ip.nullBytes = (n + 7) / 8
	ip.nullMask = 0xff
	if n%8 != 0 {
		ip.nullMask = 1<<(n%8) - 1
	}
	return ip
}

// add adds the step for a column, to the one before it if both are of fixed length and not needed.
func (ip *imagePlan) add(c *column, need int32) {
	s := step{kind: take, need: need, column: c}
	switch {
	case need >= 0:
	case c.prefix == 0:
		if n := len(ip.steps); n > 0 && ip.steps[n-1].kind == skipFixed {
			ip.steps[n-1].n += uint32(c.size)
			return
		}
		s.kind, s.n = skipFixed, uint32(c.size)
	case c.prefix == 1:
		s.kind = skipPrefix1
	case c.prefix == 2:
		s.kind = skipPrefix2
	default:
		s.kind, s.n = skipPrefixN, uint32(c.prefix)
	}
	ip.steps = append(ip.steps, s)
}
