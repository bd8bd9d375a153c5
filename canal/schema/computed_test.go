package schema

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
)

// computed returns the names of the columns that are marked.
func computed(d *binlog.Definition) string {
	var all []string
	for i := range d.Columns {
		if d.Columns[i].Computed {
			all = append(all, d.Table.Columns[i].Name)
		}
	}
	return strings.Join(all, " ")
}

// A column that an expression makes is marked on MariaDB, whichever way it is known, and so is one of which nothing is
// known.
func TestColumnsThatAnExpressionMakesAreMarked(t *testing.T) {
	three := func() *binlog.TableMap { return tableMap("a", long, long, long) }
	const create = "CREATE TABLE a (id INT PRIMARY KEY, n INT DEFAULT (1+1), v INT AS (n*3) VIRTUAL)"
	for _, mariaDB := range []bool{true, false} {
		want := map[bool]string{true: "v"}[mariaDB]
		f := &fakeSource{mariaDB: mariaDB}
		tr := tracker(t, f)
		apply(f, tr, "CREATE DATABASE shop", create)
		check := func(what string, d *binlog.Definition, err error, want string) {
			t.Helper()
			if err != nil || computed(d) != want {
				t.Errorf("MariaDB %v, %s: %q, %v, want %q", mariaDB, what, computed(d), err, want)
			}
		}
		d, err := tr.Describe(three())
		check("from statements", d, err, want)
		again, err := Decode(tr.Encode(), tr.o)
		if err != nil {
			t.Fatal(err)
		}
		d, err = again.Describe(three())
		check("after a restart", d, err, want)
		apply(f, tr, "ALTER TABLE a ADD s INT GENERATED ALWAYS AS (n+1) STORED, MODIFY v INT")
		d, err = tr.Describe(tableMap("a", long, long, long, long))
		check("after an ALTER TABLE", d, err, map[bool]string{true: "s"}[mariaDB])

		f = &fakeSource{mariaDB: mariaDB, kind: "SYSTEM VERSIONED", tables: map[string][][3]string{"shop.a": {
			{"id", "int(11)", ""}, {"v", "int(11)", ""}, {"s", "int(11)", ""}, {"e", "int(11)", ""},
		}}, expressions: map[string]string{"shop.a.v": "`id` * 3", "shop.a.s": "ROW START", "shop.a.e": "ROW END"}}
		d, err = resolve(t, f, tracker(t, f), 0, tableMap("a", long, long, long, long))
		check("from the server", d, err, want)
		f = &fakeSource{mariaDB: mariaDB, tables: now()}
		d, err = resolve(t, f, tracker(t, f), 0, named(tableMap("a", long, long), "id", "gone"))
		check("not known", d, err, map[bool]string{true: "gone"}[mariaDB])
	}
}
