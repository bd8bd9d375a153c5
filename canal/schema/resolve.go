package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// BinlogPos is a place in the binlog of the server that is read: the end of a transaction or the beginning of one.
type BinlogPos struct {
	File string
	Pos  uint64
}

// String returns file:position.
func (p BinlogPos) String() string { return p.File + ":" + strconv.FormatUint(p.Pos, 10) }

// before reports whether p is before o. Files are ordered by the number that their name ends in.
func (p BinlogPos) before(o BinlogPos) bool {
	_, a, _ := event.SplitFile(p.File) // canal has read it
	_, b, _ := event.SplitFile(o.File)
	return cmp.Or(cmp.Compare(a, b), cmp.Compare(p.Pos, o.Pos)) < 0
}

// Scanner looks through the binlog for statements.
type Scanner interface {
	// DDLBetween calls touches for every statement that stands as text in the binlog after from and up to to,
	// without the transactions that the stream was asked not to send, because they were executed before its start.
	// It must find those in compressed transactions too. It stops, and returns true, when touches returns true.
	DDLBetween(ctx context.Context, from, to BinlogPos, touches func(ddl.Statement) bool) (bool, error)
}

// Resolve finds out what the tables that are in doubt were at the present place of the stream, at, which is behind
// every statement that was applied and before every other. It asks about all tables that are wanted, in one pass, up to
// one that is locked, and returns the definition under m. m may be nil, before anything is read: then it asks about
// all.
//
// The error wraps [ErrUnknownSchema] when the columns under m cannot be found out: going on would be guessing. So it is
// where we may not read the table, or it is locked. Another one of these stays in doubt, and keeps none from being
// known. Other errors are those of conn and scan.
func (t *Tracker) Resolve(ctx context.Context, conn Conn, scan Scanner, at BinlogPos,
	m *binlog.TableMap,
) (*binlog.Definition, error) {
	l, err := newLoader(ctx, conn)
	if err != nil {
		return nil, err
	}
	// A second pass, because the first is in vain if a table was altered between the questions about it and about the
	// end of the binlog.
	for attempt := 1; ; attempt++ {
		r := resolution{t: t, at: at, m: m}
		if m != nil {
			r.mine, r.named = t.key(ddl.Name{Schema: m.Schema, Table: m.Name}), m.HasNames
		}
		if err := r.pass(ctx, l, scan); err != nil || m == nil {
			return nil, err
		}
		d, err := t.Describe(m)
		last := attempt == 2 || r.tables[r.mine].unread != nil
		switch {
		case !errors.Is(err, ErrDoubt):
			return d, err
		case last && r.named:
			return r.incomplete()
		case last:
			err = r.unknown(err)
			t.set(r.mine, entry{status: unknown, of: m, why: err})
			return nil, err
		}
	}
}

// resolution is one pass over all tables in doubt.
type resolution struct {
	t  *Tracker
	at BinlogPos
	// m describes the table whose rows come next, mine; nil and zero before anything is read.
	m    *binlog.TableMap
	mine ddl.Name
	// named says that the names of columns come with the events.
	named bool
	// tables are those in doubt.
	tables map[ddl.Name]*doubtful
	// schemas are the present character sets of all schemas; those that may have had another one are taken out.
	schemas map[string]charsets
	end     BinlogPos
	// looked says that the binlog has been looked through.
	looked bool
}

// doubtful is a table in doubt.
type doubtful struct {
	// now is what the server says; nil: the table does not exist now, or may not be read, or is locked.
	now *definition
	// unread is the server's word that it may not be read, or is locked.
	unread error
	// by is the last thing that was undone, or the one that could not be.
	by ddl.Op
	history
}

func (r *resolution) pass(ctx context.Context, l *loader, scan Scanner) error {
	if err := r.ask(l); err != nil {
		return err
	}
	if r.looked = r.looks() || r.special(); r.looked {
		if err := r.look(ctx, scan); err != nil {
			return err
		}
	}
	for n, d := range r.tables {
		r.settle(n, d)
	}
	if r.looked {
		r.settleSchemas()
	}
	return nil
}

// ask asks the server for all tables that are wanted and in doubt, then for the end of its binlog.
func (r *resolution) ask(l *loader) error {
	names, err := l.names(r.t.o.Wanted)
	if err != nil {
		return err
	}
	schemas, err := l.schemas()
	if err != nil {
		return err
	}
	r.schemas = make(map[string]charsets, len(schemas))
	for name, cs := range schemas {
		r.schemas[r.t.key(ddl.Name{Schema: name}).Schema] = cs
	}
	r.tables = map[ddl.Name]*doubtful{}
	if r.m != nil { // also if the server does not list it: it says whether it is gone, or may not be seen
		names = slices.Insert(names, 0, ddl.Name{Schema: r.m.Schema, Table: r.m.Name})
	}
	for _, n := range names {
		if key := r.t.key(n); r.tables[key] == nil && r.asks(key) {
			d, err := l.table(n)
			if err != nil && !isUnread(err) {
				return err
			}
			r.tables[key] = &doubtful{now: d, unread: err}
			if r.m != nil && retry.IsLockWait(err) {
				break // others may be locked as well, and the rows wait: those are asked for when their own come
			}
		}
	}
	r.end, err = l.end()
	return err
}

