package ddl

// dml reads the statements that change rows. k is the first word, "" for a parenthesis.
func (p *parser) dml(k string) Statement {
	st := Statement{Verb: DML}
	if k == "WITH" {
		k = p.skipWith()
	}
	var ok bool
	switch k {
	case "INSERT", "REPLACE":
		p.advance()
		p.acceptAny("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
		ok = p.write(&st)
	case "UPDATE":
		p.advance()
		p.acceptAny("LOW_PRIORITY", "IGNORE")
		ok = p.references(&st) && p.at("SET")
	case "DELETE":
		p.advance()
		p.acceptAny("LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY")
		ok = p.delete(&st)
	case "LOAD":
		ok = p.load(&st)
	}
	// The rest (CALL, DO, SELECT with a function that writes) does not say what it changes.
	st.Unclear = !ok || len(st.Actions) == 0
	return st
}

// skipWith moves over common table expressions to the statement that uses them, and returns its first word.
func (p *parser) skipWith() string {
	for {
		switch k := p.keyword(); k {
		case "UPDATE", "DELETE", "INSERT", "REPLACE", "SELECT":
			return k
		}
		if !p.skip() {
			return ""
		}
	}
}

// write reads the name of a table that is written to.
func (p *parser) write(st *Statement) bool {
	n, ok := p.name()
	if ok {
		st.Actions = append(st.Actions, Action{Op: OpWrite, Table: n, Rows: true})
	}
	return ok
}

// load reads LOAD DATA and LOAD XML, up to INTO TABLE t.
func (p *parser) load(st *Statement) bool {
	for !p.acceptPair("INTO", "TABLE") {
		if !p.skip() {
			return false
		}
	}
	return p.write(st)
}

// delete reads the three forms of DELETE: FROM t; FROM t, u USING references; t, u FROM references. The tables that
// the references name are those that are deleted from and some more.
func (p *parser) delete(st *Statement) bool {
	if !p.at("FROM") {
		for !p.accept("FROM") {
			if !p.skip() {
				return false
			}
		}
		return p.references(st)
	}
	p.advance()
	start := *p
	if n, ok := p.name(); ok && !p.atSymbol(',') && !p.atSymbol('.') && !p.at("USING") {
		st.Actions = append(st.Actions, Action{Op: OpWrite, Table: n, Rows: true})
		return true
	}
	*p = start
	for !p.accept("USING") {
		if !p.skip() {
			return false
		}
	}
	return p.references(st)
}

// references reads table references up to the keyword after them, and names every table in them. Derived tables,
// which nobody can write to, are passed over.
func (p *parser) references(st *Statement) bool {
	depth, factor := 0, true // factor: a table is due here, not a condition or an alias
	for {
		switch {
		case p.tok.kind == broken:
			return false
		case factor:
			open, ok := p.factor(st)
			if !ok {
				return false
			}
			depth += open
			factor = open > 0
		case p.atEnd(), depth == 0 && p.referencesEnd():
			return depth == 0
		case p.atSymbol(','), p.at("JOIN"), p.at("STRAIGHT_JOIN"):
			p.advance()
			factor = true
		case p.atSymbol(')'), p.atSymbol('}'):
			if depth--; depth < 0 {
				return false
			}
			p.advance()
		case p.acceptSymbol('.'):
			p.advance() // a column may have the name of a keyword
		case !p.skip():
			return false
		}
	}
}

func (p *parser) referencesEnd() bool {
	return p.at("SET") || p.at("WHERE") || p.at("ORDER") || p.at("LIMIT") || p.at("RETURNING")
}

// factor reads a table, a derived table, or the beginning of a join in parentheses, for which open is 1.
func (p *parser) factor(st *Statement) (open int, ok bool) {
	if p.atSymbol('(') || p.atSymbol('{') {
		if next := p.peek(); next.is("SELECT") || next.is("WITH") || next.is("VALUES") || next.is("TABLE") {
			return 0, p.skipGroup()
		}
		p.advance()
		p.accept("OJ")
		return 1, true
	}
	p.accept("LATERAL")
	if p.atSymbol('(') {
		return 0, p.skipGroup()
	}
	n, ok := p.name()
	if !ok {
		return 0, false
	}
	if p.atSymbol('(') { // a table function: JSON_TABLE(…)
		return 0, p.skipGroup()
	}
	st.Actions = append(st.Actions, Action{Op: OpWrite, Table: n, Rows: true})
	return 0, true
}
