package ddl

import (
	"slices"
	"strings"
)

// alterTable reads ALTER TABLE from its IF EXISTS on.
func (p *parser) alterTable(st *Statement) bool {
	lax := !p.session.has(modeStrictTransTables | modeStrictAllTables)
	a := Action{Op: OpAlter, Alter: &Alter{Lax: lax}, If: p.ifExists()}
	var ok bool
	if a.Table, ok = p.name(); !ok {
		return false
	}
	p.wait()
	r := alterReader{parser: p, action: &a}
	a.Unclear = !r.clauses()
	st.Actions = append(append(st.Actions, a), r.more...)
	return true
}

// alterReader reads the clauses of one ALTER TABLE.
type alterReader struct {
	*parser
	action *Action
	// more are the actions that follow: the new name, tables that exchange rows with a partition.
	more []Action
}

func (r *alterReader) clauses() bool {
	for !r.atEnd() {
		if !r.clause() {
			return false
		}
		// Options may follow each other without a comma.
		r.acceptSymbol(',')
	}
	return true
}

// clause reads one clause. False: it is not known, and might have changed columns.
func (r *alterReader) clause() bool {
	found, ok := r.charsetOption(&r.action.Alter.Charset)
	if found || !ok {
		return ok
	}
	k := r.keyword()
	switch k {
	case "ADD":
		r.advance()
		return r.add()
	case "DROP":
		r.advance()
		return r.drop()
	case "CHANGE", "MODIFY":
		r.advance()
		return r.change(k == "MODIFY")
	case "RENAME":
		r.advance()
		return r.rename()
	case "CONVERT":
		r.advance()
		return r.convert()
	case "ALTER", "ENABLE", "DISABLE", "FORCE", "ALGORITHM", "LOCK", "WITH", "WITHOUT", "SECONDARY_LOAD",
		"SECONDARY_UNLOAD", "UPGRADE":
		return r.toComma()
	case "ORDER", "PARTITION", "REMOVE":
		return r.toEnd()
	case "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "COALESCE", "REORGANIZE":
		if !r.peek().is("PARTITION") {
			break
		}
		return r.toEnd()
	case "TRUNCATE", "DISCARD", "IMPORT":
		r.action.Rows = true
		return r.toEnd()
	case "EXCHANGE":
		r.advance()
		return r.exchange()
	case "ENGINE", "UNION":
		r.action.Rows = r.action.Rows || r.leavesRows(k)
	}
	return r.tableOption()
}

// leavesRows reports whether an option of ALTER TABLE leaves the table without the rows that it had: an engine that
// keeps none of its own, or other tables that it is made of.
// Source: MySQL Reference Manual, "Alternative Storage Engines"; MariaDB, "Storage Engines". Observed on MySQL 9.7 and
// MariaDB 10.11.
func (r *alterReader) leavesRows(option string) bool {
	if option == "UNION" {
		return true
	}
	p := *r.parser
	p.advance()
	p.acceptSymbol('=')
	name, _ := p.label()
	switch strings.ToUpper(name) {
	case "BLACKHOLE", "MERGE", "MRG_MYISAM", "FEDERATED":
		return true
	}
	return false
}

// toComma moves to the comma after the clause, or to the end.
func (r *alterReader) toComma() bool {
	for !r.atEnd() && !r.atSymbol(',') {
		if !r.skip() {
			return false
		}
	}
	return true
}

// toEnd moves to the end: for clauses which nothing can follow.
func (r *alterReader) toEnd() bool {
	for !r.atEnd() {
		if !r.skip() {
			return false
		}
	}
	return true
}

// emit adds a clause that changes a column.
func (r *alterReader) emit(c Clause) { r.action.Alter.Clauses = append(r.action.Alter.Clauses, c) }

// then adds an action that follows, and returns true.
func (r *alterReader) then(a Action) bool {
	r.more = append(r.more, a)
	return true
}

// add reads ADD: columns, or what has none.
func (r *alterReader) add() bool {
	if r.at("PARTITION") {
		return r.toEnd()
	}
	if r.acceptPair("SYSTEM", "VERSIONING") {
		r.action.Alter.AddsVersioning = true
		return r.toComma()
	}
	isColumn := r.accept("COLUMN")
	unless := r.ifNotExists()
	if r.atSymbol('(') {
		d := &Definition{}
		if !r.elements(d) {
			return false
		}
		for _, c := range d.Columns {
			r.emit(Clause{Kind: AddColumn, Column: c, If: unless})
		}
		return true
	}
	if !isColumn && !r.atColumn() {
		return r.key()
	}
	name, ok := r.identifier()
	if !ok {
		return false
	}
	c := Clause{Kind: AddColumn, If: unless}
	c.Column, ok = r.column(name, &c)
	r.emit(c)
	return ok
}

