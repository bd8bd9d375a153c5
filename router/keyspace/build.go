package keyspace

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// expression is what a template makes: a literal text, and an expression of what follows it.
type expression struct{ head, tail string }

func (e *expression) add(part string, literal bool) {
	switch {
	case !literal:
		e.tail += part
	case e.tail == "":
		e.head += part
	default:
		e.tail += regexp.QuoteMeta(part)
	}
}

// Blind is a template whose keys are not matched.
type Blind struct {
	Mapping *router.Mapping
	// Action is one whose keys are not matched. Where several have the same template, it is one of them.
	Action *router.Action
	// Table is the one whose keys are not matched; nil: those of every table.
	Table *event.Table
	// Template is the one that cannot be matched: that of a key, a field or a member.
	Template spec.Text
	// Placeholder is the one that could be anything, as the template writes it, and Pos where it stands.
	Placeholder string
	Pos         spec.Pos
	// What is the matter, and what to write in the mapping.
	What, Do string
}

// String returns it as one line.
func (b Blind) String() string { return spec.Sentence(b.Pos.String(), b.What, b.Do) }

// builder compiles templates.
type builder struct {
	blind []Blind
	// compiled are the expressions by their texts: shards share theirs.
	compiled map[string]*regexp.Regexp
	heads    map[string]*head
	targets  []*Target
	// of are the targets of each action.
	of map[*router.Action][]*Target
}

// mapping compiles the templates of a mapping, over each of the tables that it matches.
func (b *builder) mapping(m *router.Mapping, tables []*event.Table) error {
	known := false
	var fit []*fits
	for i := range m.Actions {
		fit = append(fit, fitting(m, &m.Actions[i], tables))
	}
	for _, t := range tables {
		if m.Matches(t) {
			known = true
			if err := b.actions(m, t, fit); err != nil {
				return err
			}
		}
	}
	if known {
		return nil
	}
	return b.actions(m, nil, nil)
}

// fits are the tables of which a definition is known that an action fits: it made no keys under their other
// definitions, which lack a column that it names, and what it named under this one is known. Names of two tables may
// differ in letter case alone, unless the source folds them.
type fits struct{ exact, folded map[tableName]bool }

type tableName struct{ schema, table string }

func fitting(m *router.Mapping, a *router.Action, tables []*event.Table) *fits {
	all := &fits{map[tableName]bool{}, map[tableName]bool{}}
	for _, t := range tables {
		if m.Matches(t) && named(m, a, t) {
			all.exact[tableName{t.Schema, t.Name}] = true
			if t.FoldNames {
				all.folded[folded(t)] = true
			}
		}
	}
	return all
}

func folded(t *event.Table) tableName {
	return tableName{strings.ToLower(t.Schema), strings.ToLower(t.Name)}
}

// has reports whether one of them is the table.
func (f *fits) has(t *event.Table) bool {
	return f.exact[tableName{t.Schema, t.Name}] || f.folded[folded(t)]
}

// named reports whether a definition has all columns that an action names.
func named(m *router.Mapping, a *router.Action, t *event.Table) bool {
	lacks := func(n router.Node) bool {
		if n.Kind != router.NodeColumn {
			return false
		}
		_, why := find(m, n.Lit, t)
		return why != ""
	}
	return !slices.ContainsFunc(a.Key.Parts, lacks) && (a.Field == nil || !slices.ContainsFunc(a.Field.Parts, lacks))
}

// actions compiles the templates over a table; nil: no table is known. fit is of each action.
func (b *builder) actions(m *router.Mapping, t *event.Table, fit []*fits) error {
	for i := range m.Actions {
		a := &m.Actions[i]
		if t != nil && !named(m, a, t) && fit[i].has(t) {
			continue
		}
		key, ok := b.template(m, a, a.Key, t)
		var field *expression
		if a.Field != nil {
			f, fieldOK := b.template(m, a, a.Field, t)
			field, ok = &f, ok && fieldOK
		}
		if !ok {
			continue
		}
		if err := b.add(m, a, key, field); err != nil {
			return fmt.Errorf("keyspace: %s: %w", a.Key.Text.At(0), err)
		}
	}
	return nil
}

