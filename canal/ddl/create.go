package ddl

// createTable reads CREATE TABLE from IF NOT EXISTS on.
func (p *parser) createTable(st *Statement, replace bool) bool {
	a := Action{Op: OpCreate, Replace: replace, Rows: replace, If: p.ifNotExists()}
	var ok bool
	if a.Table, ok = p.name(); !ok {
		return false
	}
	if p.atSymbol('(') && p.peek().is("LIKE") {
		p.advance()
	}
	if p.accept("LIKE") {
		a.Op = OpCreateLike
		if a.To, ok = p.name(); ok {
			st.Actions = append(st.Actions, a)
		}
		return ok
	}
	a.Create = &Definition{}
	if !p.elements(a.Create) || !p.tableOptions(&a) {
		// A CREATE TABLE … SELECT, which has columns that the text does not list, and rows without row events.
		a.Unclear, a.Rows = true, true
	}
	st.Actions = append(st.Actions, a)
	return true
}

// elements reads the list of columns, keys and constraints.
func (p *parser) elements(d *Definition) bool {
	if !p.acceptSymbol('(') || p.at("SELECT") || p.at("WITH") || p.at("VALUES") || p.at("TABLE") {
		return false
	}
	for {
		if !p.atColumn() {
			if !p.skipElement() {
				return false
			}
		} else if name, ok := p.identifier(); !ok {
			return false
		} else if c, ok := p.column(name, nil); !ok {
			return false
		} else {
			d.Columns = append(d.Columns, c)
			d.Versioned = d.Versioned || c.versioned
		}
		if p.acceptSymbol(')') {
			return true
		}
		if !p.acceptSymbol(',') {
			return false
		}
	}
}

// atColumn reports whether an element of CREATE TABLE or ADD is a column. The keywords that begin keys and
// constraints are reserved, so a column of that name is quoted; two that are not are recognised by the next token.
// Source: MySQL Reference Manual, "CREATE TABLE Statement"; MariaDB, "CREATE TABLE".
func (p *parser) atColumn() bool {
	switch p.keyword() {
	case "CONSTRAINT", "PRIMARY", "UNIQUE", "INDEX", "KEY", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK":
		return false
	case "PERIOD":
		return !p.atPeriod()
	case "VECTOR":
		next := p.peek()
		return !next.is("INDEX") && !next.is("KEY")
	}
	return true
}

// atPeriod reports whether PERIOD FOR, or PERIOD IF [NOT] EXISTS FOR, begins here: no column.
func (p *parser) atPeriod() bool {
	next := p.peek()
	return p.at("PERIOD") && (next.is("FOR") || next.is("IF"))
}

// skipElement moves to the comma or parenthesis after an element that is no column.
func (p *parser) skipElement() bool {
	for !p.atSymbol(',') && !p.atSymbol(')') {
		if p.atEnd() || !p.skip() {
			return false
		}
	}
	return true
}

// tableOptions reads what follows the columns of CREATE TABLE. False: the columns may not be all.
func (p *parser) tableOptions(a *Action) bool {
	for !p.atEnd() {
		found, ok := p.charsetOption(&a.Create.Charset)
		switch {
		case !ok:
			return false
		case found, p.acceptSymbol(','):
		case p.at("WITH") && p.peek().is("SYSTEM"):
			p.advance()
			if !p.acceptPair("SYSTEM", "VERSIONING") {
				return false
			}
			a.Create.Versioned = true
		case p.acceptPair("START", "TRANSACTION"):
			// The columns are all listed, and the rows of the SELECT follow as row events.
		case p.at("PARTITION"):
			return p.partitioning()
		case !p.tableOption():
			return false
		}
	}
	return true
}

// partitioning reads the partitions of CREATE TABLE, to the end. False: a SELECT follows.
func (p *parser) partitioning() bool {
	for !p.atEnd() {
		if p.at("SELECT") || p.at("AS") || p.at("WITH") || p.atSymbol('(') && p.peek().is("SELECT") || !p.skip() {
			return false
		}
	}
	return true
}

// tableOption reads an option of a table that is not about its character set: NAME [=] value. An option that is not
// known must have the equals sign; MariaDB's may be in quotes.
func (p *parser) tableOption() bool {
	k := p.keyword()
	if k == "" && p.tok.kind != quoted {
		return false
	}
	p.advance()
	known := false
	switch k {
	case "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "COMMENT", "COMPRESSION", "CONNECTION",
		"DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "INSERT_METHOD",
		"KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PASSWORD", "ROW_FORMAT", "SECONDARY_ENGINE",
		"STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLE_CHECKSUM", "TABLESPACE", "STORAGE",
		"TRANSACTIONAL", "UNION", "PAGE_CHECKSUM", "TYPE":
		known = true
	case "DATA", "INDEX":
		known = p.accept("DIRECTORY")
	}
	if !p.acceptSymbol('=') && !known {
		return false
	}
	return p.optionValue()
}

// optionValue reads the value of an option: a word, a string, a number or a list in parentheses.
func (p *parser) optionValue() bool {
	if p.atSymbol('(') {
		return p.skipGroup()
	}
	p.acceptSymbol('-')
	if p.tok.kind != word && p.tok.kind != quoted && p.tok.kind != literal {
		return false
	}
	p.advance()
	if p.acceptSymbol('.') { // 1.5, a name with its schema
		p.advance()
	}
	return true
}
