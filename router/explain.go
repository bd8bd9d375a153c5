package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// Explanation says what is done to which keys after a row change, and why others are left alone.
type Explanation struct {
	// Table is schema.table.
	Table string
	Op    event.Op
	Lines []Explained
}

// Explained is one invalidation, or the reason why there is none.
type Explained struct {
	// Key is the key; empty when Why says that there is none.
	Key string
	// Why says why no key was made. Beside a key it is a remark.
	Why string
	// Made says whether Key is one. Remark says that Why is no reason for none: keys of the mapping follow.
	Made, Remark bool
	// Mapping is the mapping's place in the configuration, from 1, and Pattern its table.
	Mapping int
	Pattern string
	// Template is the key's template and Pos its place; the mapping's when Why concerns all of its keys.
	Template string
	Pos      spec.Pos
	// Old says that the key is that of the row before the change.
	Old    bool
	Action event.Action
	Intent event.Intent
	// Effect is nil for a plain delete.
	Effect *event.Effect
	// Does says in words what is done beside the action's name: with which field, member or value, for how long, and
	// what is sent after it. Empty for a plain delete.
	Does string
	// D is the second delete; 0: one delete only.
	D time.Duration
}

// Explain says what the mappings make of a row change. It runs the code that Route does, on mappings compiled
// anew, so it may be called from any goroutine. It fails when no mapping matches the table, when the JSON is none,
// or (with a definition) when the mappings do not fit the table.
func (r *Router) Explain(s Sample) (*Explanation, error) {
	own, err := New(r.specs, Options{})
	if err != nil {
		return nil, err
	}
	return own.explain(&s)
}

func (r *Router) explain(s *Sample) (*Explanation, error) {
	row, err := parseFields(s.Row, "row")
	if err != nil {
		return nil, err
	}
	old, err := parseFields(s.Old, "old row")
	if err != nil {
		return nil, err
	}
	if row == nil && old == nil {
		return nil, errors.New("there is no row: write an object of columns, such as {\"id\": 17}")
	}
	t, err := r.sampleTable(s, row, old)
	if err != nil {
		return nil, err
	}
	p := r.planOf(t)
	if p.err != nil {
		return nil, p.err
	}
	full, err := s.change(t, row, old)
	if err != nil {
		return nil, err
	}
	// The images of a change hold the needed columns only.
	pick := func(image []event.Value) (out []event.Value) {
		if image == nil {
			return nil
		}
		for _, n := range p.needs {
			out = append(out, image[n.Column])
		}
		return out
	}
	full.Before, full.After = pick(full.Before), pick(full.After)
	r.trace = &explainer{lines: map[int]int{}, out: Explanation{Table: t.String(), Op: full.Op}}
	r.Route(&event.Batch{}, full)
	return &r.trace.out, nil
}

// sampleTable returns the table's definition: the given one, or one made of all that is named.
func (r *Router) sampleTable(s *Sample, row, old fields) (*event.Table, error) {
	name, faults := parsePattern(s.Table)
	exact, ok := name.exact()
	if len(faults) > 0 || !ok {
		return nil, fmt.Errorf("%s is no table: write schema.table", spec.Quote(s.Table))
	}
	if !r.Wants(exact.schema, exact.table) {
		var patterns []string
		for _, m := range r.mappings {
			patterns = append(patterns, m.spec.Table.Value)
		}
		return nil, errors.New(spec.Sentence("no mapping matches "+s.Table, spec.Suggest(s.Table, patterns, "mappings are for "+spec.Names(patterns))))
	}
	if t := s.Definition; t != nil {
		return t, errors.Join(unknownFields(t, "row", row), unknownFields(t, "old row", old))
	}
	t := &event.Table{Schema: exact.schema, Name: exact.table}
	add := func(name string) {
		if t.Column(name) < 0 {
			t.Columns = append(t.Columns, event.Column{Name: name})
		}
	}
	for _, name := range sortedNames(row, old) {
		add(name)
	}
	for _, m := range r.mappings {
		if m.pattern.match(exact.schema, exact.table) {
			m.named(add)
		}
	}
	return t, nil
}

// named calls f with each column that the mapping names.
func (m *mapping) named(f func(string)) {
	for i := range m.actions {
		for _, t := range m.actions[i].templates() {
			for j := range t.parts {
				if t.parts[j].kind == nodeColumn {
					f(t.parts[j].lit)
				}
			}
		}
		if r := m.actions[i].rebuild; r != nil {
			for _, c := range r.columns {
				f(c.column)
			}
			if r.query != nil {
				for _, p := range r.query.Params {
					f(p.Name)
				}
			}
		}
	}
	for _, c := range m.spec.Columns {
		f(c.Value)
	}
	if m.predicate != nil {
		for _, c := range m.predicate.columns {
			f(c.name)
		}
	}
}

// templates returns all templates of the action.
func (a *action) templates() []*template {
	all := []*template{a.key, a.field, a.value}
	if n := a.notices; n != nil {
		all = append(all, n.channel, n.message, n.stream)
	}
	return slices.DeleteFunc(all, func(t *template) bool { return t == nil })
}

