package router

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshet/freshet/event"
)

// plan is all that the mappings do with the rows of one table definition.
type plan struct {
	table *event.Table
	name  string
	needs []event.Need
	rules []rule
	err   error
}

// rule is one mapping compiled for one table definition. Columns stand in it as slots: their places in the images
// of a change, which hold the needed columns only.
type rule struct {
	*mapping
	// compare are the columns of which one must have changed in an UPDATE; all is set when every UPDATE counts.
	compare []int
	all     bool
	// reads are the slots of the predicate's columns; failed is what is reported when it fails.
	reads  []int
	failed string
	// doubtful: the predicate reads what the table lacks, so it counts as failed.
	doubtful bool
	keys     []keyPlan
	// origin is where in the batch the rule's origin was last, to be checked before use.
	origin uint32
}

// keyPlan is one template compiled for one table definition.
type keyPlan struct {
	*template
	parts []part
	// slots are all columns of the template.
	slots []int
	// broken: the template names what the table lacks, so none of its keys can be named.
	broken bool
	// long is what is reported when a key is too long.
	long string
}

// part is one part of a keyPlan.
type part struct {
	kind nodeKind
	lit  string
	// slot, filters, fallback: of a column. What stands for NULL goes through the filters from after on only.
	slot     int
	filters  []filter
	fallback []byte
	nullable bool
	after    int
	// span and stride: of copies. Copy i has the number (i / stride) % count.
	span   span
	stride int
	// column is the name, for explanations; lacking is what is reported when an image lacks it.
	column, lacking string
}

// Bind compiles the mappings for one table definition, and returns the columns that they need decoded: nil when no
// mapping matches the table, empty when one does that needs no column.
//
// Its error is [Problems]: a column that the table lacks, or whose type can make no key. The needs are then those of
// everything else, so that the caller can choose: to refuse the definition, or to go on, where rows count each key
// that could not be named, a `when` at fault counts as true and `columns` at fault let every UPDATE pass.
func (r *Router) Bind(t *event.Table) ([]event.Need, error) {
	p := r.planOf(t)
	return p.needs, p.err
}

// planOf returns the plan of a definition.
func (r *Router) planOf(t *event.Table) *plan {
	if r.last != nil && r.last.table == t {
		return r.last
	}
	p := r.plans[t]
	if p == nil {
		if len(r.plans) >= maxPlans {
			clear(r.plans)
		}
		p = r.compile(t)
		r.plans[t] = p
	}
	r.last = p
	return p
}

// binder compiles for one definition.
type binder struct {
	t *event.Table
	collector
	// text holds for each column that is needed whether its text is.
	text map[int]bool
}

// compile makes the plan. Rules hold ordinals of columns until all are known, and slots from then on.
func (r *Router) compile(t *event.Table) *plan {
	p := &plan{table: t, name: t.String()}
	b := &binder{t: t, text: map[int]bool{}}
	for _, m := range r.mappings {
		if m.pattern.match(t.Schema, t.Name) {
			p.rules = append(p.rules, b.rule(m))
		}
	}
	if p.rules == nil {
		return p
	}
	p.needs = make([]event.Need, 0, len(b.text))
	slots := make([]int, len(t.Columns))
	for i := range t.Columns {
		if text, needed := b.text[i]; needed {
			slots[i] = len(p.needs)
			p.needs = append(p.needs, event.Need{Column: i, Text: text})
		}
	}
	for i := range p.rules {
		p.rules[i].assign(slots)
	}
	p.err = b.err()
	return p
}

// assign turns ordinals into slots.
func (u *rule) assign(slots []int) {
	turn := func(columns []int) {
		for i, c := range columns {
			columns[i] = slots[c]
		}
	}
	turn(u.compare)
	turn(u.reads)
	for i := range u.keys {
		turn(u.keys[i].slots)
		for j := range u.keys[i].parts {
			if p := &u.keys[i].parts[j]; p.kind == nodeColumn {
				p.slot = slots[p.slot]
			}
		}
	}
}

func (b *binder) rule(m *mapping) rule {
	u := rule{mapping: m, all: len(m.spec.Columns) == 0}
	for _, t := range m.templates {
		u.keys = append(u.keys, b.key(m, t))
	}
	if m.predicate != nil {
		b.when(&u)
	}
	for i := range m.spec.Columns {
		name := &m.spec.Columns[i]
		if c := b.find(name.Value, name.at(0), "columns"); c >= 0 {
			b.need(c, false)
			u.compare = append(u.compare, c)
		} else {
			u.all = true
		}
	}
	if !u.all {
		for i := range u.keys {
			u.compare = append(u.compare, u.keys[i].slots...)
		}
		slices.Sort(u.compare)
		u.compare = slices.Compact(u.compare)
	}
	return u
}

// find returns the ordinal of a column, or -1 and a problem.
func (b *binder) find(name string, at Pos, what string) int {
	c := b.t.Column(name)
	if c < 0 {
		names := make([]string, len(b.t.Columns))
		for i := range names {
			names[i] = b.t.Columns[i].Name
		}
		b.add(at, fmt.Sprintf("%s: table %s has no column %q", what, b.t, name),
			suggest(name, names, "it has "+oneOf(names)))
	}
	return c
}

