package query

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Parse reads the text of a query. Its error is always an [*Error].
func Parse(sql string) (*Query, error) {
	if len(sql) > MaxText {
		return nil, &Error{MaxText, fmt.Sprintf("the query is longer than %d bytes", MaxText)}
	}
	p := parser{lexer: lexer{src: sql}}
	if err := p.parse(); err != nil {
		return nil, err
	}
	q := &Query{Text: string(p.out), Params: p.params}
	q.ID = ID(q.Text)
	return q, nil
}

// parser looks at each token once: it builds the text to prepare, and sees to it that the statement only reads.
type parser struct {
	lexer
	out    []byte
	params []Param

	statement string // the verb, once it is known: SELECT
	with      bool   // the statement begins with WITH: its verb is still to come
	depth     int    // of parentheses
	base      int    // depth of the WITH
	last      token
	ended     int // the offset of a semicolon plus one
}

func (p *parser) parse() *Error {
	for {
		t, err := p.next()
		if err != nil {
			return err
		}
		if t.kind == endOfText {
			return p.finish()
		}
		if p.ended > 0 && t.kind != semicolon {
			return &Error{t.offset, "only one statement is allowed: remove what follows the semicolon"}
		}
		if err := p.take(t); err != nil {
			return err
		}
		if t.kind != hint { // where no hint may stand, the servers take it for a comment
			p.last = t
		}
	}
}

func (p *parser) finish() *Error {
	switch {
	case p.statement != "":
		return nil
	case p.with:
		return &Error{0, "the WITH has no SELECT after it: write one, without parentheses around it"}
	}
	return &Error{0, "the query is empty: write a SELECT"}
}

// take appends a token to the text.
func (p *parser) take(t token) *Error {
	switch t.kind {
	case semicolon:
		p.ended = t.offset + 1
		return nil
	case mark:
		return &Error{t.offset, "a ? is not allowed: write :column for a value of the row"}
	case word:
		if err := p.keyword(t); err != nil {
			return err
		}
	case symbol:
		p.parenthesis(t.text)
	}
	if p.statement == "" && !p.with && t.text != "(" && t.kind != hint {
		return &Error{t.offset, "a query begins with SELECT or WITH"}
	}
	// Two minus signs must not become a comment when the text after them is gone: SELECT 1--/* */2 is 3.
	minuses := t.text == "-" && p.last.text == "-"
	if (t.spaced || minuses) && len(p.out) > 0 {
		p.out = append(p.out, ' ')
	}
	if t.kind != parameter {
		p.out = append(p.out, t.text...)
		return nil
	}
	if len(p.params) == MaxParams {
		return &Error{t.offset, fmt.Sprintf("parameters are used more than %d times", MaxParams)}
	}
	p.params = append(p.params, Param{Name: t.text, Offset: t.offset})
	p.out = append(p.out, '?')
	return nil
}

func (p *parser) parenthesis(s string) {
	switch s {
	case "(":
		p.depth++
	case ")":
		p.depth--
	}
}

// keyword finds the statement's verb, and refuses what writes or locks. All words that it looks for are reserved, so
// that as names they stand in backticks, or after a point or an @.
func (p *parser) keyword(t token) *Error {
	if !t.spaced && (p.last.text == "." || p.last.text == "@") && p.last.kind == symbol {
		return nil
	}
	upper := strings.ToUpper(t.text)
	switch {
	case p.statement != "":
	case !p.with && upper == "WITH":
		p.with, p.base = true, p.depth
		return nil
	case upper == "SELECT" && (!p.with || p.depth <= p.base):
		p.statement = upper
		return nil
	case p.with && p.depth <= p.base && writes(upper):
		return &Error{t.offset, "a query begins with SELECT or WITH … SELECT; this one would " + upper}
	}
	switch {
	case upper == "INTO":
		return &Error{t.offset, "INTO is not allowed: the result goes into the key"}
	case (upper == "UPDATE" || upper == "SHARE") && p.after("FOR"), upper == "LOCK" && (p.with || p.statement != ""):
		return &Error{t.offset, "a query must not lock rows: remove FOR UPDATE, FOR SHARE or LOCK IN SHARE MODE"}
	}
	return nil
}

// after reports whether the last token is the given word.
func (p *parser) after(s string) bool {
	return p.last.kind == word && strings.EqualFold(p.last.text, s)
}

// writes reports whether a statement of which upper is the verb changes rows.
func writes(upper string) bool {
	switch upper {
	case "UPDATE", "DELETE", "INSERT", "REPLACE":
		return true
	}
	return false
}

// wellFormed returns an error at the first byte that is not UTF-8, or is NUL.
func wellFormed(s string, offset int) *Error {
	for i, r := range s {
		if r == 0 || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd") {
			return &Error{offset + i, "the text is not UTF-8, or has a NUL in it"}
		}
	}
	return nil
}
