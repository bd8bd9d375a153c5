package schema

import (
	"slices"
	"strings"

	"github.com/freshet/freshet/canal/ddl"
)

// alter returns the definition after ALTER TABLE, nil if that cannot be known. schema is the character set of
// the table's schema.
func (d *definition) alter(a *ddl.Alter, schema charsets) *definition {
	if a.KeepsColumns() {
		return d
	}
	if a.Convert && len(a.Clauses) > 0 {
		return nil
	}
	out := &definition{charset: d.charset.with(a.Charset, schema)}
	var ok bool
	if a.Convert {
		out.columns, ok = convert(d.columns, out.charset)
	} else {
		e := alteration{old: d.columns, clauses: a.Clauses, charset: out.charset}
		out.columns, ok = e.apply()
	}
	if out.rowEnd, ok = d.versioning(a, ok); !ok || out.ambiguous() {
		return nil
	}
	return out
}

// alterNamed returns the columns after ALTER TABLE, of columns that are known by name, and which need not be all: those
// that it leaves alone, renames or defines. Where it says IF it may have done nothing, and what it names is not known.
func (d *definition) alterNamed(a *ddl.Alter) *definition {
	out := &definition{}
	out.rowEnd, _ = d.versioning(a, true)
	for _, c := range d.columns {
		name, same := c.name, true
		for i := range a.Clauses {
			l := &a.Clauses[i]
			old := l.Kind != ddl.AddColumn && strings.EqualFold(l.Old, c.name)
			switch {
			case old && l.Kind == ddl.RenameColumn && !l.If:
				name = l.Column.Name
			case old, l.If && strings.EqualFold(l.Column.Name, c.name):
				same = false
			}
		}
		if same {
			c.name = name
			out.columns = append(out.columns, c)
		}
	}
	for i := range a.Clauses {
		if l := &a.Clauses[i]; !l.If && (l.Kind == ddl.AddColumn || l.Kind == ddl.ChangeColumn) &&
			out.find(l.Column.Name) < 0 {
			if c, ok := define(l.Column, charsets{}); ok {
				out.columns = append(out.columns, c)
			}
		}
	}
	return out
}

// versioning returns the ROW END column after ALTER TABLE; ok is handed on. False: it cannot be known.
func (d *definition) versioning(a *ddl.Alter, ok bool) (string, bool) {
	switch {
	case a.AddsVersioning && a.DropsVersioning:
		return "", false
	case a.AddsVersioning:
		var added []ddl.Column
		for _, c := range a.Clauses {
			added = append(added, c.Column)
		}
		return rowEndOf(added), ok
	case a.DropsVersioning:
		// Columns that it names itself stay unless they are dropped as well.
		return "", ok
	}
	for _, c := range a.Clauses {
		if d.rowEnd != "" && (strings.EqualFold(c.Old, d.rowEnd) || strings.EqualFold(c.Column.Name, d.rowEnd)) {
			return "", false
		}
	}
	return d.rowEnd, ok
}

// alteration applies the clauses of one ALTER TABLE as the servers do: first every old column stays, goes or is
// changed in its place, then the columns that are added or moved come in the order of their clauses. Names are those
// of the old columns, but for AFTER, which names new ones.
// Source: mysql_prepare_alter_table in sql_table.cc of both servers.
type alteration struct {
	old     []column
	clauses []ddl.Clause
	charset charsets
	columns []column
}

func (e *alteration) apply() ([]column, bool) {
	clauses, ok := e.effective()
	if !ok {
		return nil, false
	}
	for _, c := range e.old {
		if !e.stay(c, clauses) {
			return nil, false
		}
	}
	for i := range clauses {
		if c := &clauses[i]; c.Kind == ddl.AddColumn || c.Kind == ddl.ChangeColumn && moves(c) {
			if !e.place(c) {
				return nil, false
			}
		}
	}
	return e.columns, len(e.columns) > 0
}

