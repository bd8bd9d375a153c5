package lint

import (
	"slices"
	"strings"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *byteSet) remove(c byte)   { s[c>>6] &^= 1 << (c & 63) }
func (s *byteSet) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

func (s byteSet) and(o byteSet) byteSet {
	return byteSet{s[0] & o[0], s[1] & o[1], s[2] & o[2], s[3] & o[3]}
}

func (s byteSet) or(o byteSet) byteSet {
	return byteSet{s[0] | o[0], s[1] | o[1], s[2] | o[2], s[3] | o[3]}
}

// bytesOf returns the set of the text's bytes; a-z within it stands for a range.
func bytesOf(text string) byteSet {
	var s byteSet
	for i := 0; i < len(text); i++ {
		if i+2 < len(text) && text[i+1] == '-' {
			for c := int(text[i]); c <= int(text[i+2]); c++ {
				s.add(byte(c))
			}
			i += 2
			continue
		}
		s.add(text[i])
	}
	return s
}

func anyByte() byteSet { return byteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)} }

// shape is what the text of a placeholder can be: between min and max bytes of a set, after a minus sign if signed.
// With a unit above 1 it is min bytes and any number of units.
type shape struct {
	set      byteSet
	min, max int
	signed   bool
	unit     int
}

// endless is the max of a shape without one.
const endless = 1 << 30

// bounded is the longest max that a language writes out.
const bounded = 64

// shapeOf returns the shape of a column's text.
func shapeOf(c *event.Column) shape {
	switch c.Class {
	case event.ClassInt:
		if strings.Contains(strings.ToLower(c.Type), "zerofill") {
			return shape{set: bytesOf("0-9"), min: 1, max: endless}
		}
		return shape{set: bytesOf("0-9"), min: 1, max: 20, signed: !c.Unsigned}
	case event.ClassDecimal:
		return shape{set: bytesOf("0-9."), min: 1, max: endless, signed: true}
	case event.ClassFloat:
		return shape{set: bytesOf("0-9.e+").or(bytesOf("-")), min: 1, max: endless}
	case event.ClassTemporal:
		if c.IsYear() {
			return shape{set: bytesOf("0-9"), min: 1, max: 4}
		}
		return shape{set: bytesOf("0-9:. ").or(bytesOf("-")), min: 1, max: endless}
	case event.ClassUUID:
		return shape{set: bytesOf("0-9a-f").or(bytesOf("-")), min: 36, max: 36}
	case event.ClassInet:
		return shape{set: bytesOf("0-9a-f:."), min: 1, max: endless}
	}
	return shape{set: anyByte(), min: 0, max: endless}
}

// through returns the shape of what a filter makes from the text. It may hold more than the filter can make, never
// less.
func (s shape) through(f *router.Filter) shape {
	hexits := bytesOf("0-9a-f")
	switch f.Name {
	case "lower", "upper":
		for c := byte('A'); c <= 'Z'; c++ {
			gone, stays := c, c+'a'-'A'
			if f.Name == "upper" {
				gone, stays = stays, gone
			}
			if s.set.has(gone) {
				s.set.remove(gone)
				s.set.add(stays)
			}
		}
		return s
	case "md5":
		return shape{set: hexits, min: 32, max: 32}
	case "sha1":
		return shape{set: hexits, min: 40, max: 40}
	case "crc32":
		return shape{set: bytesOf("0-9"), min: 1, max: 10}
	case "mod":
		return shape{set: bytesOf("0-9"), min: 1, max: len(f.Arg), signed: s.signed || s.set.has('-')}
	}
	s = s.unsigned()
	s.unit = 0
	switch f.Name {
	case "trim":
		s.min = 0
	case "hex":
		return shape{set: hexits, min: 2 * s.min, max: times(s.max, 2), unit: 2}
	case "base64":
		return shape{set: bytesOf("A-Za-z0-9+/="), min: (s.min + 2) / 3 * 4, max: (times(s.max, 1) + 2) / 3 * 4, unit: 4}
	case "urlencode":
		if plain := bytesOf("A-Za-z0-9._~").or(bytesOf("-")); s.set.and(plain) != s.set {
			s.set, s.max = plain.or(bytesOf("%")), times(s.max, 3)
		}
	case "pad":
		s.set.add('0')
		s.min, s.max = max(s.min, int(f.N)), max(s.max, int(f.N))
	case "default":
		for i := range len(f.Arg) {
			s.set.add(f.Arg[i])
		}
		s.min, s.max = min(s.min, len(f.Arg)), max(s.max, len(f.Arg))
	default:
		return shape{set: anyByte(), max: endless}
	}
	return s
}

// unsigned counts the sign among the other bytes.
func (s shape) unsigned() shape {
	if s.signed {
		s.set.add('-')
		s.max, s.signed = times(s.max, 1)+1, false
	}
	return s
}

func times(n, by int) int { return min(n*by, endless) }

// language is what a template can make: a sequence of atoms.
type language []atom

// atom reads one byte of a set and goes on to the atom that stands `past` further, or reads nothing and goes on to
// the one that stands `skip` further; 0 for must read. So {past: 1} is once, {past: 1, skip: 1} at most once and
// {past: 0, skip: 1} any number of times.
type atom struct {
	set        byteSet
	past, skip int
}

func (l language) literal(text string) language {
	for i := range len(text) {
		var s byteSet
		s.add(text[i])
		l = append(l, atom{set: s, past: 1})
	}
	return l
}

func (l language) shape(s shape) language {
	if s.signed {
		l = append(l, atom{set: bytesOf("-"), past: 1, skip: 1})
	}
	for range min(s.min, bounded) {
		l = append(l, atom{set: s.set, past: 1})
	}
	unit := max(1, s.unit)
	if s.max > bounded {
		l = l.unit(s.set, unit)
		l[len(l)-1].past = 1 - unit // back to the unit's first
		return l
	}
	for range (s.max - s.min) / unit {
		l = l.unit(s.set, unit)
	}
	return l
}

// unit adds n bytes of a set, or none.
func (l language) unit(set byteSet, n int) language {
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
			if c, ok := example(a[i].set.and(b[j].set)); ok {
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
		if a[i].set.and(b[i].set) == (byteSet{}) {
			return false
		}
	}
	return true
}

// example picks a byte of the set that reads well.
func example(s byteSet) (byte, bool) {
	const best = "1a:-x"
	if i := strings.IndexFunc(best, func(r rune) bool { return s.has(byte(r)) }); i >= 0 {
		return best[i], true
	}
	for _, from := range []int{'!', 0} {
		for c := from; c < 256; c++ {
			if s.has(byte(c)) {
				return byte(c), true
			}
		}
	}
	return 0, false
}
