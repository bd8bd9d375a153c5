package schema

import (
	"errors"
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
)

func TestColumnsFollowFromStatements(t *testing.T) {
	f := &fakeSource{}
	tr := tracker(t, f)
	apply(f, tr, "CREATE DATABASE shop", "CREATE TABLE a (id INT, name VARCHAR(20), old INT)",
		"ALTER TABLE a DROP old, CHANGE name title VARCHAR(20) FIRST, ADD price INT AFTER title")
	d, err := tr.Describe(tableMap("a", varchar, long, long))
	if err != nil {
		t.Fatal(err)
	}
	if got := names(d); got != "title price id" {
		t.Errorf("got %s", got)
	}
	if cs := d.Columns[0].Charset; cs == nil || cs.Name() != "utf8mb4" {
		t.Errorf("character set %v, want that of the server when the schema was made", cs)
	}
}

func TestContradictionIsDoubt(t *testing.T) {
	signed := func(unsigned bool) *binlog.TableMap {
		m := tableMap("a", long, varchar)
		m.HasSignedness, m.Columns[0].Unsigned = true, unsigned
		return m
	}
	inCharset := func(collation uint32) *binlog.TableMap {
		m := tableMap("a", long, varchar)
		m.HasCharsets, m.Columns[1].Collation = true, collation
		return m
	}
	named := func(names ...string) *binlog.TableMap {
		m := tableMap("a", long, varchar)
		m.HasNames = true
		for i, n := range names {
			m.Columns[i].Name = n
		}
		return m
	}
	for _, e := range []struct {
		what string
		m    *binlog.TableMap
		ok   bool
	}{
		{"the same", tableMap("a", long, varchar), true},
		{"fewer columns", tableMap("a", long), false},
		{"more columns", tableMap("a", long, varchar, long), false},
		{"another type", tableMap("a", varchar, varchar), false},
		{"another sign", signed(true), false},
		{"the same sign", signed(false), true},
		{"the same character set", inCharset(45), true}, // utf8mb4_general_ci
		{"another collation of it", inCharset(46), true},
		{"another character set", inCharset(28), false}, // gbk_chinese_ci
		{"the same names", named("ID", "name"), true},
		{"other names", named("id", "title"), false},
	} {
		f := &fakeSource{}
		tr := tracker(t, f)
		apply(f, tr, "CREATE TABLE a (id INT, name VARCHAR(20) CHARACTER SET utf8mb4)")
		_, err := tr.Describe(e.m)
		if got := err == nil; got != e.ok || err != nil && !errors.Is(err, ErrDoubt) {
			t.Errorf("%s: %v", e.what, err)
		}
		if _, again := tr.Describe(tableMap("a", long, varchar)); (again == nil) != e.ok {
			t.Errorf("%s: afterwards %v: a contradiction must not be forgotten", e.what, again)
		}
	}
}

func TestUnknownCharacterSetIsDoubtOnlyWhenTheRowsDoNotTell(t *testing.T) {
	f := &fakeSource{}
	tr := tracker(t, f)
	apply(f, tr, "CREATE TABLE a (id INT, name VARCHAR(20))") // in a schema of which nothing is known
	m := tableMap("a", long, varchar)
	m.HasCharsets, m.Columns[1].Collation = true, 45
	if d, err := tr.Describe(m); err != nil || d.Columns[1].Charset.Name() != "utf8mb4" {
		t.Errorf("with character sets: %v, %v", d, err)
	}
	if _, err := tr.Describe(tableMap("a", long, varchar)); !errors.Is(err, ErrDoubt) {
		t.Errorf("without: %v", err)
	}
}

