package spec

import (
	"slices"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Pos Pos
	// What is wrong, with the key or the value that is. Never a secret.
	What string
	// Do says what to do about it.
	Do string
}

// Error returns the problem as one line, "where: what: what to do".
func (p Problem) Error() string { return Sentence(p.Pos.String(), p.What, p.Do) }

// Problems is everything that is wrong, in the order of the places ([Pos.Compare]). It is never empty when it is
// returned as an error.
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

// Collector gathers problems. The zero value is ready.
type Collector struct{ found Problems }

// Add adds a problem.
func (c *Collector) Add(at Pos, what, do string) { c.found = append(c.found, Problem{at, what, do}) }

// Problems returns what was added in the order of the places, each once: the same problem can be met twice, where an
// alias stands for it. Nil when there is nothing.
func (c *Collector) Problems() Problems {
	slices.SortStableFunc(c.found, func(a, b Problem) int { return a.Pos.Compare(b.Pos) })
	return slices.Compact(c.found)
}

// Err is [Collector.Problems] as an error: nil when there are none.
func (c *Collector) Err() error {
	if ps := c.Problems(); len(ps) > 0 {
		return ps
	}
	return nil
}
