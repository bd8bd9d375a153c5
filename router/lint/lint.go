package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/shape"
)

// Finding is something that works, but hardly as it was meant.
type Finding struct {
	Pos spec.Pos
	// Table is schema.table, the first one that it was found with, and More how many others it is true of.
	Table string
	More  int
	// What is wrong, and what to do about it.
	What, Do string
}

// String returns the finding as one line.
func (f Finding) String() string {
	table := f.Table
	if f.More > 0 {
		table += fmt.Sprintf(" and %d more", f.More)
	}
	return spec.Sentence(f.Pos.String(), table, f.What, f.Do)
}

// Check looks at what the mappings make from these tables for what [router.Router.Bind] must allow but few would want:
//
//   - Free text in a key, with which a row can name a key that is not its own, and any text in a key that another
//     template can make as well.
//   - FLOAT and DOUBLE in keys: their text is rounded.
//   - Collations that take for equal what is two keys.
//   - Two placeholders with nothing between them, of which two rows can make the same key.
//   - {schema} or {table} where the table has a column of that name.
//   - A `when` that looks at one image only.
//   - Two actions that write the same key, and would undo each other's work.
//   - A mapping that writes but is not for every event, a board without scores, and one whose scores are texts.
//
// Keys of templates are compared with those of all tables given, so it is best given all that are mapped. It may be
// called from any goroutine.
func Check(r *router.Router, tables ...*event.Table) []Finding {
	k := &checker{}
	for _, t := range tables {
		for _, m := range r.Mappings() {
			if m.Matches(t) {
				k.gather(m, t)
			}
		}
	}
	for i := range k.seen {
		s := &k.seen[i]
		k.clash(i, s)
		for j := range s.places {
			k.column(s, &s.places[j])
		}
		k.neighbours(s)
	}
	k.fights()
	return k.sorted()
}

type checker struct {
	findings []Finding
	seen     []sight
}

// sight is one template over one table.
type sight struct {
	by       *router.Action
	mapping  *router.Mapping
	t        *router.Template
	table    *event.Table
	places   []placeholder
	language language
	// skeleton is the template with its placeholders reduced to whether their text is the row's writer's choice.
	skeleton string
	// twin is an earlier sight that is the same but for the table's name (a shard), or -1.
	twin int
	// clash says which key it may share with another template, and which one; "" for none.
	clash string
}

// placeholder is one placeholder for a column.
type placeholder struct {
	node   *router.Node
	column *event.Column
	shape  shape.Shape
	// content: the row's writer chooses the text, however it is encoded. free: and may choose any character.
	content, free bool
	// next is the placeholder that follows at once.
	next bool
}

func (k *checker) report(at spec.Pos, t *event.Table, what, do string) {
	for i := range k.findings {
		if f := &k.findings[i]; f.Pos == at && f.What == what {
			if f.Table != t.String() {
				f.More++
			}
			return
		}
	}
	k.findings = append(k.findings, Finding{Pos: at, Table: t.String(), What: what, Do: do})
}

// sorted returns what was found in the order of the places.
func (k *checker) sorted() []Finding {
	slices.SortStableFunc(k.findings, func(a, b Finding) int { return a.Pos.Compare(b.Pos) })
	return k.findings
}

func (k *checker) gather(m *router.Mapping, t *event.Table) {
	k.when(m, t)
	k.events(m, t)
	for i := range m.Actions {
		k.score(&m.Actions[i], t)
		s := sight{t: m.Actions[i].Key, table: t, by: &m.Actions[i], mapping: m}
		if !k.sight(&s) {
			continue // Bind has said why.
		}
		s.skeleton = s.reduce()
		s.twin = slices.IndexFunc(k.seen, func(o sight) bool {
			return o.t == s.t && o.twin < 0 && slices.Equal(o.language, s.language)
		})
		k.seen = append(k.seen, s)
	}
}

// sight fills in what the template makes from the table. False: it cannot be bound.
func (k *checker) sight(s *sight) bool {
	last := -2
	for i := range s.t.Parts {
		n := &s.t.Parts[i]
		switch n.Kind {
		case router.NodeLiteral:
			s.language = s.language.literal(n.Lit)
		case router.NodeCopies:
			width := len(n.Span.Append(nil, n.Span.Count()-1))
			s.language = s.language.shape(shape.Shape{Set: shape.Bytes("0-9"), Min: max(1, n.Span.Width), Max: width})
		case router.NodeSchema, router.NodeTable:
			k.special(s, n)
		default:
			p, ok := newPlace(n, s.table)
			if !ok {
				return false
			}
			if last == i-1 {
				s.places[len(s.places)-1].next = true
			}
			last = i
			s.places = append(s.places, p)
			s.language = s.language.shape(p.shape)
		}
	}
	return true
}

