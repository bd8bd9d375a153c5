package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
)

// now is what the server says in these tests: shop.a (id, title, price), shop.b (id).
func now() map[string][][3]string {
	return map[string][][3]string{
		"shop.a": {{"id", "int(11)", ""}, {"title", "int(11)", ""}, {"price", "int(11)", ""}},
		"shop.b": {{"id", "int(11)", ""}},
		"shop.z": {{"id", "int(11)", ""}},
	}
}

func resolve(t testing.TB, f *fakeSource, tr *Tracker, at uint64, m *binlog.TableMap) (*binlog.Definition, error) {
	t.Helper()
	return tr.Resolve(t.Context(), f, f, BinlogPos{"binlog.000001", at}, m)
}

func TestDoubtIsResolvedIfNothingTouchedTheTableSince(t *testing.T) {
	for _, e := range []struct {
		since []string
		types int
		want  string // the columns; "": they cannot be known
		why   string
	}{
		{nil, 3, "id title price", ""},
		{
			[]string{"BEGIN", "COMMIT", "ALTER TABLE b ADD x INT", "INSERT INTO a VALUES (1)", "TRUNCATE a", "DROP TABLE z"},
			3,
			"id title price", "",
		},
		{
			[]string{"ALTER TABLE a ADD INDEX (id), ENGINE=InnoDB", "CREATE TABLE IF NOT EXISTS a (x INT)"},
			3, "id title price",
			"",
		},
		{[]string{"ALTER TABLE a ADD price INT"}, 2, "id title", ""},
		{[]string{"ALTER TABLE a RENAME COLUMN name TO title", "ALTER TABLE a ADD (price INT)"}, 2, "id name", ""},
		{[]string{"ALTER TABLE a RENAME COLUMN id TO title, RENAME COLUMN title TO id"}, 3, "title id price", ""},
		{[]string{"ALTER TABLE a ADD x INT", "ALTER TABLE a RENAME COLUMN x TO price"}, 2, "id title", ""},
		{[]string{"ALTER TABLE a ADD gone INT"}, 3, "", "altered"},
		{[]string{"ALTER TABLE a ADD IF NOT EXISTS price INT"}, 2, "", "altered"},
		{[]string{"ALTER TABLE a DROP old"}, 4, "", "altered"},
		{[]string{"ALTER TABLE a MODIFY price INT FIRST"}, 3, "", "altered"},
		{[]string{"ALTER TABLE a CONVERT TO CHARACTER SET utf8mb4"}, 3, "", "altered"},
		{[]string{"ALTER TABLE a ADD SYSTEM VERSIONING", "ALTER TABLE a DROP SYSTEM VERSIONING"}, 3, "id title price", ""},
		{[]string{"ALTER TABLE a FROB"}, 3, "", "altered"},
		{[]string{"RENAME TABLE a TO c, _a_gho TO a"}, 3, "", "rename"},
		{[]string{"DROP TABLE a", "CREATE TABLE a (id INT, title INT, price INT)"}, 3, "", "drop"},
		{[]string{"CREATE OR REPLACE TABLE a (id INT, title INT, price INT)"}, 3, "", "create"},
		{[]string{"DROP DATABASE shop"}, 3, "", "drop schema"},
		{[]string{"FROB"}, 3, "", "could not be read"},
	} {
		f := &fakeSource{tables: now(), log: append([]string{"FROB before"}, e.since...), mariaDB: true}
		tr := tracker(t, f)
		types := []binlog.ColumnType{long, long, long, long}[:e.types]
		d, err := resolve(t, f, tr, 1, tableMap("a", types...))
		switch {
		case e.want != "" && err != nil:
			t.Errorf("%q: %v", e.since, err)
		case e.want != "" && names(d) != e.want:
			t.Errorf("%q: got %s, want %s", e.since, names(d), e.want)
		case e.want == "" && !errors.Is(err, ErrUnknownSchema):
			t.Errorf("%q: got %v, %v, want it unknown", e.since, d, err)
		case e.want == "" && (!strings.Contains(err.Error(), e.why) || strings.Contains(err.Error(), "--skip")):
			t.Errorf("%q: the error does not say %q, or advises to skip: %v", e.since, e.why, err)
		}
		if len(e.since) == 0 && f.scans != 0 {
			t.Error("looked through a binlog that has nothing more")
		}
	}
}

