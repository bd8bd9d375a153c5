package ddl

import "strings"

// maxCalls bounds the names of a statement that are looked at: no statement calls as many functions.
const maxCalls = 256

// calls returns what a statement may call: names that an opening parenthesis follows, whatever they are, each once.
// more says that there are more than can be looked at.
func calls(sql []byte, s *Session) (names []Name, more bool) {
	p, seen := newParser(sql, s), map[Name]bool{}
	for p.tok.kind != endOfText && p.tok.kind != broken {
		if next := p.peek(); !next.isSymbol('(') && !next.isSymbol('.') { // most are values of rows
			p.advance()
			continue
		}
		n, ok := p.name()
		if !ok {
			p.advance()
			continue
		}
		n.Table = strings.ToLower(n.Table) // which counts for no routine
		if !p.atSymbol('(') || n.Schema == "" || seen[n] {
			continue
		}
		if len(names) == maxCalls {
			return names, true
		}
		seen[n] = true
		names = append(names, n)
	}
	return names, false
}

// selects reports whether CREATE TABLE takes its rows from a query.
func selects(sql []byte, s *Session) bool {
	for p := newParser(sql, s); p.tok.kind != endOfText && p.tok.kind != broken; p.advance() {
		if p.at("SELECT") {
			return true
		}
	}
	return false
}

// Routine says what the body of a stored routine does: whether it changes rows itself, or may, and what it may call. s
// is the session that it was made in.
func Routine(body []byte, s *Session) (writes bool, called []Name) {
	var before token
	p := newParser(body, s)
	for ; p.tok.kind != endOfText; p.advance() {
		// INSERT and REPLACE are functions, too, and SELECT … FOR UPDATE changes nothing.
		function := p.peek().isSymbol('(')
		switch {
		case p.tok.kind == broken,
			p.at("DELETE"), p.at("CALL"), p.at("UPDATE") && !before.is("FOR"),
			(p.at("INSERT") || p.at("REPLACE")) && !function:
			return true, nil
		}
		before = p.tok
	}
	called, writes = calls(body, s)
	return writes, called
}
