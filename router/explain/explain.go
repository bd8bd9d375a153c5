package explain

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
	"github.com/freshet/freshet/router"
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
	// Why says why no key was made. Next to a key it is a remark.
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
	// Does says in words what is done besides the action's name: with which field, member or value, for how long, and
	// what is sent after it. Empty for a plain delete.
	Does string
	// D is the second delete; 0: one delete only.
	D time.Duration
}

// Explain says what the mappings make from a row change. It runs the code that routes, on mappings that it compiles for
// itself, so it may be called from any goroutine. It fails when the mappings are at fault, when none of them matches
// the table, when the JSON is none, or (with a definition) when the mappings do not fit the table.
func Explain(specs []spec.Mapping, s Sample) (*Explanation, error) {
	x := &explainer{lines: map[int]int{}}
	r, err := router.New(specs, router.Options{Tracer: x})
	if err != nil {
		return nil, err
	}
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
	if x.table, err = s.table(r, row, old); err != nil {
		return nil, err
	}
	needs, err := r.Bind(x.table)
	if err != nil {
		return nil, err
	}
	c, err := s.change(x.table, row, old)
	if err != nil {
		return nil, err
	}
	// The images of a change hold the needed columns only.
	pick := func(image []event.Value) (out []event.Value) {
		if image == nil {
			return nil
		}
		for _, n := range needs {
			out = append(out, image[n.Column])
		}
		return out
	}
	c.Before, c.After = pick(c.Before), pick(c.After)
	x.out.Table, x.out.Op = x.table.String(), c.Op
	r.Route(&x.batch, c)
	return &x.out, nil
}

// explainer writes down what is made of one change.
type explainer struct {
	table *event.Table
	batch event.Batch
	out   Explanation
	// lines holds the line of each invalidation of the batch.
	lines map[int]int
}

// Rule implements [router.Tracer].
func (x *explainer) Rule(m *router.Mapping, passed string, err error) {
	line := Explained{Mapping: m.Ordinal + 1, Pattern: m.Spec.Table.Value, Pos: m.Spec.Table.At(0)}
	switch passed {
	case "events":
		line.Why = "the mapping is not for " + x.out.Op.String()
	case "columns":
		line.Why = "none of its columns changed, nor a column of a key"
		if strings.TrimSpace(m.Spec.When.Value) != "" {
			line.Why += ", nor what when says of the row"
		}
	case "when":
		line.Why, line.Pos = "when is false", m.Spec.When.At(0)
	default:
		if err == nil {
			return
		}
		line.Remark = true
		line.Why, line.Pos = "when failed, which counts as true: "+err.Error(), m.Spec.When.At(0)
	}
	x.out.Lines = append(x.out.Lines, line)
}

// line begins what is said of a key.
func line(s router.Step) Explained {
	return Explained{
		Mapping: s.Mapping.Ordinal + 1, Pattern: s.Mapping.Spec.Table.Value, Template: s.Action.Key.Text.Value,
		Pos: s.Action.Key.Text.At(0),
		Old: s.Old, Action: s.Action.Kind, D: s.Mapping.Spec.SecondDelete,
	}
}

// Added implements [router.Tracer].
func (x *explainer) Added(s router.Step, doubt string) {
	b, i := &x.batch, x.batch.Len()-1
	inv, l := &b.Invalidations[i], line(s)
	l.Key, l.Made = string(b.Pending(i)), true
	l.Action, l.Intent, l.Effect = inv.Action, inv.Intent, b.EffectOf(i)
	if s.Action.Effect != nil {
		l.Does = (&deed{x.table, s.Action, l.Intent, l.Effect, doubt}).String(b.Fields(i))
	}
	x.lines[i] = len(x.out.Lines)
	x.out.Lines = append(x.out.Lines, l)
}

// Merged implements [router.Tracer].
func (x *explainer) Merged(s router.Step, i int) {
	at, d := s.Action.Key.Text.At(0), s.Mapping.Spec.SecondDelete
	switch before := &x.out.Lines[x.lines[i]]; {
	case before.D < d:
		before.D = d
		before.Why = fmt.Sprintf("mapping %d makes it too, and its second delete is the larger", s.Mapping.Ordinal+1)
	case before.Pos != at && before.Why == "":
		before.Why = spec.Quote(s.Action.Key.Text.Value) + " makes it too"
	}
}

// Missed implements [router.Tracer].
func (x *explainer) Missed(s router.Step, why string) {
	l := line(s)
	l.Why = why
	if n := len(x.out.Lines); n == 0 || x.out.Lines[n-1].Why != why || x.out.Lines[n-1].Pos != l.Pos {
		x.out.Lines = append(x.out.Lines, l)
	}
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