// key reads what ADD adds that is no column, and takes note of a primary key.
func (r *alterReader) key() bool {
	for !r.atEnd() && !r.atSymbol(',') {
		r.action.Alter.AddsPrimaryKey = r.action.Alter.AddsPrimaryKey || r.at("PRIMARY")
		if !r.skip() {
			return false
		}
	}
	return true
}

// drop reads DROP: a column, or something else.
func (r *alterReader) drop() bool {
	switch r.keyword() {
	case "PRIMARY", "INDEX", "KEY", "FOREIGN", "CHECK", "CONSTRAINT":
		return r.toComma()
	case "PARTITION":
		r.action.Rows = true
		return r.toEnd()
	case "PERIOD":
		if r.atPeriod() {
			return r.toComma()
		}
	case "SYSTEM":
		if r.acceptPair("SYSTEM", "VERSIONING") {
			r.action.Alter.DropsVersioning = true
			return r.toComma()
		}
	}
	r.accept("COLUMN")
	c := Clause{Kind: DropColumn, If: r.ifExists()}
	var ok bool
	c.Old, ok = r.identifier()
	r.emit(c)
	r.acceptAny("RESTRICT", "CASCADE")
	return ok
}

// change reads CHANGE old new definition, and MODIFY name definition.
func (r *alterReader) change(modify bool) bool {
	r.accept("COLUMN")
	c := Clause{Kind: ChangeColumn, If: r.ifExists()}
	var ok bool
	if c.Old, ok = r.identifier(); !ok {
		return false
	}
	name := c.Old
	if !modify {
		if name, ok = r.identifier(); !ok {
			return false
		}
	}
	c.Column, ok = r.column(name, &c)
	r.emit(c)
	return ok
}

// rename reads RENAME COLUMN a TO b, RENAME INDEX a TO b, and RENAME [TO|AS|=] table.
func (r *alterReader) rename() bool {
	switch {
	case r.at("INDEX"), r.at("KEY"):
		return r.toComma()
	case r.accept("COLUMN"):
		c := Clause{Kind: RenameColumn, If: r.ifExists()}
		var ok bool
		if c.Old, ok = r.identifier(); !ok || !r.accept("TO") {
			return false
		}
		c.Column.Name, ok = r.identifier()
		r.emit(c)
		return ok
	}
	if !r.accept("TO") && !r.accept("AS") {
		r.acceptSymbol('=')
	}
	to, ok := r.name()
	r.more = slices.DeleteFunc(r.more, func(a Action) bool { return a.Op == OpRename }) // the last one holds
	return ok && r.then(Action{Op: OpRename, Table: r.action.Table, To: to})
}

// convert reads CONVERT TO CHARACTER SET x [COLLATE y], and MariaDB's conversions between tables and partitions.
func (r *alterReader) convert() bool {
	switch {
	case r.accept("PARTITION"):
		r.action.Rows = true
		if _, ok := r.identifier(); !ok || !r.acceptPair("TO", "TABLE") {
			return false
		}
		n, ok := r.name()
		return ok && r.then(Action{Op: OpCreateLike, Table: n, To: r.action.Table, Rows: true}) && r.toEnd()
	case r.accept("TABLE"):
		r.action.Rows = true
		n, ok := r.name()
		return ok && r.then(Action{Op: OpDrop, Table: n, Rows: true}) && r.toEnd()
	case !r.accept("TO"):
		return false
	}
	a := r.action.Alter
	a.Convert = true
	found, ok := r.charsetOption(&a.Charset)
	if !found || !ok {
		return false
	}
	if r.at("COLLATE") {
		_, ok = r.charsetOption(&a.Charset)
	}
	return ok
}

// exchange reads EXCHANGE PARTITION p WITH TABLE t.
func (r *alterReader) exchange() bool {
	r.action.Rows = true
	for !r.accept("TABLE") {
		if !r.skip() {
			return false
		}
	}
	n, ok := r.name()
	return ok && r.then(Action{Op: OpWrite, Table: n, Rows: true}) && r.toEnd()
}
