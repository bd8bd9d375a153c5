package shape

import (
	"strings"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
)

// Set is a set of bytes.
type Set [4]uint64

// Add adds a byte.
func (s *Set) Add(c byte) { s[c>>6] |= 1 << (c & 63) }

func (s *Set) remove(c byte) { s[c>>6] &^= 1 << (c & 63) }

// Has reports whether the byte is one of the set.
func (s *Set) Has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

// And returns the bytes that are in both.
func (s Set) And(o Set) Set {
	return Set{s[0] & o[0], s[1] & o[1], s[2] & o[2], s[3] & o[3]}
}

// Or returns the bytes that are in one of them.
func (s Set) Or(o Set) Set {
	return Set{s[0] | o[0], s[1] | o[1], s[2] | o[2], s[3] | o[3]}
}

// Bytes returns the set of the text's bytes; a-z within it stands for a range.
func Bytes(text string) Set {
	var s Set
	for i := 0; i < len(text); i++ {
		if i+2 < len(text) && text[i+1] == '-' {
			for c := int(text[i]); c <= int(text[i+2]); c++ {
				s.Add(byte(c))
			}
			i += 2
			continue
		}
		s.Add(text[i])
	}
	return s
}

// AnyByte returns the set of all bytes.
func AnyByte() Set { return Set{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)} }

// Shape is what the text of a placeholder can be: between Min and Max bytes of a set, after a minus sign if Signed.
// With a Unit above 1 it is Min bytes and any number of units.
type Shape struct {
	Set      Set
	Min, Max int
	Signed   bool
	Unit     int
}

// Endless is the Max of a shape without one.
const Endless = 1 << 30

// Of returns the shape of a column's text.
func Of(c *event.Column) Shape {
	switch c.Class {
	case event.ClassInt:
		if strings.Contains(strings.ToLower(c.Type), "zerofill") {
			return Shape{Set: Bytes("0-9"), Min: 1, Max: Endless}
		}
		return Shape{Set: Bytes("0-9"), Min: 1, Max: 20, Signed: !c.Unsigned}
	case event.ClassDecimal:
		return Shape{Set: Bytes("0-9."), Min: 1, Max: Endless, Signed: true}
	case event.ClassFloat:
		return Shape{Set: Bytes("0-9.e+").Or(Bytes("-")), Min: 1, Max: Endless}
	case event.ClassTemporal:
		if c.IsYear() {
			return Shape{Set: Bytes("0-9"), Min: 1, Max: 4}
		}
		return Shape{Set: Bytes("0-9:. ").Or(Bytes("-")), Min: 1, Max: Endless}
	case event.ClassUUID:
		return Shape{Set: Bytes("0-9a-f").Or(Bytes("-")), Min: 36, Max: 36}
	case event.ClassInet:
		return Shape{Set: Bytes("0-9a-f:."), Min: 1, Max: Endless}
	}
	return Shape{Set: AnyByte(), Min: 0, Max: Endless}
}

// Through returns the shape of what a filter makes from the text. It may hold more than the filter can make, never
// less.
func (s Shape) Through(f *router.Filter) Shape {
	hexits := Bytes("0-9a-f")
	if n := f.Hexits(); n > 0 {
		return Shape{Set: hexits, Min: n, Max: n}
	}
	switch f.Name {
	case "lower", "upper":
		for c := byte('A'); c <= 'Z'; c++ {
			gone, stays := c, c+'a'-'A'
			if f.Name == "upper" {
				gone, stays = stays, gone
			}
			if s.Set.Has(gone) {
				s.Set.remove(gone)
				s.Set.Add(stays)
			}
		}
		return s
	case "crc32":
		return Shape{Set: Bytes("0-9"), Min: 1, Max: 10}
	case "mod":
		return Shape{Set: Bytes("0-9"), Min: 1, Max: len(f.Arg), Signed: s.Signed || s.Set.Has('-')}
	}
	s = s.Spelled()
	s.Unit = 0
	switch f.Name {
	case "trim":
		s.Min = 0
	case "hex":
		return Shape{Set: hexits, Min: 2 * s.Min, Max: times(s.Max, 2), Unit: 2}
	case "base64":
		return Shape{Set: Bytes("A-Za-z0-9+/="), Min: (s.Min + 2) / 3 * 4, Max: (times(s.Max, 1) + 2) / 3 * 4, Unit: 4}
	case "urlencode":
		if plain := Bytes("A-Za-z0-9._~").Or(Bytes("-")); s.Set.And(plain) != s.Set {
			s.Set, s.Max = plain.Or(Bytes("%")), times(s.Max, 3)
		}
	case "pad":
		s.Set.Add('0')
		s.Min, s.Max = max(s.Min, int(f.N)), max(s.Max, int(f.N))
	case "default":
		for i := range len(f.Arg) {
			s.Set.Add(f.Arg[i])
		}
		s.Min, s.Max = min(s.Min, len(f.Arg)), max(s.Max, len(f.Arg))
	default:
		return Shape{Set: AnyByte(), Max: Endless}
	}
	return s
}

// Spelled counts the sign among the other bytes.
func (s Shape) Spelled() Shape {
	if s.Signed {
		s.Set.Add('-')
		s.Max, s.Signed = times(s.Max, 1)+1, false
	}
	return s
}

func times(n, by int) int { return min(n*by, Endless) }
