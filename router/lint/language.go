package lint

import (
	"slices"
	"strings"

	"github.com/freshet/freshet/router/shape"
)

// bounded is the longest max that a language writes out.
const bounded = 64

// language is what a template can make: a sequence of atoms.
type language []atom

// atom reads one byte of a set and goes on to the atom that stands `past` further, or reads nothing and goes on to
// the one that stands `skip` further; 0 for must read. So {past: 1} is once, {past: 1, skip: 1} at most once and
// {past: 0, skip: 1} any number of times.
type atom struct {
	set        shape.Set
	past, skip int
}

func (l language) literal(text string) language {
	for i := range len(text) {
		var s shape.Set
		s.Add(text[i])
		l = append(l, atom{set: s, past: 1})
	}
	return l
}

func (l language) shape(s shape.Shape) language {
	if s.Signed {
		l = append(l, atom{set: shape.Bytes("-"), past: 1, skip: 1})
	}
	for range min(s.Min, bounded) {
		l = append(l, atom{set: s.Set, past: 1})
	}
	unit := max(1, s.Unit)
	if s.Max > bounded {
		l = l.unit(s.Set, unit)
		l[len(l)-1].past = 1 - unit // back to the unit's first
		return l
	}
	for range (s.Max - s.Min) / unit {
		l = l.unit(s.Set, unit)
	}
	return l
}

// unit adds n bytes of a set, or none.
func (l language) unit(set shape.Set, n int) language {
	first := len(l)
	for range n {
		l = append(l, atom{set: set, past: 1})
	}
	l[first].skip = n
	return l
}

// maxStates bounds the search for a common key. Templates that need more are too long to look at.
const maxStates = 1 << 20

// common returns a shortest key that both languages have, and whether there is one. It walks both at once, key by
// key length: a state is how far each has come.
func common(a, b language) (string, bool) {
	width := len(b) + 1
	if (len(a)+1)*width > maxStates || !sameStart(a, b) {
		return "", false
	}
	// A step leads to a state by reading c, or by reading nothing.
	type step struct {
		from, to int
		c        byte
		read     bool
	}
	came := make([]step, (len(a)+1)*width)
	seen := make([]bool, len(came))
	for level := []step{{}}; len(level) > 0; {
		var next []step
		for len(level) > 0 {
			s := level[len(level)-1]
			level = level[:len(level)-1]
			if seen[s.to] {
				continue
			}
			seen[s.to], came[s.to] = true, s
			i, j := s.to/width, s.to%width
			if i < len(a) && a[i].skip > 0 {
				level = append(level, step{from: s.to, to: s.to + a[i].skip*width})
			}
			if j < len(b) && b[j].skip > 0 {
				level = append(level, step{from: s.to, to: s.to + b[j].skip})
			}
			if i == len(a) || j == len(b) {
				continue
			}
			if c, ok := example(a[i].set.And(b[j].set)); ok {
				next = append(next, step{s.to, (i+a[i].past)*width + j + b[j].past, c, true})
			}
		}
		level = next
	}
	end := len(came) - 1
	if !seen[end] {
		return "", false
	}
	var key []byte
	for at := end; at != 0; at = came[at].from {
		if came[at].read {
			key = append(key, came[at].c)
		}
	}
	slices.Reverse(key)
	return string(key), true
}

// sameStart compares what both languages must begin with.
func sameStart(a, b language) bool {
	for i := range min(len(a), len(b)) {
		if a[i] != (atom{set: a[i].set, past: 1}) || b[i] != (atom{set: b[i].set, past: 1}) {
			return true
		}
		if a[i].set.And(b[i].set) == (shape.Set{}) {
			return false
		}
	}
	return true
}

// example picks a byte of the set that reads well.
func example(s shape.Set) (byte, bool) {
	const best = "1a:-x"
	if i := strings.IndexFunc(best, func(r rune) bool { return s.Has(byte(r)) }); i >= 0 {
		return best[i], true
	}
	for _, from := range []int{'!', 0} {
		for c := from; c < 256; c++ {
			if s.Has(byte(c)) {
				return byte(c), true
			}
		}
	}
	return 0, false
}
