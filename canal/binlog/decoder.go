package binlog

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"github.com/freshet/freshet/event"
)

// ErrDamaged is wrapped by every error that says that the bytes of an event are not what they should be.
var ErrDamaged = errors.New("damaged event")

// ErrUndefined is wrapped by the error of a [Definer] that says that it cannot be known what the columns of a table
// were. The rows under such a TABLE_MAP are a [*TableError], and all else goes on.
var ErrUndefined = errors.New("the definition of the table is not known")

// TableError says that rows of one table cannot be decoded, or not all of their columns. No other event is concerned:
// a caller that passes over it continues with the next one.
type TableError struct {
	Schema, Table string
	// Column is the name of the column at fault, "" where it is not one.
	Column string
	Err    error
}

// Error implements error.
func (e *TableError) Error() string {
	if e.Column == "" {
		return "table " + e.Schema + "." + e.Table + ": " + e.Err.Error()
	}
	return "table " + e.Schema + "." + e.Table + ", column " + e.Column + ": " + e.Err.Error()
}

// Unwrap returns what is wrong.
func (e *TableError) Unwrap() error { return e.Err }

// Options of a [Decoder]. The zero value is ready for use.
type Options struct {
	// VerifyChecksums checks the CRC32 of every event that has one; default: checksums are stripped only, since TCP
	// has its own.
	VerifyChecksums bool
}

const (
	// maxTables and maxTableBytes bound what is kept of TABLE_MAPs, and the plans made of them: a table that the server
	// opens again gets another id, and the old one stays. Past either, all that the current statement does not use are
	// forgotten.
	maxTables     = 4096
	maxTableBytes = 64 << 20
)

// Decoder decodes one stream of events. It keeps what earlier events said of later ones: the format, and the plan of
// each table.
type Decoder struct {
	definer Definer
	options Options

	format *Format
	// trailer is the length of the checksums.
	trailer int
	tables  map[uint64]*table
	// last is the table of the newest TABLE_MAP or rows event, since they mostly come in turn.
	last *table
	// bytes is how much the tables amount to.
	bytes int
	// statement counts the rows events that ended a statement, see table.statement.
	statement uint64

	checksum checksummer
	inflate  inflater
	payload  Payload
	rows     rowReader
}

// table is what is kept for one table id.
type table struct {
	id uint64
	// body is the TABLE_MAP from the schema's name on; only up to the table's name when the name alone decided that
	// no row is wanted.
	body []byte
	// def is nil when no row is wanted.
	def *Definition
	// plan is nil when rows cannot even be counted.
	plan *tablePlan
	// broken says why no row can be decoded though rows are wanted.
	broken *TableError
	// statement is the newest statement that has mapped the table.
	statement uint64
}

// New returns a decoder that asks definer which rows are wanted.
func New(definer Definer, o Options) (*Decoder, error) {
	if definer == nil {
		return nil, errors.New("binlog: a decoder needs a definer")
	}
	return &Decoder{definer: definer, options: o, tables: map[uint64]*table{}}, nil
}

// Reset forgets all: for the beginning of a new connection.
func (d *Decoder) Reset() {
	d.format, d.trailer = nil, 0
	d.payload.Close()
	d.Forget()
}

// Forget forgets the definitions of all tables, so that the Definer is asked again at each table's next TABLE_MAP.
// It must be called after DDL and when the mappings change, between transactions or statements, not between a
// TABLE_MAP and its rows.
func (d *Decoder) Forget() {
	clear(d.tables)
	d.last, d.bytes = nil, 0
}

// Format returns what the newest FORMAT_DESCRIPTION said; nil if there was none since the last Reset.
func (d *Decoder) Format() *Format { return d.format }

// Split takes an event apart: its header, and its body without checksum. A FORMAT_DESCRIPTION is noted, and resets the
// tables. The body aliases the event.
func (d *Decoder) Split(ev []byte) (Header, []byte, error) {
	h, err := ParseHeader(ev)
	end := len(ev) - d.trailer
	if err != nil || h.Type == TypeFormatDescription || h.Flags&FlagArtificial != 0 || end < HeaderSize {
		return d.splitRare(h, ev, err)
	}
	if d.trailer > 0 && d.options.VerifyChecksums && !d.checksum.right(ev) {
		return Header{}, nil, damaged(h.Type, "its checksum is wrong")
	}
	return h, ev[HeaderSize:end], nil
}

