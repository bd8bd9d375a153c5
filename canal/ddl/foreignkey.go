package ddl

// ForeignKeys are those that a statement makes and drops: they change rows of its table, the child, with those of
// parents, and may be gone again, or have been there, before anybody looks.
type ForeignKeys struct {
	// Parents are the tables that foreign keys with CASCADE or SET NULL refer to, which the statement makes.
	Parents []Name
	// Dropped are the names of foreign keys, and of other constraints, that it drops.
	Dropped []string
}

// foreignKeys reads those of a CREATE TABLE or ALTER TABLE, whatever else stands in it. A parent without a schema is in
// that of the child.
func (p *parser) foreignKeys(child Name) (f ForeignKeys) {
	var parent Name // of the REFERENCES that was read last
	for p.tok.kind != endOfText {
		switch {
		case p.accept("REFERENCES"):
			parent = p.parent(child)
		case p.accept("ON"):
			if (p.accept("DELETE") || p.accept("UPDATE")) && (p.at("CASCADE") || p.acceptPair("SET", "NULL")) &&
				parent.Table != "" {
				f.Parents = append(f.Parents, parent)
				parent = Name{}
			}
		case p.accept("DROP"):
			if name := p.dropped(); name != "" {
				f.Dropped = append(f.Dropped, name)
			}
		default:
			p.advance()
		}
	}
	return f
}

// parent reads the table that a foreign key refers to.
func (p *parser) parent(child Name) Name {
	first, ok := p.identifier()
	if !ok || !p.acceptSymbol('.') {
		return Name{child.Schema, first}
	}
	second, _ := p.identifier()
	return Name{first, second}
}

// dropped reads, after DROP, the name of a foreign key or a constraint; "": it is another thing that is dropped.
func (p *parser) dropped() string {
	if !p.acceptPair("FOREIGN", "KEY") && !p.accept("CONSTRAINT") {
		return ""
	}
	p.ifExists()
	name, _ := p.identifier()
	return name
}
