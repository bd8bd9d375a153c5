package ddl

// ddl reads the statements that define things. k is the first word.
func (p *parser) ddl(k string) Statement {
	st := Statement{Verb: DDL}
	p.advance()
	var ok bool
	switch k {
	case "CREATE":
		ok = p.create(&st)
	case "ALTER":
		ok = p.alter(&st)
	case "DROP":
		ok = p.drop(&st)
	case "RENAME":
		ok = p.rename(&st)
	case "TRUNCATE":
		ok = p.truncate(&st)
	}
	st.Unclear = !ok
	return st
}

// create reads CREATE TABLE and CREATE DATABASE. All else that can be created has no columns that change in rows.
func (p *parser) create(st *Statement) bool {
	replace := p.acceptPair("OR", "REPLACE")
	p.accept("EXTERNAL")
	switch {
	case p.at("TEMPORARY"):
		return true // it lives and dies with its session, and has no row events
	case p.accept("TABLE"):
		return p.createTable(st, replace)
	case p.accept("DATABASE"), p.accept("SCHEMA"):
		a := Action{Op: OpCreateSchema, Replace: replace, Rows: replace, If: p.ifNotExists()}
		var ok bool
		if a.Table.Schema, ok = p.identifier(); !ok {
			return false
		}
		p.schemaOptions(&a)
		if a.Create.Charset.IsZero() || a.Create.Charset.Default {
			a.Create.Charset = CharsetClause{Charset: modernCharset(p.session.ServerCharset)}
		}
		st.Actions = append(st.Actions, a)
	}
	return true
}

// alter reads ALTER TABLE and ALTER DATABASE.
func (p *parser) alter(st *Statement) bool {
	p.acceptAny("ONLINE", "OFFLINE")
	ignore := p.accept("IGNORE")
	switch {
	case p.accept("TABLE"):
		ok := p.alterTable(st)
		if len(st.Actions) > 0 && ignore {
			st.Actions[0].Rows = true // those that a new unique key does not admit
		}
		return ok
	case p.accept("DATABASE"), p.accept("SCHEMA"):
		a := Action{Op: OpAlterSchema, Table: Name{Schema: p.schema()}}
		switch p.keyword() {
		case "CHARACTER", "CHAR", "CHARSET", "COLLATE", "DEFAULT", "COMMENT", "ENCRYPTION", "READ", "UPGRADE":
			// The name is left out, unless the word is one; then a name without options follows, which says nothing.
		default:
			var ok bool
			if a.Table.Schema, ok = p.identifier(); !ok {
				return false
			}
		}
		p.schemaOptions(&a)
		st.Actions = append(st.Actions, a)
	}
	return true
}

// schemaOptions reads the options of CREATE and ALTER DATABASE.
func (p *parser) schemaOptions(a *Action) {
	a.Create = &Definition{}
	for !p.atEnd() {
		if found, ok := p.charsetOption(&a.Create.Charset); found {
			a.Unclear = a.Unclear || !ok
		} else if !p.skip() {
			a.Unclear = true
			return
		}
	}
}

// drop reads DROP TABLE and DROP DATABASE.
func (p *parser) drop(st *Statement) bool {
	switch {
	case p.accept("TABLE"), p.accept("TABLES"):
		exists := p.ifExists()
		for {
			n, ok := p.name()
			if !ok {
				return false
			}
			st.Actions = append(st.Actions, Action{Op: OpDrop, Table: n, If: exists, Rows: true})
			p.wait()
			if !p.acceptSymbol(',') {
				p.acceptAny("RESTRICT", "CASCADE")
				p.wait()
				return p.atEnd()
			}
		}
	case p.accept("DATABASE"), p.accept("SCHEMA"):
		exists := p.ifExists()
		n, ok := p.identifier()
		if ok {
			st.Actions = append(st.Actions, Action{Op: OpDropSchema, Table: Name{Schema: n}, If: exists, Rows: true})
		}
		return ok
	}
	return true
}

// rename reads RENAME TABLE a TO b, c TO d.
func (p *parser) rename(st *Statement) bool {
	if !p.accept("TABLE") && !p.accept("TABLES") {
		return p.at("USER")
	}
	exists := p.ifExists()
	for {
		from, ok := p.name()
		p.wait()
		if !ok || !p.accept("TO") {
			return false
		}
		to, ok := p.name()
		if !ok {
			return false
		}
		st.Actions = append(st.Actions, Action{Op: OpRename, Table: from, To: to, If: exists})
		if !p.acceptSymbol(',') {
			return p.atEnd()
		}
	}
}

// truncate reads TRUNCATE TABLE.
func (p *parser) truncate(st *Statement) bool {
	p.accept("TABLE")
	n, ok := p.name()
	if ok {
		st.Actions = append(st.Actions, Action{Op: OpTruncate, Table: n, Rows: true})
	}
	return ok
}

// charsetOption reads [DEFAULT] CHARACTER SET [=] x or COLLATE [=] x into c, if that is what is here. ok is false if
// it could not be read.
func (p *parser) charsetOption(c *CharsetClause) (found, ok bool) {
	if p.at("DEFAULT") {
		switch next := p.peek(); {
		case next.is("CHARACTER"), next.is("CHAR"), next.is("CHARSET"), next.is("COLLATE"):
			p.advance()
		default:
			return false, true
		}
	}
	switch {
	case p.accept("COLLATE"):
		p.acceptSymbol('=')
		return true, p.collation(c)
	case p.accept("CHARSET"), p.acceptPair("CHARACTER", "SET"), p.acceptPair("CHAR", "SET"):
		p.acceptSymbol('=')
		return true, p.charsetName(c)
	}
	return false, true
}

// charsetName reads the name of a character set.
func (p *parser) charsetName(c *CharsetClause) bool {
	if p.accept("DEFAULT") {
		*c = CharsetClause{Default: true}
		return true
	}
	name, ok := p.label()
	if !ok {
		return false
	}
	// Of several, the last one holds; the servers allow several only if they agree.
	c.Charset, c.Default = modernCharset(name), false
	return true
}

// collation reads the name of a collation.
func (p *parser) collation(c *CharsetClause) bool {
	if p.accept("DEFAULT") {
		return true
	}
	name, ok := p.label()
	if ok {
		c.Collation, c.Default = modernCollation(name), false
	}
	return ok
}

// label reads a name that may also be written as a string.
func (p *parser) label() (string, bool) {
	if p.tok.kind != literal {
		return p.identifier()
	}
	s := string(p.unquote(p.tok))
	p.advance()
	return s, s != ""
}
