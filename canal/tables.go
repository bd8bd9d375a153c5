package canal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/canal/schema"
	"github.com/freshet/freshet/event"
)

// tables says how the rows of each table are decoded: its columns as package schema knows them at the present place,
// and which of them the caller wants. It is the decoder's [binlog.Definer].
type tables struct {
	l          *loop
	tracker    *schema.Tracker
	collations *charset.Collations
	// fold says that the server compares names of schemas and tables without letter case.
	fold bool
	// of is the server that collations are of.
	of string
	// kept are the definitions that the caller has.
	kept  definitions
	check verification
	// cascading knows of which tables the rows are followed although nobody wants them.
	cascading cascading
	looks     looks
	// passed are the TABLE_MAPs of rows that were passed over, wholly or in part, because we may not read their tables, or
	// these are locked. Unlike what the tracker knows of it, they outlive a connection.
	passed map[ddl.Name]*binlog.TableMap
	// locks are those that the questions about tables wait for.
	locks  locks
	opaque opaque
	// functions are names as the source said whether they are those of functions that may change rows.
	functions map[ddl.Name]bool
	// unsaved says that the state has changed since the caller was last given it, whatever the tracker says.
	unsaved bool
}

// Wanted implements [binlog.Definer].
func (t *tables) Wanted(schema, table []byte) bool {
	return t.follows(string(schema), string(table))
}

// follows reports whether rows of the table are read: those that are wanted, and those that tell of wanted ones.
func (t *tables) follows(schema, table string) bool {
	return t.wants(schema, table) || t.cascading.isParent(t.name(ddl.Name{Schema: schema, Table: table}))
}

// wants reports whether any mapping names the table, or without a table, any of the schema. The name of one is compared
// as the server compares it.
func (t *tables) wants(schema, table string) bool {
	n := t.name(ddl.Name{Schema: schema, Table: table})
	return t.l.o.wanted(t.fold, n.Schema, n.Table)
}

// wantsName is wants.
func (t *tables) wantsName(n ddl.Name) bool { return t.wants(n.Schema, n.Table) }

// name returns the form of a name in which it is compared.
func (t *tables) name(n ddl.Name) ddl.Name {
	if t.fold {
		return ddl.Name{Schema: strings.ToLower(n.Schema), Table: strings.ToLower(n.Table)}
	}
	return n
}

// Define implements [binlog.Definer].
func (t *tables) Define(m *binlog.TableMap) (*binlog.Definition, error) {
	if err := t.verify(m.HasNames); err != nil {
		return nil, err
	}
	if err := t.mapped(m); err != nil {
		return nil, err
	}
	return t.define(m, t.l.tx.begin)
}

// define is Define at a place.
func (t *tables) define(m *binlog.TableMap, at binlogPos) (*binlog.Definition, error) {
	d, err := t.tracker.Describe(m)
	if errors.Is(err, schema.ErrDoubt) {
		d, err = t.resolve(t.l.ctx, at, m)
	}
	wanted := t.wants(m.Schema, m.Name)
	if wanted {
		t.pass(m)
	}
	if errors.Is(err, schema.ErrUnknownSchema) {
		return nil, &undefinedError{err}
	}
	if err != nil {
		return nil, err
	}
	if wanted {
		if err := t.unlisted(t.name(ddl.Name{Schema: m.Schema, Table: m.Name})); err != nil {
			return nil, err
		}
	}
	if d.Doubt != "" && wanted {
		if err := t.l.doubtful(d.Table.String(), d.Doubt); err != nil {
			return nil, err
		}
	}
	d.Table.FoldNames = t.fold
	d = t.kept.one(d)
	d.Needs = nil
	if wanted {
		if d.Needs, err = t.l.bind(t.l.ctx, d.Table); err != nil {
			return nil, t.l.stop(err)
		}
	}
	t.cascading.watch(t, d, d.Needs != nil)
	if d.Needs == nil {
		return nil, nil
	}
	unknown := slices.ContainsFunc(d.Needs,
		func(n event.Need) bool { return n.Text && d.Columns[n.Column].Unknown != nil })
	if !unknown && len(t.l.troubles) > 0 {
		delete(t.l.troubles, d.Table.String()) // what goes wrong from here on is news
	}
	return d, nil
}

