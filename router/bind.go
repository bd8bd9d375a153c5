package router

import (
	"fmt"
	"slices"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// plan is all that the mappings do with the rows of one table definition.
type plan struct {
	table *event.Table
	name  string
	needs []event.Need
	rules []rule
	// counts: one of the rules has an incr.
	counts bool
	err    error
	// bytes is what it weighs.
	bytes int
}

// rule is one mapping compiled for one table definition. Columns stand in it as slots: their places in the images
// of a change, which hold the needed columns only.
type rule struct {
	*Mapping
	// compare are the columns of which one must have changed in an UPDATE; all is set when every UPDATE counts.
	compare []int
	all     bool
	// reads are the slots of the predicate's columns; failed is what is reported when it fails.
	reads  []int
	failed string
	// doubtful: the predicate reads what the table lacks, so it counts as failed.
	doubtful bool
	// plain are the deletes and no more; effects are the other actions, those together that share an effect; counters
	// is the incr, which comes last.
	plain    []act
	effects  [][]act
	counters []act
	// origin is where in the batch the rule's origin was last, to be checked before use.
	origin uint32
	// counting: the row under way asks for the rule's counters.
	counting bool
}

// act is one action compiled for one table definition.
type act struct {
	*Action
	key *textPlan
	// field and value are nil where the action has none.
	field, value *textPlan
	// row is what a rebuilt value, or the parameters of its query, are made of; nil where a template makes it.
	row *rowPlan
	// channel, message and stream are nil where nothing is sent.
	channel, message, stream *textPlan
	// unfit is what is reported when a score is no number.
	unfit string
	// identity are the slots of all columns that tell whose key, field or member it is.
	identity []int
}

// Bind compiles the mappings for one table definition, and returns the columns that they need decoded: nil when no
// mapping matches the table, empty when one does that needs no column.
//
// Its error is [spec.Problems]: a column that the table lacks, or whose type can make no key. The needs are then those
// of everything else, so that the caller can choose: to refuse the definition, or to go on, where rows count each key
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
	p := r.plans.of[t]
	if p == nil {
		p = r.compile(t)
		r.plans.keep(t, p)
	}
	r.last = p
	return p
}

// binder compiles for one definition.
type binder struct {
	t *event.Table
	spec.Collector
	// texts and columns are what was bound, in ordinals until they are assigned.
	texts   []*textPlan
	columns [][]int
	// needed holds for each column that is needed whether its text is.
	needed map[int]bool
}

// compile makes the plan. Rules hold ordinals of columns until all are known, and slots from then on.
func (r *Router) compile(t *event.Table) *plan {
	p := &plan{table: t, name: t.String()}
	b := &binder{t: t, needed: map[int]bool{}}
	for _, m := range r.mappings {
		if m.Matches(t) {
			p.rules = append(p.rules, b.rule(m))
			p.counts = p.counts || m.counts
		}
	}
	if p.rules == nil {
		return p
	}
	p.needs = make([]event.Need, 0, len(b.needed))
	slots := make([]int, len(t.Columns))
	for i := range t.Columns {
		if text, needed := b.needed[i]; needed {
			slots[i] = len(p.needs)
			p.needs = append(p.needs, event.Need{Column: i, Text: text})
		}
	}
	b.assign(slots)
	p.err = b.Err()
	return p
}

// assign turns the ordinals of everything that was bound into slots.
func (b *binder) assign(slots []int) {
	for _, columns := range b.columns {
		for i, c := range columns {
			columns[i] = slots[c]
		}
	}
	for _, t := range b.texts {
		for i := range t.parts {
			if p := &t.parts[i]; p.kind == NodeColumn {
				p.slot = slots[p.slot]
			}
		}
	}
}

func (b *binder) rule(m *Mapping) rule {
	u := rule{Mapping: m, all: len(m.Spec.Columns) == 0}
	b.acts(&u)
	if m.predicate != nil {
		b.when(&u)
	}
	for i := range m.Spec.Columns {
		name := &m.Spec.Columns[i]
		if c := b.find(name.Value, name.At(0), "columns"); c >= 0 {
			b.need(c, false)
			u.compare = append(u.compare, c)
		} else {
			u.all = true
		}
	}
	if !u.all {
		u.compare = distinct(u.compare)
	}
	b.columns = append(b.columns, u.compare, u.reads)
	return u
}

