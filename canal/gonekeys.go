package canal

import (
	"slices"
	"strings"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/doubt/alarm"
)

// The server says which foreign keys there are now. Of those that are gone by then, statements tell.

// goneKey is one of which only a statement says that it was there. It stands for any columns, and all rules.
func goneKey(child, parent ddl.Name) foreignKey {
	unknown := []string{""}
	return foreignKey{
		Child: child, Parent: parent, Columns: unknown, Referenced: unknown, OnDelete: cascades, OnUpdate: cascades,
	}
}

// gone reports whether it is a goneKey.
func (k foreignKey) gone() bool { return k.Name == "" }

// missing returns those that statements say they have made, and of which the server has none between these tables: they
// are gone again, and counted until then.
func missing(made, keys []foreignKey) (all []foreignKey) {
	for _, m := range made {
		same := func(k foreignKey) bool { return k.Child == m.Child && k.Parent == m.Parent }
		if !slices.ContainsFunc(keys, same) {
			all = append(all, m)
		}
	}
	return all
}

// dropped records the doubt after a statement that drops foreign keys of which nothing was known: what they changed was
// not noticed.
func (l *loop) dropped(a *ddl.Action) error {
	c := &l.tables.cascading
	if !c.blind || !c.silent {
		return nil
	}
	for _, name := range a.ForeignKeys.Dropped {
		same := func(k foreignKey) bool { return k.Child == a.Table && strings.EqualFold(k.Name, name) }
		if slices.ContainsFunc(c.now, same) || slices.ContainsFunc(c.past, same) {
			continue
		}
		var reached []string
		if p := c.parents[a.Table]; p != nil {
			reached = p.all()
		}
		if l.wants(a.Table) {
			reached = append(reached, a.Table.String())
		}
		if len(reached) > 0 {
			return l.doubt(alarm.RowsCascaded, "table "+a.Table.String()+" lost constraint "+name+", of which freshet knows "+
				"nothing: if that was a foreign key, the source may have changed rows of "+strings.Join(reached, ", ")+
				" without row events before, so their keys may be stale", reached...)
		}
	}
	return nil
}
