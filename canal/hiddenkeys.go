package canal

import (
	"slices"
	"strings"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/retry"
)

// The server lists the foreign keys of a table only for users who have some right on it. One that it lists no more is
// gone if we may read the table. If we may not, a right was taken away, or another server answers that gives fewer; and
// nothing but a statement in the binlog says that the foreign key is gone.

// hidden returns those of the known foreign keys that the server does not list, and whose child we may not read, as far
// as it says.
func (s *session) hidden(known, listed []foreignKey) (all []foreignKey, err error) {
	is := map[keyName]bool{}
	for i := range listed {
		k := &listed[i]
		is[k.keyName()] = true
		is[keyName{k.Child.Schema, k.Child.Table, k.Parent.String()}] = true // as one of statements
	}
	hides := map[ddl.Name]bool{}
	for i := range known {
		k := &known[i]
		if is[k.keyName()] {
			continue
		}
		if _, asked := hides[k.Child]; !asked {
			if hides[k.Child], err = s.hides(k.Child); err != nil {
				return nil, err
			}
		}
		if hides[k.Child] {
			all = append(all, *k)
		}
	}
	return all, nil
}

// keyName returns what tells the foreign key from others: its name, or of one that statements have made, its parent.
func (k *foreignKey) keyName() keyName {
	if k.gone() {
		return keyName{k.Child.Schema, k.Child.Table, k.Parent.String()}
	}
	return keyName{k.Child.Schema, k.Child.Table, k.Name}
}

// denied reports whether we may not read a table, or not all of its columns, be it there or not.
func (s *session) denied(n ddl.Name) (bool, error) {
	refused, err := s.tried(n)
	return retry.IsTableDenied(refused), err
}

// hides reports whether a table may have foreign keys that the server does not list: unless it says that we may read
// all of it, or that it is not there. While it is locked, it says neither.
func (s *session) hides(n ddl.Name) (bool, error) {
	refused, err := s.tried(n)
	return refused != nil && !retry.IsNoTable(refused), err
}

// tried returns how the server refuses all columns of a table; nil: it does not.
func (s *session) tried(n ddl.Name) (refused, err error) {
	err = s.exec("SELECT * FROM " + n.SQL() + " LIMIT 0")
	if _, is := retry.ServerError(err); is {
		return err, nil
	}
	return nil, err
}

// keepHidden has those of the saved foreign keys count as present that the server hides.
func (c *cascading) keepHidden(t *tables, s *session) error {
	saved := c.saved
	if len(saved) == 0 || !c.silent {
		c.saved = nil
		return nil
	}
	hidden, err := s.hidden(saved, c.now)
	if err != nil {
		return err // they are asked about on the next connection
	}
	if c.saved = nil; len(hidden) == 0 {
		return nil
	}
	c.now, c.unsaved = append(c.now, hidden...), true
	c.past = slices.DeleteFunc(c.past, func(k foreignKey) bool { return contains(hidden, &k) })
	c.rebuild(t)
	return nil
}

// apply follows what a statement does to the foreign keys that there are. What goes counts until the stream is where
// the server was asked, as all that is gone.
func (c *cascading) apply(a *ddl.Action) {
	if a.Unclear {
		return
	}
	switch a.Op {
	case ddl.OpDrop, ddl.OpDropSchema:
		c.drop(func(k *foreignKey) bool {
			return k.Child == a.Table || a.Table.Table == "" && k.Child.Schema == a.Table.Schema
		})
	case ddl.OpCreate, ddl.OpCreateLike:
		c.drop(func(k *foreignKey) bool { return a.Replace && k.Child == a.Table })
	case ddl.OpAlter:
		c.drop(func(k *foreignKey) bool {
			isIt := func(name string) bool { return strings.EqualFold(name, k.Name) }
			return k.Child == a.Table && slices.ContainsFunc(a.ForeignKeys.Dropped, isIt)
		})
		c.renameColumns(a)
	case ddl.OpRename:
		c.rename(a.Table, a.To)
	}
}

// drop takes foreign keys away from those that there are.
func (c *cascading) drop(which func(*foreignKey) bool) {
	if !slices.ContainsFunc(c.now, func(k foreignKey) bool { return which(&k) }) {
		return
	}
	var gone []foreignKey
	c.now = slices.DeleteFunc(slices.Clone(c.now), func(k foreignKey) bool {
		is := which(&k)
		if is {
			gone = append(gone, k)
		}
		return is
	})
	c.unsaved = true
	c.remember(gone)
}

