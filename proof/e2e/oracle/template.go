package oracle

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// value is a column's text, or NULL.
type value struct {
	text string
	null bool
}

// row is an image: values by the names of columns, in lower case. Nil is no row.
type row map[string]value

func (r row) of(c *column) value {
	v, ok := r[strings.ToLower(c.name)]
	if !ok {
		return value{null: true}
	}
	return v
}

// part is a part of a template: its text, and the texts that it yields for a row. Copies make several texts.
type part struct {
	text  string
	make  func(t *table, r row) ([]string, bool)
	of    *column // which the part needs
	maybe bool    // the column's values may differ and print alike
}

type template []part

func (t template) String() string {
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.text)
	}
	return b.String()
}

// keys makes the keys of a row; none if it has a NULL in them.
func (t template) keys(of *table, r row) []string {
	all := []string{""}
	for _, p := range t {
		texts, ok := p.make(of, r)
		if !ok {
			return nil
		}
		var longer []string
		for _, k := range all {
			for _, s := range texts {
				longer = append(longer, k+s)
			}
		}
		all = longer
	}
	return all
}

// constant is text that stands for itself.
func constant(s string) part {
	return part{
		text: strings.NewReplacer("{", "{{", "}", "}}").Replace(s),
		make: func(*table, row) ([]string, bool) { return []string{s}, true },
	}
}

var simpleName = regexp.MustCompile(`^[A-Za-z0-9_$]+$`)

// nameIn is a column's name as it stands in a template.
func nameIn(r *rand.Rand, name string) string {
	if simpleName.MatchString(name) && !strings.EqualFold(name, "table") && !strings.EqualFold(name, "schema") &&
		!oneIn(r, 4) {
		return pick(r, name, strings.ToUpper(name))
	}
	return quote(name)
}

func copies(from, to, digits int) part {
	var all []string
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprintf("%0*d", digits, n))
	}
	text := fmt.Sprintf("{%s..%s}", all[0], all[len(all)-1])
	return part{text: text, make: func(*table, row) ([]string, bool) { return all, true }}
}

// placeholder is a column with filters.
func placeholder(r *rand.Rand, c *column) part {
	name, steps := nameIn(r, c.name), filters(r, c)
	bar := pick(r, "|", " | ")
	for _, s := range steps {
		name += bar + s.text
		bar = pick(r, "|", " | ")
		if strings.HasPrefix(s.text, "default:") {
			bar = "|" // a space before it would be part of the text
		}
	}
	return part{
		text: "{" + strings.TrimSpace(name) + "}", of: c, maybe: c.kind == approximate,
		make: func(_ *table, image row) ([]string, bool) {
			v := image.of(c)
			for _, s := range steps {
				v = s.apply(v)
			}
			return []string{v.text}, !v.null
		},
	}
}

// filter is one filter with its argument.
type filter struct {
	text  string
	apply func(value) value
}

func plain(name string, f func(string) string) filter {
	return filter{name, func(v value) value {
		if !v.null {
			v.text = f(v.text)
		}
		return v
	}}
}

// filters draws filters for a column.
func filters(r *rand.Rand, c *column) (all []filter) {
	digits := c.kind == integer
	if c.long {
		f := pick(r, digests...)
		all, digits = append(all, f), f.text == "crc32"
	}
	defaulted := false
	for range r.IntN(4) {
		switch n := r.IntN(6); {
		case n == 0 && !defaulted:
			x := pick(r, "0", "none", "a b", "x:y", "Ü")
			if digits {
				x = "0"
			}
			all, defaulted = append(all, fallback(x)), true
		case n == 1 && digits:
			all = append(all, modulo(pick[int64](r, 1, 2, 16, 1000, 1e18)))
		case n == 2:
			all, digits = append(all, pad(pick(r, 1, 5, 12, 64))), false
		case n == 3:
			f := pick(r, digests...)
			all, digits = append(all, f), f.text == "crc32"
		case n >= 4:
			all, digits = append(all, pick(r, spellings...)), false
		}
	}
	return all
}

var digests = []filter{
	plain("md5", func(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }),
	plain("sha1", func(s string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(s))) }),
	plain("sha256", func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }),
	plain("crc32", func(s string) string { return fmt.Sprint(crc32.ChecksumIEEE([]byte(s))) }),
}

var spellings = []filter{
	plain("lower", func(s string) string { return eachRune(s, unicode.ToLower) }),
	plain("upper", func(s string) string { return eachRune(s, unicode.ToUpper) }),
	plain("trim", func(s string) string { return strings.Trim(s, " \t\n\v\f\r") }),
	plain("hex", func(s string) string { return hex.EncodeToString([]byte(s)) }),
	plain("base64", func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }),
	plain("urlencode", urlencode),
}

// eachRune maps characters, and leaves bytes that are none.
func eachRune(s string, f func(rune) rune) string {
	var b strings.Builder
	for len(s) > 0 {
		c, n := utf8.DecodeRuneInString(s)
		if c == utf8.RuneError && n == 1 {
			b.WriteByte(s[0])
		} else {
			b.WriteRune(f(c))
		}
		s = s[n:]
	}
	return b.String()
}

func urlencode(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func fallback(x string) filter {
	return filter{"default:" + x, func(v value) value {
		if v.null {
			return value{text: x}
		}
		return v
	}}
}

func modulo(n int64) filter {
	return plain(fmt.Sprintf("mod:%d", n), func(s string) string {
		i, _ := new(big.Int).SetString(s, 10)
		return i.Rem(i, big.NewInt(n)).String()
	})
}

func pad(n int) filter {
	return plain(fmt.Sprintf("pad:%d", n), func(s string) string {
		sign, rest := "", s
		if strings.HasPrefix(s, "-") {
			sign, rest = "-", s[1:]
		}
		return sign + strings.Repeat("0", max(0, n-utf8.RuneCountInString(s))) + rest
	})
}
