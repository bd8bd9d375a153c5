package canal

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

// ask asks the server for its foreign keys.
func (c *cascading) ask(t *tables, s *session, info *SourceInfo) error {
	var keys, gone []foreignKey
	begun, again, wait := time.Now(), c.held, lockBriefly
	switch {
	case again:
		wait = 0
	case len(c.altered) > 0: // the statement is in the binlog: it is about to give them up
		wait = lockWait
	}
	if err := s.waitAtMost(wait); err != nil {
		return err
	}
	silent, err := s.silent(info)
	// What the source of a replica has not logged has no events in the replica's binlog, which could log it. Events say
	// whether it was logged, so that a server which logs all gives no doubt.
	c.silent = (silent || c.elsewhere || err == nil && s.replicates(info.Flavor)) && !t.l.o.IgnoreCascades
	if err == nil && c.silent {
		if err = s.awaitTables(c.altered); err == nil {
			keys, gone, err = c.present(t, s)
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
	if c.held {
		c.missed = append(c.missed, unknown(keys, slices.Concat(c.now, c.past, c.made))...)
	}
	c.take(t, keys, gone, until)
	c.due, c.ofStatements = false, nil
	c.unsaved = c.unsaved || c.held != s.lost
	if s.lost && !c.held {
		t.l.o.Logger.Warn("a table is locked: those foreign keys count that there were, until the server can be asked which there "+
			"are now", "source", t.l.o.Source)
	}
	if c.held = s.lost; !c.held {
		c.altered, c.made = nil, nil
	}
	if c.again = time.Now().Add(lookEach); again { // it has not waited
		c.again = time.Now().Add(max(lookEach, lookShare*time.Since(begun)))
	}
	return nil
}

// unknown returns the foreign keys of an answer of which nothing was known, not even by a statement that made them.
func unknown(keys, was []foreignKey) []foreignKey {
	return slices.DeleteFunc(slices.Clone(keys), func(k foreignKey) bool {
		return contains(was, &k) || slices.ContainsFunc(was, func(w foreignKey) bool {
			return w.gone() && w.Child == k.Child && w.Parent == k.Parent
		})
	})
}

// recordMissed records the doubt about what foreign keys have changed that were there while their table was locked, so
// that they were not known: at a first start nobody knows them from before.
func (l *loop) recordMissed() error {
	c := &l.tables.cascading
	if len(c.missed) == 0 {
		return nil
	}
	missed := c.missed
	c.missed = nil
	reached := c.reachedBy(l.tables, missed)
	if len(reached) == 0 || !c.silent {
		return nil
	}
	if l.begin.isZero() {
		l.begin = l.done
	}
	var of []string
	for _, k := range missed {
		of = append(of, k.Child.String())
	}
	slices.Sort(of)
	names := strings.Join(slices.Compact(of), ", ")
	return l.doubt(alarm.RowsCascaded, "table "+names+" was locked, so that its foreign keys were not known: the source may have changed rows of "+strings.Join(reached, ", ")+" without row events meanwhile, so "+
		"their keys may be stale", reached...)
}

// reachedBy returns the wanted tables whose rows foreign keys change with rows of their parents.
func (c *cascading) reachedBy(t *tables, keys []foreignKey) []string {
	w := graphOf(slices.Concat(c.now, c.past), t.wantsName).wave()
	for i := range keys {
		k := &keys[i]
		if k.OnDelete == cascades {
			w.touch(k.Child)
			w.rowDeleted(k.Child)
		}
		w.columnsChanged(k)
	}
	return w.names()
}

// present returns the foreign keys that there are, and those that are gone again, though statements say that they have
// made them.
func (c *cascading) present(t *tables, s *session) (keys, gone []foreignKey, err error) {
	if keys, err = s.foreignKeys(t.name); err != nil {
		return nil, nil, err
	}
	gone = missing(c.made, keys)
	hidden, err := s.hidden(slices.Concat(c.now, gone), keys)
	if err != nil {
		return nil, nil, err
	}
	gone = slices.DeleteFunc(gone, func(k foreignKey) bool { return contains(hidden, &k) })
	if keys = append(keys, hidden...); len(keys) > maxKeys {
		keys = relevant(keys, t.wantsName)
	}
	return keys, gone, nil
}

// maxKeys is up to how many foreign keys those are known, too, that lead to no wanted table.
const maxKeys = 5000

// take takes an answer that knows all up to a place in the binlog, together with what is gone by then.
func (c *cascading) take(t *tables, keys, gone []foreignKey, until binlogPos) {
	was := slices.Concat(c.now, c.past)
	c.unsaved = c.unsaved || !reflect.DeepEqual(c.now, keys)
	c.now, c.past, c.until = keys, nil, until
	c.remember(gone)
	c.unsaved = c.unsaved || len(c.past) > 0
	c.remember(was)
	c.rebuild(t)
}

// remember has foreign keys count that there were before.
func (c *cascading) remember(keys []foreignKey) {
	of := map[ddl.Name][]foreignKey{}
	for _, there := range [][]foreignKey{c.now, c.past} {
		for _, k := range there {
			of[k.Child] = append(of[k.Child], k)
		}
	}
	for _, k := range keys {
		if !contains(of[k.Child], &k) {
			c.past, of[k.Child] = append(c.past, k), append(of[k.Child], k)
		}
	}
}

// contains reports whether a foreign key is one of several, as it is.
func contains(keys []foreignKey, key *foreignKey) bool {
	return slices.ContainsFunc(keys, func(k foreignKey) bool { return k.Child == key.Child && reflect.DeepEqual(k, *key) })
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
		if c.parents[all[i].Parent] == nil {
			continue
		}
		for _, n := range []ddl.Name{all[i].Parent, all[i].Child} {
			c.named[n] = true
			c.schemas[ddl.Name{Schema: n.Schema}] = true
		}
	}
	c.of, c.lastTable = map[*event.Table]*lookout{}, nil
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
		if a.Op == ddl.OpWrite {
			continue
		}
		c.apply(a)
		var made []foreignKey
		for _, parent := range a.ForeignKeys.Parents {
			made = append(made, goneKey(a.Table, t.name(parent)))
		}
		if !c.concerns(t, a, sql) {
			c.note(made)
			continue
		}
		c.due = true
		c.makes(made...)
		switch a.Op {
		case ddl.OpCreate, ddl.OpAlter:
			c.alters(a.Table)
		case ddl.OpRename:
			c.alters(a.To)
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

// askKeys asks for the foreign keys, if that is due.
func (l *loop) askKeys() error {
	if !l.tables.cascading.due {
		return nil
	}
	return l.tables.ask(l.ctx, func(s *session, h *history) error {
		return l.tables.cascading.ask(l.tables, s, h.info)
	})
}

// fromElsewhere takes note of a transaction that another server has made: the one that is read has become a replica
// since it was asked, or was one when it wrote this. From here on foreign keys matter.
func (l *loop) fromElsewhere(id uint32) error {
	c := &l.tables.cascading
	if id == l.serverID || l.serverID == 0 || c.silent || c.elsewhere || l.o.IgnoreCascades {
		return nil
	}
	c.elsewhere, c.due, c.blind = true, true, true
	l.dec.Forget()
	return l.askKeys()
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
