package router

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash/crc32"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/freshet/freshet/config/spec"
)

// Filter is a filter as a template names it.
type Filter struct {
	Name   string
	Arg    string
	hasArg bool
	// N is the argument of a filter that takes a number.
	N  uint64
	at int
}

// filterKind is what there is to know of the filters with one name.
type filterKind struct {
	name string
	// takes is the argument; least and most bound a number.
	takes       argument
	least, most uint64
	// example is the filter as messages advise to write it.
	example string
	// makes says whether the result is an integer; maybeInteger: if the text before the filter was one. A filter that
	// can make something else of an integer, such as a minus sign alone, makes text. What default makes depends on its
	// argument.
	makes numeric
	// encodes: the result holds only characters that the filter chose, so no text can have a separator in it.
	encodes bool
	// hexits is how many lower-case hexadecimal digits the result has, of a filter that always makes as many; else 0.
	hexits int
	// blurs: the filter makes one text of many values, or a text of NULL, so rows cannot be distinguished by the result.
	// Filters that leave out case and blanks are taken to follow the column's collation.
	blurs bool
	// compile returns what the filter does; nil for default, which is no step but stands for NULL.
	compile func(n uint64) filterFunc
}

type argument uint8

const (
	noArgument argument = iota
	number
	// anyText goes as far as the next | or }, blanks included.
	anyText
)

// filterKinds are all filters. A new one needs a line here, and what "A new filter" in this package's comment names. It
// is never written to.
var filterKinds = []filterKind{
	{name: "lower", compile: always(func(dst, src []byte) []byte { return mapRunes(dst, src, unicode.ToLower) })},
	{name: "upper", compile: always(func(dst, src []byte) []byte { return mapRunes(dst, src, unicode.ToUpper) })},
	{name: "trim", compile: always(func(dst,
		src []byte,
	) []byte {
		return append(dst, bytes.Trim(src, " \t\n\v\f\r")...)
	})},
	{name: "hex", makes: surelyText, encodes: true, compile: always(hex.AppendEncode)},
	{name: "base64", makes: surelyText, encodes: true, compile: always(base64.StdEncoding.AppendEncode)},
	digest("md5", md5.Size, func(dst, src []byte) []byte {
		s := md5.Sum(src)
		return hex.AppendEncode(dst, s[:])
	}),
	digest("sha1", sha1.Size, func(dst, src []byte) []byte {
		s := sha1.Sum(src)
		return hex.AppendEncode(dst, s[:])
	}),
	digest("sha256", sha256.Size, func(dst, src []byte) []byte {
		s := sha256.Sum256(src)
		return hex.AppendEncode(dst, s[:])
	}),
	{name: "crc32", makes: surelyInteger, encodes: true, blurs: true, compile: always(func(dst, src []byte) []byte {
		return strconv.AppendUint(dst, uint64(crc32.ChecksumIEEE(src)), 10)
	})},
	// The bound keeps remainder × 10 + digit within 64 bits.
	{
		name: "mod", takes: number, least: 1, most: 1e18, example: "mod:16", makes: surelyInteger, blurs: true,
		compile: func(n uint64) filterFunc {
			return func(dst, src []byte) ([]byte, bool) { return mod(dst, src, n) }
		},
	},
	{name: "pad", takes: number, least: 1, most: 64, example: "pad:5", compile: func(n uint64) filterFunc {
		return func(dst, src []byte) ([]byte, bool) { return pad(dst, src, int(n)), true }
	}},
	{name: "urlencode", encodes: true, compile: always(urlencode)},
	{name: "default", takes: anyText, example: "default:X", blurs: true},
}

// digest returns what there is to know of a filter that makes a digest of so many bytes, as hexadecimal.
func digest(name string, size int, f func(dst, src []byte) []byte) filterKind {
	return filterKind{name: name, makes: surelyText, encodes: true, hexits: 2 * size, compile: always(f)}
}

// always makes the compile of a filter that takes no argument and can always do its work.
func always(f func(dst, src []byte) []byte) func(uint64) filterFunc {
	return func(uint64) filterFunc {
		return func(dst, src []byte) ([]byte, bool) { return f(dst, src), true }
	}
}

