package canal

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

const (
	// lockWait is for how many seconds a table that is being altered is waited for, and lockAgain for how many once more:
	// nothing is read meanwhile.
	lockWait  = 10
	lockAgain = 1
	// heldFor is how long after that it is looked at once more.
	heldFor = 30 * time.Second
)

// cascading knows which row changes have the server change rows of wanted tables without row events: foreign keys do
// that. What the stream shows of it are the rows of the parents, so these are read as well, wanted or not.
//
// The foreign keys are asked for on each connection, and after each DDL that may concern one. The answer is about the
// present, and the stream may be behind: so what was known before counts too, until the stream has reached the end
// that the binlog had then. What is known is saved with the position.
type cascading struct {
	now []foreignKey
	// past are those that counted before, and are not among now. They count until the place until.
	past  []foreignKey
	until binlogPos
	// parents is what follows from both.
	parents map[ddl.Name]*parent
	// named are their parents and children, as far as they matter, and schemas those of them: DDL on one may change them.
	named, schemas map[ddl.Name]bool
	// denied are parents that nobody wants and that we may see, but not read.
	denied map[ddl.Name]bool
	// due: the server must be asked before more is read. The statement that is the reason may still be under way in
	// altered, which it alters or drops, and says that it has made made.
	due     bool
	altered []ddl.Name
	made    []foreignKey
	// held: a table of altered is locked, so that the answer may be of before the statement. Nothing of the past is
	// forgotten until the server is asked again, which it is from again on.
	held  bool
	again time.Time
	// unsaved: what is saved with the position is out of date.
	unsaved bool
	// ofStatements are tables, as parents, on a server that is not silent, once a statement has asked for them: what such
	// a server changes with the rows of a statement that it logs as one has no row events either. Each is asked for when a
	// statement changes it: DDL that the statement has waited for is complete then, and other DDL need not be.
	ofStatements map[ddl.Name]*parent
	// silent: the server changes rows without row events. blind: nothing was saved with the position, so that nobody
	// knows which foreign keys there were, until the stream has reached until.
	silent, blind bool

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

// ask asks the server for its foreign keys.
func (c *cascading) ask(t *tables, s *session, info *SourceInfo) error {
	var keys []foreignKey
	silent, err := s.silent(info)
	// What the source of a replica has not logged has no events in the replica's binlog, which could log it.
	c.silent = (silent || err == nil && s.replicates(info.Flavor)) && !t.l.o.IgnoreCascades
	held := false
	if err == nil && c.silent {
		if held, err = s.awaitTables(c.altered, c.patience()); err == nil {
			keys, err = s.foreignKeys(t.name)
			keys = append(keys, missing(c.made, keys)...)
		}
	}
	if err != nil {
		return err
	}
	// Afterwards: what the answer knows stands before this place.
	until, err := s.end(info.Flavor)
	if err != nil {
		return err
	}
	c.take(t, relevant(keys, t.wantsName), until)
	c.due, c.ofStatements = false, nil
	if held && !c.held {
		t.l.o.Logger.Warn("a table is locked that a statement has altered or dropped: those foreign keys count that there were, "+
			"until the server can be asked which there are now", "source", t.l.o.Source)
	}
	if c.held = held; !held {
		c.altered, c.made = nil, nil
	}
	c.again = time.Now().Add(heldFor)
	return nil
}

// patience is for how many seconds a table is waited for that has been altered.
func (c *cascading) patience() int {
	if c.held {
		return lockAgain
	}
	return lockWait
}

// take takes an answer that knows all up to a place in the binlog, together with what is gone by then.
func (c *cascading) take(t *tables, keys []foreignKey, until binlogPos) {
	was := slices.Concat(c.now, c.past)
	now := slices.DeleteFunc(slices.Clone(keys), foreignKey.gone)
	c.unsaved = c.unsaved || !reflect.DeepEqual(c.now, now)
	c.now, c.past, c.until = now, nil, until
	c.remember(slices.DeleteFunc(keys, func(k foreignKey) bool { return !k.gone() }))
	c.unsaved = c.unsaved || len(c.past) > 0
	c.remember(was)
	c.rebuild(t)
}

// remember has foreign keys count that there were before.
func (c *cascading) remember(keys []foreignKey) {
	for i := range keys {
		same := func(k foreignKey) bool { return reflect.DeepEqual(k, keys[i]) }
		if !slices.ContainsFunc(c.now, same) && !slices.ContainsFunc(c.past, same) {
			c.past = append(c.past, keys[i])
		}
	}
}

// passed forgets the foreign keys of the past, and reports whether that was something, once the stream is at the place
// where the server was asked.
func (c *cascading) passed(t *tables, at binlogPos) bool {
	if c.held {
		return false
	}
	c.blind = c.blind && at.compare(c.until) < 0
	if len(c.past) == 0 || at.compare(c.until) < 0 {
		return false
	}
	c.past, c.unsaved = nil, true
	c.rebuild(t)
	return true
}

// rebuild makes what follows from the foreign keys.
func (c *cascading) rebuild(t *tables) {
	all := slices.Concat(c.now, c.past)
	c.parents = parentsOf(all, t.wantsName)
	c.named, c.schemas = map[ddl.Name]bool{}, map[ddl.Name]bool{}
	for i := range all {
		for _, n := range []ddl.Name{all[i].Parent, all[i].Child} {
			c.named[n] = true
			c.schemas[ddl.Name{Schema: n.Schema}] = true
		}
	}
	c.denied = map[ddl.Name]bool{}
	c.of, c.lastTable = map[*event.Table]*lookout{}, nil
}

// deny finds out which parents we may not read, so that their definitions are not asked for any more, and reports
// whether there are some.
func (c *cascading) deny(t *tables, s *session) bool {
	if s.waitFor(lockWait) != nil {
		return false
	}
	for n := range c.parents {
		if !t.wantsName(n) && tableDenied(s.touch(n)) {
			c.denied[n] = true
		}
	}
	return len(c.denied) > 0
}

// relevant returns the foreign keys through which a change of a row can reach a wanted table.
func relevant(keys []foreignKey, wanted func(ddl.Name) bool) []foreignKey {
	parents := parentsOf(keys, wanted)
	return slices.DeleteFunc(keys, func(k foreignKey) bool { return parents[k.Parent] == nil })
}

// follow takes note of a statement: the server must be asked again if foreign keys that matter may have come or gone
// with it.
func (c *cascading) follow(t *tables, st *ddl.Statement, sql []byte) {
	if st.Verb != ddl.DDL && !st.Unclear {
		return
	}
	c.due, c.ofStatements = c.due || st.Unclear, nil
	for i := range st.Actions {
		a := &st.Actions[i]
		if a.Op == ddl.OpWrite || !c.concerns(t, a, sql) {
			continue
		}
		c.due = true
		switch a.Op {
		case ddl.OpCreate, ddl.OpAlter:
			c.alters(a.Table)
			for _, parent := range a.ForeignKeys.Parents {
				c.makes(goneKey(a.Table, t.name(parent)))
			}
		case ddl.OpRename:
			c.alters(a.To)
			c.makes(c.renamed(a.Table, a.To)...)
		case ddl.OpDrop, ddl.OpDropSchema:
			for n := range c.named {
				if n == a.Table || n.Schema == a.Table.Schema && a.Table.Table == "" {
					c.alters(n)
				}
			}
		}
	}
}

func (c *cascading) alters(n ddl.Name) {
	if !slices.Contains(c.altered, n) {
		c.altered = append(c.altered, n)
	}
}

func (c *cascading) makes(keys ...foreignKey) {
	for _, k := range keys {
		if len(missing([]foreignKey{k}, c.made)) > 0 {
			c.made = append(c.made, k)
		}
	}
}

// concerns reports whether what a statement does to a table may make, change or remove a foreign key that matters: it
// has one already, or is wanted and gets one, perhaps with its name. What is between a wanted table and others matters
// once the wanted one refers to it.
func (c *cascading) concerns(t *tables, a *ddl.Action, sql []byte) bool {
	switch {
	case a.Table.Table == "":
		return c.schemas[a.Table]
	case c.named[a.Table], c.named[a.To]:
		return true
	case a.Op == ddl.OpRename:
		return t.wantsName(a.To)
	}
	return t.wantsName(a.Table) && bytes.Contains(bytes.ToLower(sql), []byte("references"))
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

// askKeys asks for the foreign keys, if that is due.
func (l *loop) askKeys() error {
	if !l.tables.cascading.due {
		return nil
	}
	return l.tables.ask(l.ctx, func(s *session, h *history) error {
		return l.tables.cascading.ask(l.tables, s, h.info)
	})
}

// askKeysAgain asks, between transactions, for what could not be asked for while a table was locked, once it is time.
func (l *loop) askKeysAgain() error {
	c := &l.tables.cascading
	if !c.held || l.tx.open || time.Now().Before(c.again) {
		return nil
	}
	c.due = true
	err := l.askKeys()
	l.dec.Forget() // what is looked at in rows is another by now
	return err
}