// resolve asks the source about tables whose columns are in doubt.
func (t *tables) resolve(ctx context.Context, at binlogPos, m *binlog.TableMap) (d *binlog.Definition, err error) {
	err = t.ask(ctx, func(s *session, h *history) error {
		if m == nil { // what is locked is asked for when its rows come
			if err := s.waitBriefly(); err != nil {
				return err
			}
		}
		d, err = t.tracker.Resolve(ctx, s, h, schema.BinlogPos{File: at.file, Pos: at.pos}, m)
		return err
	})
	return d, err
}

// ask has f ask the source that is read, on a connection of its own.
func (t *tables) ask(ctx context.Context, f func(s *session, h *history) error) error {
	s, err := t.l.o.connect(ctx, queryTimeout)
	if err != nil {
		return err
	}
	defer s.close()
	if err := t.waits(s); err != nil {
		return err
	}
	info, err := t.l.o.identify(s)
	if err != nil {
		return err
	}
	if info.Server != t.l.server {
		return fmt.Errorf("source %s: %s answers, but the stream comes from %s", s.address, info.Server, t.l.server)
	}
	return f(s, &history{l: t.l, info: info})
}

// adopt takes over what the server says of its collations and names.
func (t *tables) adopt(ctx context.Context, s *session, info *SourceInfo) error {
	if err := t.waits(s); err != nil {
		return err
	}
	t.check.begin(info.Server, t.l.done)
	t.looks.since = time.Time{} // the ids were those of the connection before
	t.cascading.unlisted, t.cascading.unlistedDoubts, t.cascading.elsewhere = nil, postponed{}, false
	fold, err := s.foldsNames()
	if err != nil {
		return err
	}
	if t.tracker != nil {
		t.tracker.Retry()
	}
	if t.of == info.Server && t.fold == fold {
		return nil
	}
	list, err := schema.LoadCollations(ctx, s)
	if err != nil {
		return err
	}
	t.collations, t.fold, t.of = charset.NewCollations(list), fold, info.Server
	if t.tracker == nil {
		return nil
	}
	t.unsaved = t.unsaved || t.tracker.Changed()
	return t.restore(t.tracker.Encode())
}

// restore takes over the state that was saved with a position; none: nothing is known yet.
func (t *tables) restore(state []byte) error {
	o := schema.Options{
		Wanted: t.follows, MariaDB: t.l.flavor == event.MariaDB, FoldNames: t.fold, Collations: t.collations,
	}
	var err error
	if len(state) == 0 {
		t.tracker, err = schema.New(o)
	} else if t.tracker, err = schema.Decode(state, o); err != nil {
		err = fmt.Errorf("definitions of tables in the checkpoint: %w", err)
	}
	return err
}

// newState returns the state, if it has changed.
func (t *tables) newState() []byte {
	if !t.tracker.Changed() && !t.unsaved {
		return nil
	}
	t.unsaved = false
	return t.tracker.Encode()
}

// rewrites returns a column of which an ALTER TABLE may have changed the values, or that it drops, or gives another
// name, though the caller uses it: a later statement may add another column of that name.
func (t *tables) rewrites(a *ddl.Action) (string, error) {
	n := &event.Table{Schema: a.Table.Schema, Name: a.Table.Table, FoldNames: t.fold}
	for i := range a.Alter.Clauses {
		c := &a.Alter.Clauses[i]
		goes := c.Kind == ddl.DropColumn || c.Kind != ddl.AddColumn && !strings.EqualFold(c.Old, c.Column.Name)
		if goes && t.l.o.Uses(n, c.Old) {
			return c.Old, nil
		}
	}
	d := t.kept.of(a.Table)
	typeOf := func(column string) string {
		if d == nil {
			return ""
		}
		if at := d.Table.Column(column); at >= 0 {
			return d.Table.Columns[at].Type
		}
		return ""
	}
	return t.tracker.Rewrites(a.Table, a.Alter, typeOf, func() (column string, err error) {
		err = t.ask(t.l.ctx, func(s *session, _ *history) error {
			column, err = s.computed(a.Table)
			return err
		})
		return column, err
	})
}

