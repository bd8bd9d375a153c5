package router

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"hash/crc32"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/freshet/freshet/config/spec"
)

// filterSpec is a filter as a template names it.
type Filter struct {
	Name   string
	Arg    string
	hasArg bool
	// n is the argument of mod and pad.
	N  uint64
	at int
}

// The bounds of the numeric arguments. That of mod keeps remainder × 10 + digit within 64 bits.
const (
	maxMod = 1e18
	maxPad = 64
)

// filterNames returns the names of all filters.
func filterNames() []string {
	return []string{"lower", "upper", "trim", "hex", "base64", "md5", "sha1", "crc32", "mod", "pad", "default", "urlencode"}
}

// String returns the filter as it is written.
func (f *Filter) String() string {
	if f.hasArg {
		return f.Name + ":" + f.Arg
	}
	return f.Name
}

// check validates the filter behind those before it, and reads its argument.
func (f *Filter) check(before []Filter) *fault {
	switch f.Name {
	case "mod", "pad":
		return f.number()
	case "default":
		if !f.hasArg {
			return &fault{f.at, "default has no value", "write default:X"}
		}
		for _, b := range before {
			if b.Name == "default" {
				return &fault{f.at, "the second default is never used", "remove it"}
			}
		}
		return nil
	case "lower", "upper", "trim", "hex", "base64", "md5", "sha1", "crc32", "urlencode":
		if f.hasArg {
			return &fault{f.at + len(f.Name), f.Name + " takes no argument", "write " + f.Name}
		}
		return nil
	case "":
		return &fault{f.at, "a filter is missing behind the |", "write one of " + spec.Names(filterNames())}
	}
	return &fault{f.at, "unknown filter " + spec.Quote(f.Name), spec.Suggest(f.Name, filterNames(), "write one of "+spec.Names(filterNames()))}
}

func (f *Filter) number() *fault {
	least, most, example := uint64(1), uint64(maxMod), "mod:16"
	if f.Name == "pad" {
		most, example = maxPad, "pad:5"
	}
	if !f.hasArg || f.Arg == "" {
		return &fault{f.at, f.Name + " has no number", "write " + example}
	}
	n, err := strconv.ParseUint(f.Arg, 10, 64)
	if err != nil || n < least || n > most || !digits(f.Arg) {
		return &fault{f.at + len(f.Name) + 1, f.Name + " takes a number from " + strconv.FormatUint(least, 10) + " to " +
			strconv.FormatUint(most, 10) + ", not " + spec.Quote(f.Arg), "write " + example}
	}
	f.N = n
	return nil
}

// numeric is what is known of a text before any row is seen.
type numeric uint8

const (
	maybeInteger numeric = iota
	surelyInteger
	surelyText
)

// checkMod finds the mod that its input makes impossible: begin is what goes into the first filter, which what
// names.
func checkMod(begin numeric, what string, filters []Filter) *fault {
	for i := range filters {
		switch f := &filters[i]; f.Name {
		case "hex", "base64", "md5", "sha1":
			begin, what = surelyText, "the text that "+f.Name+" makes"
		case "crc32":
			begin = surelyInteger
		case "default":
			if _, ok := mod(nil, []byte(f.Arg), 1); !ok && begin != surelyText {
				begin, what = surelyText, f.String()
			}
		case "mod":
			if begin == surelyText {
				return &fault{f.at, "mod needs an integer, and " + what + " is none", "write crc32|" + f.String()}
			}
			begin = surelyInteger
		}
	}
	return nil
}

// filter appends to dst what it makes of src, which dst may share memory with but not overlap behind its end. It
// returns false when it cannot: mod, of what is no integer.
type filter func(dst, src []byte) ([]byte, bool)

// compile returns the filter; nil for default, which is no step but stands for NULL.
func (f *Filter) compile() filter {
	switch f.Name {
	case "lower":
		return func(dst, src []byte) ([]byte, bool) { return mapRunes(dst, src, unicode.ToLower), true }
	case "upper":
		return func(dst, src []byte) ([]byte, bool) { return mapRunes(dst, src, unicode.ToUpper), true }
	case "trim":
		return func(dst, src []byte) ([]byte, bool) { return append(dst, bytes.Trim(src, " \t\n\v\f\r")...), true }
	case "hex":
		return func(dst, src []byte) ([]byte, bool) { return hex.AppendEncode(dst, src), true }
	case "base64":
		return func(dst, src []byte) ([]byte, bool) { return base64.StdEncoding.AppendEncode(dst, src), true }
	case "md5":
		return func(dst, src []byte) ([]byte, bool) { s := md5.Sum(src); return hex.AppendEncode(dst, s[:]), true }
	case "sha1":
		return func(dst, src []byte) ([]byte, bool) { s := sha1.Sum(src); return hex.AppendEncode(dst, s[:]), true }
	case "crc32":
		return func(dst, src []byte) ([]byte, bool) {
			return strconv.AppendUint(dst, uint64(crc32.ChecksumIEEE(src)), 10), true
		}
	case "urlencode":
		return func(dst, src []byte) ([]byte, bool) { return urlencode(dst, src), true }
	case "mod":
		n := f.N
		return func(dst, src []byte) ([]byte, bool) { return mod(dst, src, n) }
	case "pad":
		n := int(f.N)
		return func(dst, src []byte) ([]byte, bool) { return pad(dst, src, n), true }
	}
	return nil
}

// mapRunes maps each character by Unicode's simple case mapping. Bytes that are not UTF-8 stay what they are, so
// that no two values become one.
func mapRunes(dst, src []byte, f func(rune) rune) []byte {
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, src[i])
		} else {
			dst = utf8.AppendRune(dst, f(r))
		}
		i += n
	}
	return dst
}

// urlencode escapes all but the unreserved characters of RFC 3986, section 2.3.
func urlencode(dst, src []byte) []byte {
	const hexits = "0123456789ABCDEF"
	for _, c := range src {
		if unreserved(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hexits[c>>4], hexits[c&15])
		}
	}
	return dst
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// mod appends the remainder of an integer of any length, with the sign of the integer, as MySQL's MOD has it.
func mod(dst, src []byte, n uint64) ([]byte, bool) {
	number, negative := bytes.CutPrefix(src, []byte{'-'})
	if len(number) == 0 {
		return dst, false
	}
	var rest uint64
	for _, c := range number {
		if c < '0' || c > '9' {
			return dst, false
		}
		rest = (rest*10 + uint64(c-'0')) % n
	}
	if negative && rest > 0 {
		dst = append(dst, '-')
	}
	return strconv.AppendUint(dst, rest, 10), true
}

// pad puts zeros before the text, behind its minus sign, until it has n characters.
func pad(dst, src []byte, n int) []byte {
	missing := n - utf8.RuneCount(src)
	if rest, negative := bytes.CutPrefix(src, []byte{'-'}); negative {
		dst, src = append(dst, '-'), rest
	}
	for range missing {
		dst = append(dst, '0')
	}
	return append(dst, src...)
}

// chain applies filters to the text from start on, in place.
func chain(dst []byte, start int, filters []filter) ([]byte, bool) {
	for _, f := range filters {
		mid := len(dst)
		out, ok := f(dst, dst[start:mid])
		if !ok {
			return dst, false
		}
		dst = out[:start+copy(out[start:], out[mid:])]
	}
	return dst, true
}
