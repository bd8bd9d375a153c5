package walk

import (
	"errors"
	"fmt"
	"strings"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/canal/schema"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// Refusal says why a table cannot be walked, in a sentence: no time repairs that.
type Refusal struct{ Why error }

// Error implements error.
func (r Refusal) Error() string { return r.Why.Error() }

// Unwrap returns why.
func (r Refusal) Unwrap() error { return r.Why }

func refuse(format string, args ...any) error { return Refusal{fmt.Errorf(format, args...)} }

// table is a table as it is now.
type table struct {
	event.Table
	// index is the name of the key along which it is walked.
	index string
	key   key
	// charsets are those of the columns.
	charsets []string
}

// sql returns the table as it stands in a statement. The index is forced since an optimizer that sorts instead would
// read the whole rest of the table for each chunk.
func (t *table) sql() string {
	return t.called() + " FORCE INDEX (" + ddl.Quote(t.index) + ")"
}

// called returns its name as it stands in a statement.
func (t *table) called() string { return ddl.Name{Schema: t.Schema, Table: t.Name}.SQL() }

// where returns a WHERE of the conditions that there are.
func (t *table) where(conditions ...string) string {
	var all []string
	for _, c := range conditions {
		if c != "" {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(all, " AND ")
}

// load asks for the table. It reads under a metadata lock, which a SELECT takes until the end of its transaction: else
// the answers could be of two tables, and one that is dropped meanwhile would have no key, which no time repairs.
//
// Source: MySQL Reference Manual, "Metadata Locking", "INFORMATION_SCHEMA Tables"; MariaDB has the same columns.
func (w *Walk) load() (*table, error) {
	if _, err := w.query("START TRANSACTION READ ONLY"); err != nil {
		return nil, err
	}
	t, err := w.ask()
	if _, end := w.query("ROLLBACK"); err == nil {
		err = end
	}
	return t, err
}

func (w *Walk) ask() (*table, error) {
	fold, err := w.query("SELECT @@lower_case_table_names")
	if err != nil {
		return nil, err
	}
	t := &table{Table: event.Table{Schema: w.o.Schema, Name: w.o.Table, FoldNames: fold[0][0] != "0"}}
	of := " WHERE TABLE_SCHEMA = " + text(w.o.Schema) + " AND TABLE_NAME = " + text(w.o.Table)
	kind, err := w.query("SELECT TABLE_TYPE, TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES" + of)
	if err != nil {
		return nil, err
	}
	switch {
	case len(kind) == 0:
		return nil, missing(w.o.Schema + "." + w.o.Table)
	case kind[0][0] != "BASE TABLE" && kind[0][0] != "SYSTEM VERSIONED":
		return nil, refuse("%s is a %s, whose rows have no key: name the table whose rows it shows", t.String(),
			strings.ToLower(kind[0][0]))
	}
	t.Schema, t.Name = kind[0][1], kind[0][2]
	if _, err := w.query("SELECT 1 FROM " + t.called() + " LIMIT 0"); retry.IsNoTable(err) {
		return nil, missing(t.String())
	} else if err != nil {
		return nil, err
	}
	if err := w.columns(t, of); err != nil {
		return nil, err
	}
	return t, w.keys(t, of)
}

// missing says that there is no such table, or not now: tools that change tables put another one in its place.
type missing string

// Error implements error.
func (m missing) Error() string {
	return "there is no table " + string(m) + ", or source.user has no SELECT on it"
}

// IsMissing reports whether an error says that there is no such table.
func IsMissing(err error) bool {
	var m missing
	return errors.As(err, &m)
}

// columns asks for the columns.
func (w *Walk) columns(t *table, of string) error {
	rows, err := w.query("SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COALESCE(COLLATION_NAME, ''), " +
		"COALESCE(CHARACTER_SET_NAME, '') FROM information_schema.COLUMNS" + of + " ORDER BY ORDINAL_POSITION")
	for _, r := range rows {
		t.Columns = append(t.Columns, event.Column{
			Name: r[0], Type: r[2], Class: schema.ClassOf(r[1], r[3]), Unsigned: strings.Contains(r[2], "unsigned"),
			Collation: r[3],
		})
		t.charsets = append(t.charsets, r[4])
	}
	return err
}

// keys asks for the unique keys, and takes the first that will do: the primary one, if there is one.
func (w *Walk) keys(t *table, of string) error {
	rows, err := w.query("SELECT INDEX_NAME, COALESCE(COLUMN_NAME, ''), NULLABLE, COALESCE(SUB_PART, ''), " +
		"COALESCE(COLLATION, '') FROM information_schema.STATISTICS" + of + " AND NON_UNIQUE = 0 AND INDEX_TYPE = 'BTREE' " +
		"ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX")
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n][0] == rows[0][0] {
			n++
		}
		if k := t.usable(rows[:n]); k != nil {
			t.index, t.key = rows[0][0], k
			if hidden, err := w.hidden(t); err != nil || !hidden {
				return err
			}
		}
		rows = rows[n:]
	}
	return refuse("%s has no key along which it can be walked: it needs a primary key, or a unique one of columns that "+
		"are NOT NULL, other than FLOAT, DOUBLE and SET", t.String())
}

// errNoKey is the server's answer to the name of a key that it does not know, or does not use.
// Source: MySQL Server Error Message Reference, ER_KEY_DOES_NOT_EXISTS.
const errNoKey = 1176

// hidden reports whether the server lets its key not be used: one that is INVISIBLE (MySQL) or IGNORED (MariaDB). A
// primary key cannot be.
func (w *Walk) hidden(t *table) (bool, error) {
	if t.index == "PRIMARY" {
		return false, nil
	}
	_, err := w.query("SELECT 1 FROM " + t.sql() + " LIMIT 0")
	if e, answered := retry.ServerError(err); answered && e.Code == errNoKey {
		return true, nil
	}
	return false, err
}

// usable returns the columns of a key by which rows can be ordered and compared; nil: they cannot be.
func (t *table) usable(index [][]string) key {
	var k key
	for _, r := range index {
		at := -1
		for i := range t.Columns {
			if t.Columns[i].Name == r[1] {
				at = i
			}
		}
		// A part of a text, or an expression, does not tell rows apart; one that is NULL is in many rows.
		if at < 0 || r[2] == "YES" || r[3] != "" || r[4] != index[0][4] {
			return nil
		}
		c := keyColumn{name: r[1], how: howOf(&t.Columns[at]), charset: t.charsets[at]}
		if c.how == "" {
			return nil
		}
		k = append(k, c)
	}
	return k
}

// text is a literal, in a session that reads backslashes as escapes.
func text(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", "''") + "'"
}
