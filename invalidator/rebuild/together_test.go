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

// all runs a query for several keys and returns their values as get does; an error is its text. Each key is the value
// of all parameters.
func all(t testing.TB, r *Runner, q Query, keys ...string) []string {
	t.Helper()
	values := make([]string, len(keys))
	asked := make([]event.Fields, len(keys))
	for i, key := range keys {
		asked[i] = params(slices.Repeat([]string{key}, len(q.Params))...)
	}
	r.Query(t.Context(), DefaultSource, q.ID, asked, nil, func(i int, value event.Fields, missing bool, err error) bool {
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
		return true
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
	exec := anyValue(t, s)
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
	var r *Runner
	var apart []string
	for i, q := range asked {
		if i%(maxUnions/2) == 0 { // a session asks for no more than so many together
			r = newRunner(t, options(s, asked[i:min(i+maxUnions/2, len(asked))]...))
		}
		together := all(t, r, q, numbers(0, 16)...)
		if want := oneByOne(t, r, q, numbers(0, 16)...); !slices.Equal(together, want) {
			t.Errorf("%s as %s: together %.600q, one by one %.600q", names[i/3], q.As, together, want)
		}
		if name := names[i/3]; r.byID[q.ID].isAlone() && q.As == event.FormJSON {
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

// expressionsAreTheSameTogether compares expressions, which may have values that are none of their type: a DECIMAL with
// fewer decimals than it has, a year before 1901, a text that is longer than it can be.
func expressionsAreTheSameTogether(t *testing.T, s *testbed.Server) {
	if s.Flavor == testbed.FlavorMariaDB {
		return // it is not asked for several
	}
	columns := map[string]string{
		"id": "int", "grp": "int", "name": "varchar(20)", "c": "char(5)", "l": "varchar(20) character set latin1",
		"price": "decimal(10,2)", "qty": "int unsigned", "tiny": "tinyint", "big": "bigint unsigned", "f": "float",
		"d": "double", "fd": "double(10,3)", "ff": "float(8,2)", "dt": "datetime", "dt3": "datetime(3)", "dt6": "datetime(6)",
		"ts": "timestamp null", "da": "date", "ti": "time", "ti3": "time(3)", "y": "year", "e": "enum('a','b','cc')",
		"st": "set('x','y')", "b": "bit(9)", "bin": "binary(4)", "vb": "varbinary(9)", "bl": "blob", "tx": "text",
		"j": "json", "g": "geometry", "u": "decimal(65,30)",
	}
	var defs, sets []string
	values := map[string]string{
		"name": "if(id % 4, concat(repeat('ü', id % 7), 'n '), null)", "c": "'c '", "l": "'é'", "tiny": "-id",
		"d": "id / 7e5", "price": "if(id % 3, id * 1.25, null)", "big": "18446744073709551615 - id", "f": "id / 7",
		"fd": "id / 9",
		"ff": "id / 9", "dt": "'2024-01-01 01:02:03' + interval id day", "dt3": "'2024-01-01 01:02:03.125'",
		"dt6": "'2024-01-01 01:02:03.000001'", "ts": "'2024-05-05 05:05:05'", "da": "'2024-01-31' + interval id day",
		"ti": "sec_to_time(id * 10000)", "ti3": "'-00:00:01.5'", "y": "1990 + id", "e": "1 + id % 3", "st": "id % 4",
		"b": "id * 13", "bin": "x'01'", "vb": "x'00ff'", "bl": "repeat(x'ab', id)", "tx": "repeat('t', id * 10)",
		"j": "json_object('a', id, 'b', json_array(1.50, 'x', null))", "g": "point(id, 1)", "u": "id / 7", "grp": "id % 5",
		"qty": "id * 100000",
	}
	names := slices.Sorted(maps.Keys(columns))
	for _, name := range names {
		if def := columns[name]; name == "id" {
			defs = append(defs, "id int primary key")
		} else {
			defs, sets = append(defs, name+" "+def), append(sets, name+" = "+values[name])
		}
	}
	s.Exec(t, "create table shop.x ("+strings.Join(defs, ", ")+")")
	for id := 1; id < 17; id++ {
		s.Exec(t, fmt.Sprintf("insert into shop.x (id) values (%d)", id))
	}
	s.Exec(t, "update shop.x set "+strings.Join(sets, ", "))
	expressions := []string{
		"if(id % 2, 1.5, 2.25)", "if(id % 2, price, price * 0.9)", "case when price > 10 then price else u end",
		"(select if(sum(price) > 20, sum(price), 0) from x o where o.grp = x.grp)", "lag(price, 1, 0) over ()",
		"year('1000-01-01')", "year('0070-01-01')", "concat(d)", "if(id % 2, d, 'none')", "coalesce(d, '')",
		"round(fd * 1.5, 3)", "if(id % 2, bin, 'x')", "if(id % 2, c, 'x ')", "greatest(c, da)", "any_value(b)",
		"coalesce(:id, 5)", ":id + 1",
		"if(id % 2, fd, u)",
	}
	var pairs []string
	for _, a := range names {
		for _, form := range []string{
			"abs(%s)", "round(%s)", "-%s", "concat(%s)", "max(%s)", "min(%s)", "sum(%s)", "avg(%s)", "json_array(%s)", "hex(%s)",
			"std(%s)", "reverse(%s)", "trim(%s)", "year(%s)", "date(%s)", "time(%s)", "last_day(%s)", "sec_to_time(%s)",
			"cast(%s as binary)", "ifnull(%s, 0)",
		} {
			pairs = append(pairs, fmt.Sprintf(form, a))
		}
		for _, b := range append([]string{"0", "1.5", "'x'", "null", "1e0"}, names...) {
			if a == "b" || b == "b" {
				continue // IF(bit, number) alone is the bits as a text that is called a number
			}
			pairs = append(pairs, fmt.Sprintf("if(id %% 2, %s, %s)", a, b), fmt.Sprintf("coalesce(%s, %s)", a, b),
				fmt.Sprintf("greatest(%s, %s)", a, b), fmt.Sprintf("nullif(%s, %s)", a, b),
				fmt.Sprintf("lag(%s, 1, %s) over ()", a, b))
		}
	}
	rng := testbed.Seeded(t)
	rng.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	expressions = append(expressions, pairs[:testbed.Cut(150, len(pairs))]...)
	var asked []Query
	for _, e := range expressions {
		asked = append(asked, as(t, event.FormJSON, "SELECT "+e+" AS v FROM x WHERE id = :id"))
	}
	var r *Runner
	united := 0
	for i, q := range asked {
		if i%(maxUnions/2) == 0 { // a session asks for no more than so many together
			r = newRunner(t, options(s, asked[i:min(i+maxUnions/2, len(asked))]...))
		}
		together, isAlone := all(t, r, q, numbers(1, 17)...), r.byID[q.ID].isAlone()
		if want := oneByOne(t, r, q, numbers(1, 17)...); !slices.Equal(together, want) {
			t.Errorf("%s: together %.600q, one by one %.600q", expressions[i], together, want)
		}
		if !isAlone {
			united++
		}
	}
	if united == 0 || united == len(asked) {
		t.Errorf("%d of %d expressions are asked together", united, len(asked))
	}
}

// A table that is altered while its query is prepared has its new values, together and alone.
func aTableIsAlteredBelowQueriesAskedTogether(t *testing.T, s *testbed.Server) {
	s.Exec(t, "create table shop.t (id int primary key, v varchar(20), w int)",
		"insert into shop.t values (1, 'a', 1), (2, 'b', 2), (3, 'a', 3), (4, 'b', 4), (5, 'a', 5)")
	q := as(t, event.FormJSON, "SELECT * FROM t WHERE id = :id")
	r := newRunner(t, options(s, q))
	for _, change := range []string{
		"", "add u decimal(10,3) not null default 1.5 after id", "modify v enum('a','b')", "modify w bigint unsigned",
		"modify w decimal(12,4)", "drop u", "modify w datetime null default null", "rename column v to vv",
		"modify vv varchar(20), modify w int", "modify w int zerofill", "add x year default 2024, add y bit(3) default 5",
	} {
		if change != "" {
			if strings.Contains(change, "modify w datetime") {
				s.Exec(t, "alter table shop.t drop w", "alter table shop.t add w datetime")
			} else {
				s.Exec(t, "update shop.t set id = id", "alter table shop.t "+change)
			}
		}
		fresh := newRunner(t, options(s, q))
		for range 2 {
			together := all(t, r, q, numbers(1, 7)...)
			if want := oneByOne(t, fresh, q, numbers(1, 7)...); !slices.Equal(together, want) {
				t.Errorf("after %q: together %.600q, one by one %.600q", change, together, want)
			}
			if alone := oneByOne(t, r, q, numbers(1, 7)...); !slices.Equal(alone, together) {
				t.Errorf("after %q: together %.600q, alone %.600q", change, together, alone)
			}
			r.byID[q.ID].aloneUntil.Store(0) // a minute passes
		}
	}
	if s.Flavor == testbed.FlavorMySQL && r.byID[q.ID].isAlone() {
		t.Error("it is asked alone forever")
	}
}

// Statements for several keys take much of the server's memory: a session has some of them, whatever the queries.
func statementsForSeveralKeysAreBounded(t *testing.T, s *testbed.Server) {
	count := func() (n int) {
		var name string
		testbed.Must(t, s.DB().QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'").Scan(&name, &n))
		return n
	}
	s.Exec(t, "create table shop.t (id int primary key)")
	var asked []Query
	for i := range 2 * maxUnions {
		asked = append(asked, as(t, event.FormJSON, fmt.Sprintf("SELECT id AS v%d FROM t WHERE id = :id", i)))
	}
	r := newRunner(t, options(s, asked...))
	before := count()
	for _, q := range asked {
		if got := all(t, r, q, numbers(0, 20)...); len(got) != 20 || slices.Contains(got, "") {
			t.Errorf("%q", got)
		}
	}
	if n := count() - before - len(asked); n > maxUnions || n == 0 && s.Flavor == testbed.FlavorMySQL {
		t.Errorf("%d statements for several keys, want at most %d", n, maxUnions)
	}
	// So it is for one key, whatever kinds of parameters there are.
	q := as(t, event.FormJSON, "SELECT id FROM t WHERE id IN (:a, :b)")
	r = newRunner(t, options(s, q))
	before = count()
	for _, a := range []string{"1", "1.5", "x", "NULL"} {
		for _, b := range []string{"1", "1.5", "x", "NULL"} {
			if got := get(t, r, q, a, b); got != "missing" {
				t.Errorf("%s, %s: %s", a, b, got)
			}
		}
	}
	if n := count() - before; n > maxKinds || n < 2 {
		t.Errorf("%d statements for one key, want at most %d", n, maxKinds)
	}
}

// A value depends on no value that was asked for before: MySQL prepares a statement again for a parameter that is not
// what it expects, and would then read all others in that way.
func parametersOfOthersMakeNoDifference(t *testing.T, s *testbed.Server) {
	for _, sql := range []string{
		"SELECT coalesce(:a, 5) AS v", ":a + 1", "ifnull(:a, 7)", "mod(:a, 3)", "nullif(:a, 3)", "greatest(:a, 5)",
	} {
		q := as(t, event.FormJSON, "SELECT "+strings.TrimSuffix(strings.TrimPrefix(sql, "SELECT "), " AS v")+" AS v")
		r, fresh := newRunner(t, options(s, q)), newRunner(t, options(s, q))
		want := get(t, fresh, q, slices.Repeat([]string{"1"}, len(q.Params))...)
		for _, other := range []string{"2.50", "x", "NULL", strings.Repeat("9", 40)} {
			all(t, r, q, other)
			if got := get(t, r, q, slices.Repeat([]string{"1"}, len(q.Params))...); got != want {
				t.Errorf("%s: %s after %q, %s before", q.Text, got, other, want)
			}
		}
		// So it is with those of the same kind.
		for _, c := range [][2]string{
			{"2.5", strings.Repeat("9", 40)}, {"1e3", "2.50"}, {"2.50", "1e3"}, {"x", "2024-01-01"},
		} {
			fresh, r := newRunner(t, options(s, q)), newRunner(t, options(s, q))
			keys := func(v string) []string { return slices.Repeat([]string{v}, len(q.Params)) }
			want := get(t, fresh, q, keys(c[0])...)
			all(t, r, q, c[1])
			if got := get(t, r, q, keys(c[0])...); got != want {
				t.Errorf("%s of %s: %s after %q, %s before", q.Text, c[0], got, c[1], want)
			}
		}
	}
}

// MySQL would compare a BIGINT as a DOUBLE once one of the parameters was a decimal and another one a text.
func noKeyHasTheRowOfAnother(t *testing.T, s *testbed.Server) {
	const big = "9007199254740993" // as a DOUBLE it is the number before it
	s.Exec(t, "create table shop.t (id bigint primary key)",
		"insert into shop.t values (9007199254740992), ("+big+"), (1)")
	q := as(t, event.FormJSON, "SELECT id FROM t WHERE id = :ref")
	alone := newRunner(t, options(s, q))
	for _, text := range []string{"abc", "1.5", "NULL", ""} {
		get(t, alone, q, "1")
		s.Exec(t, "flush tables") // the statement is prepared again
		get(t, alone, q, text)
		if got := get(t, alone, q, big); got != `{"id":`+big+"}" {
			t.Errorf("alone after %q: %s", text, got)
		}
	}
	for _, odd := range []string{"1.5", "99999999999999999999999999", "18446744073709551615", "1e3"} {
		for _, text := range []string{"abc", "É", "", "NaN"} {
			r := newRunner(t, options(s, q))
			all(t, r, q, "1", odd, "1", text)
			for _, keys := range [][]string{{"1", "1", "1", big}, {"1", odd, "1", big}, {text, odd, "NULL", big}} {
				if got := all(t, r, q, keys...); got[3] != `value: {"id":`+big+"}" {
					t.Errorf("%q after %s and %q: %q", keys, odd, text, got)
				}
			}
		}
	}
}

// One key's parameters that cannot be are that key's fault alone; and a caller that has enough gets no more.
func eachKeyIsAnsweredForItself(t *testing.T, s *testbed.Server) {
	q := as(t, event.FormJSON, "SELECT :a AS a")
	r := newRunner(t, options(s, q))
	asked := []event.Fields{params("1"), params("2", "3"), params("4"), params("5")}
	ask := func(most int) (answers []string) {
		r.Query(t.Context(), DefaultSource, q.ID, asked, nil, func(i int, v event.Fields, _ bool, err error) bool {
			if err != nil {
				answers = append(answers, fmt.Sprint(i, " error"))
			} else {
				answers = append(answers, fmt.Sprint(i, " ", joined(t, v)))
			}
			return len(answers) < most
		})
		slices.Sort(answers)
		return answers
	}
	if got := ask(9); !slices.Equal(got, []string{`0 {"a":"1"}`, "1 error", `2 {"a":"4"}`, `3 {"a":"5"}`}) {
		t.Errorf("%q", got)
	}
	if got := ask(2); len(got) != 2 {
		t.Errorf("%q, want two answers", got)
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
		{"SELECT grp, COUNT(*) AS n, SUM(price) AS total FROM t WHERE grp = :id GROUP BY grp", false, nil},
		{"SELECT COUNT(*) AS n, MAX(price) AS top, AVG(price) AS mean FROM t WHERE grp = :id", false, nil},
		{"SELECT COUNT(*) AS n, MAX(id) AS top FROM t WHERE grp = :id", true, nil},
		{"SELECT id, name FROM t WHERE grp = :id ORDER BY id DESC LIMIT 1", true, nil},
		{"SELECT id, name FROM t WHERE grp = :id", true, nil}, // more than one row for some
		{"SELECT t.id, o.note FROM t LEFT JOIN other o ON o.id = t.id WHERE t.id = :id LIMIT 1", true, nil},
		{"SELECT :id AS asked, name FROM t WHERE id = :id", false, nil},
		{"SELECT /*+ SET_VAR(sql_select_limit = 1) */ id, name FROM t WHERE grp = :id", false, nil},
		{"SELECT id AS a, id AS a FROM t WHERE id = :id", false, nil},
		{"SELECT id, name FROM t WHERE grp = :id ORDER BY id DESC", false, many},
		{"WITH x AS (SELECT id, name FROM t WHERE id = :id) SELECT * FROM x", true, nil},
		{"SELECT id, (SELECT COUNT(*) FROM other WHERE other.id = t.id) AS notes FROM t WHERE id = :id", true, nil},
		{"SELECT id, name FROM t WHERE id = :id UNION SELECT id, note FROM other WHERE id = :id LIMIT 1", false, nil},
		{"SELECT id, name FROM nowhere WHERE id = :id", true, nil}, // it fails before,
		{"SELECT id, 0 AS `0`, name AS q FROM t q WHERE id = :id", true, nil},
		{"SELECT id, CONCAT(name, ' \"?\" -- ', '#') AS odd FROM t WHERE id = :id AND name <> '?'", false, nil},
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
