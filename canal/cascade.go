package canal

import (
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

// cascading knows which row changes have the server change rows of wanted tables without row events: foreign keys do
// that. What the stream shows of it are the rows of the parents, so these are read as well, wanted or not.
//
// The foreign keys are asked for on each connection, and after each DDL that may concern one. The answer is about the
// present, and the stream may be behind: so what was known before counts too, until the stream has reached the end
// that the binlog had then. What the server hides by then stays as the statements leave it, see hiddenkeys.go. What is
// known is saved with the position.
type cascading struct {
	// now are those that there are, whether they lead to a wanted table or not: with one that is made later they may, and
	// be dropped before the stream is there.
	now []foreignKey
	// past are those that counted before, and are not among now. They count until the place until.
	past  []foreignKey
	until binlogPos
	// saved are those that there were when the position was saved, until it is known which of them the server hides.
	saved []foreignKey
	// parents is what follows from now and past.
	parents map[ddl.Name]*parent
	// named are their parents and children, as far as they matter, and schemas those of them: DDL on one may change them.
	named, schemas map[ddl.Name]bool
	// due: the server must be asked before more is read. The statement that is the reason may still be under way in
	// altered, which it alters or drops, and says that it has made made.
	due     bool
	altered []ddl.Name
	made    []foreignKey
	// unlisted are wanted tables that we may not read, and that the present connection has given a doubt about.
	unlisted map[ddl.Name]bool
	// unlistedDoubts are these doubts.
	unlistedDoubts postponed
	// held: a table is locked, so that the answer may lack its foreign keys, or be of before the statement. Nothing of the
	// past is forgotten until the server is asked again, which it is from again on.
	held  bool
	again time.Time
	// missed are foreign keys that were there all the time that their table was locked, and not known, until that is a
	// doubt.
	missed []foreignKey
	// unsaved: what is saved with the position is out of date.
	unsaved bool
	// ofStatements are tables, as parents, on a server that is not silent, once a statement has asked for them: what such
	// a server changes with the rows of a statement that it logs as one has no row events either. Each is asked for when a
	// statement changes it: DDL that the statement has waited for is complete then, and other DDL need not be.
	ofStatements map[ddl.Name]*parent
	// silent: the server changes rows without row events. blind: nothing was saved with the position, so that nobody
	// knows which foreign keys there were, until the stream has reached until.
	silent, blind bool
	// elsewhere: transactions of other servers come down the present connection. They may not have logged theirs.
	elsewhere bool

	// of is what is looked at in the rows of each definition of a parent; last is that of the table that was asked for
	// last.
	of        map[*event.Table]*lookout
	last      *lookout
	lastTable *event.Table
	// doubts are those of the present event.
	doubts []doubt.Doubt
}

// lookout is what is looked at in the rows of a parent.
type lookout struct {
	// wanted: its rows are handed out as well.
	wanted  bool
	deleted *warning
	// references are those of the parent, by the indexes of their values.
	references []watched
}

// watched are values of which a change is a warning.
type watched struct {
	values []watchedValue
	*warning
}

// watchedValue is the index of a value. unsure says that it may be absent although it was changed.
type watchedValue struct {
	at     int
	unsure bool
}

// warning is the doubt that follows from a row, and where it was last given.
type warning struct {
	doubt doubt.Doubt
	at    event.Version
}

// isParent reports whether rows of a table, or without its name, of any of the schema, tell of rows of wanted tables.
func (c *cascading) isParent(n ddl.Name) bool {
	if n.Table == "" {
		return c.schemas[n]
	}
	return c.parents[n] != nil
}

// watch says what to look at in the rows under a definition, which is wanted or not, and adds to its needs what that
// takes.
func (c *cascading) watch(t *tables, d *binlog.Definition, wanted bool) {
	n := t.name(ddl.Name{Schema: d.Table.Schema, Table: d.Table.Name})
	p := c.parents[n]
	if p == nil {
		return
	}
	d.Needs = slices.Clip(d.Needs) // those of the caller stay as they are
	if d.Needs == nil {
		d.Needs = []event.Need{}
	}
	o := &lookout{wanted: wanted}
	if len(p.deleted) > 0 {
		o.deleted = t.warning(n, p.deleted)
	}
	for _, r := range p.references {
		w := watched{warning: t.warning(n, r.tables)}
		for _, name := range r.columns {
			w.values = append(w.values, need(d, name))
		}
		o.references = append(o.references, w)
	}
	c.of[d.Table], c.lastTable = o, nil
}

// need returns the index of the value of a column, which it adds to the needs of a definition if it is none of them.
func need(d *binlog.Definition, column string) watchedValue {
	at := d.Table.Column(column)
	if at < 0 {
		return watchedValue{-1, true} // the foreign key is of another time
	}
	unsure := d.Columns[at].Unknown != nil || d.Columns[at].Class == event.ClassEnum
	i := slices.IndexFunc(d.Needs, func(n event.Need) bool { return n.Column == at })
	if i < 0 {
		i = len(d.Needs)
		d.Needs = append(d.Needs, event.Need{Column: at})
	}
	return watchedValue{i, unsure}
}

// warning returns the doubt that follows from a row of a parent.
func (t *tables) warning(parent ddl.Name, reached []string) *warning {
	return &warning{doubt: doubt.Doubt{
		Cause: alarm.RowsCascaded, Source: t.l.o.Source, Tables: reached,
		Message: "rows of table " + parent.String() + " were deleted, or what foreign keys refer to was changed in them, and " +
			"with them the source may have changed rows of " + strings.Join(reached, ", ") + " without row events, so their " +
			"keys may be stale",
	}}
}

// changed reports whether an UPDATE may have changed one of the values.
func (w *watched) changed(c *event.Change) bool {
	return slices.ContainsFunc(w.values, func(v watchedValue) bool {
		if v.at < 0 {
			return true
		}
		was, is := &c.Before[v.at], &c.After[v.at]
		if was.Kind == event.Absent && is.Kind == event.Absent {
			return v.unsure // else both images leave out what did not change
		}
		return !was.Same(is)
	})
}

// lookout returns what is looked at in the rows of a table; nil: nothing.
func (c *cascading) lookout(t *event.Table) *lookout {
	if len(c.of) == 0 {
		return nil
	}
	if c.lastTable != t {
		c.last, c.lastTable = c.of[t], t
	}
	return c.last
}

// cascade looks at a row of a parent.
func (l *loop) cascade(o *lookout, c *event.Change) {
	switch c.Op {
	case event.Delete:
		l.warn(o.deleted)
	case event.Update:
		for i := range o.references {
			w := &o.references[i]
			if w.at != l.version(0) && w.changed(c) {
				l.warn(w.warning)
			}
		}
	}
}

// warn gives a warning, once for an event.
func (l *loop) warn(w *warning) {
	at := l.version(0)
	if w == nil || w.at == at || !l.dec.Cascades(l.out.body, l.flavor == event.MariaDB) {
		return
	}
	w.at = at
	if !l.tx.noted {
		l.note()
	}
	l.doubted = at
	d := w.doubt
	d.At = at
	l.tables.cascading.doubts = append(l.tables.cascading.doubts, d)
}

// warnUnread gives all warnings that rows of a table may call for, which could not be read.
func (l *loop) warnUnread(n ddl.Name) {
	n = l.tables.name(n)
	if p := l.tables.cascading.parents[n]; p != nil && !l.out.head.Type.IsInsert() {
		l.warn(l.tables.warning(n, p.all()))
	}
}

// reached returns the wanted tables whose rows foreign keys change with those that a statement changes in a table.
func (t *tables) reached(n ddl.Name) ([]string, error) {
	c := &t.cascading
	p := c.parents[n]
	if !c.silent && !t.l.o.IgnoreCascades {
		var err error
		if p, err = t.parentOfStatements(n); err != nil {
			return nil, err
		}
	}
	if p == nil {
		return nil, nil
	}
	return p.all(), nil
}

// parentOfStatements returns a table as a parent, on a server that is not silent; nil: it is none.
func (t *tables) parentOfStatements(n ddl.Name) (p *parent, err error) {
	c := &t.cascading
	p, known := c.ofStatements[n]
	if known {
		return p, nil
	}
	err = t.ask(t.l.ctx, func(s *session, _ *history) error {
		keys, err := s.foreignKeys(t.name)
		p = parentsOf(keys, t.wantsName)[n]
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.ofStatements == nil || len(c.ofStatements) >= maxOpaque {
		c.ofStatements = map[ddl.Name]*parent{}
	}
	c.ofStatements[n] = p
	return p, nil
}
