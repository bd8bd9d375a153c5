package keyspace

import (
	"fmt"
	"strings"
)

// integers are whole numbers as they are written: no sign but a minus, no leading zeros but up to width.
type integers struct {
	// most is the largest one. least is the largest below zero, without its sign; "" if none is.
	most, least string
	// width is how many characters there are at least, with the sign.
	width int
}

func (n *integers) expression() string {
	e := numbers("0", n.most, n.width)
	if n.least != "" {
		e += "|-(?:" + numbers("1", n.least, n.width-1) + ")"
	}
	return e
}

// numbers returns an expression of the numbers from lo to hi, of at least width digits.
func numbers(lo, hi string, width int) string {
	lo, hi = zeros(width-len(lo))+lo, zeros(width-len(hi))+hi
	if len(lo) == len(hi) {
		return sameLength(lo, hi)
	}
	parts := []string{sameLength(lo, strings.Repeat("9", len(lo)))}
	if len(hi)-len(lo) > 1 {
		parts = append(parts, fmt.Sprintf("[1-9][0-9]{%d,%d}", len(lo), len(hi)-2))
	}
	return strings.Join(append(parts, sameLength("1"+zeros(len(hi)-1), hi)), "|")
}

// sameLength is numbers for bounds of one length.
func sameLength(lo, hi string) string {
	n := len(lo)
	switch {
	case n == 0:
		return ""
	case lo[0] == hi[0]:
		return lo[:1] + group(sameLength(lo[1:], hi[1:]))
	case lo == zeros(n) && hi == strings.Repeat("9", n):
		return digits('0', '9', n)
	}
	from, to := lo[0], hi[0]
	var first, last []string
	if lo[1:] != zeros(n-1) {
		first = []string{lo[:1] + group(sameLength(lo[1:], strings.Repeat("9", n-1)))}
		from++
	}
	if hi[1:] != strings.Repeat("9", n-1) {
		last = []string{hi[:1] + group(sameLength(zeros(n-1), hi[1:]))}
		to--
	}
	if from <= to {
		first = append(first, digits(from, to, n))
	}
	return strings.Join(append(first, last...), "|")
}

// digits returns an expression of n digits, the first of them between two.
func digits(from, to byte, n int) string {
	e := fmt.Sprintf("[%c-%c]", from, to)
	if n > 1 {
		e += fmt.Sprintf("[0-9]{%d}", n-1)
	}
	return e
}

func zeros(n int) string { return strings.Repeat("0", max(0, n)) }

// group returns an expression as one part of another.
func group(e string) string {
	if strings.Contains(e, "|") {
		return "(?:" + e + ")"
	}
	return e
}
