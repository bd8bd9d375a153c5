package record

import (
	"encoding/base64"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/freshet/freshet/event"
)

// plain returns the index of the first byte of s, from i on, that cannot stand for itself in a JSON string, or that is
// not ASCII and must be looked at; len(s) if there is none. It looks at eight bytes at a time.
func plain[T string | []byte](s T, i int) int {
	const (
		ones = 0x0101010101010101
		high = 0x8080808080808080
	)
	for len(s)-i >= 8 {
		w := word(s, i)
		quote, backslash := w^(ones*'"'), w^(ones*'\\')
		// A byte below n leaves its high bit set in (w - n·ones) &^ w. A borrow spoils only bytes above one that is
		// found anyway, and the lowest one found is what counts.
		odd := (w | (w-ones*' ')&^w | (quote-ones)&^quote | (backslash-ones)&^backslash) & high
		if odd != 0 {
			return i + bits.TrailingZeros64(odd)/8
		}
		if i += 8; i < len(s) {
			i = min(i, len(s)-8) // the last word begins with bytes that were looked at already
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return i
}

// word returns the eight bytes of s from i on, the first one lowest. The compiler makes one load of it.
func word[T string | []byte](s T, i int) uint64 {
	b := s[i : i+8]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// appendString appends s as a JSON string. Only what must be is escaped (RFC 8259, section 7), so that the text stays
// readable; bytes that are no UTF-8 become U+FFFD.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; ; {
		end := plain(s, i)
		dst = append(dst, s[i:end]...)
		if end == len(s) {
			return append(dst, '"')
		}
		if s[end] < utf8.RuneSelf {
			dst = appendEscape(dst, s[end])
			i = end + 1
			continue
		}
		r, n := utf8.DecodeRuneInString(s[end:])
		dst = utf8.AppendRune(dst, r)
		i = end + n
	}
}

// appendText appends bytes of an item: as a string, or as {"base64": …} where that is no UTF-8 or would be longer.
func appendText(dst []byte, s string) []byte {
	if plain(s, 0) == len(s) {
		return append(append(append(dst, '"'), s...), '"')
	}
	begin := len(dst)
	if utf8.ValidString(s) {
		// What has many escapes is longer than base64 and no better to read.
		const wrapping = len(`{"base64":""}`)
		if dst = appendString(dst, s); len(dst)-begin <= base64.StdEncoding.EncodedLen(len(s))+wrapping {
			return dst
		}
		dst = dst[:begin]
	}
	dst = append(dst, `{"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, unsafe.Slice(unsafe.StringData(s), len(s)))
	return append(dst, `"}`...)
}

// appendField is appendText for what may be null.
func appendField(dst, value []byte) []byte {
	if value == nil {
		return append(dst, "null"...)
	}
	return appendText(dst, view(value))
}

// view is a string of the same memory, for as long as nobody writes to it.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// appendPlace appends the version of a rows event: epoch/file/position.
func appendPlace(dst []byte, v event.Version) []byte {
	dst = append(strconv.AppendUint(dst, uint64(v.Epoch), 10), '/')
	dst = append(strconv.AppendUint(dst, uint64(v.File), 10), '/')
	return strconv.AppendUint(dst, v.Pos, 10)
}

// appendVersion appends a row's version: epoch/file/position/row.
func appendVersion(dst []byte, v event.Version) []byte {
	dst = append(appendPlace(dst, v), '/')
	return strconv.AppendUint(dst, uint64(v.Row), 10)
}

// gtidWriter writes GTIDs. It keeps the text of the server that it wrote last.
type gtidWriter struct {
	common *event.Common // that it was
	like   event.GTID    // Number is 1
	text   string        // of it, without the number
}

func (w *gtidWriter) append(dst []byte, c *event.Common, number uint64) []byte {
	if w.common != c {
		w.common = c
		if like := c.GTID(1); like != w.like {
			w.like = like
			text := like.String()
			w.text = text[:len(text)-1]
		}
	}
	return strconv.AppendUint(append(dst, w.text...), number, 10)
}

// dateTime is RFC 3339 up to the seconds.
const dateTime = "2006-01-02T15:04:05"

// timeWriter writes times as RFC 3339 in UTC with microseconds. It keeps the text of the second that it wrote last.
type timeWriter struct {
	second int64
	text   [len(dateTime)]byte
	known  bool
}

const million = 1_000_000

// unknownTime is [event.Placed].Committed of what has no time.
const unknownTime = -62135596800 * million

// writable reports whether micros, since 1970, is a time that RFC 3339 can say.
func writable(micros int64) bool {
	const first, last = -62167219200, 253402300799 // the first second of the year 0, the last one of 9999
	return micros != unknownTime && first*million <= micros && micros < (last+1)*million
}

// isTime reports whether t is the zero time or one that is writable.
func isTime(t time.Time) bool {
	micros := t.UnixMicro()
	return micros == unknownTime || writable(micros)
}

func (w *timeWriter) append(dst []byte, micros int64) []byte {
	rest := micros % million
	if rest < 0 {
		rest += million
	}
	if s := (micros - rest) / million; !w.known || s != w.second {
		time.Unix(s, 0).UTC().AppendFormat(w.text[:0], dateTime)
		w.second, w.known = s, true
	}
	dst = append(dst, w.text[:]...)
	digits := [...]byte{'.', '0', '0', '0', '0', '0', '0', 'Z'}
	for i := len(digits) - 2; i > 0; i-- {
		digits[i] += byte(rest % 10)
		rest /= 10
	}
	return append(dst, digits[:]...)
}