// rename follows a table that gets another name. Whether a foreign key that refers to it follows as well is a matter of
// settings.
func (c *cascading) rename(from, to ddl.Name) {
	var renamed []foreignKey
	for _, k := range c.now {
		if k.Child != from && k.Parent != from {
			continue
		}
		if k.Child == from {
			k.Child = to
			if number, own := strings.CutPrefix(k.Name, from.Table+"_ibfk_"); own { // a name that the server has made
				k.Name = to.Table + "_ibfk_" + number
			}
		}
		if k.Parent == from {
			k.Parent = to
		}
		renamed = append(renamed, k)
	}
	c.drop(func(k *foreignKey) bool { return k.Child == from })
	c.add(renamed)
}

// renameColumns follows columns that get other names.
func (c *cascading) renameColumns(a *ddl.Action) {
	names := map[string]string{}
	for i := range a.Alter.Clauses {
		l := &a.Alter.Clauses[i]
		if l.Kind != ddl.AddColumn && l.Kind != ddl.DropColumn && !strings.EqualFold(l.Old, l.Column.Name) {
			names[strings.ToLower(l.Old)] = l.Column.Name
		}
	}
	if len(names) == 0 {
		return
	}
	renamed := func(columns []string) []string {
		columns = slices.Clone(columns)
		for i, name := range columns {
			if to, is := names[strings.ToLower(name)]; is {
				columns[i] = to
			}
		}
		return columns
	}
	c.now, c.unsaved = slices.Clone(c.now), true
	for i := range c.now {
		k := &c.now[i]
		if k.Child == a.Table {
			k.Columns = renamed(k.Columns)
		}
		if k.Parent == a.Table {
			k.Referenced = renamed(k.Referenced)
		}
	}
}

// note takes note of foreign keys that a statement makes, and that lead to no wanted table.
func (c *cascading) note(made []foreignKey) {
	if !c.silent {
		return
	}
	c.add(made)
	c.due = c.due || len(c.now) > 2*maxKeys // what is gone of them is forgotten
}

func (c *cascading) add(keys []foreignKey) {
	for i := range keys {
		if !contains(c.now, &keys[i]) {
			c.now, c.unsaved = append(slices.Clip(c.now), keys[i]), true
		}
	}
}

// unlisted records the doubt about a wanted table that we may not read, and of which no foreign key is known: nobody
// knows which of them change its rows without row events. Once we may read it, that is answered.
func (t *tables) unlisted(n ddl.Name) error {
	c := &t.cascading
	if !c.silent {
		return nil
	}
	d := t.doubtUnlisted(n)
	if !t.tracker.IsDenied(n) {
		return t.listed(d)
	}
	isChild := func(k foreignKey) bool { return k.Child == n }
	if c.unlisted[n] || slices.ContainsFunc(c.now, isChild) {
		return nil
	}
	if c.unlisted == nil || len(c.unlisted) >= maxOpaque {
		c.unlisted = map[ddl.Name]bool{}
	}
	c.unlisted[n] = true
	c.unlistedDoubts.add(d)
	return t.l.record(d)
}

// doubtUnlisted returns that doubt.
func (t *tables) doubtUnlisted(n ddl.Name) doubt.Doubt {
	return doubt.Doubt{
		Cause: alarm.BinlogIncomplete, Source: t.l.o.Source, Subject: "SELECT ON " + n.String(), Tables: []string{n.String()},
		Message: "source " + t.l.o.Source + ": the user that freshet connects as may not read table " + n.String() + ", so it is " +
			"not known which foreign keys change its rows, which this server does not write to its binlog, and their keys stay " +
			"stale: GRANT SELECT ON " + n.SQL() + " to that user",
	}.Named()
}

// keepUnlisted records those of these doubts again that were answered while we still may not read the table: foreign
// keys change its rows after the answer, too.
func (t *tables) keepUnlisted() error {
	c := &t.cascading
	for n := range c.unlisted {
		if !t.tracker.IsDenied(n) {
			delete(c.unlisted, n)
			delete(c.unlistedDoubts.open, t.doubtUnlisted(n).ID)
		}
	}
	return c.unlistedDoubts.keep(t.l.ctx, &t.l.o)
}

// listed has a doubt of [tables.unlisted] answered. It comes once more for that, so that the answer is about this
// place.
func (t *tables) listed(d doubt.Doubt) error {
	for _, is := range t.l.o.Doubts.List() {
		if is.ID != d.ID || is.Asked && !is.Last.After(is.AskedAt) {
			continue
		}
		if err := t.l.record(d); err != nil {
			return err
		}
		if err := t.l.o.Doubts.Insist(t.l.ctx, d.ID); err != nil {
			return err
		}
	}
	return nil
}
