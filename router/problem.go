package router

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a mapping.
type Problem struct {
	Pos Pos
	// What is wrong.
	What string
	// Do says what to do about it.
	Do string
}

// Error returns the problem as one line, "where: what: what to do".
func (p Problem) Error() string { return sentence(p.Pos.String(), p.What, p.Do) }

// Problems is everything that is wrong, in the order of the places. It is never empty when it is an error.
type Problems []Problem

// Error returns the problems, one line for each.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each problem as an error.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

func sentence(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// fault is what is wrong at a byte offset of a text.
type fault struct {
	at       int
	what, do string
}

// collector gathers problems.
type collector struct{ list Problems }

func (c *collector) add(at Pos, what, do string) { c.list = append(c.list, Problem{at, what, do}) }

// faults adds the faults of one text, which kind and text name: `key "user:{id": …`.
func (c *collector) faults(kind string, t *Text, fs []fault) {
	for _, f := range fs {
		c.add(t.at(f.at), kind+" "+quote(t.Value)+": "+f.what, f.do)
	}
}

// problems returns what was gathered in the order of the places, each once; nil when there is nothing.
func (c *collector) problems() Problems {
	slices.SortStableFunc(c.list, func(a, b Problem) int { return comparePos(a.Pos, b.Pos) })
	return slices.Compact(c.list)
}

// err is problems as an error: nil when there are none.
func (c *collector) err() error {
	if ps := c.problems(); len(ps) > 0 {
		return ps
	}
	return nil
}

func comparePos(a, b Pos) int {
	return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

// quote shows a text of the configuration, cut to a length that a line can take.
func quote(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}