// template returns what a template makes over a table. False: it is blind.
func (b *builder) template(m *router.Mapping, a *router.Action, t *router.Template, table *event.Table) (e expression,
	ok bool,
) {
	ok = true
	for i := range t.Parts {
		switch n := &t.Parts[i]; n.Kind {
		case router.NodeLiteral:
			e.add(n.Lit, true)
		case router.NodeCopies:
			lo, hi := n.Span.Append(nil, 0), n.Span.Append(nil, n.Span.Count()-1)
			e.add(group(numbers(string(lo), string(hi), n.Span.Width)), false)
		case router.NodeColumn:
			c, why := find(m, n.Lit, table)
			part, sure := placeholder(n, c, freeText(m, n.Lit))
			if !sure {
				b.report(m, a, t, n, table, why)
				ok = false
			}
			e.add(part, false)
		default:
			switch {
			case table == nil:
				b.report(m, a, t, n, nil, noTable(m))
				ok = false
			case n.Kind == router.NodeTable && table.Name == "":
				b.report(m, a, t, n, table, noTables(table))
				ok = false
			case n.Kind == router.NodeSchema:
				e.add(n.Of(table.Schema), true)
			default:
				e.add(n.Of(table.Name), true)
			}
		}
	}
	return e, ok
}

// find returns a column, and why its type is not known: then it is one that could hold any text.
func find(m *router.Mapping, name string, t *event.Table) (*event.Column, string) {
	unknown := &event.Column{Name: name}
	if t == nil {
		return unknown, noTable(m)
	}
	i := t.Column(name)
	switch {
	case t.Name == "":
		return unknown, noTables(t)
	case len(t.Columns) == 0:
		return unknown, fmt.Sprintf("nobody knows which columns table %s had", t)
	case i < 0:
		return unknown, fmt.Sprintf("table %s has no column %q now", t, name)
	case t.Columns[i].Class == event.ClassJSON:
		return unknown, fmt.Sprintf("column %s of %s is %s now", name, t, t.Columns[i].TypeName())
	}
	return &t.Columns[i], ""
}

func noTable(m *router.Mapping) string { return m.Unmatched() + " now" }

func noTables(t *event.Table) string {
	return "nobody knows which tables schema " + spec.Quote(t.Schema) + " had"
}

// freeText returns what the mapping says of a column's free text; "" if nothing.
func freeText(m *router.Mapping, column string) string {
	for _, s := range m.Spec.Scope {
		if strings.EqualFold(s.Column.Value, column) {
			return s.Holds.Value
		}
	}
	return ""
}

// report notes that a template is blind over a table: once for all tables where why is empty, for free text.
func (b *builder) report(m *router.Mapping, a *router.Action, t *router.Template, n *router.Node, over *event.Table,
	why string,
) {
	out := Blind{Mapping: m, Action: a, Template: t.Text, Placeholder: n.String(), Pos: t.Text.At(n.At)}
	out.What = "what " + spec.Quote(t.Text.Value) + " made cannot be searched for: "
	example := "[^:]+"
	if why == "" {
		out.What += n.String() + " is free text, which could be anything"
	} else {
		out.Table = over
		out.What += why + ", so what " + n.String() + " was is not known"
		example = "[0-9]+"
	}
	out.Do = "delete by hand what is stale"
	if n.Kind == router.NodeColumn {
		name := n.Lit
		if !plain.MatchString(name) {
			name = strconv.Quote(name)
		}
		out.Do = fmt.Sprintf("say in the mapping what the text may be, such as scope: {%s: %q}, or ", name, example) + out.Do
	}
	same := func(o Blind) bool { return o.Mapping == m && o.Pos == out.Pos && o.What == out.What }
	if !slices.ContainsFunc(b.blind, same) {
		b.blind = append(b.blind, out)
	}
}

// plain is a name that needs no quotes in YAML.
var plain = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// add adds a template to those that are matched. Tables of which it makes the same share what is compiled.
func (b *builder) add(m *router.Mapping, a *router.Action, key expression, field *expression) error {
	target := &Target{Mapping: m, Action: a}
	if field != nil {
		re, err := b.compile(field.tail)
		if err != nil {
			return err
		}
		target.field = &matcher{field.head, re}
	}
	re, err := b.compile(key.tail)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(b.of[a], target.same); i >= 0 {
		target = b.of[a][i]
	} else {
		b.of[a], b.targets = append(b.of[a], target), append(b.targets, target)
	}
	h := b.heads[key.head]
	if h == nil {
		h = &head{text: key.head}
		b.heads[key.head] = h
	}
	h.add(re, target)
	return nil
}

// compile returns the expression that matches whole texts; nil for one of nothing.
func (b *builder) compile(tail string) (*regexp.Regexp, error) {
	if tail == "" {
		return nil, nil
	}
	if re := b.compiled[tail]; re != nil {
		return re, nil
	}
	re, err := regexp.Compile(`\A(?s:` + tail + `)\z`)
	b.compiled[tail] = re
	return re, err
}