func (b *binder) need(column int, text bool) { b.text[column] = b.text[column] || text }

func (b *binder) key(m *mapping, t *template) keyPlan {
	k := keyPlan{template: t}
	k.long = sentence(t.text.at(0).String(), "a row of "+b.t.String()+" made a key longer than 64 KiB, which was not deleted",
		"put md5 or sha1 over the column that is so long")
	stride := 1
	for i := range t.parts {
		n := &t.parts[i]
		p := part{kind: n.kind, lit: n.lit, span: n.span, stride: stride}
		switch n.kind {
		case nodeCopies:
			stride *= n.span.count()
		case nodeSchema:
			p = constant(b.t.Schema, n.filters)
		case nodeTable:
			p = constant(b.t.Name, n.filters)
		case nodeColumn:
			if !b.column(&p, m, t, n) {
				k.broken = true
				continue
			}
			k.slots = append(k.slots, p.slot)
		}
		if last := len(k.parts) - 1; p.kind == nodeLiteral && last >= 0 && k.parts[last].kind == nodeLiteral {
			k.parts[last].lit += p.lit
			continue
		}
		k.parts = append(k.parts, p)
	}
	slices.Sort(k.slots)
	k.slots = slices.Compact(k.slots)
	return k
}

// constant returns a literal: the name of the schema or table, filtered once for all rows.
func constant(name string, specs []filterSpec) part {
	filters, _, _ := compileFilters(specs)
	text, _ := chain([]byte(name), 0, filters)
	return part{kind: nodeLiteral, lit: string(text)}
}

// column compiles a placeholder. False: the table has no such column, or one that makes no key.
func (b *binder) column(p *part, m *mapping, t *template, n *node) bool {
	at := t.text.at(n.at)
	what := "key " + quote(t.text.Value)
	c := b.find(n.lit, at, what)
	if c < 0 {
		return false
	}
	column := &b.t.Columns[c]
	begin, class := numericOf(column)
	if f := checkMod(begin, fmt.Sprintf("column %s of %s, %s,", column.Name, b.t, class), n.filters); f != nil {
		b.add(t.text.at(f.at), what+": "+f.what, f.do)
		return false
	}
	if column.Class == event.ClassKeyless {
		b.add(at, fmt.Sprintf("%s: column %s of %s is %s, which has no text that could be part of a key", what, column.Name, b.t, typeName(column)),
			"take another column, or a generated one that extracts what the key needs")
		return false
	}
	b.need(c, true)
	p.slot, p.column = c, column.Name
	p.filters, p.after, p.nullable = compileFilters(n.filters)
	for _, f := range n.filters {
		if f.name == "default" {
			p.fallback = []byte(f.arg)
		}
	}
	p.lacking = sentence(at.String(), fmt.Sprintf("a row image of %s lacks column %s, so a key of %q was not deleted", b.t, column.Name, t.text.Value),
		"set binlog_row_image=FULL, in every session that writes to the table")
	return true
}

// compileFilters returns the steps; those from after on are for what default put in the place of NULL.
func compileFilters(specs []filterSpec) (steps []filter, after int, nullable bool) {
	for i := range specs {
		if f := specs[i].compile(); f != nil {
			steps = append(steps, f)
		} else {
			after, nullable = len(steps), true
		}
	}
	return steps, after, nullable
}

// numericOf says whether a column's text is an integer, and what it is in words.
func numericOf(c *event.Column) (numeric, string) {
	switch {
	case c.Class == event.ClassInt || isYear(c):
		return surelyInteger, ""
	case c.Class == event.ClassUnknown:
		return maybeInteger, ""
	case c.Class == event.ClassDecimal && scaleZero(c.Type):
		return surelyInteger, ""
	}
	return surelyText, typeName(c)
}

// scaleZero reports whether the type is a DECIMAL that surely has no digits behind the point.
func scaleZero(typ string) bool {
	_, rest, ok := strings.Cut(typ, "(")
	size, _, ok2 := strings.Cut(rest, ")")
	precision, scale, both := strings.Cut(size, ",")
	return ok && ok2 && digits(strings.TrimSpace(precision)) && (!both || strings.TrimSpace(scale) == "0")
}

// when binds the predicate's columns.
func (b *binder) when(u *rule) {
	p := u.predicate
	what := "when " + quote(p.text.Value)
	found := make([]*event.Column, len(p.columns))
	for i, col := range p.columns {
		at := p.text.at(col.at)
		c := b.find(col.name, at, what)
		if c < 0 {
			u.doubtful = true
			continue
		}
		found[i] = &b.t.Columns[c]
		if found[i].Class == event.ClassKeyless {
			b.add(at, fmt.Sprintf("%s: column %s of %s is %s, which a predicate cannot read", what, found[i].Name, b.t, typeName(found[i])),
				"take another column, or a generated one that extracts what it needs")
			u.doubtful = true
			continue
		}
		b.need(c, true)
		u.reads = append(u.reads, c)
	}
	for i := range p.uses {
		if f := p.uses[i].check(p, found); f != nil {
			b.add(p.text.at(f.at), what+": "+f.what, f.do)
		}
	}
	u.failed = sentence(p.text.at(0).String(), "the predicate could not be evaluated for a row of "+b.t.String()+", and counted as true",
		"try such a row with freshet explain")
}
