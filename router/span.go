package router

import (
	"strconv"
	"strings"
)

// Span is a run of numbers, {0..7} or {00..63}: Width digits each, or as many as it takes when Width is 0.
type Span struct{ from, to, Width int }

// spanDigits bounds the numbers of a span.
const spanDigits = 9

// parseSpan reads what stands between the braces of a span. ok is false when it is none at all.
func parseSpan(inner string) (s Span, ok bool, f *fault) {
	a, b, found := strings.Cut(inner, "..")
	if !found || !digits(a) || !digits(b) {
		return Span{}, false, nil
	}
	if len(a) > spanDigits || len(b) > spanDigits {
		return Span{}, true, &fault{0, "{" + inner + "} has numbers of more than 9 digits", "write smaller numbers"}
	}
	s.from, _ = strconv.Atoi(a)
	s.to, _ = strconv.Atoi(b)
	if s.from > s.to {
		return s, true, &fault{0, "{" + inner + "} counts backwards", "write {" + b + ".." + a + "}"}
	}
	if len(a) > 1 && a[0] == '0' || len(b) > 1 && b[0] == '0' {
		if len(a) != len(b) {
			n := max(len(a), len(b))
			return s, true, &fault{
				0, "{" + inner + "} has numbers of different length, and leading zeros",
				"write {" + zeros(s.from, n) + ".." + zeros(s.to, n) + "}, or no leading zeros",
			}
		}
		s.Width = len(a)
	}
	return s, true, nil
}

// Count returns how many numbers the span has.
func (s Span) Count() int { return s.to - s.from + 1 }

// Append appends the i-th number.
func (s Span) Append(dst []byte, i int) []byte {
	n := s.from + i
	if s.Width == 0 {
		return strconv.AppendInt(dst, int64(n), 10)
	}
	return append(dst, zeros(n, s.Width)...)
}

// String returns the span as it is written.
func (s Span) String() string {
	if s.Width > 0 {
		return "{" + zeros(s.from, s.Width) + ".." + zeros(s.to, s.Width) + "}"
	}
	return "{" + strconv.Itoa(s.from) + ".." + strconv.Itoa(s.to) + "}"
}

// holds reports whether the text is one of the span's numbers.
func (s Span) holds(text string) bool {
	switch {
	case !digits(text) || len(text) > spanDigits:
		return false
	case s.Width > 0 && len(text) != s.Width:
		return false
	case s.Width == 0 && len(text) > 1 && text[0] == '0':
		return false
	}
	n, _ := strconv.Atoi(text)
	return s.from <= n && n <= s.to
}

func zeros(n, width int) string {
	s := strconv.Itoa(n)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
