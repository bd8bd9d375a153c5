package schema

import (
	"strings"

	"github.com/freshet/freshet/canal/ddl"
)

// Rewrites returns the name of a column whose values ALTER TABLE may make others than they were, "" if it changes none.
// It does so without row events: cached rows of the table then have values that no row has any more. A type that holds
// all that the old one did, and prints it the same, changes nothing; nor do columns that come, or get another name.
//
// It must be asked before [Tracker.Apply]. typeOf is asked for the type of columns that are not known here, as
// COLUMN_TYPE; "": it is not known either, and any definition of the column may have changed it. computed is asked for
// a column that an expression makes, "": there is none, where that is not known here; its error is returned.
func (t *Tracker) Rewrites(n ddl.Name, a *ddl.Alter, typeOf func(column string) string,
	computed func() (string, error),
) (string, error) {
	name, retyped := t.rewrites(n, a, typeOf)
	if name != "" || !retyped {
		return name, nil
	}
	// What an expression gives for a column depends on more than what the column holds: HEX(name) on its character set,
	// name = 'x' on its collation.
	e := t.get(t.key(n))
	if e.def != nil {
		for _, c := range e.def.columns {
			if c.computed {
				return c.name, nil
			}
		}
	}
	if e.status == known {
		return "", nil
	}
	return computed()
}

// rewrites returns a column whose values ALTER TABLE may make others by itself, and reports whether it gives a column
// another type, character set or collation.
func (t *Tracker) rewrites(n ddl.Name, a *ddl.Alter, typeOf func(column string) string) (name string, retyped bool) {
	e := t.get(t.key(n))
	table := charsets{}
	if e.status == known {
		table = e.def.charset.with(a.Charset, t.charsetOf(n.Schema))
	}
	for i := range a.Clauses {
		c := &a.Clauses[i]
		if c.Kind != ddl.DropColumn && !strings.EqualFold(c.Old, c.Column.Name) && leaves(a, c.Column.Name) {
			return c.Column.Name, false // another column has had the name up to here
		}
		if c.Kind != ddl.ChangeColumn || c.If && e.status == known && e.def.find(c.Old) < 0 {
			continue
		}
		old := column{typ: typeOf(c.Old)}
		if e.status == known || e.status == partial {
			if at := e.def.find(c.Old); at >= 0 {
				old = e.def.columns[at]
			}
		}
		now, ok := define(c.Column, table)
		if c.Column.Generated || t.fills(&c.Column, a) || !ok || !t.keeps(&old, &now) {
			return c.Old, false
		}
		retyped = retyped || !sameType(old.typ, now.typ, t.o.MariaDB) || old.charsets != now.charsets
	}
	if a.AddsPrimaryKey && a.Lax {
		return "(of the primary key)", false
	}
	if !a.Convert || full(a.Charset.Charset) {
		return "", retyped || a.Convert
	}
	if e.status != known {
		return "(any text)", false
	}
	for _, c := range e.def.columns {
		if c.text && c.charset != a.Charset.Charset {
			return c.name, false
		}
	}
	return "", true
}

// fills reports whether a column may get another value for NULL. In a strict session the statement fails, except that
// MariaDB gives a TIMESTAMP the present time. One for which neither NULL nor NOT NULL is said is NOT NULL without
// explicit_defaults_for_timestamp. Observed on MariaDB 10.11 and MySQL 9.7.
func (t *Tracker) fills(c *ddl.Column, a *ddl.Alter) bool {
	if c.Type.Base == "timestamp" {
		return !c.Null && (a.Lax || t.o.MariaDB)
	}
	return c.NotNull && a.Lax
}

// leaves reports whether ALTER TABLE takes a name from the column that has it.
func leaves(a *ddl.Alter, name string) bool {
	for i := range a.Clauses {
		c := &a.Clauses[i]
		if c.Kind != ddl.AddColumn && strings.EqualFold(c.Old, name) &&
			(c.Kind == ddl.DropColumn || !strings.EqualFold(c.Column.Name, name)) {
			return true
		}
	}
	return false
}

// full reports whether every text can be written in the character set.
func full(charset string) bool {
	switch charset {
	case "utf8mb4", "utf16", "utf16le", "utf32":
		return true
	}
	return false
}

// keeps reports whether every value of the old type is the same in the new one, and is printed so.
func (t *Tracker) keeps(old, now *column) bool {
	if old.charset != now.charset && old.charset != "" && now.charset != "" && !full(now.charset) {
		return false
	}
	x, ok1 := ddl.ParseType(old.typ, t.o.MariaDB)
	y, ok2 := ddl.ParseType(now.typ, t.o.MariaDB)
	switch {
	case !ok1 || !ok2:
		return false
	case x.String() == y.String():
		return true
	case strings.Contains(x.Suffix+y.Suffix, "zerofill") && x.Args != y.Args, x.Suffix != y.Suffix && integer(x.Base) == 0:
		return false
	}
	switch x.Base {
	case "char", "varchar":
		return x.Base == y.Base && x.Length <= y.Length || x.Base == "char" && y.Base == "varchar" && x.Length <= y.Length ||
			ddl.TextSize(y.Base) >= 4*x.Length && y.Args == ""
	case "varbinary":
		return y.Base == x.Base && x.Length <= y.Length
	case "enum", "set":
		return x.Base == y.Base && strings.HasPrefix(y.Args, strings.TrimSuffix(x.Args, ")")+",")
	case "decimal":
		m, d, _ := strings.Cut(x.Args, ",")
		n, e, _ := strings.Cut(y.Args, ",")
		return x.Base == y.Base && d == e && (len(m) < len(n) || len(m) == len(n) && m <= n)
	}
	if i, j := integer(x.Base), integer(y.Base); i > 0 && j > 0 {
		return x.Suffix == y.Suffix && i <= j || x.Suffix == " unsigned" && y.Suffix == "" && i < j
	}
	if i, j := ddl.TextSize(x.Base), ddl.TextSize(y.Base); i > 0 && j > 0 {
		return i <= j
	}
	i, j := ddl.TextSize(strings.Replace(x.Base, "blob", "text", 1)),
		ddl.TextSize(strings.Replace(y.Base, "blob", "text", 1))
	return i > 0 && j >= i && strings.HasSuffix(x.Base, "blob") && strings.HasSuffix(y.Base, "blob")
}

// integer returns the bytes of an integer type, 0 for others.
func integer(base string) int {
	switch base {
	case "tinyint":
		return 1
	case "smallint":
		return 2
	case "mediumint":
		return 3
	case "int":
		return 4
	case "bigint":
		return 8
	}
	return 0
}