// TestUndoneColumnsComeBackWithTheStream follows the stream over what was undone.
func TestUndoneColumnsComeBackWithTheStream(t *testing.T) {
	f := &fakeSource{
		tables: now(),
		log:    []string{"ALTER TABLE a RENAME COLUMN name TO title", "ALTER TABLE a ADD price INT"},
	}
	tr := tracker(t, f)
	for i, want := range []string{"id name", "id title", "id title price"} {
		m := tableMap("a", []binlog.ColumnType{long, long, long}[:len(strings.Fields(want))]...)
		d, err := tr.Describe(m)
		if i == 0 {
			d, err = resolve(t, f, tr, 0, m)
		}
		if err != nil || names(d) != want {
			t.Fatalf("at %d: %v, want %s", i, err, want)
		}
		apply(f, tr, append(f.log, "COMMIT")[i])
	}
}

func TestOnePassResolvesAllWantedTables(t *testing.T) {
	f := &fakeSource{tables: now(), log: []string{"ALTER TABLE a ADD price INT", "CREATE TABLE b (id INT)"}}
	tr := tracker(t, f)
	if _, err := resolve(t, f, tr, 0, nil); err != nil {
		t.Fatal(err)
	}
	if f.scans != 1 {
		t.Errorf("looked through the binlog %d times", f.scans)
	}
	if d, err := tr.Describe(tableMap("a", long, long)); err != nil || names(d) != "id title" {
		t.Errorf("a: %v", err)
	}
	if s := tr.get(ddl.Name{Schema: "shop", Table: "b"}).status; s != absent {
		t.Errorf("b, made later, has status %d", s)
	}
	if s := tr.get(ddl.Name{Schema: "shop", Table: "z"}).status; s != doubt {
		t.Errorf("z, which nobody wants, has status %d", s)
	}
	if !tr.Changed() {
		t.Error("nothing to save")
	}
	apply(f, tr, f.log...)
	if d, err := tr.Describe(tableMap("b", long)); err != nil || names(d) != "id" {
		t.Errorf("b: %v", err)
	}
}

func TestTableThatIsGoneIsUnknown(t *testing.T) {
	f := &fakeSource{tables: map[string][][3]string{}}
	_, err := resolve(t, f, tracker(t, f), 0, tableMap("a", long))
	if !errors.Is(err, ErrUnknownSchema) || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("got %v", err)
	}
}

func TestContradictionOfTheServerIsUnknown(t *testing.T) {
	f := &fakeSource{tables: now()}
	_, err := resolve(t, f, tracker(t, f), 0, tableMap("a", long, varchar, long))
	if !errors.Is(err, ErrUnknownSchema) || !strings.Contains(err.Error(), "not what its rows say") {
		t.Errorf("got %v", err)
	}
}

// TestAlterBetweenTheQuestions: the table is altered after its columns were asked for, and before the end of the binlog
// is.
func TestAlterBetweenTheQuestions(t *testing.T) {
	f := &fakeSource{tables: now()}
	f.tables["shop.a"] = f.tables["shop.a"][:2]
	f.asked = func(query string) {
		if query == "SHOW MASTER STATUS" && len(f.log) == 0 {
			f.tables = now()
			f.log = append(f.log, "ALTER TABLE a ADD price INT")
		}
	}
	d, err := resolve(t, f, tracker(t, f), 0, tableMap("a", long, long))
	if err != nil || names(d) != "id title" {
		t.Errorf("got %v", err)
	}
}

func TestErrorsOfTheSourceAreHandedOn(t *testing.T) {
	for _, e := range []struct {
		f    *fakeSource
		want string
	}{
		{
			&fakeSource{tables: now(), log: []string{"COMMIT"}, scanErr: errFake},
			"look through the binlog from binlog.000001:0 to binlog.000001:1: fake",
		},
	} {
		_, err := resolve(t, e.f, tracker(t, e.f), 0, tableMap("a", long))
		if err == nil || errors.Is(err, ErrUnknownSchema) || !strings.Contains(err.Error(), e.want) {
			t.Errorf("got %v, want %s", err, e.want)
		}
	}
	f := &fakeSource{tables: now()}
	if _, err := resolve(t, f, tracker(t, f), 7, tableMap("a", long)); err == nil ||
		!strings.Contains(err.Error(), "ends at binlog.000001:0, before") {
		t.Errorf("a source that is behind: %v", err)
	}
}

