package canal

import (
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
)

// maxOpaque bounds how many answers are kept.
const maxOpaque = 10_000

// opaque are tables as the source said what a statement that changes them may change besides; see [tables.opaqueAs].
type opaque map[ddl.Name]string

// opaqueAs says through what a statement that changes a table may change rows of others: it is a view, or has
// triggers. Empty: the source shows nothing of the kind. A row event names the table of its rows; a statement does not.
// The source says what it has now. A view or trigger that was dropped before the statement was read is not seen, nor
// one that freshet has no right to see.
// Source: MySQL Reference Manual, "The INFORMATION_SCHEMA TRIGGERS Table" (takes the right TRIGGER on the table) and
// "The INFORMATION_SCHEMA VIEWS Table" (takes any right on the view); the same on MariaDB.
func (t *tables) opaqueAs(n ddl.Name) (what string, err error) {
	n = t.name(n)
	if what, known := t.opaque[n]; known {
		return what, nil
	}
	lost := false
	err = t.ask(t.l.ctx, func(s *session, _ *history) error {
		what, err = s.opaqueAs(n)
		lost = s.lost
		return err
	})
	switch {
	case err != nil:
		return "", err
	case lost && what == "": // MariaDB has left it out
		return "table that is locked, and may have triggers", nil
	}
	if t.opaque == nil || len(t.opaque) >= maxOpaque {
		t.opaque = opaque{}
	}
	t.opaque[n] = what
	return what, nil
}

// opaqueCall returns the first of the names that is that of a stored function which may change rows; zero: the source
// shows none. It shows a function to whom may execute it, and what it does to whom may see that.
func (t *tables) opaqueCall(names []ddl.Name) (is ddl.Name, err error) {
	for _, n := range names {
		changes, known := t.functions[n]
		if !known {
			err = t.ask(t.l.ctx, func(s *session, _ *history) error {
				changes, err = s.changesRows(n, map[ddl.Name]bool{}, t.l.flavor == event.MariaDB)
				return err
			})
			if err != nil {
				return is, err
			}
			if t.functions == nil || len(t.functions) >= maxOpaque {
				t.functions = map[ddl.Name]bool{}
			}
			t.functions[n] = changes
		}
		if changes {
			return n, nil
		}
	}
	return is, nil
}

// changesRows reports whether a name is that of a stored function that may change rows, or one that it calls may. Where
// the source does not show what it does, that counts which its author says.
// Source: MySQL Reference Manual, "The INFORMATION_SCHEMA ROUTINES Table"; the same on MariaDB.
func (s *session) changesRows(n ddl.Name, seen map[ddl.Name]bool, mariaDB bool) (bool, error) {
	if seen[n] {
		return false, nil
	}
	seen[n] = true
	found, err := s.rows("SELECT IFNULL(ROUTINE_DEFINITION, ''), SQL_DATA_ACCESS FROM information_schema.ROUTINES WHERE " +
		"ROUTINE_TYPE = 'FUNCTION' AND ROUTINE_SCHEMA = " + quote(n.Schema) + " AND ROUTINE_NAME = " + quote(n.Table))
	if err != nil || len(found) == 0 {
		return false, err
	}
	body, says := found[0][0], found[0][1]
	if body == "" {
		return says != "NO SQL" && says != "READS SQL DATA", nil
	}
	writes, called := ddl.Routine([]byte(body), &ddl.Session{Schema: []byte(n.Schema), MariaDB: mariaDB})
	for i := 0; i < len(called) && !writes && err == nil; i++ {
		writes, err = s.changesRows(called[i], seen, mariaDB)
	}
	return writes, err
}

func (s *session) opaqueAs(n ddl.Name) (string, error) {
	schema, table := quote(n.Schema), quote(n.Table)
	found, err := s.rows("SELECT 'view' FROM information_schema.VIEWS WHERE TABLE_SCHEMA = " + schema + " AND TABLE_NAME = " +
		table + " UNION SELECT 'table with triggers' FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = " + schema +
		" AND EVENT_OBJECT_TABLE = " + table)
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0][0], nil
}
