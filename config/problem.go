package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Pos is a place in the configuration. Line and Column count from 1, Column in characters; 0 means that the place is
// the whole file. For a value from the environment File is "$" and the name of the variable.
type Pos struct {
	File         string
	Line, Column int
}

// String returns file:line:column, without what is not known.
func (p Pos) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Pos Pos
	// What is wrong, with the key or the value that is. Never a secret.
	What string
	// Do says what to do about it.
	Do string
}

// Error returns the problem as one line, "where: what: what to do".
func (p Problem) Error() string {
	parts := make([]string, 0, 3)
	for _, s := range []string{p.Pos.String(), p.What, p.Do} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// Problems is the error of a configuration that cannot be used: everything that is wrong with it, sorted by place.
// Those of the file come before those of the environment. It is never empty when it is returned as an error.
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

// Report adds a problem to those that a load returns.
type Report func(at Pos, what, do string)

// Check looks at a configuration for problems that this package cannot know of. It is called on every load, also
// when there are problems already; c then holds what could be read: every mapping in it has a table and something to do,
// and every action that it has is whole. It must not keep c.
type Check func(c *Config, report Report)

// collector gathers problems.
type collector struct{ list Problems }

func (c *collector) report(at Pos, what, do string) {
	c.list = append(c.list, Problem{at, what, do})
}

// fault is what is wrong with a value and what to do, without saying where.
type fault struct{ what, do string }

// at reports a key's fault: what goes on from the key's name ("is empty"), or stands by itself.
func (c *collector) at(pos Pos, path string, f *fault) {
	between := ": "
	if strings.HasPrefix(f.what, "is ") || strings.HasPrefix(f.what, "has ") {
		between = " "
	}
	c.report(pos, path+between+f.what, f.do)
}

// err returns the problems in the order of their places, or nil when there are none. The same problem can be met
// twice where an alias stands for it; it is told once.
func (c *collector) err() error {
	if len(c.list) == 0 {
		return nil
	}
	slices.SortStableFunc(c.list, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(environment(a.Pos), environment(b.Pos)),
			strings.Compare(a.Pos.File, b.Pos.File),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
		)
	})
	return slices.Compact(c.list)
}

// environment orders the file before the variables.
func environment(p Pos) int {
	if strings.HasPrefix(p.File, "$") {
		return 1
	}
	return 0
}