// computed returns a column of a table that an expression makes now, "": there is none. One that was dropped since, and
// that mappings use, is a doubt of its own.
func (s *session) computed(n ddl.Name) (string, error) {
	found, err := s.rows("SELECT COLUMN_NAME, GENERATION_EXPRESSION FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = " +
		quote(n.Schema) + " AND TABLE_NAME = " + quote(n.Table))
	if err != nil {
		return "", err
	}
	for _, r := range found {
		if schema.Computed(r[1]) {
			return r[0], nil
		}
	}
	if s.lost { // MariaDB has left the table out
		return "(that an expression makes)", nil
	}
	return "", nil
}

// charset returns the character set of a statement.
func (t *tables) charset(collation uint16) *charset.Charset {
	c, ok := t.collations.ByID(uint32(collation))
	if !ok {
		return nil
	}
	cs, _ := charset.Find(c.Charset, t.l.flavor)
	return cs
}

// parse reads a statement.
func (t *tables) parse(h binlog.Header, q *binlog.Query) ddl.Statement {
	if q.NotDone {
		return ddl.Statement{Verb: ddl.Other}
	}
	server, _ := t.collations.ByID(uint32(q.ServerCharset))
	st := ddl.Parse(q.SQL, &ddl.Session{
		Schema: q.Schema, SQLMode: q.SQLMode, Charset: t.charset(q.Charset), ServerCharset: server.Charset,
		MariaDB: t.l.flavor == event.MariaDB, Temporary: h.Flags&flagThreadSpecific != 0, Failed: q.ErrorCode != 0,
	})
	// A statement stands in the binlog as it was written, in whatever letter case.
	for i := range st.Actions {
		a := &st.Actions[i]
		a.Table, a.To = t.name(a.Table), t.name(a.To)
	}
	return st
}

// history looks through the binlog for statements; it is a [schema.Scanner].
type history struct {
	l    *loop
	info *SourceInfo
}

// DDLBetween implements [schema.Scanner].
func (s *history) DDLBetween(ctx context.Context, from, to schema.BinlogPos, touches func(ddl.Statement) bool) (bool,
	error,
) {
	begin, err := binlogPosOf(from.File, from.Pos)
	if err != nil {
		return false, err
	}
	end, err := binlogPosOf(to.File, to.Pos)
	if err != nil {
		return false, err
	}
	have := s.l.position().GTIDs
	found, ours := false, false
	err = s.l.o.scan(ctx, s.info, begin, func(w *walk, at binlogPos, h binlog.Header, body []byte) error {
		if at.compare(end) >= 0 {
			return errEnough
		}
		if isGTID(h.Type) {
			g, err := binlog.ParseGTID(h, body)
			ours = s.l.byGTID && !g.GTID.IsZero() && have.Contains(g.GTID)
			return err
		}
		if ours || at.compare(begin) < 0 {
			return nil
		}
		return w.statements(h, body, func(h binlog.Header, q *binlog.Query) error {
			if st := s.l.tables.parse(h, q); touches(st) {
				found = true
				return errEnough
			}
			return nil
		})
	})
	return found, err
}

// undefinedError is a [binlog.ErrUndefined] in the words of its finder.
type undefinedError struct{ error }

// Unwrap returns what was found.
func (e *undefinedError) Unwrap() error { return e.error }

// Is makes it a [binlog.ErrUndefined].
func (e *undefinedError) Is(target error) bool { return target == binlog.ErrUndefined }
