package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// mapping is what a configuration says about tables of the same columns.
type mapping struct {
	pattern string
	tables  []*table
	events  []string // none for all
	columns []*column
	when    *predicate
	keys    []template
	again   string // second_delete, or ""
}

// yaml is the mapping as it stands in the file.
func (m *mapping) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  - table: %s\n", literal(m.pattern))
	if m.events != nil {
		fmt.Fprintf(&b, "    events: [%s]\n", strings.Join(m.events, ", "))
	}
	if m.columns != nil {
		var names []string
		for _, c := range m.columns {
			names = append(names, literal(c.name))
		}
		fmt.Fprintf(&b, "    columns: [%s]\n", strings.Join(names, ", "))
	}
	if m.when != nil {
		fmt.Fprintf(&b, "    when: %s\n", literal(m.when.text))
	}
	if m.again != "" {
		fmt.Fprintf(&b, "    second_delete: %s\n", m.again)
	}
	b.WriteString("    keys:\n")
	for _, k := range m.keys {
		fmt.Fprintf(&b, "      - %s\n", literal(k.String()))
	}
	return b.String()
}

// verdict says whether a mapping is for a change.
type verdict uint8

const (
	no verdict = iota
	perhaps
	yes
)

// change is a change of a row, as the triggers have written it down.
type change struct {
	op         string
	tx         int
	of         *table
	old, after row
}

// alike reports whether an UPDATE left everything as it was, as far as it is printed. Such a row may be in the binlog
// or not.
func (c *change) alike() bool {
	if c.op != "UPDATE" {
		return false
	}
	for name, v := range c.after {
		if c.old[name] != v {
			return false
		}
	}
	return true
}

// takes reports whether the mapping is for changes of this kind.
func (m *mapping) takes(op string) bool {
	return m.events == nil || slices.Contains(m.events, strings.ToLower(op))
}

// verdict applies docs/mappings.md, "Which changes count".
func (m *mapping) verdict(c *change) verdict {
	if !m.takes(c.op) {
		return no
	}
	if m.when != nil {
		if ok, err := m.when.eval(c.after, c.old); err == nil && !ok {
			return no
		}
	}
	v := yes
	if c.op == "UPDATE" && m.columns != nil {
		v = m.touched(c)
	}
	if c.alike() {
		v = min(v, perhaps)
	}
	return v
}

// touched says whether an UPDATE changed one of the columns that count.
func (m *mapping) touched(c *change) verdict {
	v := no
	for _, col := range m.counting() {
		switch {
		case c.old.of(col) != c.after.of(col):
			return yes
		case col.kind == approximate:
			v = perhaps
		}
	}
	if m.when == nil {
		return v
	}
	was, err := m.when.alone(c.old)
	is, err2 := m.when.alone(c.after)
	if err == nil && err2 == nil {
		if was != is {
			return yes
		}
		return v
	}
	for _, col := range m.when.of {
		if c.old.of(col) != c.after.of(col) {
			return yes
		}
	}
	return v
}

// counting are the mapping's columns and those of its keys.
func (m *mapping) counting() []*column {
	all := append([]*column(nil), m.columns...)
	for _, k := range m.keys {
		all = append(all, k.needs()...)
	}
	return all
}

// mapping draws a mapping for tables of the same columns.
func (w *World) mapping(number int, family []*table) *mapping {
	r := w.r
	m := &mapping{tables: family}
	m.pattern = patternFor(w, family)
	if oneIn(r, 4) {
		m.events = pick(r, []string{"insert"}, []string{"update", "delete"}, []string{"delete"}, []string{"insert", "update"},
			[]string{"update"})
	}
	columns := family[0].columns
	if oneIn(r, 3) {
		for range 1 + r.IntN(3) {
			if c := pick(r, columns...); c.kind != opaque && !slices.Contains(m.columns, c) {
				m.columns = append(m.columns, c)
			}
		}
	}
	if oneIn(r, 3) {
		p, q := predicateOn(r, pick(r, columns...)), predicateOn(r, pick(r, columns...))
		if p != nil && q != nil {
			m.when = combined(p, q, r)
		} else if p != nil {
			m.when = p
		}
	}
	if oneIn(r, 4) {
		m.again = pick(r, "100ms", "200ms", "none")
	}
	for i := range 1 + r.IntN(4) {
		m.keys = append(m.keys, w.template(fmt.Sprintf("m%d-%d:", number, i), columns))
	}
	return m
}

func patternFor(w *World, family []*table) string {
	name := func(s string) string {
		if simpleName.MatchString(s) && !oneIn(w.r, 4) {
			return s
		}
		return quote(s)
	}
	schema := name(family[0].schema)
	if len(family) == 1 {
		return schema + "." + name(family[0].name)
	}
	return schema + "." + pick(w.r, "order_*", "order_{00..63}", "*der_0*")
}

// template draws a template.
func (w *World) template(prefix string, columns []*column) template {
	r := w.r
	t := template{constant(prefix)}
	for range 1 + r.IntN(3) {
		switch r.IntN(10) {
		case 0:
			t = append(t, copies(0, r.IntN(4), 1))
		case 1:
			t = append(t, copies(8, 11, 2))
		case 2:
			t = append(t, part{
				text: "{table}",
				make: func(of *table, _ row) ([]string, bool) { return []string{of.name}, true },
			})
		case 3:
			t = append(t, part{
				text: "{schema}",
				make: func(of *table, _ row) ([]string, bool) { return []string{of.schema}, true },
			})
		case 4:
			t = append(t, constant(pick(r, "{tag}", "}", "{", "ж", " ", "a|b", `"`)))
		default:
			if c := pick(r, columns...); c.kind != opaque {
				t = append(t, placeholder(r, c))
			}
		}
		t = append(t, constant(pick(r, ":", "", ":", "/")))
	}
	return t
}
