package record

import (
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrMalformed is returned for what is no record, or no mark, of a format that is known: it names the offset in bytes
// and what was expected there, and never what was found, which may be a key.
var ErrMalformed = errors.New("malformed")

// ErrUnknownFormat is returned for what a newer freshet wrote: another format, or an action that this one does not
// know.
var ErrUnknownFormat = errors.New("written by a newer freshet")

// maxDepth bounds how deep values may be nested that are passed over.
const maxDepth = 64

// scanner reads JSON (RFC 8259) from memory. It stops for good at the first thing that it does not expect: then err is
// set, it stands at the end of the data, and whatever is read is the zero value. So what follows a mistake does no
// harm, lists and objects end, and callers need not look before the end.
type scanner struct {
	data []byte
	at   int
	err  error
	buf  []byte // the last string that had escapes in it
	// blanks counts the white space that was passed over, but for that at the end.
	blanks int
}

func (s *scanner) stop(err error) {
	if s.err == nil {
		s.err = err
	}
	s.at = len(s.data)
}

func (s *scanner) fail(want string) { s.failAt(s.at, want) }

func (s *scanner) failAt(at int, want string) {
	if s.err == nil {
		s.stop(fmt.Errorf("%w at byte %d: want %s", ErrMalformed, at, want))
	}
}

// peek returns the next byte that is not white space; 0, which no JSON text has outside of strings, at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.blanks++
		default:
			return c
		}
	}
	return 0
}

// begin enters an object or a list and reports whether there is something in it.
func (s *scanner) begin(open, end byte, want string) bool {
	if s.peek() != open || s.at == len(s.data) {
		s.fail(want)
		return false
	}
	s.at++
	if s.peek() == end {
		s.at++
		return false
	}
	return true
}

// more leaves the object or list at its end, or goes on to its next element and reports that there is one.
func (s *scanner) more(end byte) bool {
	switch s.peek() {
	case ',':
		s.at++
		return true
	case end:
		s.at++
		return false
	}
	if end == '}' {
		s.fail("a comma or the end of the object")
	} else {
		s.fail("a comma or the end of the list")
	}
	return false
}

// name reads the name of an object's field, and the colon.
func (s *scanner) name() []byte {
	n := s.text("the name of a field")
	if s.peek() != ':' {
		s.fail("a colon")
		return nil
	}
	s.at++
	return n
}

// text reads a string. It is valid until the next one is read.
func (s *scanner) text(want string) []byte {
	if s.peek() != '"' {
		s.fail(want)
		return nil
	}
	from := s.at + 1
	end := plain(s.data, from)
	if end < len(s.data) && s.data[end] == '"' {
		s.at = end + 1
		return s.data[from:end]
	}
	return s.oddText(from, end)
}

// oddText reads the string that begins at from, of which the bytes before at are plain.
func (s *scanner) oddText(from, at int) []byte {
	s.buf = s.buf[:0]
	for ; ; at = plain(s.data, at) {
		s.buf = append(s.buf, s.data[from:at]...)
		if at == len(s.data) {
			s.failAt(at, "the end of the string")
			return nil
		}
		from = at
		switch c := s.data[at]; {
		case c == '"':
			s.at = at + 1
			return s.buf
		case c == '\\':
			at = s.escape(at)
			from = at
		case c < ' ':
			s.failAt(at, "control characters to be escaped")
		default:
			r, n := utf8.DecodeRune(s.data[at:])
			if r == utf8.RuneError && n == 1 {
				s.failAt(at, "UTF-8")
			}
			at += n
		}
		if s.err != nil {
			return nil
		}
	}
}

// escape reads the escape at data[at], appends what it stands for to buf, and returns where it ends.
func (s *scanner) escape(at int) int {
	c := byte(0)
	if at+1 < len(s.data) {
		c = s.data[at+1]
	}
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return s.unicode(at)
	default:
		s.failAt(at, "an escape of JSON")
	}
	s.buf = append(s.buf, c)
	return at + 2
}

