package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

// Keys says which keys mappings can have made. It asks the source for their tables each time.
type Keys struct {
	// Mappings are all of the configuration.
	Mappings []*router.Mapping
	// Source is how the source is asked.
	Source canal.Options
	// Prefix is what keys in Redis begin with.
	Prefix string
	// Known returns definitions of tables besides those that the source says, such as of one that is gone; nil: none.
	Known func() []*event.Table
}

// All returns all keys.
func (k *Keys) All(ctx context.Context) (*keyspace.Keyspace, error) {
	tables, err := k.tables(ctx)
	if err != nil {
		return nil, err
	}
	return keyspace.New(k.Mappings, tables, k.Prefix)
}

// Unasked returns all keys, without asking the source. More templates are blind then.
func (k *Keys) Unasked() (*keyspace.Keyspace, error) { return keyspace.New(k.Mappings, nil, k.Prefix) }

// Learn returns what is known of the source.
func (k *Keys) Learn(ctx context.Context, source string) (*Learned, error) {
	tables, err := k.tables(ctx)
	return &Learned{Source: source, Mappings: k.Mappings, Tables: tables}, err
}

// InDoubt returns the keys that doubts are about. All keys begin with prefix.
func (l *Learned) InDoubt(prefix string, doubts ...doubt.Doubt) (*keyspace.Keyspace, error) {
	k := Keys{Mappings: l.Mappings, Prefix: prefix}
	return k.inDoubt(l.Tables, doubts...)
}

func (k *Keys) tables(ctx context.Context) ([]*event.Table, error) {
	source, err := canal.Inspect(ctx, k.Source)
	if err != nil {
		return nil, fmt.Errorf("the source does not say which columns its tables have: %w", err)
	}
	if k.Known == nil {
		return source.Tables, nil
	}
	return append(source.Tables, k.Known()...), nil
}

// inDoubt does the work of [Learned.InDoubt]. tables are the definitions that are known, besides those of the doubts;
// several of one table if they changed.
func (k *Keys) inDoubt(tables []*event.Table, doubts ...doubt.Doubt) (*keyspace.Keyspace, error) {
	var meant []*router.Mapping
	for _, m := range k.Mappings {
		if byRows(m, doubts) {
			continue
		}
		if slices.ContainsFunc(doubts, func(d doubt.Doubt) bool { return InDoubt(&d, m) }) {
			meant = append(meant, m)
		}
	}
	all := slices.Clone(tables)
	for _, d := range doubts {
		all = append(all, d.Definitions...)
	}
	var more []*event.Table
	for _, d := range doubts {
		more = append(more, renamed(&d, all)...)
	}
	all = append(all, more...)
	more = nil
	for _, d := range doubts {
		more = append(more, unseen(&d, all)...)
	}
	all = slices.DeleteFunc(append(all, more...), func(t *event.Table) bool {
		return !slices.ContainsFunc(doubts, func(d doubt.Doubt) bool { return TableInDoubt(&d, t) })
	})
	return keyspace.New(meant, all, k.Prefix)
}

// byRows reports whether the rows of its tables are read to answer doubts about a mapping. Where a pattern is meant,
// the keys are looked for in Redis all the same: not all keys of a row match it.
func byRows(m *router.Mapping, doubts []doubt.Doubt) bool {
	return m.Spec.ScopeRows && !slices.ContainsFunc(doubts, func(d doubt.Doubt) bool { return d.Pattern != "" })
}

// Rows returns the tables of which the rows are read to answer doubts, in the order of their names.
func (l *Learned) Rows(doubts []doubt.Doubt) (all []Walk) {
	for _, t := range l.Tables {
		var meant []int
		for _, m := range l.Mappings {
			if byRows(m, doubts) && m.Matches(t) && slices.ContainsFunc(doubts, func(d doubt.Doubt) bool {
				return TableInDoubt(&d, t) && InDoubt(&d, m)
			}) {
				meant = append(meant, m.Ordinal)
			}
		}
		known := func(w Walk) bool { return w.Schema == t.Schema && w.Name == t.Name }
		if len(meant) > 0 && !slices.ContainsFunc(all, known) {
			all = append(all, Walk{
				Schema: t.Schema, Name: t.Name, Forget: true,
				Only: func(ordinal int) bool { return slices.Contains(meant, ordinal) },
			})
		}
	}
	slices.SortFunc(all, func(a, b Walk) int {
		return cmp.Or(strings.Compare(a.Schema, b.Schema), strings.Compare(a.Name, b.Name))
	})
	return all
}

// renamed returns definitions of a table of a RENAME that is not known: under its other name it has the same columns.
func renamed(d *doubt.Doubt, tables []*event.Table) (out []*event.Table) {
	if d.Cause != alarm.TruncatedTable || len(d.Tables) != 2 {
		return nil
	}
	under := func(name string) (of []*event.Table) {
		only := doubt.Doubt{Tables: []string{name}}
		return slices.DeleteFunc(slices.Clone(tables), func(t *event.Table) bool { return !TableInDoubt(&only, t) })
	}
	for i, name := range d.Tables {
		if len(under(name)) > 0 {
			continue
		}
		for _, t := range under(d.Tables[1-i]) {
			for _, as := range readings(name) {
				other := *t
				other.Schema, other.Name = as.Schema, as.Name
				out = append(out, &other)
			}
		}
	}
	return out
}

// unseen returns what a doubt names and no definition is known of, as tables without columns. What stands in for them
// otherwise are the other tables of a mapping, whose columns, and names, make other keys.
func unseen(d *doubt.Doubt, tables []*event.Table) []*event.Table {
	return slices.DeleteFunc(named(d), func(n *event.Table) bool {
		return slices.ContainsFunc(tables, func(t *event.Table) bool {
			if n.Name == "" {
				return same(t, n.Schema, t.Schema)
			}
			return same(t, n.String(), t.String())
		})
	})
}