// A table that may not be read, or is locked, is not known, and says why. All others are, and it is asked for again
// only once it may be read.
func TestATableThatMayNotBeReadKeepsNoOtherFromBeingKnown(t *testing.T) {
	for _, hasNames := range []bool{false, true} {
		for _, locked := range []bool{false, true} {
			f := &fakeSource{tables: now(), denied: []string{"shop.b"}, log: []string{"COMMIT"}}
			says := "GRANT SELECT ON `shop`.`b`"
			if locked {
				f.denied, f.locked, says = nil, "shop.b", "it is locked on the source"
			}
			f.tables["shop.b"] = [][3]string{{"id", "int(11) unsigned", ""}}
			tr := tracker(t, f)
			a, b := tableMap("a", long, long, long), unsigned(tableMap("b", long), 0)
			if hasNames {
				named(a, "id", "title", "price")
				named(b, "id")
			}
			if d, err := resolve(t, f, tr, 0, a); err != nil || names(d) != "id title price" {
				t.Fatalf("another one: %v", err)
			}
			denied := tr.IsDenied(ddl.Name{Schema: "shop", Table: "b"})
			if !hasNames && (len(tr.Unread()) != 1 || denied == locked) {
				t.Errorf("may not be read: %v, denied: %t", tr.Unread(), denied)
			}
			asked := 0
			f.asked = func(query string) {
				if strings.HasPrefix(query, "SELECT * FROM `shop`.`b`") {
					asked++
				}
			}
			if _, err := resolve(t, f, tr, 0, tableMap("y", long)); !hasNames && (errors.Is(err, ErrDoubt) || asked != 0) {
				t.Errorf("another table: %v, and the server was asked for this one %d times", err, asked)
			}
			d, err := resolve(t, f, tr, 0, b)
			why := fmt.Sprint(err)
			if hasNames && err == nil {
				why = fmt.Sprint(d.Columns[0].Unknown)
			} else if !errors.Is(err, ErrUnknownSchema) {
				t.Errorf("got %v, %v", d, err)
			}
			if !strings.Contains(why, says) {
				t.Errorf("it says %s", why)
			}
			if _, again := tr.Describe(b); fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("the second time: %v", again)
			}
			if _, err := resolve(t, f, tr, 0, tableMap("z", long)); errors.Is(err, ErrDoubt) || len(tr.Unread()) != 1 {
				t.Errorf("yet another table: %v, may not be read: %v", err, tr.Unread())
			}
			if !hasNames && asked != 1 {
				t.Errorf("the server was asked for it %d times, want once", asked)
			}
			f.denied, f.locked = nil, ""
			for _, n := range tr.Unread() {
				if m := tr.Allowed(n); m != b {
					t.Errorf("its rows came under %v", m)
				}
			}
			if _, err := tr.Describe(b); !errors.Is(err, ErrDoubt) {
				t.Errorf("once it may be read: %v", err)
			}
			if d, err := resolve(t, f, tr, 0, b); err != nil || d.Columns[0].Unknown != nil || len(tr.Unread()) != 0 {
				t.Errorf("once it was asked for: %v, %v", d, err)
			}
		}
	}
}

// While rows wait for an answer, the server is asked for no other table once one was locked; at a start it is asked for
// all.
func TestTablesThatAreLockedDoNotAddUp(t *testing.T) {
	for _, c := range []struct {
		m      *binlog.TableMap
		locked string
		want   int
	}{{tableMap("c", long), "all", 1}, {nil, "all", 4}} {
		f := &fakeSource{locked: c.locked, log: []string{"COMMIT"}, tables: map[string][][3]string{}}
		for _, n := range []string{"a", "b", "c", "d"} {
			f.tables["shop."+n] = [][3]string{{"id", "int", ""}}
		}
		asked := 0
		f.asked = func(query string) {
			if strings.HasPrefix(query, "SELECT * FROM") {
				asked++
			}
		}
		tr, err := New(Options{Wanted: func(s, _ string) bool { return s == "shop" }})
		if err != nil {
			t.Fatal(err)
		}
		_, err = resolve(t, f, tr, 0, c.m)
		if mine := c.want == 1; mine != errors.Is(err, ErrUnknownSchema) || !mine && err != nil {
			t.Errorf("got %v", err)
		}
		if asked != c.want {
			t.Errorf("the server was asked for %d tables, want %d", asked, c.want)
		}
	}
}

