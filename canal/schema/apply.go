package schema

import (
	"github.com/freshet/freshet/canal/ddl"
)

// Apply moves the tracker over a statement of the binlog. Statements must come in the order of the binlog, all of them:
// of a statement that is left out the tracker would know nothing, and be wrong.
func (t *Tracker) Apply(st *ddl.Statement) {
	if st.Verb == ddl.DML {
		return
	}
	if st.Unclear {
		t.forgetAll()
		return
	}
	for i := range st.Actions {
		t.action(&st.Actions[i])
	}
}

func (t *Tracker) action(a *ddl.Action) {
	n, to := t.key(a.Table), t.key(a.To)
	if a.Unclear {
		t.unclear(a, n, to)
		return
	}
	switch a.Op {
	case ddl.OpCreate:
		if !a.If || t.get(n).status == absent {
			t.define(n, create(a.Create, t.charsetOf(n.Schema)))
		}
	case ddl.OpCreateLike:
		if !a.If || t.get(n).status == absent {
			t.define(n, t.get(to).proven())
		}
	case ddl.OpAlter:
		t.alter(n, a)
	case ddl.OpRename:
		t.rename(n, to, a.If)
	case ddl.OpDrop:
		t.absent(n)
	case ddl.OpCreateSchema, ddl.OpAlterSchema, ddl.OpDropSchema:
		t.schema(n.Schema, a)
	}
}

// proven returns the definition if it is surely that of the place.
func (e entry) proven() *definition {
	if e.status == known {
		return e.def
	}
	return nil
}

// unclear handles an action of which only the names are known.
func (t *Tracker) unclear(a *ddl.Action, n, to ddl.Name) {
	switch {
	case a.Op == ddl.OpWrite || a.Op == ddl.OpTruncate:
		return
	case n.Table == "":
		t.dropSchema(n.Schema)
		return
	}
	if a.Op == ddl.OpAlter {
		t.forgetNames() // what could not be read may have renamed the table
	}
	t.doubt(n)
	if to.Table != "" && a.Op == ddl.OpRename {
		t.doubt(to)
	}
}

func (t *Tracker) alter(n ddl.Name, a *ddl.Action) {
	e := t.get(n)
	switch {
	case a.Alter.KeepsColumns() || e.status == absent && a.If:
	case e.status == known:
		t.define(n, e.def.alter(a.Alter, t.charsetOf(n.Schema)))
	case e.status == partial:
		t.set(n, entry{status: partial, def: e.def.alterNamed(a.Alter)})
	default:
		t.doubt(n)
	}
}

func (t *Tracker) rename(n, to ddl.Name, ifExists bool) {
	e := t.get(n)
	if n == to || e.status == absent && ifExists {
		return
	}
	t.define(to, e.proven())
	t.absent(n)
}

// schema handles what is done to a schema.
func (t *Tracker) schema(name string, a *ddl.Action) {
	switch a.Op {
	case ddl.OpDropSchema:
		t.dropSchema(name)
	case ddl.OpAlterSchema:
		if c := a.Create.Charset; !c.IsZero() {
			t.touch()
			s := t.schemaOf(name)
			s.charset = s.charset.with(c, charsets{})
		}
	case ddl.OpCreateSchema:
		if a.If {
			return // it may have been there before
		}
		t.dropSchema(name)
		t.touch()
		s := t.schemaOf(name)
		s.charset, s.whole = charsets{}.with(a.Create.Charset, charsets{}), true
	}
}

// dropSchema forgets a schema and all its tables.
func (t *Tracker) dropSchema(name string) {
	if t.schemas[name] != nil {
		t.touch()
		delete(t.schemas, name)
	}
	for n := range t.tables {
		if n.Schema == name {
			t.touch()
			t.remove(n)
		}
	}
}