// kind returns what there is to know of the filter, nil for a name that no filter has.
func (f *Filter) kind() *filterKind {
	if i := slices.IndexFunc(filterKinds, func(k filterKind) bool { return k.name == f.Name }); i >= 0 {
		return &filterKinds[i]
	}
	return nil
}

// Filters returns the names of all filters.
func Filters() (names []string) {
	for i := range filterKinds {
		names = append(names, filterKinds[i].name)
	}
	return names
}

// String returns the filter as it is written.
func (f *Filter) String() string {
	if f.hasArg {
		return f.Name + ":" + f.Arg
	}
	return f.Name
}

// Encodes reports whether the filter leaves only characters that it chose.
func (f *Filter) Encodes() bool {
	k := f.kind()
	return k != nil && k.encodes
}

// Hexits returns how many lower-case hexadecimal digits the filter makes, if it always makes as many; else 0.
func (f *Filter) Hexits() int {
	k := f.kind()
	if k == nil {
		return 0
	}
	return k.hexits
}

// Blurs reports whether the filter makes one text of many values, or a text of NULL.
func (f *Filter) Blurs() bool {
	k := f.kind()
	return k != nil && k.blurs
}

// check validates the filter after those before it, and reads its argument.
func (f *Filter) check(before []Filter) *fault {
	k := f.kind()
	if k == nil {
		one := "write one of " + spec.Names(Filters())
		if f.Name == "" {
			return &fault{f.at, "a filter is missing after the |", one}
		}
		return &fault{f.at, "unknown filter " + spec.Quote(f.Name), spec.Suggest(f.Name, Filters(), one)}
	}
	switch k.takes {
	case number:
		return f.number(k)
	case anyText:
		if !f.hasArg {
			return &fault{f.at, f.Name + " has no value", "write " + k.example}
		}
	case noArgument:
		if f.hasArg {
			return &fault{f.at + len(f.Name), f.Name + " takes no argument", "write " + f.Name}
		}
	}
	if f.Name == "default" && slices.ContainsFunc(before, func(b Filter) bool { return b.Name == "default" }) {
		return &fault{f.at, "the second default is never used", "remove it"}
	}
	return nil
}

func (f *Filter) number(k *filterKind) *fault {
	if f.Arg == "" {
		return &fault{f.at, f.Name + " has no number", "write " + k.example}
	}
	n, err := strconv.ParseUint(f.Arg, 10, 64)
	if err != nil || n < k.least || n > k.most || !digits(f.Arg) {
		return &fault{f.at + len(f.Name) + 1, f.Name + " takes a number from " + strconv.FormatUint(k.least, 10) + " to " +
			strconv.FormatUint(k.most, 10) + ", not " + spec.Quote(f.Arg), "write " + k.example}
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
		f := &filters[i]
		k := f.kind()
		switch {
		case k == nil: // which check has reported
		case f.Name == "default":
			if _, ok := mod(nil, []byte(f.Arg), 1); !ok && begin != surelyText {
				begin, what = surelyText, f.String()
			}
		case f.Name == "mod" && begin == surelyText:
			return &fault{f.at, "mod needs an integer, and " + what + " is none", "write crc32|" + f.String()}
		case k.makes == surelyText:
			begin, what = surelyText, "the text that "+f.Name+" makes"
		case k.makes == surelyInteger:
			begin = surelyInteger
		}
	}
	return nil
}

// filterFunc appends to dst what it makes from src, which dst may share memory with but not overlap after its end. It
// returns false when it cannot: mod, of what is no integer.
type filterFunc func(dst, src []byte) ([]byte, bool)

// compile returns the filter; nil for default, and for a name that no filter has.
func (f *Filter) compile() filterFunc {
	k := f.kind()
	if k == nil || k.compile == nil {
		return nil
	}
	return k.compile(f.N)
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
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' ||
		c == '~'
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

// pad puts zeros before the text, after its minus sign, until it has n characters.
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
func chain(dst []byte, start int, filters []filterFunc) ([]byte, bool) {
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