func newPlace(n *router.Node, t *event.Table) (placeholder, bool) {
	c := t.Column(n.Lit)
	if c < 0 || t.Columns[c].Class == event.ClassJSON {
		return placeholder{}, false
	}
	p := placeholder{node: n, column: &t.Columns[c]}
	p.shape = shape.Of(p.column)
	switch p.column.Class {
	case event.ClassText, event.ClassBinary, event.ClassUnknown:
		p.content, p.free = true, true
	}
	for i := range n.Filters {
		p.shape = p.shape.Through(&n.Filters[i])
		p.free = p.free && !n.Filters[i].Encodes()
	}
	return p, true
}

// special adds the name of the table or schema, and tells of a column that was perhaps meant.
func (k *checker) special(s *sight, n *router.Node) {
	word, name := "table", s.table.Name
	if n.Kind == router.NodeSchema {
		word, name = "schema", s.table.Schema
	}
	s.language = s.language.literal(n.Of(name))
	if s.table.Column(word) >= 0 {
		k.report(s.t.Text.At(n.At), s.table,
			fmt.Sprintf("{%s} is the name of the %s, not what its column %s holds", word, word, word),
			fmt.Sprintf("write {`%s`} for the column", word))
	}
}

// when tells of a predicate that looks at one image only: the other kinds of change never make it true.
func (k *checker) when(m *router.Mapping, t *event.Table) {
	reads := m.Reads()
	if len(reads) == 0 {
		return
	}
	old, row := 0, 0
	for _, c := range reads {
		if c.Old {
			old++
		} else {
			row++
		}
	}
	k.nilOrder(m, t)
	at := m.Spec.When.At(0)
	switch {
	case old == 0 && m.Writes:
		// Such a mapping removes what ceases to match, also under `columns`: see membership and turned. Where it is not
		// for the UPDATE or DELETE that says so, events tells.
	case old == 0 && m.Events[event.Delete]:
		k.report(at, t, "when looks at row only, which is nil in a DELETE, and is what the row became in an UPDATE: keys "+
			"of rows that go, or cease to match, stay cached",
			"add the same for old: row.x == 1 || old.x == 1")
	case old == 0 && m.Events[event.Update]:
		k.report(at, t, "when looks at row only, which is what the row became: keys of rows that cease to match stay cached",
			"add the same for old: row.x == 1 || old.x == 1")
	case row == 0 && (m.Events[event.Insert] || m.Events[event.Update]):
		k.report(at, t, "when looks at old only, which is nil in an INSERT, and is what the row was in an UPDATE: keys of "+
			"rows that come, or begin to match, stay cached",
			"add the same for row: row.x == 1 || old.x == 1")
	}
}

// nilOrder tells of a comparison that fails in every INSERT, or in every DELETE.
func (k *checker) nilOrder(m *router.Mapping, t *event.Table) {
	for _, o := range m.Ordered() {
		kind := event.Delete
		if o.Column.Old {
			kind = event.Insert
		}
		if m.Events[kind] && !o.Guarded {
			k.report(o.Pos, t, fmt.Sprintf("%s is nil in every %s, and nil has no order: %s fails then, which counts as true "+
				"and raises an alarm", o.Column, strings.ToUpper(kind.String()), o.By),
				fmt.Sprintf("say what counts there: (%s ?? 0) %s …", o.Column, o.By))
		}
	}
}

// column tells of a column whose text makes a poor key.
func (k *checker) column(s *sight, p *placeholder) {
	at, name := s.t.Text.At(p.node.At), p.column.Name
	if p.free {
		what := p.node.String() + " is free text, with which a row can name a key that is not its own"
		if s.clash != "" {
			what += ": " + s.clash
		}
		filter := "urlencode"
		if p.column.Class == event.ClassBinary {
			filter = "hex"
		}
		do := "write " + with(p.node, filter) + " (or hex, base64 or a digest), and the same in the application"
		k.report(at, s.table, what, do)
	}
	if p.column.Class == event.ClassFloat {
		k.report(at, s.table, name+" is "+p.column.TypeName()+
			", whose text is rounded: two values can make one key, and the application may print it otherwise",
			"make it a DECIMAL, or take another column")
	}
	k.collation(s, p)
}

// with returns the placeholder as it is written with one more filter after the others.
func with(n *router.Node, filter string) string {
	c := *n
	c.Filters = append(slices.Clone(n.Filters), router.Filter{Name: filter})
	return c.String()
}

