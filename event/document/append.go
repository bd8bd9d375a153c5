package document

import (
	"bytes"
	"unicode/utf8"
)

// Bits returns the number that a BIT column of at most 64 bits holds, given its bytes.
func Bits(raw []byte) uint64 {
	var n uint64
	for _, c := range raw {
		n = n<<8 | uint64(c)
	}
	return n
}

// isDate reports whether the text is made of digits and their marks, as a date is: nothing in it needs an escape.
func isDate(text []byte) bool {
	for _, c := range text {
		if (c < '0' || c > '9') && c != '-' && c != ':' && c != '.' && c != ' ' {
			return false
		}
	}
	return true
}

// isZeroDate reports whether the text is that of the zero date, with or without a time of day.
// Source: MySQL Reference Manual, 13.2 "Date and Time Data Types", of the "zero" value and of dates with zero parts.
func isZeroDate(text []byte) bool { return bytes.HasPrefix(text, []byte("0000-00-00")) }

// appendDate appends a date, or a date and time, as ISO 8601 has it. A TIMESTAMP is in UTC.
func appendDate(dst, text []byte, form form) []byte {
	const day = len("2026-01-02")
	if len(text) <= day || text[day] != ' ' {
		return append(dst, text...)
	}
	dst = append(append(dst, text[:day]...), 'T')
	dst = append(dst, text[day+1:]...)
	if form == formInstant {
		dst = append(dst, 'Z')
	}
	return dst
}

// appendNumber appends a number that the database printed. JSON knows no leading zeros, which ZEROFILL makes; what is
// no number at all becomes a string.
func appendNumber(dst, text []byte) []byte {
	rest, negative := bytes.CutPrefix(text, []byte{'-'})
	whole := digits(rest)
	behind := rest[whole:]
	if whole == 0 || !fraction(behind) {
		return appendString(dst, text)
	}
	if negative {
		dst = append(dst, '-')
	}
	for ; whole > 1 && rest[0] == '0'; whole-- {
		rest = rest[1:]
	}
	return append(dst, rest...)
}

// fraction reports whether JSON allows s after the whole part of a number (RFC 8259, section 6).
func fraction(s []byte) bool {
	if len(s) > 0 && s[0] == '.' {
		n := digits(s[1:])
		if n == 0 {
			return false
		}
		s = s[1+n:]
	}
	if len(s) > 0 && (s[0] == 'e' || s[0] == 'E') {
		s = s[1:]
		if len(s) > 0 && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		n := digits(s)
		return n > 0 && n == len(s)
	}
	return len(s) == 0
}

// digits counts the digits that s begins with.
func digits(s []byte) int {
	for i, c := range s {
		if c < '0' || c > '9' {
			return i
		}
	}
	return len(s)
}

// appendString appends a JSON string. It escapes what RFC 8259 (section 7) says must be, and U+2028 and U+2029, which
// end a line in older JavaScript: byte by byte what encoding/json writes without its escapes for HTML.
func appendString(dst, s []byte) []byte {
	const hexits = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			switch {
			case r == utf8.RuneError && n == 1:
				dst = append(append(dst, s[from:i]...), `\ufffd`...)
			case r == '\u2028' || r == '\u2029':
				dst = append(append(dst, s[from:i]...), `\u202`...)
				dst = append(dst, hexits[r&15])
			default:
				i += n
				continue
			}
			i += n
			from = i
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexits[c>>4], hexits[c&15])
		}
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}