func moves(c *ddl.Clause) bool { return c.First || c.After != "" }

// effective returns the clauses without those that IF EXISTS or IF NOT EXISTS makes idle. False: a clause names a
// column that is not there, two clauses name the same one, or another clause gives a column the name that ADD IF NOT
// EXISTS adds: MariaDB leaves that out even if the other is idle.
func (e *alteration) effective() ([]ddl.Clause, bool) {
	named := map[string]bool{}
	var out []ddl.Clause
	given := map[string]int{}
	for _, c := range e.clauses {
		given[strings.ToLower(c.Column.Name)]++
	}
	for _, c := range e.clauses {
		name := c.Old
		if c.Kind == ddl.AddColumn {
			name = c.Column.Name
		}
		there := find(e.old, name) >= 0
		if c.Kind == ddl.AddColumn && !c.If {
			// It may take the name of a column that is dropped or renamed; a clash is noticed at the end.
			out = append(out, c)
			continue
		}
		key := strings.ToLower(name)
		if named[key] || c.Kind == ddl.AddColumn && given[key] > 1 {
			return nil, false
		}
		named[key] = true
		switch {
		case there != (c.Kind == ddl.AddColumn):
			out = append(out, c)
		case !c.If:
			return nil, false
		}
	}
	return out, true
}

// stay does with an old column what the clauses say.
func (e *alteration) stay(old column, clauses []ddl.Clause) bool {
	for i := range clauses {
		c := &clauses[i]
		if c.Kind == ddl.AddColumn || !strings.EqualFold(c.Old, old.name) {
			continue
		}
		switch {
		case c.Kind == ddl.DropColumn:
		case c.Kind == ddl.RenameColumn:
			old.name = c.Column.Name
			e.columns = append(e.columns, old)
		case !moves(c):
			col, ok := define(c.Column, e.charset)
			e.columns = append(e.columns, col)
			return ok
		}
		return true
	}
	e.columns = append(e.columns, old)
	return true
}

// place puts a column that is added or moved where it belongs.
func (e *alteration) place(c *ddl.Clause) bool {
	col, ok := define(c.Column, e.charset)
	if !ok {
		return false
	}
	at := len(e.columns)
	switch {
	case c.First:
		at = 0
	case c.After != "":
		at = find(e.columns, c.After) + 1
		if at == 0 {
			return false
		}
	}
	e.columns = slices.Insert(e.columns, at, col)
	return true
}

// convert returns the columns after CONVERT TO CHARACTER SET. A TEXT takes the type that holds as many characters as
// the old one could.
// Source: MySQL Reference Manual, "ALTER TABLE Statement", "Changing the Character Set".
func convert(columns []column, to charsets) ([]column, bool) {
	width, ok := ddl.CharacterWidth(to.charset)
	if !ok || to.charset == "binary" {
		return nil, false
	}
	out := slices.Clone(columns)
	for i := range out {
		c := &out[i]
		if !c.text || c.charset == "binary" {
			continue
		}
		old, ok := ddl.CharacterWidth(c.charset)
		t, known := ddl.ParseType(c.typ, true)
		if !ok || !known {
			return nil, false
		}
		if size := ddl.TextSize(t.Base); size > 0 {
			t.Base = ddl.SizedText(max(size, size/old*width))
		}
		// MariaDB keeps the bytes of labels, so they survive only in ASCII, between character sets that contain it.
		labels := (t.Base == "enum" || t.Base == "set") && c.charset != to.charset
		if labels && (!holds("", t) || wide(c.charset) || wide(to.charset)) {
			return nil, false
		}
		if _, ok = t.In(to.charset); !ok {
			return nil, false
		}
		c.typ, c.charsets = t.String(), to
	}
	return out, true
}

// wide reports whether ASCII takes more than a byte in the character set.
func wide(charset string) bool {
	switch charset {
	case "ucs2", "utf16", "utf16le", "utf32":
		return true
	}
	return false
}