func TestHiddenColumnsOfMariaDBStandAtTheEnd(t *testing.T) {
	const time, hash = binlog.ColumnTimestamp2, binlog.ColumnLongLong
	f := &fakeSource{mariaDB: true}
	tr := tracker(t, f)
	apply(f, tr, "CREATE TABLE a (id INT, n INT) WITH SYSTEM VERSIONING", "CREATE TABLE b (id INT, n INT)")
	for _, e := range []struct {
		table string
		types []binlog.ColumnType
		want  string
	}{
		{"a", []binlog.ColumnType{long, long, time, time}, "id n row_start row_end"},
		{"b", []binlog.ColumnType{long, long, hash}, "id n DB_ROW_HASH_1"},
		{"a", []binlog.ColumnType{long, long, time, time, hash, hash}, "id n row_start row_end DB_ROW_HASH_1 DB_ROW_HASH_2"},
	} {
		d, err := tr.Describe(tableMap(e.table, e.types...))
		if err != nil {
			t.Fatalf("%v: %v", e.types, err)
		}
		if got := names(d); got != e.want {
			t.Errorf("got %s, want %s", got, e.want)
		}
		for i, c := range d.Table.Columns {
			if c.Hidden != (i >= 2) {
				t.Errorf("%s: column %s is hidden: %t", e.want, c.Name, c.Hidden)
			}
		}
	}
	for table, types := range map[string][]binlog.ColumnType{"a": {long, long, hash}, "b": {long, long, time, time}} {
		if _, err := tr.Describe(tableMap(table, types...)); !errors.Is(err, ErrDoubt) {
			t.Errorf("table %s with columns that it has not: %v", table, err)
		}
	}
}

