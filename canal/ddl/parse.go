package ddl

import (
	"bytes"
	"strings"
)

// Parse reads one statement. s must not be nil.
func Parse(sql []byte, s *Session) Statement {
	switch string(sql) {
	case "BEGIN":
		return Statement{Verb: Begin}
	case "COMMIT":
		return Statement{Verb: Commit}
	case "ROLLBACK":
		return Statement{Verb: Rollback}
	}
	p := newParser(sql, s)
	st := p.statement()
	if st.Verb == DML || len(st.Actions) > 0 && st.Actions[0].Op == OpCreate && selects(sql, s) {
		var more bool
		st.Calls, more = calls(sql, s)
		st.Unclear = st.Unclear || more
	}
	if st.Unclear {
		st.Schema = p.schema()
	}
	for i := range st.Actions {
		a := &st.Actions[i]
		if a.Op == OpCreate || a.Op == OpAlter {
			a.ForeignKeys = newParser(sql, s).foreignKeys(a.Table)
		}
		a.Unclear = a.Unclear || s.Failed && a.Op != OpWrite || s.Temporary && hidesBehindTemporary(a.Op)
	}
	return st
}

// hidesBehindTemporary reports whether an operation may have been done to a temporary table though the statement does
// not say TEMPORARY. CREATE TABLE never is, and a DROP of temporary tables is logged as DROP TEMPORARY TABLE; MariaDB
// marks either as dependent on temporary tables without need.
func hidesBehindTemporary(o Op) bool { return o == OpAlter || o == OpRename || o == OpCreateLike }

// parser reads a statement token by token. Methods that say whether they succeeded leave the parser anywhere when
// they did not.
type parser struct {
	lexer
	tok token
}

func newParser(sql []byte, s *Session) *parser {
	p := &parser{lexer: lexer{src: sql, session: s}}
	p.advance()
	return p
}

func (p *parser) schema() string { return string(p.session.Schema) }

func (p *parser) advance() { p.tok = p.next() }

// peek returns the token after the current one.
func (p *parser) peek() token {
	l := p.lexer
	return l.next()
}

// at reports whether the current token is the keyword k, which is in capitals.
func (p *parser) at(k string) bool { return p.tok.is(k) }

func (t token) is(k string) bool {
	return t.kind == word && len(t.text) == len(k) && bytes.EqualFold(t.text, []byte(k))
}

func (p *parser) atSymbol(c byte) bool { return p.tok.isSymbol(c) }

func (t token) isSymbol(c byte) bool { return t.kind == symbol && t.text[0] == c }

// accept moves over the keyword k, if it is the current token.
func (p *parser) accept(k string) bool {
	if !p.at(k) {
		return false
	}
	p.advance()
	return true
}

// acceptAny moves over any number of the keywords, in any order.
func (p *parser) acceptAny(keywords ...string) {
	for {
		found := false
		for _, k := range keywords {
			found = p.accept(k) || found
		}
		if !found {
			return
		}
	}
}

// acceptPair moves over two keywords, if they are the next two tokens.
func (p *parser) acceptPair(a, b string) bool {
	if !p.at(a) || !p.peek().is(b) {
		return false
	}
	p.advance()
	p.advance()
	return true
}

func (p *parser) acceptSymbol(c byte) bool {
	if !p.atSymbol(c) {
		return false
	}
	p.advance()
	return true
}

// atEnd reports whether the statement ends here.
func (p *parser) atEnd() bool {
	return p.tok.kind == endOfText || p.atSymbol(';') && p.peek().kind == endOfText
}

// keyword returns the current token in capitals, "" if it is no word or too long for a keyword.
func (p *parser) keyword() string {
	if p.tok.kind != word || len(p.tok.text) > 32 {
		return ""
	}
	return strings.ToUpper(string(p.tok.text))
}

// identifier reads an identifier.
func (p *parser) identifier() (string, bool) {
	if p.tok.kind != word && p.tok.kind != quoted {
		return "", false
	}
	name := p.session.text(p.unquote(p.tok))
	p.advance()
	return name, name != ""
}

// name reads the name of a table.
func (p *parser) name() (Name, bool) {
	first, ok := p.identifier()
	if !ok {
		return Name{}, false
	}
	if !p.acceptSymbol('.') {
		return Name{p.schema(), first}, true
	}
	second, ok := p.identifier()
	return Name{first, second}, ok
}

