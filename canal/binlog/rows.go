package binlog

import (
	"encoding/binary"

	"github.com/freshet/freshet/event"
)

// rowReader goes through the rows of one event at a time, in buffers that are used again.
type rowReader struct {
	typ     Type
	kind    rowsKind
	plan    *tablePlan
	counts  bool // rows are only counted
	before  *imagePlan
	after   *imagePlan
	b       []byte
	pos     int
	at      uint16 // the ordinal of the column being printed, or printed last; 0 while a row is handed out
	text    []byte // the texts of the current row
	inflate *inflater
}

// begin reads what is before the rows; of the post-header, table id and flags have been read.
func (r *rowReader) begin(d *Decoder, typ Type, c *cursor, t *table) error {
	r.at = 0
	r.typ, r.kind, r.plan, r.counts, r.inflate = typ, typ.rows(), t.plan, t.def == nil, &d.inflate
	if cap(r.text) > keepBuffer {
		r.text = nil
	}
	if r.kind.extra {
		n := int(c.u16())
		if n < 2 {
			return damaged(typ, "extra data of %d bytes", n)
		}
		c.skip(n - 2)
	}
	width := c.packed()
	if !c.bad && width != uint64(len(r.plan.columns)) {
		return damaged(typ, "%d columns, its TABLE_MAP has %d", width, len(r.plan.columns))
	}
	bitmap := (len(r.plan.columns) + 7) / 8
	first := c.bytes(bitmap)
	second := first
	if r.kind.op == event.Update {
		second = c.bytes(bitmap)
	}
	if c.bad {
		return damaged(typ, "truncated")
	}
	r.before, r.after = r.plan.image(first), r.plan.image(second)
	r.b, r.pos = c.rest(), 0
	if r.kind.compressed && len(r.b) > 0 {
		var err error
		if r.b, err = d.inflate.block(typ, r.b); err != nil {
			return err
		}
	}
	return nil
}

// run calls each for every row.
func (r *rowReader) run(c *event.Change, each func(*event.Change) error) error {
	p := r.plan
	c.Table, c.Op, c.Before, c.After = p.table, r.kind.op, nil, nil
	if r.kind.op != event.Insert {
		c.Before = p.before[:p.needs]
	}
	if r.kind.op != event.Delete {
		c.After = p.after[:p.needs]
	}
	// MySQL logs INSERT … VALUES () under binlog_row_image=MINIMAL as an image without any column, which has no bytes.
	// It refuses more than one such row in a statement.
	empty := len(r.b) == 0 && len(r.after.columns) == 0
	for r.pos < len(r.b) || empty {
		begin := r.pos
		r.text = r.text[:0]
		if err := r.row(); err != nil {
			return r.fault(err)
		}
		r.at = 0
		if r.pos == begin && !empty {
			return r.fault(damaged(r.typ, "rows without content"))
		}
		empty = false
		c.Version.Row++
		if r.counts || p.rowEnd >= 0 && !r.current(c) {
			continue
		}
		if err := each(c); err != nil {
			return err
		}
	}
	return nil
}

// row decodes one row: one image, or two.
func (r *rowReader) row() error {
	p := r.plan
	switch r.kind.op {
	case event.Insert:
		return r.image(r.after, p.after)
	case event.Delete:
		return r.image(r.before, p.before)
	}
	if err := r.image(r.before, p.before); err != nil {
		return err
	}
	var diffs []byte
	if r.kind.partial {
		var err error
		if diffs, err = r.partialBits(); err != nil {
			return err
		}
	}
	if err := r.image(r.after, p.after); err != nil {
		return err
	}
	if !r.counts {
		for _, need := range r.after.unchanged {
			p.after[need] = p.before[need]
		}
		r.dropDiffs(diffs)
	}
	return nil
}

// partialBits reads what a PARTIAL_UPDATE_ROWS has before each after-image: options, and then a bit for each JSON
// column of the table, present or not, that says whether its value is a diff.
// Source: MySQL's rpl_record.cc (unpack_row), log_event.cc (Rows_log_event::print_verbose_one_row).
func (r *rowReader) partialBits() ([]byte, error) {
	const partialJSON = 1
	c := cursor{b: r.b[r.pos:]}
	options := c.packed()
	var bits []byte
	if options&partialJSON != 0 {
		bits = c.bytes((len(r.plan.json) + 7) / 8)
	}
	if c.bad || options&^partialJSON != 0 {
		return nil, damaged(r.typ, "value options %#x", options)
	}
	r.pos = len(r.b) - len(c.b)
	return bits, nil
}