// unicode is escape for \u. A surrogate without its other half is refused: it stands for no character, and one put in
// its place would name another key.
func (s *scanner) unicode(at int) int {
	r, ok := hex4(s.data, at)
	if !ok {
		s.failAt(at, `\u and four hexadecimal digits`)
		return at
	}
	end := at + 6
	if utf16.IsSurrogate(r) {
		low, _ := hex4(s.data, end)
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			s.failAt(at, "a pair of surrogates")
			return at
		}
		end += 6
	}
	s.buf = utf8.AppendRune(s.buf, r)
	return end
}

// hex4 reads \uXXXX at data[at].
func hex4(data []byte, at int) (r rune, ok bool) {
	if at+6 > len(data) || data[at] != '\\' || data[at+1] != 'u' {
		return 0, false
	}
	for _, c := range data[at+2 : at+6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// uint reads an integer from 0 to limit.
func (s *scanner) uint(limit uint64, want string) uint64 {
	s.peek()
	return s.integer(limit, want)
}

func (s *scanner) integer(limit uint64, want string) uint64 {
	n, at := digits(s.data, s.at)
	if at == s.at || n > limit || s.fraction(at) {
		s.fail(want)
		return 0
	}
	s.at = at
	return n
}

// int reads an integer from -1 to limit.
func (s *scanner) int(limit int64, want string) int64 {
	if s.peek() != '-' {
		return int64(s.uint(uint64(limit), want))
	}
	s.at++
	if s.integer(1, want) != 1 {
		s.fail(want)
	}
	return -1
}

// fraction reports whether a number goes on at data[at] as one that is no integer.
func (s *scanner) fraction(at int) bool {
	return at < len(s.data) && (s.data[at] == '.' || s.data[at] == 'e' || s.data[at] == 'E')
}

// digits reads a decimal number without needless zeros at data[at] and returns where it ends: at itself when there is
// none, or when it does not fit.
func digits(data []byte, at int) (n uint64, end int) {
	end = at
	for end < len(data) && '0' <= data[end] && data[end] <= '9' {
		d := uint64(data[end] - '0')
		if n > (1<<64-1-d)/10 || end > at && n == 0 {
			return 0, at
		}
		n = n*10 + d
		end++
	}
	return n, end
}

// bool reads true or false.
func (s *scanner) bool(want string) bool {
	switch s.peek() {
	case 't':
		s.word("true", want)
		return true
	case 'f':
		s.word("false", want)
	default:
		s.fail(want)
	}
	return false
}

func (s *scanner) word(w, want string) {
	if end := s.at + len(w); end <= len(s.data) && string(s.data[s.at:end]) == w {
		s.at = end
		return
	}
	s.fail(want)
}

// skip passes over a value of any kind.
func (s *scanner) skip(depth int) {
	switch c := s.peek(); {
	case depth == maxDepth:
		s.fail("fewer levels")
	case c == '"':
		s.text("a value")
	case c == '{':
		for more := s.begin('{', '}', "a value"); more; more = s.more('}') {
			s.name()
			s.skip(depth + 1)
		}
	case c == '[':
		for more := s.begin('[', ']', "a value"); more; more = s.more(']') {
			s.skip(depth + 1)
		}
	case c == 't':
		s.word("true", "a value")
	case c == 'f':
		s.word("false", "a value")
	case c == 'n':
		s.word("null", "a value")
	default:
		s.number()
	}
}

// number passes over any number.
func (s *scanner) number() {
	at := s.at
	if at < len(s.data) && s.data[at] == '-' {
		at++
	}
	if at < len(s.data) && s.data[at] == '0' {
		at++
	} else {
		at = s.someDigits(at)
	}
	if at < len(s.data) && s.data[at] == '.' {
		at = s.someDigits(at + 1)
	}
	if at < len(s.data) && (s.data[at] == 'e' || s.data[at] == 'E') {
		at++
		if at < len(s.data) && (s.data[at] == '+' || s.data[at] == '-') {
			at++
		}
		at = s.someDigits(at)
	}
	if s.err == nil {
		s.at = at
	}
}

// someDigits passes over one or more digits.
func (s *scanner) someDigits(at int) int {
	from := at
	for at < len(s.data) && '0' <= s.data[at] && s.data[at] <= '9' {
		at++
	}
	if at == from {
		s.fail("a value")
	}
	return at
}

// end makes sure that nothing follows the document.
func (s *scanner) end() {
	if s.peek(); s.at < len(s.data) {
		s.fail("the end of the document")
	}
}