// What the binlog says of a table that may not be read counts: it was made after the place of the stream.
func TestATableThatMayNotBeReadIsNotTakenForAbsent(t *testing.T) {
	f := &fakeSource{tables: now(), denied: []string{"shop.b"}, log: []string{"COMMIT"}}
	tr := tracker(t, f)
	if _, err := resolve(t, f, tr, 0, tableMap("a", long, long, long)); err != nil {
		t.Fatal(err)
	}
	apply(f, tr, "CREATE TABLE IF NOT EXISTS b (x INT)")
	if d, err := tr.Describe(tableMap("b", long)); !errors.Is(err, ErrDoubt) && !errors.Is(err, ErrUnknownSchema) {
		t.Errorf("it is known as %v, %v", d, err)
	}
	apply(f, tr, "DROP TABLE b", "CREATE TABLE b (y INT)")
	if d, err := tr.Describe(tableMap("b", long)); err != nil || names(d) != "y" {
		t.Errorf("once it is made: %v, %v", d, err)
	}
}

// named gives the columns of a TABLE_MAP names, as binlog_row_metadata=FULL does.
func named(m *binlog.TableMap, names ...string) *binlog.TableMap {
	m.HasNames, m.HasSignedness = true, true
	for i, n := range names {
		m.Columns[i].Name = n
	}
	return m
}

func TestNamedColumnsNeedNoLookThroughTheBinlog(t *testing.T) {
	f := &fakeSource{tables: now(), log: []string{"DROP TABLE a", "FROB"}}
	tr := tracker(t, f)
	d, err := resolve(t, f, tr, 0, named(tableMap("a", long, long), "old", "id"))
	if err != nil || names(d) != "old id" || f.scans != 0 {
		t.Errorf("got %v, %d looks", err, f.scans)
	}
	if tr.Changed() {
		t.Error("what is not proven was saved")
	}
	if _, err := tr.Describe(tableMap("a", long, long, long)); !errors.Is(err, ErrDoubt) {
		t.Errorf("without names, the same knowledge is none: %v", err)
	}
	apply(f, tr, "ALTER TABLE a ADD x INT")
	if _, err := tr.Describe(named(tableMap("a", long), "id")); !errors.Is(err, ErrDoubt) {
		t.Errorf("after an ALTER TABLE it must be asked again: %v", err)
	}
}

func TestNamedColumnsWithSpecialTypesAreProven(t *testing.T) {
	tables := map[string][][3]string{"shop.a": {{"id", "int(5) unsigned zerofill", ""}, {"n", "int(11)", ""}}}
	zerofill := func(d *binlog.Definition) uint8 { return d.Columns[0].Zerofill }
	rows := unsigned(named(tableMap("a", long, long), "id", "n"), 0)
	f := &fakeSource{tables: tables, log: []string{"COMMIT"}}
	d, err := resolve(t, f, tracker(t, f), 0, rows)
	if err != nil || zerofill(d) != 5 || d.Columns[0].Unknown != nil || f.scans != 1 {
		t.Errorf("untouched: %v, %+v, %d looks", err, d, f.scans)
	}
	f = &fakeSource{tables: tables, log: []string{"ALTER TABLE a MODIFY id INT(5) ZEROFILL"}}
	d, err = resolve(t, f, tracker(t, f), 0, rows)
	if err != nil {
		t.Fatal(err)
	}
	if d.Columns[0].Unknown == nil || d.Columns[1].Unknown != nil {
		t.Errorf("touched: id %v, n %v: only the text of id is not known", d.Columns[0].Unknown, d.Columns[1].Unknown)
	}
}

func TestNamedColumnsOfATableThatIsGone(t *testing.T) {
	f := &fakeSource{tables: map[string][][3]string{}, log: []string{"DROP TABLE a"}}
	d, err := resolve(t, f, tracker(t, f), 0, named(tableMap("a", long), "id"))
	if err != nil || names(d) != "id" {
		t.Errorf("got %v", err)
	}
}

func TestNamesThatContradictTheServerGoBeforeIt(t *testing.T) {
	tables := map[string][][3]string{"shop.a": {{"id", "int(5) unsigned zerofill", ""}}}
	f := &fakeSource{tables: tables, log: []string{"COMMIT"}}
	d, err := resolve(t, f, tracker(t, f), 0, named(tableMap("a", long), "other"))
	if err != nil || names(d) != "other" {
		t.Errorf("got %v", err)
	}
}

func TestPlacesAreOrderedAsTheServersWriteThem(t *testing.T) {
	ordered := []BinlogPos{{"b.000009", 500}, {"b.000010", 4}, {"b.000010", 5}, {"b.999999", 1}, {"b.1000000", 4}}
	for i, p := range ordered {
		for j, o := range ordered {
			if p.before(o) != (i < j) {
				t.Errorf("%s before %s: %t", p, o, p.before(o))
			}
		}
	}
}
