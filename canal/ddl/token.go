package ddl

import "bytes"

// kind is the kind of a token.
type kind uint8

const (
	endOfText kind = iota
	word           // an identifier without quotes, a keyword or a number
	quoted         // an identifier in quotes
	literal        // a string
	symbol         // any other character
	broken         // a quote or comment that does not end
)

// token is a part of a statement.
type token struct {
	kind kind
	// text is the token; of quoted and literal what stands between the quotes, as written.
	text []byte
	// quote is the quote that ends a quoted or a literal.
	quote byte
	// spaced says that something stands between this token and the one before it.
	spaced bool
}

// lexer cuts a statement into tokens. Copying one remembers the place.
type lexer struct {
	src     []byte
	pos     int
	session *Session
	// open counts the executable comments that have begun and not ended: their content is code.
	open int
}

// next returns the next token; at the end again and again endOfText.
func (l *lexer) next() token {
	start := l.pos
	if !l.skipSpace() {
		l.pos = len(l.src)
		return token{kind: broken}
	}
	if l.pos >= len(l.src) {
		return token{kind: endOfText}
	}
	spaced := l.pos > start
	t := l.cut(l.src[l.pos])
	t.spaced = spaced
	return t
}

func (l *lexer) cut(c byte) token {
	switch {
	case isWord(c):
		start := l.pos
		for l.pos < len(l.src) && isWord(l.src[l.pos]) {
			l.pos += l.session.wide(l.src[l.pos:])
		}
		l.pos = min(l.pos, len(l.src))
		return token{kind: word, text: l.src[start:l.pos]}
	case c == '`':
		return l.quote(quoted, '`', false)
	case c == '"' && l.session.has(modeAnsiQuotes):
		return l.quote(quoted, '"', false)
	case c == '[' && l.session.MariaDB && l.session.has(modeMSSQL):
		return l.quote(quoted, ']', false)
	case c == '"' || c == '\'':
		return l.quote(literal, c, !l.session.has(modeNoBackslashEscapes))
	}
	l.pos++
	return token{kind: symbol, text: l.src[l.pos-1 : l.pos]}
}

// quote reads up to the quote end, which stands for itself when doubled, or after a backslash where that escapes.
func (l *lexer) quote(k kind, end byte, escapes bool) token {
	l.pos++
	start := l.pos
	for l.pos < len(l.src) {
		switch c := l.src[l.pos]; {
		case c == end && l.pos+1 < len(l.src) && l.src[l.pos+1] == end:
			l.pos += 2
		case c == end:
			l.pos++
			return token{kind: k, text: l.src[start : l.pos-1], quote: end}
		case c == '\\' && escapes:
			l.pos++
			if l.pos < len(l.src) {
				l.pos += l.session.wide(l.src[l.pos:])
			}
		default:
			l.pos += l.session.wide(l.src[l.pos:])
		}
	}
	l.pos = len(l.src)
	return token{kind: broken}
}

// skipSpace moves over blanks and comments, and into and out of executable ones. False: a comment does not end.
func (l *lexer) skipSpace() bool {
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		switch c := rest[0]; {
		case c <= ' ':
			l.pos++
		case c == '#', c == '-' && len(rest) >= 2 && rest[1] == '-' && (len(rest) == 2 || rest[2] <= ' '):
			n := bytes.IndexByte(rest, '\n')
			if n < 0 {
				n = len(rest) - 1
			}
			l.pos += n + 1
		case c == '*' && l.open > 0 && len(rest) >= 2 && rest[1] == '/':
			l.open--
			l.pos += 2
		case c == '/' && len(rest) >= 2 && rest[1] == '*':
			if n := l.executable(rest); n > 0 {
				l.open++
				l.pos += n
				continue
			}
			n := bytes.Index(rest[2:], []byte("*/"))
			if n < 0 {
				return false
			}
			l.pos += n + 4
		default:
			return true
		}
	}
	return true
}

// executable returns the length of the beginning of an executable comment, /*!50100 or /*M!100301; 0: it is none.
// A comment for a newer server than the one that ran it is an ordinary one in the binlog: the servers blank its
// exclamation mark before they log the statement.
// Source: MySQL Reference Manual, "Comments"; MariaDB, "Comment Syntax"; sql_lex.cc of both.
func (l *lexer) executable(rest []byte) int {
	n := 2
	if l.session.MariaDB && n < len(rest) && (rest[n] == 'M' || rest[n] == 'm') {
		n++
	}
	if n >= len(rest) || rest[n] != '!' {
		return 0
	}
	n++
	digits := 0
	for n+digits < len(rest) && digits < 6 && rest[n+digits] >= '0' && rest[n+digits] <= '9' {
		digits++
	}
	if digits >= 5 {
		n += digits
	}
	return n
}

// isWord reports whether c may stand in an identifier without quotes.
func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// unquote returns the content of a quoted or a literal as the server reads it, still in the statement's character
// set.
func (l *lexer) unquote(t token) []byte {
	escapes := t.kind == literal && !l.session.has(modeNoBackslashEscapes)
	if bytes.IndexByte(t.text, t.quote) < 0 && (!escapes || bytes.IndexByte(t.text, '\\') < 0) {
		return t.text
	}
	out := make([]byte, 0, len(t.text))
	for i := 0; i < len(t.text); {
		c := t.text[i]
		switch {
		case c == t.quote:
			out = append(out, c)
			i += 2
		case c == '\\' && escapes && i+1 < len(t.text):
			i++
			n := min(l.session.wide(t.text[i:]), len(t.text)-i)
			if n == 1 {
				out = append(out, escaped(t.text[i])...)
			} else {
				out = append(out, t.text[i:i+n]...)
			}
			i += n
		default:
			n := min(l.session.wide(t.text[i:]), len(t.text)-i)
			out = append(out, t.text[i:i+n]...)
			i += n
		}
	}
	return out
}

// escaped returns what a backslash and c stand for.
// Source: MySQL Reference Manual, "String Literals", table "Special Character Escape Sequences".
func escaped(c byte) []byte {
	switch c {
	case '0':
		return []byte{0}
	case 'b':
		return []byte{'\b'}
	case 'n':
		return []byte{'\n'}
	case 'r':
		return []byte{'\r'}
	case 't':
		return []byte{'\t'}
	case 'Z':
		return []byte{26}
	case '%', '_':
		return []byte{'\\', c}
	}
	return []byte{c}
}