// explainer writes down what Route makes of one change.
type explainer struct {
	out Explanation
	// lines holds the line of each invalidation.
	lines map[int]int
}

// rule is told what a mapping says of the change.
func (x *explainer) rule(r *run, v verdict, err error) {
	u := r.u
	line := Explained{Mapping: u.ordinal + 1, Pattern: u.spec.Table.Value, Pos: u.spec.Table.At(0)}
	switch v {
	case wrongEvent:
		line.Why = "the mapping is not for " + r.c.Op.String()
	case unchanged:
		line.Why = "none of its columns changed, nor a column of a key"
		if u.predicate != nil {
			line.Why += ", nor what when says of the row"
		}
	case predicateFalse:
		line.Why, line.Pos = "when is false", u.spec.When.At(0)
	default:
		if err == nil {
			return
		}
		line.Remark = true
		line.Why, line.Pos = "when failed, which counts as true: "+err.Error(), u.spec.When.At(0)
	}
	x.out.Lines = append(x.out.Lines, line)
}

// line begins what is said of a key of the action.
func (x *explainer) line(r *run, a *act, image []event.Value) Explained {
	old := r.c.Op == event.Update && len(image) > 0 && &image[0] == &r.c.Before[0] && !same(a.identity, r.c)
	return Explained{
		Mapping: r.u.ordinal + 1, Pattern: r.u.spec.Table.Value, Template: a.key.text.Value, Pos: a.key.text.At(0),
		Old: old, Action: a.kind, D: r.u.d,
	}
}

// added is told of the invalidation that was added last.
func (x *explainer) added(r *run, a *act, image []event.Value, f *filling) {
	i := r.b.Len() - 1
	inv := &r.b.Invalidations[i]
	line := x.line(r, a, image)
	line.Key, line.Made = string(r.b.Pending(i)), true
	line.Action, line.Intent, line.Effect = inv.Action, inv.Intent, r.b.EffectOf(i)
	if f != nil {
		line.Does = does(a, f)
	}
	x.lines[i] = len(x.out.Lines)
	x.out.Lines = append(x.out.Lines, line)
}

// merged is told that an invalidation is the same as one that was added before.
func (x *explainer) merged(r *run, a *act, same int) {
	switch before := &x.out.Lines[x.lines[same]]; {
	case before.D < r.u.d:
		before.D = r.u.d
		before.Why = fmt.Sprintf("mapping %d makes it too, and its second delete is the larger", r.u.ordinal+1)
	case before.Pos != a.key.text.At(0) && before.Why == "":
		before.Why = spec.Quote(a.key.text.Value) + " makes it too"
	}
}

// missed is told why nothing was made of an image.
func (x *explainer) missed(r *run, a *act, image []event.Value, why string) {
	line := x.line(r, a, image)
	line.Why = why
	if n := len(x.out.Lines); n == 0 || x.out.Lines[n-1].Why != why || x.out.Lines[n-1].Pos != line.Pos {
		x.out.Lines = append(x.out.Lines, line)
	}
}

// why says in words why a text was not made.
func (k *textPlan) why(out outcome, at int) string {
	switch out {
	case tooLong:
		return fmt.Sprintf("the %s is longer than %d KiB", k.role, k.most>>10)
	case unnamed:
		return fmt.Sprintf("the %s names what the table lacks", k.role)
	}
	column := k.parts[at].column
	switch out {
	case isNull:
		return column + " is NULL"
	case notNumber:
		return column + " is no integer, which mod needs"
	}
	return "the row does not say " + column
}

// Keys returns the keys that were made.
func (x *Explanation) Keys() []string {
	var keys []string
	for _, l := range x.Lines {
		if l.Made {
			keys = append(keys, l.Key)
		}
	}
	return keys
}

// String returns a line for each key, and for each reason why there is none.
func (x *Explanation) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, l := range x.Lines {
		fmt.Fprintln(w, l.String())
	}
	// A strings.Builder does not fail.
	_ = w.Flush()
	return b.String()
}

// String returns the line, its fields divided by tabs: key, action, template, place, what it does, and a remark.
func (l *Explained) String() string {
	from := fmt.Sprintf("mapping %d (%s)", l.Mapping, l.Pattern)
	if l.Template != "" {
		from = spec.Quote(l.Template)
	}
	fields := []string{"-", "no key", from, l.Pos.String(), l.Why}
	if l.Remark {
		fields[1] = "remark"
	}
	if l.Made {
		fields[0] = printable(l.Key)
		fields[1] = l.Action.String() + ", once"
		if l.D > 0 {
			fields[1] = fmt.Sprintf("%s, again after %s", l.Action, l.D)
		}
		if l.Old && l.Why == "" {
			fields[4] = "old row"
		}
		fields[4] = strings.Join(slices.DeleteFunc([]string{l.Does, fields[4]}, func(s string) bool { return s == "" }), "; ")
	}
	return strings.TrimRight(strings.Join(fields, "\t"), "\t")
}

// printable quotes a key that a terminal, or the columns of the table, could not show.
func printable(key string) string {
	plain := strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }) < 0
	if plain && key != "" && utf8.ValidString(key) && key != "-" {
		return key
	}
	return fmt.Sprintf("%q", key)
}