// asks reports whether the server is asked for a table.
func (r *resolution) asks(n ddl.Name) bool {
	if n == r.mine {
		return true
	}
	switch r.t.get(n).status {
	case known, unknown:
		return false
	case partial:
		return !r.named
	case hinted:
		return !r.named || r.looks()
	}
	return true
}

// looks reports whether what the TABLE_MAP says does not do.
func (r *resolution) looks() bool {
	return !r.named || slices.ContainsFunc(r.m.Columns, func(c binlog.MapColumn) bool { return maySpecial(r.m, &c) })
}

// special reports whether a table in doubt has columns that need to be known beyond their names.
func (r *resolution) special() bool {
	for _, d := range r.tables {
		if d.now != nil && d.now.special() {
			return true
		}
	}
	return false
}

// look looks through the binlog from the place of the stream to the end for statements that touch the tables.
func (r *resolution) look(ctx context.Context, scan Scanner) error {
	if r.end == r.at {
		return nil
	}
	if r.end.before(r.at) {
		return fmt.Errorf("schema: the source's binlog ends at %s, before the place %s that was read", r.end, r.at)
	}
	_, err := scan.DDLBetween(ctx, r.at, r.end, func(st ddl.Statement) bool {
		r.note(&st)
		return false
	})
	if err != nil {
		return fmt.Errorf("schema: look through the binlog from %s to %s: %w", r.at, r.end, err)
	}
	return nil
}

// note notes what a statement does to the tables.
func (r *resolution) note(st *ddl.Statement) {
	switch {
	case st.Unclear && st.Verb != ddl.DML:
		clear(r.schemas)
		for _, d := range r.tables {
			d.lost = true
		}
		return
	case st.Verb != ddl.DDL:
		return
	}
	for i := range st.Actions {
		a := &st.Actions[i]
		n, to := r.t.key(a.Table), r.t.key(a.To)
		if n.Table == "" {
			r.noteSchema(n.Schema, a)
			continue
		}
		if harmless(a) {
			continue
		}
		if d := r.tables[n]; d != nil {
			d.add(a)
		}
		if d := r.tables[to]; d != nil && a.Op == ddl.OpRename {
			d.add(a)
		}
	}
}

func (r *resolution) noteSchema(name string, a *ddl.Action) {
	if harmless(a) {
		return
	}
	delete(r.schemas, name)
	if a.Op == ddl.OpAlterSchema {
		return
	}
	for n, d := range r.tables {
		if n.Schema == name {
			d.add(a)
		}
	}
}

// settle says what has become known of a table and its schema.
func (r *resolution) settle(n ddl.Name, d *doubtful) {
	if !r.looked {
		e := entry{status: hinted, def: d.now, why: d.unread}
		if e.def == nil {
			e.def = &definition{}
		}
		r.t.set(n, e)
		return
	}
	switch s, def := d.before(n, r.t); {
	case s == known:
		r.t.set(n, entry{status: known, def: def})
	case s == absent && n != r.mine:
		r.t.absent(n)
	case r.named:
		def := d.named()
		if e := r.t.get(n); e.status == partial { // what followed from the statements up to here
			for _, c := range e.def.columns {
				if def.find(c.name) < 0 {
					def.columns = append(def.columns, c)
				}
			}
		}
		r.t.set(n, entry{status: partial, def: def, why: d.unread})
	case d.unread != nil && n != r.mine && r.t.get(n).status == doubt:
		r.t.set(n, entry{status: unknown, why: d.unread}) // until its rows come
	}
}

// settleSchemas notes the character sets of the schemas that hold wanted tables, or may later.
func (r *resolution) settleSchemas() {
	for name, cs := range r.schemas {
		if r.t.o.Wanted(name, "") && r.t.charsetOf(name).charset == "" {
			r.t.touch()
			r.t.schemaOf(name).charset = cs
		}
	}
}

// incomplete notes that mine is not known better than it is now, and has it described by that.
func (r *resolution) incomplete() (*binlog.Definition, error) {
	e := r.t.get(r.mine)
	if e.status != partial {
		e.def = &definition{} // the rows contradict the server, so nothing that it says can be trusted
	}
	r.t.set(r.mine, entry{status: partial, def: e.def, of: r.m, why: r.tables[r.mine].unread})
	return r.t.Describe(r.m)
}

// unknown returns the error for a table that stays in doubt.
func (r *resolution) unknown(doubt error) error {
	d := r.tables[r.mine]
	if d.unread != nil {
		return fmt.Errorf("%w: %w (with binlog_row_metadata=FULL on the source, the binlog names them)", ErrUnknownSchema,
			d.unread)
	}
	var why string
	var mismatch *binlog.MismatchError
	switch {
	case errors.As(doubt, &mismatch):
		why = "nothing in the binlog altered it since, but what the source says of it now is not what its rows say: " +
			mismatch.Reason
	case d.now == nil:
		why = "it does not exist on the source any more"
	case d.lost:
		why = "a statement behind that place, which may have altered it, could not be read"
	default:
		why = "it was altered behind that place (" + d.by.String() + "), and what its columns were before is written nowhere"
	}
	return fmt.Errorf("%w: %s (with binlog_row_metadata=FULL on the source, the binlog names them)", ErrUnknownSchema, why)
}