// dropDiffs makes values of the after-image absent that are only diffs. An empty diff is no change.
func (r *rowReader) dropDiffs(bits []byte) {
	if bits == nil {
		return
	}
	for i, col := range r.plan.json {
		need := r.plan.needOf[col]
		if need >= 0 && bits[i/8]&(1<<(i%8)) != 0 && r.after.present[col/8]&(1<<(col%8)) != 0 {
			if v := &r.plan.after[need]; v.Kind != event.Null && len(v.Raw) == 0 {
				*v = r.plan.before[need]
			} else if v.Kind != event.Null {
				*v = event.Value{}
			}
		}
	}
}

// image decodes one row image into values.
func (r *rowReader) image(ip *imagePlan, values []event.Value) error {
	if len(values) > 0 {
		for _, need := range ip.absent {
			values[need] = event.Value{}
		}
	}
	n := ip.nullBytes
	if len(r.b)-r.pos < n {
		return r.truncated()
	}
	if n == 0 {
		return nil
	}
	nulls := r.b[r.pos : r.pos+n]
	r.pos += n
	some := nulls[n-1] & ip.nullMask
	for _, b := range nulls[:n-1] {
		some |= b
	}
	if some != 0 {
		return r.sparse(ip, nulls, values)
	}
	return r.dense(ip, values)
}

// dense goes through an image without NULLs.
func (r *rowReader) dense(ip *imagePlan, values []event.Value) error {
	b, pos := r.b, r.pos
	for i := range ip.steps {
		s := &ip.steps[i]
		switch s.kind {
		case skipFixed:
			pos += int(s.n)
		case skipPrefix1:
			if pos >= len(b) {
				return r.truncated()
			}
			pos += 1 + int(b[pos])
		case skipPrefix2:
			if len(b)-pos < 2 {
				return r.truncated()
			}
			pos += 2 + int(binary.LittleEndian.Uint16(b[pos:]))
		case skipPrefixN:
			if len(b)-pos < int(s.n) {
				return r.truncated()
			}
			pos += int(s.n) + int(littleEndianUint(b[pos:pos+int(s.n)]))
		default:
			r.pos = pos
			if err := r.take(s.column, &values[s.need]); err != nil {
				return err
			}
			pos = r.pos
		}
		if pos > len(b) {
			return r.truncated()
		}
	}
	r.pos = pos
	return nil
}

// sparse goes through an image with NULLs.
func (r *rowReader) sparse(ip *imagePlan, nulls []byte, values []event.Value) error {
	for i := range ip.columns {
		pc := &ip.columns[i]
		null := nulls[i/8]&(1<<(i%8)) != 0
		switch {
		case null && pc.need >= 0:
			values[pc.need] = event.Value{Kind: event.Null}
		case null:
		case pc.need >= 0:
			if err := r.take(pc.column, &values[pc.need]); err != nil {
				return err
			}
		default:
			if _, ok := r.raw(pc.column); !ok {
				return r.truncated()
			}
		}
	}
	return nil
}

// raw steps over the next value and returns its bytes.
func (r *rowReader) raw(c *column) ([]byte, bool) {
	pos, n := r.pos, int(c.size)
	left := len(r.b) - pos
	if c.prefix != 0 {
		p := int(c.prefix)
		if left < p {
			return nil, false
		}
		n = int(littleEndianUint(r.b[pos : pos+p]))
		pos += p
		left -= p
	}
	if n > left {
		return nil, false
	}
	r.pos = pos + n
	return r.b[pos : pos+n : pos+n], true
}

func (r *rowReader) truncated() error {
	r.at = 0
	return damaged(r.typ, "a row is truncated")
}

// fault says where an error is.
func (r *rowReader) fault(err error) error {
	return r.plan.fault(r.at, err)
}

// take decodes the next value into v.
func (r *rowReader) take(c *column, v *event.Value) error {
	raw, ok := r.raw(c)
	if !ok {
		return r.truncated()
	}
	v.Raw = raw
	if c.render == renderNothing {
		v.Kind = event.Opaque
		return nil
	}
	if !r.print(c, v, raw) {
		r.at = c.ordinal
		return damaged(r.typ, "a value of %d bytes is not one of its column", len(raw))
	}
	return nil
}
