package router

import (
	"fmt"
	"strings"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
)

// textPlan is one template compiled for one table definition.
type textPlan struct {
	*Template
	parts []part
	// slots are all columns of the template.
	slots []int
	// most is the most bytes that it makes.
	most int
	// broken: the template names what the table lacks, so it makes nothing.
	broken bool
	// long is what is reported when it makes more than that; lost, what comes of whatever goes wrong.
	long, lost string
}

// part is one part of a textPlan.
type part struct {
	kind NodeKind
	lit  string
	// slot, filters, fallback: of a column. What stands for NULL goes through the filters from after on only.
	slot     int
	filters  []filterFunc
	fallback []byte
	nullable bool
	after    int
	// span and stride: of copies. Copy i has the number (i / stride) % count.
	span   Span
	stride int
	// column is the name, for explanations; lacking is what is reported when an image lacks it.
	column, lacking string
}

// text compiles a template; lost says what comes of it when it makes nothing.
func (b *binder) text(t *Template, lost string) *textPlan {
	k := &textPlan{Template: t, most: t.role.most(), lost: lost}
	k.long = spec.Sentence(t.Text.At(0).String(),
		fmt.Sprintf("a row of %s made a %s longer than %d KiB, %s", b.t, t.role, k.most>>10, lost), t.role.shorten())
	stride := 1
	for i := range t.Parts {
		n := &t.Parts[i]
		p := part{kind: n.Kind, lit: n.Lit, span: n.Span, stride: stride}
		switch n.Kind {
		case NodeCopies:
			stride *= n.Span.Count()
		case NodeSchema:
			p = constant(b.t.Schema, n.Filters)
		case NodeTable:
			p = constant(b.t.Name, n.Filters)
		case NodeColumn:
			if !b.column(&p, k, n) {
				k.broken = true
				continue
			}
			k.slots = append(k.slots, p.slot)
		}
		if last := len(k.parts) - 1; p.kind == NodeLiteral && last >= 0 && k.parts[last].kind == NodeLiteral {
			k.parts[last].lit += p.lit
			continue
		}
		k.parts = append(k.parts, p)
	}
	k.slots = distinct(k.slots)
	b.texts, b.columns = append(b.texts, k), append(b.columns, k.slots)
	return k
}

// constant returns a literal: the name of the schema or table, filtered once for all rows.
func constant(name string, specs []Filter) part {
	filters, _, _ := compileFilters(specs)
	text, _ := chain([]byte(name), 0, filters)
	return part{kind: NodeLiteral, lit: string(text)}
}

// column compiles a placeholder. False: the table has no such column, or one that makes no key.
func (b *binder) column(p *part, k *textPlan, n *Node) bool {
	t := k.Template
	at := t.Text.At(n.At)
	what := t.role.String() + " " + spec.Quote(t.Text.Value)
	c := b.find(n.Lit, at, what)
	if c < 0 {
		return false
	}
	column := &b.t.Columns[c]
	begin, class := numericOf(column)
	if f := checkMod(begin, fmt.Sprintf("column %s of %s, %s,", column.Name, b.t, class), n.Filters); f != nil {
		b.Add(t.Text.At(f.at), what+": "+f.what, f.do)
		return false
	}
	if f := t.role.check(column); f != nil {
		b.Add(at, fmt.Sprintf("%s: column %s of %s is %s, %s", what, column.Name, b.t, column.TypeName(), f.what), f.do)
		return false
	}
	b.need(c, true)
	p.slot, p.column = c, column.Name
	p.filters, p.after, p.nullable = compileFilters(n.Filters)
	for _, f := range n.Filters {
		if f.Name == "default" {
			p.fallback = []byte(f.Arg)
		}
	}
	p.lacking = spec.Sentence(at.String(), fmt.Sprintf("a row image of %s lacks column %s, %s", b.t, column.Name, k.lost),
		imageAdvice(column))
	return true
}

// imageAdvice is what to do when row images lack a column.
func imageAdvice(c *event.Column) string {
	if c.Computed {
		return "take the columns that it is computed from, or a plain one that a BEFORE trigger fills, since MariaDB 11.8 " +
			"leaves computed columns out of row images; older versions need binlog_row_image=FULL"
	}
	return "set binlog_row_image=FULL, in every session that writes to the table"
}

// check returns what is wrong with a column in a template of the role.
func (r role) check(c *event.Column) *fault {
	switch {
	case c.Class == event.ClassJSON && !r.holdsJSON():
		return &fault{
			what: "which cannot be part of a " + r.String(),
			do:   "take another column, or a generated one that extracts what the " + r.String() + " needs",
		}
	case r == roleScore && !mayBeScore(c):
		return &fault{
			what: "which is no number, as a score must be",
			do:   "take a number, or a generated column that makes one of it",
		}
	}
	return nil
}

// mayBeScore reports whether the column's text can be a number.
func mayBeScore(c *event.Column) bool {
	switch c.Class {
	case event.ClassTemporal:
		return c.IsYear()
	case event.ClassUUID, event.ClassInet:
		return false
	}
	return true
}

// shorten says what to do about a text that is too long.
func (r role) shorten() string {
	if r == roleValue {
		return "leave the column out that is so large"
	}
	return "put a digest such as sha256 over the column that is so long"
}

// compileFilters returns the steps; those from after on are for what default put in the place of NULL.
func compileFilters(specs []Filter) (steps []filterFunc, after int, nullable bool) {
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
	case c.Class == event.ClassInt || c.IsYear():
		return surelyInteger, ""
	case c.Class == event.ClassUnknown:
		return maybeInteger, ""
	case c.Class == event.ClassDecimal && scaleZero(c.Type):
		return surelyInteger, ""
	}
	return surelyText, c.TypeName()
}

// scaleZero reports whether the type is a DECIMAL that surely has no digits after the point.
func scaleZero(typ string) bool {
	_, rest, ok := strings.Cut(typ, "(")
	size, _, ok2 := strings.Cut(rest, ")")
	precision, scale, both := strings.Cut(size, ",")
	return ok && ok2 && digits(strings.TrimSpace(precision)) && (!both || strings.TrimSpace(scale) == "0")
}
