package router

import (
	"slices"
	"strings"

	"github.com/freshet/freshet/config/spec"
)

// A parsed mapping describes itself to what stands next to the path of a row (see the package's comment): what that
// reads is exported. It may be read from any goroutine, and none of it may be changed.

// Mappings returns the mappings, in the order of the configuration.
func (r *Router) Mappings() []*Mapping { return r.mappings }

// Reads returns the columns that `when` reads, each once; none without it.
func (m *Mapping) Reads() []WhenColumn {
	if m.predicate == nil {
		return nil
	}
	return m.predicate.columns
}

// Ordered is a column whose order `when` asks for.
type Ordered struct {
	Column WhenColumn
	// By is the operator, and Pos where the column stands.
	By  string
	Pos spec.Pos
	// Guarded: `when` also compares it with nil, which has no order.
	Guarded bool
}

// Ordered returns the columns whose order `when` asks for, one for each time.
func (m *Mapping) Ordered() (all []Ordered) {
	p := m.predicate
	if p == nil {
		return nil
	}
	for _, u := range p.ordered {
		all = append(all, Ordered{p.columns[u.column], u.by, p.text.At(u.at), slices.Contains(p.guarded, u.column)})
	}
	return all
}

// Columns returns all columns that the mapping names, some of them several times.
func (m *Mapping) Columns() (names []string) {
	for i := range m.Actions {
		a := &m.Actions[i]
		for _, t := range a.templates() {
			names = append(names, t.Columns()...)
		}
		if r := a.rebuild; r != nil {
			for _, c := range r.columns {
				names = append(names, c.column)
			}
		}
		names = append(names, a.Params()...)
	}
	for _, c := range m.Spec.Columns {
		names = append(names, c.Value)
	}
	for _, c := range m.Reads() {
		names = append(names, c.Name)
	}
	return names
}

// Example returns the name of a table that the mapping is for.
func (m *Mapping) Example() (schema, table string) {
	return m.pattern.schema.example(), m.pattern.table.example()
}

// Params returns the columns that the parameters of the action's query name, in their order; none without one.
func (a *Action) Params() (names []string) {
	if a.rebuild != nil && a.rebuild.query != nil {
		for _, p := range a.rebuild.query.Params {
			names = append(names, p.Name)
		}
	}
	return names
}

// templates returns all templates of the action.
func (a *Action) templates() []*Template {
	all := []*Template{a.Key, a.Field, a.Value}
	if n := a.Notices; n != nil {
		all = append(all, n.Channel, n.Message, n.Stream)
	}
	return slices.DeleteFunc(all, func(t *Template) bool { return t == nil })
}

// Columns returns the columns that the template names.
func (t *Template) Columns() (names []string) {
	for i := range t.Parts {
		if n := &t.Parts[i]; n.Kind == NodeColumn {
			names = append(names, n.Lit)
		}
	}
	return names
}

// Constant returns the text before the first placeholder. True: there is none, so that it is the whole text.
func (t *Template) Constant() (text string, whole bool) {
	for i := range t.Parts {
		if t.Parts[i].Kind != NodeLiteral {
			return text, false
		}
		text += t.Parts[i].Lit
	}
	return text, true
}

// Of returns the text that {schema} or {table} gives for a name.
func (n *Node) Of(name string) string { return constant(name, n.Filters).lit }

// ParseTable reads the name of one table, schema.table, as a mapping writes it. False: it is none.
func ParseTable(text string) (schema, table string, ok bool) {
	p, faults := parsePattern(text)
	name, one := p.exact()
	return name.schema, name.table, one && len(faults) == 0
}

// EscapeGlob returns the pattern that matches a text alone, in the glob language of Redis
// (https://redis.io/docs/latest/commands/keys/).
func EscapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(s)
}