// acts compiles the actions. What the keys of one action have in common is compiled once.
func (b *binder) acts(u *rule) {
	var group []act
	for i := range u.Actions {
		a := &u.Actions[i]
		x := act{Action: a, key: b.text(a.Key, a.lost())}
		if len(group) > 0 && group[0].Effect == a.Effect {
			first := &group[0]
			x.value, x.row, x.channel, x.message, x.stream = first.value, first.row, first.channel, first.message, first.stream
		} else {
			u.add(group)
			group = nil
			b.shared(&x)
		}
		if a.Field != nil {
			x.field = b.text(a.Field, "so the whole key was deleted")
		}
		x.identity = append([]int(nil), x.key.slots...)
		if x.field != nil {
			x.identity = append(x.identity, x.field.slots...)
		}
		x.identity = distinct(x.identity)
		if !u.all {
			u.compare = append(u.compare, x.named()...)
		}
		b.columns = append(b.columns, x.identity)
		group = append(group, x)
	}
	u.add(group)
}

// add adds the actions that share an effect.
func (u *rule) add(group []act) {
	switch {
	case len(group) == 0:
	case group[0].Effect == nil:
		u.plain = group
	case group[0].Kind == event.ActionIncr:
		u.counters = group
	default:
		u.effects = append(u.effects, group)
	}
}

// shared compiles what all keys of the action have in common.
func (b *binder) shared(x *act) {
	const instead = "so what it makes was deleted instead of written"
	if a := x.Action; a.Kind == event.ActionZSet && a.Value != nil {
		x.unfit = spec.Sentence(a.Value.Text.At(0).String(), "a row of "+b.t.String()+
			" made a score that is no number, so the whole key was deleted",
			"take a number column")
	}
	if x.value == nil && x.Action.Value != nil {
		x.value = b.text(x.Action.Value, instead)
	}
	if r := x.rebuild; r != nil && x.Action.Value == nil {
		x.row = b.rebuilt(r, instead)
	}
	if n := x.Notices; n != nil {
		if n.Channel != nil {
			x.channel, x.message = b.text(n.Channel, "so nothing was published"), b.text(n.Message, "so nothing was published")
		}
		if n.Stream != nil {
			x.stream = b.text(n.Stream, "so nothing was added to the stream")
		}
	}
}

// lost says what becomes of a key that cannot be named.
func (a *Action) lost() string {
	if a.Kind == event.ActionDelete {
		return fmt.Sprintf("so a key of %q was not deleted", a.Key.Text.Value)
	}
	return fmt.Sprintf("so a key of %q was left as it was", a.Key.Text.Value)
}

// named returns the columns that the action's own templates, or the parameters of its query, name. Those of a document
// are not among them: `columns` may leave some of these out on purpose.
func (x *act) named() []int {
	out := append([]int(nil), x.identity...)
	if x.value != nil {
		out = append(out, x.value.slots...)
	}
	if x.row != nil && x.row.doc == nil {
		out = append(out, x.row.slots...)
	}
	return out
}

func distinct(columns []int) []int {
	slices.Sort(columns)
	return slices.Compact(columns)
}

// find returns the ordinal of a column, or -1 and a problem.
func (b *binder) find(name string, at spec.Pos, what string) int {
	c := b.t.Column(name)
	if c < 0 {
		names := make([]string, len(b.t.Columns))
		for i := range names {
			names[i] = b.t.Columns[i].Name
		}
		b.Add(at, fmt.Sprintf("%s: table %s has no column %q", what, b.t, name),
			spec.Suggest(name, names, "it has "+spec.Names(names)))
	}
	return c
}

func (b *binder) need(column int, text bool) { b.needed[column] = b.needed[column] || text }

// when binds the predicate's columns.
func (b *binder) when(u *rule) {
	p := u.predicate
	what := "when " + spec.Quote(p.text.Value)
	found := make([]*event.Column, len(p.columns))
	for i, col := range p.columns {
		at := p.text.At(col.at)
		c := b.find(col.Name, at, what)
		if c < 0 {
			u.doubtful = true
			continue
		}
		found[i] = &b.t.Columns[c]
		if found[i].Class == event.ClassJSON {
			b.Add(at, fmt.Sprintf("%s: column %s of %s is %s, which a predicate cannot read", what, found[i].Name, b.t,
				found[i].TypeName()),
				"take another column, or a generated one that extracts what it needs")
			u.doubtful = true
			continue
		}
		b.need(c, true)
		u.reads = append(u.reads, c)
	}
	for i := range p.uses {
		if f := p.uses[i].check(p, found); f != nil {
			b.Add(p.text.At(f.at), what+": "+f.what, f.do)
		}
	}
	u.failed = spec.Sentence(p.text.At(0).String(), "the predicate could not be evaluated for a row of "+b.t.String()+
		", and counted as true",
		"try such a row with freshet explain")
}
