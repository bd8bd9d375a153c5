package operate

import (
	"slices"
	"strings"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/scope"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/keyspace"
)

// KeysInDoubt returns which keys doubts are about. tables are the definitions that are known, several of one table if
// they changed, and keys in Redis begin with prefix.
func KeysInDoubt(mappings []*router.Mapping, tables []*event.Table, prefix string, doubts ...doubt.Doubt,
) (*keyspace.Keyspace, error) {
	var meant []*router.Mapping
	for _, m := range mappings {
		if slices.ContainsFunc(doubts, func(d doubt.Doubt) bool { return InDoubt(&d, m) }) {
			meant = append(meant, m)
		}
	}
	tables = slices.DeleteFunc(slices.Clone(tables), func(t *event.Table) bool {
		return !slices.ContainsFunc(doubts, func(d doubt.Doubt) bool { return TableInDoubt(&d, t) })
	})
	return keyspace.New(meant, tables, prefix)
}

// Narrow narrows a task to the templates and the pattern of a doubt, if it has any.
func Narrow(t *scope.Task, d *doubt.Doubt) {
	if d.Pattern != "" || len(d.Templates) > 0 {
		t.Pattern, t.Only = d.Pattern, func(t *keyspace.Target) bool { return KeyInDoubt(d, t.Action) }
	}
}

// TableInDoubt reports whether a doubt is about keys of a table.
func TableInDoubt(d *doubt.Doubt, t *event.Table) bool {
	return len(d.Tables) == 0 || slices.ContainsFunc(d.Tables, func(name string) bool {
		// A schema stands for all tables in it.
		return name == t.String() || name == t.Schema ||
			t.FoldNames && (strings.EqualFold(name, t.String()) || strings.EqualFold(name, t.Schema))
	})
}

// InDoubt reports whether a doubt is about keys of a mapping.
func InDoubt(d *doubt.Doubt, m *router.Mapping) bool {
	return slices.ContainsFunc(m.Actions, func(a router.Action) bool { return KeyInDoubt(d, &a) }) &&
		(len(d.Tables) == 0 || slices.ContainsFunc(d.Tables, m.MatchesName))
}

// KeyInDoubt reports whether a doubt is about the keys of an action, as far as templates tell.
func KeyInDoubt(d *doubt.Doubt, a *router.Action) bool {
	return len(d.Templates) == 0 || slices.Contains(d.Templates, a.Key.Text.Value)
}
