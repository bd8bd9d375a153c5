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

// Narrow narrows a task to the templates and the pattern of a doubt, if it has any, or to the templates of several.
func Narrow(t *scope.Task, of ...doubt.Doubt) {
	if d := &of[0]; d.Pattern == "" && len(d.Templates) == 0 {
		return
	}
	t.Pattern, t.Only = of[0].Pattern, func(t *keyspace.Target) bool {
		return slices.ContainsFunc(of, func(d doubt.Doubt) bool { return KeyInDoubt(&d, t.Action) })
	}
}

// TableInDoubt reports whether a doubt is about keys of a table.
func TableInDoubt(d *doubt.Doubt, t *event.Table) bool {
	return d.EveryTable() ||
		slices.ContainsFunc(d.Tables, func(name string) bool { return same(t, name, t.String()) }) ||
		slices.ContainsFunc(d.Schemas, func(name string) bool { return same(t, name, t.Schema) })
}

// same reports whether two names are the same to the source that a table is of.
func same(t *event.Table, a, b string) bool { return a == b || t.FoldNames && strings.EqualFold(a, b) }

// InDoubt reports whether a doubt is about keys of a mapping.
func InDoubt(d *doubt.Doubt, m *router.Mapping) bool {
	return slices.ContainsFunc(m.Actions, func(a router.Action) bool { return KeyInDoubt(d, &a) }) &&
		(d.EveryTable() || slices.ContainsFunc(named(d), m.Matches))
}

// KeyInDoubt reports whether a doubt is about the keys of an action, as far as templates tell.
func KeyInDoubt(d *doubt.Doubt, a *router.Action) bool {
	return len(d.Templates) == 0 || slices.Contains(d.Templates, a.Key.Text.Value)
}

// BlindTo returns a template whose keys cannot be looked for, though the doubt is about them; nil: there is none.
func BlindTo(d *doubt.Doubt, keys *keyspace.Keyspace) *keyspace.Blind {
	all := keys.Blind()
	i := slices.IndexFunc(all, func(b keyspace.Blind) bool {
		return InDoubt(d, b.Mapping) && KeyInDoubt(d, b.Action) && (b.Table == nil || TableInDoubt(d, b.Table))
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// named returns the tables that a doubt names, without columns. One without a name stands for all tables of a schema.
func named(d *doubt.Doubt) (all []*event.Table) {
	for _, name := range d.Tables {
		all = append(all, readings(name)...)
	}
	for _, schema := range d.Schemas {
		all = append(all, table(schema, ""))
	}
	return all
}

// readings returns the tables that may have a name, which is given as schema.table: either may have dots.
func readings(name string) (all []*event.Table) {
	for at := range len(name) {
		if name[at] == '.' {
			all = append(all, table(name[:at], name[at+1:]))
		}
	}
	return all
}

// table returns a table without columns. Whether the source compares its name with letter case is not known, and what
// matches with letter case also does without.
func table(schema, name string) *event.Table {
	return &event.Table{Schema: schema, Name: name, FoldNames: true}
}

// Unmapped returns a template that a doubt is about and none of the mappings has, so that nobody knows its keys; "":
// there is none.
func Unmapped(d *doubt.Doubt, mappings []*router.Mapping) string {
	for _, t := range d.Templates {
		only := *d
		only.Templates = []string{t}
		if !slices.ContainsFunc(mappings, func(m *router.Mapping) bool { return InDoubt(&only, m) }) {
			return t
		}
	}
	return ""
}
