package query

import "strings"

// kind is the kind of a token.
type kind uint8

const (
	endOfText kind = iota
	word           // a keyword, a name without quotes, a number
	quoted         // a string, or a name in backticks, with its quotes
	hint           // /*+ … */
	parameter      // :name; text is the name
	semicolon
	mark   // a question mark
	symbol // any other character, or := or ::
)

// token is a part of a text.
type token struct {
	kind   kind
	text   string
	offset int
	// spaced says that space or a comment stands before the token.
	spaced bool
}

// lexer cuts a text into tokens as the servers do.
// Source: MySQL Reference Manual, "Comments", "String Literals", "Schema Object Names".
type lexer struct {
	src string
	pos int
}

func (l *lexer) next() (token, *Error) {
	start := l.pos
	if err := l.skip(); err != nil {
		return token{}, err
	}
	t := token{offset: l.pos, spaced: l.pos > start}
	if l.pos == len(l.src) {
		return t, nil
	}
	err := l.cut(&t)
	if err == nil && t.text == "" {
		t.text = l.src[t.offset:l.pos]
	}
	if err == nil {
		err = wellFormed(l.src[t.offset:l.pos], t.offset)
	}
	return t, err
}

func (l *lexer) cut(t *token) *Error {
	rest := l.src[l.pos:]
	switch c := rest[0]; {
	case c == '\'' || c == '"' || c == '`':
		t.kind = quoted
		return l.quote(c)
	case isWord(c):
		t.kind = word
		for l.pos < len(l.src) && isWord(l.src[l.pos]) {
			l.pos++
		}
		return nil
	case c == '/' && strings.HasPrefix(rest, "/*"): // skip left it, so it is a hint
		t.kind = hint
		l.pos += strings.Index(rest, "*/") + 2
		return nil
	case c == ':':
		return l.colon(t, rest)
	}
	l.pos++
	switch rest[0] {
	case ';':
		t.kind = semicolon
	case '?':
		t.kind = mark
	default:
		t.kind = symbol
	}
	return nil
}

// colon reads what begins with a colon: a parameter, unless it is := or ::.
func (l *lexer) colon(t *token, rest string) *Error {
	t.kind = parameter
	switch {
	case strings.HasPrefix(rest, ":="), strings.HasPrefix(rest, "::"):
		t.kind = symbol
		l.pos += 2
		return nil
	case strings.HasPrefix(rest, ":`"):
		l.pos++
		if err := l.quote('`'); err != nil {
			return err
		}
		name := l.src[t.offset+2 : l.pos-1]
		t.text = strings.ReplaceAll(name, "``", "`")
	case len(rest) > 1 && isWord(rest[1]) && !isDigit(rest[1]):
		l.pos++
		for l.pos < len(l.src) && isWord(l.src[l.pos]) {
			l.pos++
		}
		t.text = l.src[t.offset+1 : l.pos]
	}
	if t.text == "" {
		return &Error{t.offset, "the : has no column after it: write :column, or :`column` where its name is not made of " +
			"letters, digits, _ and $"}
	}
	return nil
}

// quote moves after the text in quotes. A doubled quote stands for itself; in strings a backslash escapes.
func (l *lexer) quote(end byte) *Error {
	start := l.pos
	for l.pos++; l.pos < len(l.src); l.pos++ {
		switch c := l.src[l.pos]; {
		case c == end && strings.HasPrefix(l.src[l.pos+1:], string(end)), c == '\\' && end != '`':
			l.pos++
		case c == end:
			l.pos++
			return nil
		}
	}
	return &Error{start, "the " + string(end) + " is not closed"}
}

// skip moves over space and comments. Hints are not skipped.
func (l *lexer) skip() *Error {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		switch c := rest[0]; {
		case isSpace(c):
			l.pos++
		case c == '#', strings.HasPrefix(rest, "--") && (len(rest) == 2 || rest[2] <= ' '):
			n := strings.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest) - 1
			}
			l.pos += n + 1
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest[2:], "*/")
			switch {
			case n < 0:
				return &Error{l.pos, "the comment is not closed: write */"}
			case rest[2] == '+':
				return nil
			case rest[2] == '!', strings.HasPrefix(rest[2:], "M!"), strings.HasPrefix(rest[2:], "m!"):
				return &Error{l.pos, "a comment that some servers execute is not allowed: write its text without the comment"}
			}
			l.pos += n + 4
		default:
			return nil
		}
	}
	return nil
}

// isWord reports whether c may stand in a name without quotes.
func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '_' || c == '$' || c >= 0x80
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