// splitRare is Split for events that come rarely, or never: those that begin a file, that the sender makes up, and
// damaged ones.
func (d *Decoder) splitRare(h Header, ev []byte, err error) (Header, []byte, error) {
	if err != nil {
		return Header{}, nil, err
	}
	body := ev[HeaderSize:]
	switch h.Type {
	case TypeFormatDescription:
		f, err := parseFormat(body)
		if err != nil {
			return Header{}, nil, err
		}
		d.format, d.trailer = f, 0
		if f.Checksum == ChecksumCRC32 {
			d.trailer = checksumSize
		}
		d.Forget()
		return h, body, nil
	case TypeRotate:
		// The artificial one that begins a stream comes before the FORMAT_DESCRIPTION, and may have a checksum or
		// not, whatever that is going to say.
		if d.checksum.right(ev) {
			return h, body[:len(body)-checksumSize], nil
		}
		return h, body, nil
	}
	end := len(ev) - d.trailer
	switch {
	case end < HeaderSize:
		return Header{}, nil, damaged(h.Type, "truncated")
	case d.trailer > 0 && d.options.VerifyChecksums && !d.checksum.right(ev):
		return Header{}, nil, damaged(h.Type, "its checksum is wrong")
	}
	return h, ev[HeaderSize:end], nil
}

// TableMap takes the body of a TABLE_MAP, and asks the Definer if the table is not known, or has changed. An error that
// does not wrap [ErrDamaged] is the Definer's. That the table cannot be defined is no error until there are rows of it.
func (d *Decoder) TableMap(body []byte) error {
	c := cursor{b: body}
	id := c.uint(d.format.idSize())
	c.skip(2) // flags, which may differ from statement to statement
	rest := c.rest()
	t := d.last
	if t == nil || t.id != id {
		t = d.tables[id]
	}
	if t != nil && bytes.Equal(t.body, rest) {
		t.statement, d.last = d.statement, t
		return nil
	}
	schema, name := c.name(), c.name()
	if c.bad {
		return damaged(TypeTableMap, "truncated")
	}
	named := rest[:len(rest)-len(c.rest())]
	// Within a TRANSACTION_PAYLOAD also the rows of unwanted tables are counted, for which they must be understood.
	if t != nil && t.plan == nil && !d.payload.open && bytes.Equal(t.body, named) {
		t.statement, d.last = d.statement, t
		return nil
	}
	t = &table{id: id, statement: d.statement}
	wanted := d.definer.Wanted(schema, name)
	if wanted || d.payload.open {
		t.body = bytes.Clone(rest)
		// So until it is defined: also if that panics, and somebody recovers.
		t.broken = &TableError{Schema: string(schema), Table: string(name), Err: ErrUndefined}
	} else {
		t.body = bytes.Clone(named)
	}
	if err := d.keep(t); err != nil || t.broken == nil {
		return err
	}
	before := t.size()
	if err := d.define(t, body, wanted); err != nil {
		d.drop(t, before)
		return err
	}
	d.bytes += t.size() - before
	return d.bound()
}

// define makes the plan of a table. That of a table whose rows are not wanted only counts rows.
func (d *Decoder) define(t *table, body []byte, wanted bool) error {
	// The TableMap goes to the definer, who may keep it.
	m, err := parseTableMap(bytes.Clone(body), d.format)
	var def *Definition
	if err == nil && wanted {
		def, err = d.definer.Define(m)
		if err != nil && !errors.Is(err, ErrUndefined) {
			return fmt.Errorf("table %s.%s: %w", m.Schema, m.Name, err)
		}
	}
	var plan *tablePlan
	if err == nil {
		plan, err = newTablePlan(m, def)
	}
	switch {
	case err == nil:
		t.def, t.plan, t.broken = def, plan, nil
	case wanted:
		t.broken.Err = err
		if m != nil {
			t.plan, _ = newTablePlan(m, nil) // to count the rows, if that can be done
		}
	case errors.Is(err, ErrDamaged):
		return err
	default:
		t.broken = nil // a type that cannot be decoded, in a table that need not be
	}
	return nil
}

// drop forgets a table that counts for so many bytes.
func (d *Decoder) drop(t *table, size int) {
	delete(d.tables, t.id)
	d.bytes -= size
	d.last = nil
}

// Failed makes an error of the table that the decoder was at, and the column whose value it was printing, if it was:
// for the caller that has recovered from a panic of the decoder or of code that it called. Without a table in the error
// none was begun.
func (d *Decoder) Failed(err error) *TableError {
	switch t := d.last; {
	case t == nil:
		return &TableError{Err: err}
	case t.plan != nil && t.broken == nil:
		return t.plan.fault(d.rows.at, err)
	default:
		c := cursor{b: t.body}
		return &TableError{Schema: string(c.name()), Table: string(c.name()), Err: err}
	}
}