// collation tells of texts that the database takes for equal and Redis does not. Only filters before the first that
// encodes can make one key of them.
func (k *checker) collation(s *sight, p *placeholder) {
	caseless, padded := caseInsensitive(p.column.Collation), padSpace(p.column.Collation)
	for i := range p.node.Filters {
		f := &p.node.Filters[i]
		if f.Encodes() {
			break
		}
		caseless = caseless && f.Name != "lower" && f.Name != "upper"
		padded = padded && f.Name != "trim"
	}
	if p.column.Class != event.ClassText || !caseless && !padded {
		return
	}
	fixed := *p.node
	var without []string
	if caseless {
		without = append(without, "case")
		fixed.Filters = append([]router.Filter{{Name: "lower"}}, fixed.Filters...)
	}
	if padded {
		without = append(without, "trailing spaces")
		fixed.Filters = append([]router.Filter{{Name: "trim"}}, fixed.Filters...)
	}
	k.report(s.t.Text.At(p.node.At), s.table,
		fmt.Sprintf("%s is compared without %s (%s), keys are not: an application that looks a row up by another spelling "+
			"caches it under a key that no change deletes",
			p.column.Name, strings.Join(without, " and "), p.column.Collation),
		"write "+fixed.String()+" and the same in the application, or make its keys of the row that was read")
}

// caseInsensitive reports whether the collation takes upper and lower case for equal, by its name as MySQL and
// MariaDB form them: MySQL Reference Manual, 12.3.1 "Collation Naming Conventions". MariaDB's Thai collations of two
// weights do not say so in their name.
func caseInsensitive(collation string) bool {
	c := strings.ToLower(collation)
	return strings.HasSuffix(c, "_ci") || strings.Contains(c, "_ci_") || strings.HasSuffix(c, "_520_w2")
}

// padSpace reports whether the collation takes texts for equal that differ in trailing spaces: all but those on UCA
// 9.0.0 (MySQL Reference Manual, 12.10.1, "Collation Pad Attributes"), those called nopad (MariaDB), and binary.
func padSpace(collation string) bool {
	c := strings.ToLower(collation)
	return c != "" && c != "binary" && !strings.Contains(c, "_0900_") && !strings.Contains(c, "nopad")
}

// clash finds another template that can make a key of this one, where one of them holds what a row's writer chose.
// Two templates that are built alike are meant to make the same keys: a table's and that of a table next to it. A
// template with free text is told of once, with its text, and two that are encoded are told of once, at the second.
func (k *checker) clash(at int, s *sight) {
	if s.twin >= 0 {
		s.clash = k.seen[s.twin].clash
		return
	}
	for i := range k.seen {
		o := &k.seen[i]
		switch {
		case o.twin >= 0 || o.t == s.t || o.skeleton == s.skeleton || !s.content():
			continue
		case !s.free() && (o.free() || o.content() && i > at):
			continue
		}
		key, ok := common(s.language, o.language)
		if !ok {
			continue
		}
		s.clash = fmt.Sprintf("%s is also a key of %s (%s)", spec.Quote(key), spec.Quote(o.t.Text.Value), o.t.Text.At(0))
		if !s.free() {
			k.report(s.t.Text.At(0), s.table, "two templates can make the same key: "+s.clash,
				"put a word of its own before the placeholder of one of them")
		}
		return
	}
}

func (s *sight) content() bool {
	return slices.ContainsFunc(s.places, func(p placeholder) bool { return p.content })
}

func (s *sight) free() bool {
	return slices.ContainsFunc(s.places, func(p placeholder) bool { return p.free })
}

func (s *sight) reduce() string {
	var b strings.Builder
	places := s.places
	for i := range s.t.Parts {
		n := &s.t.Parts[i]
		switch {
		case n.Kind != router.NodeColumn:
			b.WriteString(n.String())
			continue
		case places[0].content:
			b.WriteString("{text}")
		default:
			b.WriteString("{}")
		}
		places = places[1:]
	}
	return b.String()
}

// neighbours tells of two placeholders side by side whose lengths both vary.
func (k *checker) neighbours(s *sight) {
	for i := range s.places {
		p := &s.places[i]
		if !p.next || p.fixed() || s.places[i+1].fixed() {
			continue
		}
		a, b := p.node.String(), s.places[i+1].node.String()
		k.report(s.t.Text.At(p.node.At), s.table, "nothing divides "+a+" from "+b+
			": two rows can make the same key, as 1 and 23 do with 12 and 3",
			"write "+a+":"+b)
	}
}

func (p *placeholder) fixed() bool { return !p.shape.Signed && p.shape.Min == p.shape.Max }
