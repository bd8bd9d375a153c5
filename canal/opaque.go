package canal

import "github.com/freshet/freshet/canal/ddl"

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
	err = t.ask(t.l.ctx, func(s *session, _ *history) error {
		what, err = s.opaqueAs(n)
		return err
	})
	if err != nil {
		return "", err
	}
	if t.opaque == nil || len(t.opaque) >= maxOpaque {
		t.opaque = opaque{}
	}
	t.opaque[n] = what
	return what, nil
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