// keep adds a table.
func (d *Decoder) keep(t *table) error {
	if old := d.tables[t.id]; old != nil {
		d.bytes -= old.size()
	}
	d.tables[t.id] = t
	d.bytes += t.size()
	d.last = t
	return d.bound()
}

// bound forgets tables if they have become too many.
func (d *Decoder) bound() error {
	if len(d.tables) <= maxTables && d.bytes <= maxTableBytes {
		return nil
	}
	for id, t := range d.tables {
		if t.statement != d.statement {
			d.bytes -= t.size()
			delete(d.tables, id)
		}
	}
	if len(d.tables) > maxTables || d.bytes > maxTableBytes {
		return damaged(TypeTableMap, "one statement with %d tables, whose plans have %d bytes", len(d.tables), d.bytes)
	}
	return nil
}

// size estimates how many bytes the table takes.
func (t *table) size() int {
	// of two images
	const perColumn = int(unsafe.Sizeof(column{}) + 4 + 2*(unsafe.Sizeof(step{})+unsafe.Sizeof(presentColumn{})))
	n := len(t.body)
	if t.plan != nil {
		n += len(t.plan.columns) * perColumn
	}
	return n
}

// Rows decodes a rows event (see [Type.IsRows]) and calls each for every row change. The caller has set c.Tx and
// c.Version, whose Row is the ordinal of the last row before this event: 0, or, within a TRANSACTION_PAYLOAD, where
// the rows event before it left it. Rows sets all else in c and counts c.Version.Row up, within a TRANSACTION_PAYLOAD
// also over rows that are not wanted, so that versions do not depend on the mappings. An error of each ends the
// decoding and is returned as it is. A [*TableError] says that rows of the event are missing, or were handed out with
// [event.Absent] for a value that is not known.
func (d *Decoder) Rows(h Header, body []byte, c *event.Change, each func(*event.Change) error) error {
	kind := h.Type.rows()
	if kind.op == 0 {
		return damaged(h.Type, "not a rows event")
	}
	cur := cursor{b: body}
	id := cur.uint(d.format.idSize())
	flags := cur.u16()
	t := d.last
	if t == nil || t.id != id {
		t = d.tables[id]
	}
	if flags&statementEnd != 0 {
		d.statement++
	}
	if cur.bad {
		return damaged(h.Type, "truncated")
	}
	if t == nil {
		if id == dummyTable {
			return nil
		}
		return damaged(h.Type, "table id %d has had no TABLE_MAP", id)
	}
	d.last = t
	if t.plan == nil || t.def == nil && !d.payload.open {
		return t.missing()
	}
	if err := d.rows.begin(d, h.Type, &cur, t); err != nil {
		return d.rows.fault(err)
	}
	if err := d.rows.run(c, each); err != nil {
		return err
	}
	return t.missing()
}

// Flags of rows events.
const (
	// noForeignKeyChecks: the session that changed the rows had foreign_key_checks=0.
	// Source: MySQL's and MariaDB's rows_event.h and log_event.h, NO_FOREIGN_KEY_CHECKS_F.
	noForeignKeyChecks = 1 << 1
	// logsForeignKeys: what foreign keys change with the rows has events of its own. MySQL sets it from 9.6 on, unless
	// InnoDB's foreign keys were at work, and a replica leaves it as it was at its source. Observed on MySQL 9.7.
	logsForeignKeys = 1 << 4
)

// Cascades reports whether foreign keys may have changed other rows with those of a rows event, without events.
func (d *Decoder) Cascades(body []byte, mariaDB bool) bool {
	c := cursor{b: body}
	c.skip(d.format.idSize())
	flags := c.u16()
	return flags&noForeignKeyChecks == 0 && (mariaDB || flags&logsForeignKeys == 0)
}

// missing returns what the rows of the table lack, though nothing is wrong with them.
func (t *table) missing() error {
	switch {
	case t.broken != nil:
		return t.broken
	case t.plan != nil && t.plan.unknown != nil:
		return t.plan.unknown
	}
	return nil
}

const (
	// statementEnd is the flag of a rows event that is the last of its statement.
	statementEnd = 1
	// dummyTable is the table id of a rows event without rows that only ends a statement.
	// Source: MySQL's log_event.cc, Rows_log_event::do_apply_event.
	dummyTable = 0x00ffffff
)
