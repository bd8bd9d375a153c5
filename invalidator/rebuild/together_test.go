package rebuild

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// all runs a query for several keys and returns their values as get does; an error is its text.
func all(t testing.TB, r *Runner, q Query, keys ...string) []string {
	t.Helper()
	values := make([]string, len(keys))
	asked := make([]event.Fields, len(keys))
	for i, key := range keys {
		asked[i] = params(key)
	}
	r.Query(t.Context(), DefaultSource, q.ID, asked, nil, func(i int, value event.Fields, missing bool, err error) {
		switch {
		case values[i] != "":
			t.Errorf("key %d is answered twice", i)
		case err != nil:
			values[i] = "error: " + err.Error()
		case missing:
			values[i] = "missing"
		default:
			values[i] = "value: " + joined(t, value)
		}
	})
	return values
}

// oneByOne does the same without asking for several together.
func oneByOne(t testing.TB, r *Runner, q Query, keys ...string) (values []string) {
	t.Helper()
	for _, key := range keys {
		values = append(values, all(t, r, q, key)...)
	}
	return values
}

func numbers(from, to int) (keys []string) {
	for n := from; n < to; n++ {
		keys = append(keys, fmt.Sprint(n))
	}
	return keys
}

// What is asked together has the same values as what is asked alone, of every type and in every form. Types that a
// server describes in another way in a union are asked alone; the usual ones are not among them.
func typesAreTheSameTogether(t *testing.T, s *testbed.Server) {
	types := columnTypes(s.Flavor)
	names := slices.Sorted(maps.Keys(types))
	conn, err := s.DB().Conn(t.Context())
	testbed.Must(t, err)
	defer conn.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%.300s: %v", statement, err)
		}
	}
	exec("set names utf8mb4, time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
	var asked []Query
	for i, name := range names {
		exec(fmt.Sprintf("create table shop.t%d (id int primary key, c %s)", i, name))
		for row := range 16 {
			value := "null"
			if row > 0 {
				value = types[name][(row-1)%len(types[name])]
			}
			if row < 14 {
				exec(fmt.Sprintf("insert into shop.t%d values (%d, %s)", i, row, value))
			}
		}
		for _, form := range []event.Form{event.FormJSON, event.FormHash, event.FormString} {
			columns := "id, c"
			if form == event.FormString {
				columns = "c"
			}
			asked = append(asked, as(t, form, fmt.Sprintf("SELECT %s FROM t%d WHERE id = :id", columns, i)))
		}
	}
	r := newRunner(t, options(s, asked...))
	var apart []string
	for i, q := range asked {
		together := all(t, r, q, numbers(0, 16)...)
		if want := oneByOne(t, r, q, numbers(0, 16)...); !slices.Equal(together, want) {
			t.Errorf("%s as %s: together %.600q, one by one %.600q", names[i/3], q.As, together, want)
		}
		if name := names[i/3]; r.byID[q.ID].apart.Load() && q.As == event.FormJSON {
			apart = append(apart, name)
		}
	}
	t.Logf("asked alone: %s", strings.Join(apart, ", "))
	if s.Flavor == testbed.FlavorMariaDB {
		return // all are
	}
	for _, name := range []string{
		"bigint", "bigint unsigned", "int", "bool", "varchar(40)", "text", "char(10)", "decimal(10,2)", "double", "datetime",
		"timestamp null", "datetime(6)", "json",
	} {
		if types[name] == nil {
			t.Errorf("%s is not among the types", name)
		}
		if slices.Contains(apart, name) {
			t.Errorf("%s is asked alone", name)
		}
	}
}

// queriesAskedTogether are of many shapes: what a server cannot put into a union is asked alone, with the same values
// and the same errors.
func queriesAskedTogether(t *testing.T, s *testbed.Server) {
	s.Exec(t, "create table shop.t (id int primary key, grp int, name varchar(20), price decimal(10,2), key (grp))",
		"insert into shop.t values (1,1,'a',1.5),(2,1,'b',2.5),(3,2,'c',null),(4,3,'d',4),(5,3,'e',5),(6,4,'f',6)",
		"create view shop.v as select id, name from shop.t",
		"create table shop.other (id int, note text)", "insert into shop.other values (1,'x'),(1,'y'),(3,'z')")
	for _, c := range []struct {
		sql      string
		together bool
		change   func(*Query)
	}{
		{"SELECT id, name, price FROM t WHERE id = :id", true, nil},
		{"SELECT name, id FROM v WHERE id = :id", true, nil},
		{"SELECT grp, COUNT(*) AS n, SUM(price) AS total FROM t WHERE grp = :id GROUP BY grp", true, nil},
		{"SELECT COUNT(*) AS n, MAX(price) AS top, AVG(price) AS mean FROM t WHERE grp = :id", true, nil},
		{"SELECT id, name FROM t WHERE grp = :id ORDER BY id DESC LIMIT 1", true, nil},
		{"SELECT id, name FROM t WHERE grp = :id", true, nil}, // more than one row for some
		{"SELECT t.id, o.note FROM t LEFT JOIN other o ON o.id = t.id WHERE t.id = :id LIMIT 1", true, nil},
		{"SELECT :id AS asked, name FROM t WHERE id = :id", true, nil},
		{"SELECT id AS a, id AS a FROM t WHERE id = :id", false, nil},
		{"SELECT id, name FROM t WHERE grp = :id ORDER BY id DESC", false, many},
		{"WITH x AS (SELECT id, name FROM t WHERE id = :id) SELECT * FROM x", true, nil},
		{"SELECT id, (SELECT COUNT(*) FROM other WHERE other.id = t.id) AS notes FROM t WHERE id = :id", true, nil},
		{"SELECT id, name FROM t WHERE id = :id UNION SELECT id, note FROM other WHERE id = :id LIMIT 1", true, nil},
		{"SELECT id, name FROM nowhere WHERE id = :id", true, nil}, // it fails before,
		{"SELECT id, 0 AS `0`, name AS q FROM t q WHERE id = :id", true, nil},
		{"SELECT id, CONCAT(name, ' \"?\" -- ', '#') AS odd FROM t WHERE id = :id AND name <> '?'", true, nil},
	} {
		change := c.change
		if change == nil {
			change = func(*Query) {}
		}
		q := as(t, event.FormJSON, c.sql, change)
		r := newRunner(t, options(s, q))
		keys := numbers(1, 24)
		together := all(t, r, q, keys...)
		want := oneByOne(t, r, q, keys...)
		for i := range want {
			if together[i] != want[i] {
				t.Errorf("%s, key %s: together %s, alone %s", c.sql, keys[i], together[i], want[i])
			}
		}
		if is := r.byID[q.ID].size(16) > 1; is != c.together && s.Flavor == testbed.FlavorMySQL {
			t.Errorf("%s: asked together: %v, want %v", c.sql, is, c.together)
		}
	}
}
