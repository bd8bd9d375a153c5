package oracle

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"regexp"
	"strings"
	"unicode/utf8"
)

// predicate is what stands after when. It fails where the language has no answer.
type predicate struct {
	text string
	of   []*column
	eval func(now, old row) (bool, error)
}

// alone evaluates it for one image by itself.
func (p *predicate) alone(r row) (bool, error) { return p.eval(r, nil) }

var errNoAnswer = errors.New("a comparison with nil")

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// member is a column of an image in a predicate.
func member(image string, c *column) string {
	if identifier.MatchString(c.name) {
		return image + "." + c.name
	}
	return image + "[" + literal(c.name) + "]"
}

// literal is a text in a predicate.
func literal(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return strings.TrimSpace(b.String())
}

// either is a test of one value, asked of both images: the new one first.
func either(c *column, test func(member string) string, eval func(value) (bool, error)) *predicate {
	p := &predicate{text: test(member("row", c)) + " || " + test(member("old", c)), of: []*column{c}}
	p.eval = func(now, old row) (bool, error) {
		ok, err := eval(now.of(c))
		if err != nil || ok {
			return ok, err
		}
		return eval(old.of(c))
	}
	return p
}

func differs(c *column) *predicate {
	return &predicate{
		text: member("row", c) + " != " + member("old", c), of: []*column{c},
		eval: func(now, old row) (bool, error) {
			return now.of(c) != old.of(c), nil
		},
	}
}

// predicateOn draws a predicate about a column; nil if there is none for its type.
func predicateOn(r *rand.Rand, c *column) *predicate {
	switch {
	case c.long || c.kind == opaque || c.kind == approximate || c.kind == binary:
		return nil
	case oneIn(r, 5) && !strings.Contains(c.sql, "ZEROFILL"):
		return differs(c)
	case c.kind == text:
		return aboutText(r, c)
	}
	return aboutNumber(r, c)
}

func number(v value) *big.Rat {
	n, _ := new(big.Rat).SetString(v.text)
	return n
}

func aboutNumber(r *rand.Rand, c *column) *predicate {
	n := pick(r, "0", "1", "7", "50", "2024", "9223372036854775807")
	if c.kind == decimal {
		n = pick(r, "0", "1.5", "0.5", "77.5")
	}
	limit := number(value{text: n})
	switch r.IntN(4) {
	case 0:
		return either(c, func(m string) string { return m + " == " + n }, func(v value) (bool, error) {
			return !v.null && number(v).Cmp(limit) == 0, nil
		})
	case 1:
		return either(c, func(m string) string { return "(" + m + " ?? 0) > " + n }, func(v value) (bool, error) {
			if v.null {
				v.text = "0"
			}
			return number(v).Cmp(limit) > 0, nil
		})
	case 2:
		return either(c, func(m string) string { return fmt.Sprintf("%s in [%s, 3]", m, n) }, func(v value) (bool, error) {
			return !v.null && (number(v).Cmp(limit) == 0 || number(v).Cmp(big.NewRat(3, 1)) == 0), nil
		})
	}
	return either(c, func(m string) string { return m + " <= " + n }, func(v value) (bool, error) {
		if v.null {
			return false, errNoAnswer
		}
		return number(v).Cmp(limit) <= 0, nil
	})
}

func aboutText(r *rand.Rand, c *column) *predicate {
	s := pick(r, "a", "", "X", "日", "2", "00", "B b")
	switch r.IntN(4) {
	case 0:
		return either(c, func(m string) string { return m + " == " + literal(s) },
			func(v value) (bool, error) { return !v.null && v.text == s, nil })
	case 1:
		return either(c, func(m string) string { return fmt.Sprintf(`(%s ?? "") contains %s`, m, literal(s)) },
			func(v value) (bool, error) {
				return strings.Contains(v.text, s), nil
			})
	case 2:
		return either(c, func(m string) string { return fmt.Sprintf(`len(%s ?? "") > 4`, m) }, func(v value) (bool, error) {
			return utf8.RuneCountInString(v.text) > 4, nil
		})
	}
	return either(c, func(m string) string { return fmt.Sprintf(`(%s ?? "~") < %s`, m, literal(s)) },
		func(v value) (bool, error) {
			if v.null {
				v.text = "~"
			}
			return v.text < s, nil
		})
}

// combined draws a predicate of one or two others.
func combined(p, q *predicate, r *rand.Rand) *predicate {
	of := append(append([]*column(nil), p.of...), q.of...)
	switch r.IntN(4) {
	case 0:
		return &predicate{"(" + p.text + ") && (" + q.text + ")", of, func(now, old row) (bool, error) {
			if ok, err := p.eval(now, old); err != nil || !ok {
				return false, err
			}
			return q.eval(now, old)
		}}
	case 1:
		return &predicate{"(" + p.text + ") or (" + q.text + ")", of, func(now, old row) (bool, error) {
			if ok, err := p.eval(now, old); err != nil || ok {
				return ok, err
			}
			return q.eval(now, old)
		}}
	case 2:
		return &predicate{"not (" + p.text + ")", p.of, func(now, old row) (bool, error) {
			ok, err := p.eval(now, old)
			return !ok, err
		}}
	}
	return p
}