// skipGroup moves over a group in parentheses that begins here.
func (p *parser) skipGroup() bool {
	depth := 0
	for {
		switch {
		case p.tok.kind == endOfText, p.tok.kind == broken:
			return false
		case p.atSymbol('('):
			depth++
		case p.atSymbol(')'):
			depth--
		}
		p.advance()
		if depth == 0 {
			return true
		}
	}
}

// skip moves over one token, or over a whole group in parentheses.
func (p *parser) skip() bool {
	if p.atSymbol('(') {
		return p.skipGroup()
	}
	if p.tok.kind == endOfText || p.tok.kind == broken {
		return false
	}
	p.advance()
	return true
}

// ifExists moves over IF EXISTS.
func (p *parser) ifExists() bool { return p.acceptPair("IF", "EXISTS") }

// ifNotExists moves over IF NOT EXISTS.
func (p *parser) ifNotExists() bool {
	if !p.at("IF") || !p.peek().is("NOT") {
		return false
	}
	p.advance()
	p.advance()
	return p.accept("EXISTS")
}

// wait moves over MariaDB's WAIT n and NOWAIT.
func (p *parser) wait() {
	if p.accept("WAIT") {
		p.advance()
	} else {
		p.accept("NOWAIT")
	}
}

func unknown() Statement { return Statement{Verb: Unknown, Unclear: true} }

// statement reads the statement by its first word.
func (p *parser) statement() Statement {
	for p.acceptPair("SET", "STATEMENT") {
		if !p.setStatement() {
			return unknown()
		}
	}
	k := p.keyword()
	switch {
	case p.atEnd():
		return Statement{Verb: Other} // nothing but comments, such as stand in for events that were left out
	case k == "" && !p.atSymbol('('):
		return unknown()
	}
	if st, ok := p.transaction(k); ok {
		return st
	}
	switch k {
	case "INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "WITH", "CALL", "DO", "SELECT", "VALUES", "TABLE", "":
		return p.dml(k)
	case "CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "IMPORT":
		return p.ddl(k)
	case "GRANT", "REVOKE", "FLUSH", "SET", "ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM", "CACHE", "RESET",
		"PURGE", "INSTALL", "UNINSTALL", "KILL", "USE", "LOCK", "UNLOCK", "CHANGE", "START", "STOP", "SHUTDOWN",
		"RESTART", "CLONE", "BACKUP", "SIGNAL", "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "HELP":
		return Statement{Verb: Other}
	}
	return unknown()
}

// setStatement moves over the settings of MariaDB's SET STATEMENT a=b, c=d FOR. The rest makes it unreadable where a
// setting may change how it is read.
func (p *parser) setStatement() bool {
	for !p.accept("FOR") {
		if p.at("SQL_MODE") && p.readsByMode() || p.at("CHARACTER_SET_CLIENT") || !p.skip() {
			return false
		}
	}
	return true
}

// readsByMode reports whether the text from here on reads otherwise under another sql_mode. The server has read it
// under the session's, and the event tells only the one that is set for the statement (observed on MariaDB 10.11).
func (p *parser) readsByMode() bool {
	if bytes.ContainsAny(p.src[p.pos:], "\"\\[") {
		return true
	}
	for rest := *p; !rest.atEnd(); rest.advance() {
		switch rest.keyword() {
		case "REAL", "DATE", "TIMESTAMP", "BLOB": // types, to modeRealAsFloat and foreignTypes
			return true
		}
		if rest.tok.kind == broken {
			return true
		}
	}
	return false
}

// transaction reads the statements that steer transactions.
func (p *parser) transaction(k string) (Statement, bool) {
	switch k {
	case "BEGIN":
		return Statement{Verb: Begin}, true
	case "START":
		return Statement{Verb: Begin}, p.peek().is("TRANSACTION")
	case "COMMIT":
		return Statement{Verb: Commit}, true
	case "ROLLBACK":
		p.advance()
		p.accept("WORK")
		if p.at("TO") {
			return Statement{Verb: Savepoint}, true
		}
		return Statement{Verb: Rollback}, true
	case "SAVEPOINT", "RELEASE":
		return Statement{Verb: Savepoint}, true
	case "XA":
		return p.xa(), true
	}
	return Statement{}, false
}