func TestDoubtsOfStatements(t *testing.T) {
	const create = "CREATE TABLE a (id INT, name INT)"
	for _, e := range []struct {
		after []string
		known string // the columns of shop.a; "": they are in doubt; "-": it does not exist
	}{
		{[]string{
			"INSERT INTO a VALUES (1)", "TRUNCATE a", "ALTER TABLE a ADD INDEX (id)", "GRANT ALL ON a TO b",
			"CALL p()",
		}, "id name"},
		{[]string{"ALTER TABLE a FROB id"}, ""},
		{[]string{"ALTER TABLE z FROB id"}, "id name"},
		{[]string{"FROB a"}, ""},
		{[]string{"ALTER TABLE a ADD c FROB(5)"}, ""},
		{[]string{"ALTER TABLE a DROP zz"}, ""},
		{[]string{"ALTER TABLE a ADD id INT"}, ""},
		{[]string{"ALTER TABLE a ADD c INT AFTER zz"}, ""},
		{[]string{"ALTER TABLE a RENAME COLUMN id TO name, RENAME COLUMN name TO id"}, "name id"},
		{[]string{"ALTER TABLE a DROP id, ADD id INT"}, "name id"},
		{[]string{"ALTER TABLE a DROP id, DROP id"}, ""},
		{[]string{"ALTER TABLE a CHANGE IF EXISTS z c INT"}, "id name"},
		{[]string{"ALTER TABLE a CHANGE IF EXISTS z c INT, ADD c INT"}, "id name c"},
		// MariaDB adds nothing.
		{[]string{"ALTER TABLE a CHANGE IF EXISTS z c INT, ADD IF NOT EXISTS C INT"}, ""},
		{[]string{"ALTER TABLE a ADD IF NOT EXISTS c INT, CHANGE IF EXISTS z c INT"}, ""},
		{[]string{"ALTER TABLE a RENAME COLUMN id TO c, ADD IF NOT EXISTS c INT"}, ""},
		{[]string{"ALTER TABLE a CONVERT TO CHARACTER SET latin1, ADD c INT"}, ""},
		{
			[]string{"ALTER TABLE a ADD e ENUM('ж') CHARACTER SET utf8mb4", "ALTER TABLE a CONVERT TO CHARACTER SET utf8mb4"},
			"id name e",
		},
		{[]string{"ALTER TABLE a ADD e ENUM('ж') CHARACTER SET koi8r", "ALTER TABLE a CONVERT TO CHARACTER SET utf8mb4"}, ""},
		{[]string{"ALTER TABLE a ADD SYSTEM VERSIONING"}, "id name"},
		{[]string{"CREATE TABLE IF NOT EXISTS a (z INT)"}, "id name"},
		{[]string{"DROP TABLE a"}, "-"},
		{[]string{"DROP TABLE a", "CREATE TABLE IF NOT EXISTS a (z INT)"}, "z"},
		{[]string{"DROP TABLE IF EXISTS z, a", "ALTER TABLE IF EXISTS a ADD c INT"}, "-"},
		{[]string{"DROP DATABASE shop"}, ""},
		{[]string{"DROP DATABASE shop", "CREATE DATABASE shop", "CREATE TABLE IF NOT EXISTS a (z INT)"}, "z"},
		{[]string{"CREATE DATABASE IF NOT EXISTS shop", "CREATE OR REPLACE TABLE a (z INT)"}, "z"},
		{[]string{"RENAME TABLE a TO c", "CREATE TABLE a LIKE c", "ALTER TABLE a ADD z INT"}, "id name z"},
		{[]string{
			"CREATE TABLE _a_gho LIKE a", "ALTER TABLE _a_gho ADD z INT FIRST",
			"RENAME TABLE a TO _a_del, _a_gho TO a",
		}, "z id name"},
		{
			[]string{"CREATE TABLE x.y LIKE a", "ALTER TABLE x.y DROP id", "DROP TABLE a", "RENAME TABLE x.y TO shop.a"},
			"name",
		},
		{[]string{"RENAME TABLE a TO c, z TO a"}, ""},
		{[]string{"RENAME TABLE IF EXISTS a TO c"}, "-"},
		{[]string{"RENAME TABLE a TO c", "RENAME TABLE IF EXISTS a TO z", "RENAME TABLE c TO a"}, "id name"},
		{[]string{"ALTER TABLE a RENAME TO a"}, "id name"},
		{[]string{"CREATE OR REPLACE TABLE a SELECT 1"}, ""},
		{[]string{"SET STATEMENT sql_mode='' FOR ALTER TABLE a ADD z INT"}, "id name z"},
		{[]string{"SET STATEMENT sql_mode='' FOR ALTER TABLE a ADD z REAL"}, ""},
	} {
		f := &fakeSource{mariaDB: true}
		tr := tracker(t, f)
		apply(f, tr, create)
		apply(f, tr, e.after...)
		got := ""
		switch en := tr.get(ddl.Name{Schema: "shop", Table: "a"}); en.status {
		case absent:
			got = "-"
		case known:
			var cols []string
			for _, c := range en.def.columns {
				cols = append(cols, c.name)
			}
			got = strings.Join(cols, " ")
		}
		if got != e.known {
			t.Errorf("%q: got %q, want %q", e.after, got, e.known)
		}
	}
}

func TestFailedAndTemporaryStatementsAreDoubt(t *testing.T) {
	for _, s := range []ddl.Session{{Failed: true}, {Temporary: true}} {
		f := &fakeSource{}
		tr := tracker(t, f)
		apply(f, tr, "CREATE TABLE a (id INT)", "CREATE TABLE b (id INT)")
		s.Schema = []byte("shop")
		st := ddl.Parse([]byte("ALTER TABLE a ADD z INT"), &s)
		tr.Apply(&st)
		if _, err := tr.Describe(tableMap("a", long)); !errors.Is(err, ErrDoubt) {
			t.Errorf("%+v: %v", s, err)
		}
		if _, err := tr.Describe(tableMap("b", long)); err != nil {
			t.Errorf("%+v: the other table: %v", s, err)
		}
	}
}

func TestNamesFoldWhereTheServerFoldsThem(t *testing.T) {
	tr, err := New(Options{Wanted: func(_, table string) bool { return table == "a" }, FoldNames: true})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeSource{}
	apply(f, tr, "CREATE TABLE SHOP.A (id INT)", "ALTER TABLE Shop.a ADD z INT")
	if d, err := tr.Describe(tableMap("a", long, long)); err != nil || names(d) != "id z" {
		t.Errorf("got %v, %v", d, err)
	}
}
