package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
)

// verified returns what Verify finds of what is known, at the beginning of the log.
func verified(t testing.TB, f *fakeSource, tr *Tracker, named bool) (found []string) {
	t.Helper()
	err := tr.Verify(t.Context(), f, f, BinlogPos{"binlog.000001", 0}, named, func(n ddl.Name, how string) error {
		found = append(found, n.Table+": "+how)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What is known is shop.a (id, title, price), and the server says something else.
func TestWhatNoStatementExplainsIsFoundAndTakenOver(t *testing.T) {
	columns := func(names ...string) (out [][3]string) {
		for _, n := range names {
			out = append(out, [3]string{n, "int(11)", ""})
		}
		return out
	}
	versioned := "SYSTEM VERSIONED"
	for _, e := range []struct {
		now     [][3]string
		kind    string
		log     []string
		found   bool
		columns string // what is known then; "": nothing
	}{
		{now: columns("id", "title", "price"), columns: "id title price"},
		{now: columns("id", "price", "title"), found: true, columns: "id price title"},
		{now: columns("ID", "Title", "price"), columns: "id title price"},
		{now: columns("my_row_id", "id", "title", "price"), columns: "id title price"},
		{now: columns("id", "title"), found: true, columns: "id title"},
		{now: [][3]string{{"id", "int", ""}, {"title", "int(9)", ""}, {"price", "integer", ""}}, columns: "id title price"},
		{
			now: [][3]string{{"id", "int", ""}, {"title", "varchar(9)", "latin1_bin"}, {"price", "int", ""}}, found: true,
			columns: "id title price",
		},
		{now: columns("id", "title", "price"), kind: versioned, found: true, columns: "id title price"},
		// Explained.
		{
			now: columns("id", "price", "title"), log: []string{"ALTER TABLE a MODIFY title INT AFTER price"},
			columns: "id title price",
		},
		{now: columns("id", "title"), log: []string{"ALTER TABLE a DROP price"}, columns: "id title price"},
		{
			now: columns("title", "id", "price"),
			log: []string{"ALTER TABLE a RENAME COLUMN id TO title, RENAME COLUMN title TO id"}, columns: "id title price",
		},
		{now: columns("x"), log: []string{"DROP TABLE a", "CREATE TABLE a (x INT)"}, columns: "id title price"},
		{
			now: columns("x"), log: []string{"CREATE TABLE c (x INT)", "RENAME TABLE a TO d, c TO a"},
			columns: "id title price",
		},
		{
			now: columns("id", "title", "price"), kind: versioned, log: []string{"ALTER TABLE a ADD SYSTEM VERSIONING"},
			columns: "id title price",
		},
		// Explained for all that can be said.
		{now: columns("x"), log: []string{"FROB"}, columns: "id title price"},
		{now: columns("x"), log: []string{"ALTER TABLE a FROB"}, columns: "id title price"},
		// Not explained by what there is.
		{
			now: columns("n", "id", "price", "title"), log: []string{"ALTER TABLE a ADD n INT FIRST"}, found: true,
			columns: "id price title",
		},
		{now: columns("price", "id"), log: []string{"ALTER TABLE a DROP title"}, found: true},
		{
			now: columns("id", "price", "title"), log: []string{"ALTER TABLE b MODIFY x INT FIRST", "INSERT INTO a VALUES (1)"},
			found: true, columns: "id price title",
		},
		{now: columns("y"), log: []string{"DROP TABLE a", "CREATE TABLE a (x INT)"}, found: true},
	} {
		f := &fakeSource{tables: now(), log: e.log, mariaDB: true, kind: e.kind}
		f.tables["shop.a"] = e.now
		tr := tracker(t, f)
		apply(f, tr, "CREATE TABLE a (id INT, title INT, price INT)")
		tr.Encode()
		found := verified(t, f, tr, false)
		if (len(found) > 0) != e.found || tr.Changed() != e.found {
			t.Errorf("%v %q: found %q, changed %v", e.now, e.log, found, tr.Changed())
		}
		var names []string
		if k := tr.get(ddl.Name{Schema: "shop", Table: "a"}); k.status == known {
			for _, c := range k.def.columns {
				names = append(names, c.name)
			}
		}
		if got := strings.Join(names, " "); got != e.columns {
			t.Errorf("%v %q: known is %q, want %q", e.now, e.log, got, e.columns)
		}
		if e.found && e.columns != "" && len(verified(t, f, tr, false)) > 0 {
			t.Errorf("%v %q: found again", e.now, e.log)
		}
	}
}

// Where names come with the rows only what the binlog does not say counts.
func TestWithNamesInTheBinlogOnlyWhatItLacksIsCompared(t *testing.T) {
	for _, e := range []struct {
		now   [][3]string
		found bool
	}{
		{[][3]string{
			{"price", "int", ""},
			{"id", "bigint", ""},
			{"new", "int unsigned", ""},
			{"title", "int(5) unsigned zerofill", ""},
		}, false},
		{[][3]string{{"id", "int", ""}, {"title", "int unsigned", ""}, {"price", "int", ""}}, true},
		{[][3]string{{"id", "int", ""}, {"title", "int(6) unsigned zerofill", ""}, {"price", "int", ""}}, true},
		{[][3]string{{"id", "int", ""}, {"title", "int(5) unsigned zerofill", ""}, {"price", "float(7,3)", ""}}, true},
		{
			[][3]string{{"id", "int", ""}, {"title", "int(5) unsigned zerofill", ""}, {"new", "int(5) unsigned zerofill", ""}},
			true,
		},
	} {
		f := &fakeSource{tables: now()}
		f.tables["shop.a"] = e.now
		tr := tracker(t, f)
		apply(f, tr, "CREATE TABLE a (id INT, title INT(5) ZEROFILL, price INT)")
		if found := verified(t, f, tr, true); (len(found) > 0) != e.found {
			t.Errorf("%v: found %q", e.now, found)
		}
	}
}

// What cannot be recorded is not taken over, so that it is found the next time.
func TestNothingIsTakenOverBeforeItIsRecorded(t *testing.T) {
	f := &fakeSource{tables: now()}
	tr := tracker(t, f)
	apply(f, tr, "CREATE TABLE a (title INT, id INT, price INT)")
	at := BinlogPos{"binlog.000001", 0}
	err := tr.Verify(t.Context(), f, f, at, false, func(ddl.Name, string) error { return errFake })
	if !errors.Is(err, errFake) {
		t.Errorf("got %v", err)
	}
	if found := verified(t, f, tr, false); len(found) != 1 {
		t.Errorf("found %q", found)
	}
}

func TestTablesThatMayNotBeReadAreLeftAsTheyAre(t *testing.T) {
	f := &fakeSource{tables: now(), denied: []string{"all"}}
	tr := tracker(t, f)
	apply(f, tr, "CREATE TABLE a (title INT, id INT, price INT)", "CREATE TABLE b (x INT)")
	delete(f.tables, "shop.b")
	if found := verified(t, f, tr, false); len(found) > 0 {
		t.Errorf("found %q", found)
	}
	if d, err := tr.Describe(tableMap("a", long, long, long)); err != nil || names(d) != "title id price" {
		t.Errorf("known is %v, %v", d, err)
	}
}

// An ALTER TABLE that comes between the questions is none that is in no binlog.
func TestAnAlterBetweenTheQuestionsIsNotTakenForOneThatIsInNoBinlog(t *testing.T) {
	f := &fakeSource{tables: now(), log: []string{"ALTER TABLE a ADD price INT"}}
	swapped := [][3]string{{"title", "int(11)", ""}, {"id", "int(11)", ""}, {"price", "int(11)", ""}}
	f.asked = func(query string) {
		if query == "SHOW MASTER STATUS" && len(f.log) == 1 {
			f.tables["shop.a"], f.log = swapped,
				append(f.log, "ALTER TABLE a RENAME COLUMN id TO title, RENAME COLUMN title TO id")
		}
	}
	tr := tracker(t, f)
	apply(f, tr, "CREATE TABLE a (id INT, title INT)")
	if found := verified(t, f, tr, false); len(found) > 0 || len(f.log) != 2 {
		t.Errorf("found %q with the log %q", found, f.log)
	}
	f.asked = func(query string) {
		if query == "SHOW MASTER STATUS" {
			f.tables["shop.a"] = append(f.tables["shop.a"], [3]string{fmt.Sprint("c", len(f.tables["shop.a"])), "int", ""})
		}
	}
	err := tr.Verify(t.Context(), f, f, BinlogPos{"binlog.000001", 0}, false, nil)
	if err == nil || len(f.tables["shop.a"]) != len(swapped)+maxAsked {
		t.Errorf("tables that are altered all the time: %v", err)
	}
}

// However many tables are known, few questions are asked, and none is about a table that is what is known.
func TestTablesAreComparedInBulk(t *testing.T) {
	f := &fakeSource{tables: map[string][][3]string{}}
	tr, err := New(Options{Wanted: func(string, string) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2*bulk + 1 {
		f.tables[fmt.Sprint("shop.t", i)] = [][3]string{{"id", "int", ""}}
		apply(f, tr, fmt.Sprint("CREATE TABLE t", i, " (id INT)"))
	}
	var asked []string
	f.asked = func(query string) { asked = append(asked, query) }
	if found := verified(t, f, tr, false); len(found) > 0 || len(asked) != 2+3*2 || f.scans > 0 {
		t.Errorf("found %q, asked %d questions and looked through the binlog %d times", found, len(asked), f.scans)
	}
	f.tables["shop.t7"][0][1] = "bigint"
	if found := verified(t, f, tr, false); !slices.Equal(found, []string{"t7: column id is int, actually bigint"}) {
		t.Errorf("found %q", found)
	}
}

// Errors of the server and of the look through the binlog are Verify's.
func TestWhatCannotBeAskedIsNotVerified(t *testing.T) {
	for _, f := range []*fakeSource{
		{log: []string{"COMMIT"}, scanErr: errFake},
		{failing: "SHOW MASTER STATUS"},
		{failing: "SET NAMES utf8mb4"},
		{failing: "START TRANSACTION READ ONLY"},
	} {
		f.tables = now()
		tr := tracker(t, f)
		apply(f, tr, "CREATE TABLE a (title INT, id INT, price INT)")
		if err := tr.Verify(t.Context(), f, f, BinlogPos{"binlog.000001", 0}, false, nil); !errors.Is(err, errFake) {
			t.Errorf("got %v", err)
		}
	}
}

// Tables are compared when they have another id than before, each once, and many with one question.
func TestTablesAreComparedOnceUnderEachId(t *testing.T) {
	f := &fakeSource{tables: now(), mariaDB: true}
	tr := tracker(t, f)
	apply(f, tr, "CREATE TABLE a (id INT, title INT, price INT)", "CREATE TABLE b (x INT)")
	f.tables["shop.a"] = [][3]string{{"id", "int", ""}, {"title", "int", ""}, {"price", "int", ""}}
	f.tables["shop.b"] = [][3]string{{"x", "int", ""}}
	a, b := tableMap("a", long, long, long), tableMap("b", long)
	compare := func(m *binlog.TableMap) (questions int, found []string) {
		f.asked = func(q string) {
			if strings.Contains(q, "FROM information_schema.COLUMNS") {
				questions++
			}
		}
		err := tr.VerifyMapped(t.Context(), f, f, BinlogPos{"binlog.000001", 0}, m, func(n ddl.Name, how string) error {
			found = append(found, n.Table)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return questions, found
	}
	a.ID, b.ID = 1, 2
	if !tr.Mapped(a) || !tr.Mapped(b) || tr.Mapped(tableMap("c", long)) {
		t.Error("the first id of a known table is not due, or that of another table is")
	}
	if n, found := compare(nil); n != 1 || found != nil {
		t.Errorf("%d questions, found %q", n, found)
	}
	if tr.Mapped(a) || tr.Mapped(b) {
		t.Error("what was compared is due again")
	}
	f.tables["shop.a"][0], f.tables["shop.a"][1] = f.tables["shop.a"][1], f.tables["shop.a"][0]
	if n, found := compare(nil); n != 0 || found != nil {
		t.Errorf("without another id %d questions, found %q", n, found)
	}
	a.ID, b.ID = 3, 4
	if !tr.Mapped(a) || !tr.Mapped(b) {
		t.Error("another id is not due")
	}
	if _, found := compare(b); found != nil {
		t.Errorf("looked at b, found %q", found)
	}
	if !tr.Mapped(a) || tr.Mapped(b) {
		t.Error("a is not due any more, or b is still")
	}
	if _, found := compare(nil); !slices.Equal(found, []string{"a"}) {
		t.Errorf("found %q", found)
	}
	tr.Encode()
	if tr.Mapped(a); tr.Changed() {
		t.Error("ids are taken for a change of the state")
	}
	compare(nil)
	if tr.Retry(); !tr.Mapped(a) {
		t.Error("on another connection the same id is taken for the same definition")
	}
}

// A table that is locked stays as it is known, until it may be read.
func TestATableThatIsLockedIsComparedLater(t *testing.T) {
	for _, mariaDB := range []bool{false, true} {
		f := &fakeSource{tables: now(), mariaDB: mariaDB}
		tr := tracker(t, f)
		apply(f, tr, "CREATE TABLE a (title INT, id INT, price INT)", "CREATE TABLE b (x INT)")
		f.tables["shop.a"] = [][3]string{{"id", "int", ""}, {"title", "int", ""}, {"price", "int", ""}}
		f.tables["shop.b"] = [][3]string{{"x", "bigint", ""}}
		f.locked = "shop.a"
		if found := verified(t, f, tr, false); !slices.Equal(found, []string{"b: column x is int, actually bigint"}) {
			t.Errorf("found %q", found)
		}
		a := tableMap("a", long, long, long)
		a.ID = 1
		compare := func() (found []string) {
			err := tr.VerifyMapped(t.Context(), f, f, BinlogPos{"binlog.000001", 0}, a, func(n ddl.Name, how string) error {
				found = append(found, n.Table)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		if !tr.Due() {
			t.Error("at the start: what is locked is not due")
		}
		if tr.Mapped(a); len(compare()) > 0 || !tr.Due() {
			t.Error("under an id: what is locked is not due")
		}
		if f.locked = ""; !slices.Equal(compare(), []string{"a"}) || tr.Due() {
			t.Errorf("what may be read again is not compared, or is still due")
		}
	}
}
