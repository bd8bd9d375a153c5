package keyspace

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router"
	"github.com/freshet/freshet/router/shape"
)

// text is what the text of a placeholder can be.
type text struct {
	// shape holds all of it, and more where one of the others says it better.
	shape shape.Shape
	// number are the numbers that it can be; nil: it is no number.
	number *integers
	// exact is an expression of it; "" where the shape says as much.
	exact string
	// free: the row's writer chooses the text.
	free bool
}

// placeholder returns an expression of all that a placeholder can make from a column. False: it is free text, and
// holds, which is what the mapping says of that, is empty.
func placeholder(n *router.Node, c *event.Column, holds string) (string, bool) {
	var parts []string
	if all := labels(c); all != nil {
		for _, l := range all {
			parts = append(parts, regexp.QuoteMeta(n.Of(l)))
		}
	} else {
		t := textOf(c)
		for i := range n.Filters {
			t = t.through(&n.Filters[i])
		}
		switch {
		case !t.free:
			parts = append(parts, t.expression())
		case holds == "":
			return "", false
		default:
			parts = append(parts, "(?:"+holds+")")
		}
	}
	for i, f := range n.Filters {
		if f.Name == "default" {
			after := router.Node{Filters: n.Filters[i+1:]}
			parts = append(parts, regexp.QuoteMeta(after.Of(f.Arg)))
		}
	}
	return "(?:" + strings.Join(parts, "|") + ")", true
}

// through returns what a filter makes from the text. It may hold more than the filter can make, never less. What stands
// for NULL is no part of it.
func (t text) through(f *router.Filter) text {
	in, out := t.shape.Spelled(), text{shape: t.shape.Through(f)}
	if f.Hexits() > 0 {
		return out
	}
	switch f.Name {
	case "crc32":
		out.number = &integers{most: "4294967295"}
		return out
	case "mod":
		out.number = remainders(f.N, in.Set.Has('-'))
		return out
	case "hex":
		out.exact = "(?:" + pairs(in.Set, "0123456789abcdef") + ")" + times(in.Min, in.Max)
		return out
	case "base64":
		out.exact = base64(in.Min, in.Max)
		return out
	case "urlencode":
		return t.urlencode(in, out)
	case "lower", "upper":
		if t.number != nil || out.shape == t.shape {
			return t
		}
	case "trim":
		if !t.free { // nothing else begins or ends with a blank
			return t
		}
	case "pad":
		if t.number != nil {
			wide := *t.number
			wide.width = max(wide.width, int(f.N))
			out.number = &wide
		}
	case "default":
		return t
	default:
		out.free = true
	}
	out.free = out.free || t.free
	return out
}

// remainders are those of a division by n.
func remainders(n uint64, negative bool) *integers {
	out := &integers{most: strconv.FormatUint(n-1, 10)}
	if negative && n > 1 {
		out.least = out.most
	}
	return out
}

func (t text) urlencode(in shape.Shape, out text) text {
	plain := shape.Bytes("A-Za-z0-9._~").Or(shape.Bytes("-"))
	rest := in.Set
	for i := range rest {
		rest[i] &^= plain[i]
	}
	if rest == (shape.Set{}) {
		return t
	}
	parts := []string{"%(?:" + pairs(rest, "0123456789ABCDEF") + ")"}
	if kept := in.Set.And(plain); kept != (shape.Set{}) {
		parts = append(parts, class(kept))
	}
	out.exact = "(?:" + strings.Join(parts, "|") + ")" + times(in.Min, in.Max)
	return out
}

// expression returns an expression of the text.
func (t *text) expression() string {
	switch s := t.shape; {
	case t.number != nil:
		return t.number.expression()
	case t.exact != "":
		return t.exact
	case s.Unit > 1:
		return fmt.Sprintf("(?:%s{%d})%s", class(s.Set), s.Unit, times(s.Min/s.Unit, s.Max/s.Unit))
	default:
		s = s.Spelled()
		return class(s.Set) + times(s.Min, s.Max)
	}
}

// class returns an expression of one byte of a set of ASCII.
func class(s shape.Set) string {
	var b strings.Builder
	for c := 0; c < 128; c++ {
		if !s.Has(byte(c)) {
			continue
		}
		last := c
		for last+1 < 128 && s.Has(byte(last+1)) {
			last++
		}
		fmt.Fprintf(&b, `\x%02x-\x%02x`, c, last)
		c = last
	}
	return "[" + b.String() + "]"
}

// pairs returns an expression of the two hexits that stand for a byte of the set. Bytes that share their second hexits
// share an alternative.
func pairs(s shape.Set, hexits string) string {
	var firsts, seconds []shape.Set
	for hi := range 16 {
		var second shape.Set
		for lo := range 16 {
			if s.Has(byte(hi<<4 | lo)) {
				second.Add(hexits[lo])
			}
		}
		if second == (shape.Set{}) {
			continue
		}
		i := 0
		for i < len(seconds) && seconds[i] != second {
			i++
		}
		if i == len(seconds) {
			firsts, seconds = append(firsts, shape.Set{}), append(seconds, second)
		}
		firsts[i].Add(hexits[hi])
	}
	parts := make([]string, len(firsts))
	for i := range parts {
		parts[i] = class(firsts[i]) + class(seconds[i])
	}
	return strings.Join(parts, "|")
}

// base64 returns an expression of the code of lo to hi bytes. The bits that the last character has too many are zero.
func base64(lo, hi int) string {
	const c = "[A-Za-z0-9+/]"
	var parts []string
	for rest, end := range []string{"", c + "[AQgw]==", c + "{2}[AEIMQUYcgkosw048]="} {
		if least, most := (max(lo-rest, 0)+2)/3, (hi-rest)/3; hi >= rest && most >= least {
			parts = append(parts, "(?:"+c+"{4})"+times(least, most)+end)
		}
	}
	return strings.Join(parts, "|")
}

// countless is from how many repetitions on they are not counted: package regexp counts to 1000, of all parts together.
const countless = 250

// times returns how often the part of an expression before it may stand there.
func times(lo, hi int) string {
	switch {
	case hi > countless:
		return fmt.Sprintf("{%d,}", min(lo, countless))
	case lo == hi:
		return fmt.Sprintf("{%d}", lo)
	}
	return fmt.Sprintf("{%d,%d}", lo, hi)
}
