package canal

import (
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// versionedTables are the ways to have system versioning, each with a column that is not the last.
var versionedTables = []string{
	"create table DB.t (id int primary key, v varchar(10)) with system versioning",
	"create table DB.t (id int, v varchar(10) with system versioning, key (id))",
	"create table DB.t (id int primary key, v varchar(10), s timestamp(6) generated always as row start, " +
		"e timestamp(6) generated always as row end, period for system_time(s,e)) with system versioning",
	"create table DB.t (id int primary key, e timestamp(6) generated always as row end invisible, s timestamp(6) generated always as row start invisible, " +
		"v varchar(10), period for system_time(s,e)) with system versioning",
	"create table DB.t (id int primary key, v varchar(10)) with system versioning partition by system_time (partition h history, partition c current)",
}

// versionedScript changes rows in every way.
var versionedScript = []string{
	"insert into DB.t (id,v) values (1,'a'),(2,'b')", "update DB.t set v='A' where id=1", "delete from DB.t where id=2",
	"replace into DB.t (id,v) values (3,'r')", "update DB.t set id=5 where id=1",
	"set @@system_versioning_alter_history=KEEP", "delete history from DB.t", "update DB.t set v='B' where id=5",
	"delete from DB.t where id=5",
}

var versionedRows = []string{
	"insert (1,a)", "insert (2,b)", "update (1,a)->(1,A)", "delete (2,b)", "insert (3,r)", "update (1,A)->(5,A)",
	"update (5,A)->(5,B)", "delete (5,B)",
}

// short returns the rows with their columns id and v only.
func short(rows []string) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		op, _, _ := strings.Cut(r, " ")
		var images []string
		for image := range strings.SplitSeq(r[strings.Index(r, "("):], "->") {
			var id, v string
			for pair := range strings.SplitSeq(strings.Trim(image, "()"), ",") {
				if name, value, _ := strings.Cut(pair, "="); name == "id" {
					id = value
				} else if name == "v" {
					v = value
				}
			}
			images = append(images, "("+id+","+v+")")
		}
		out[i] = op + " " + strings.Join(images, "->")
	}
	return out
}

func TestOnlyTheRowsThatHoldAreHandedOnOfSystemVersionedTables(t *testing.T) {
	onMariaDB(t, func(t *testing.T, s *testbed.Server) {
		for _, table := range versionedTables {
			d := newDatabase(t, s)
			rec := newRecorder()
			rec.named = true
			r := reading(t, rec, d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			begin := r.Position()
			d.exec(table)
			made := here(t, s)
			d.exec(versionedScript...)
			wantVersioned(t, r, table)
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			// Again from before the table was made, and by who must ask what it is.
			for _, p := range []struct {
				what string
				rec  *recorder
			}{{"from the statement that made it", startAt(begin)}, {"from what the server says", startAt(made)}} {
				p.rec.named = true
				again := reading(t, p.rec, d.options())
				wantVersioned(t, again, table+", "+p.what)
				if err := again.stop(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func wantVersioned(t *testing.T, r *running, what string) {
	t.Helper()
	want := versionedRows
	r.await(t, what, func() bool { return len(r.rows) >= len(want) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := short(r.texts()); !slices.Equal(got, want) {
		t.Errorf("%s: rows\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestVersioningThatComesAndGoesIsFollowed reads live, and again from every place between.
func TestVersioningThatComesAndGoesIsFollowed(t *testing.T) {
	onMariaDB(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key, v varchar(10))")
		rec := newRecorder()
		rec.named = true
		live := reading(t, rec, d.options())
		live.await(t, "a first mark", func() bool { return len(live.marks) > 0 })
		begin := live.Position()
		d.exec("insert into DB.t (id,v) values (1,'a'),(2,'b')",
			"alter table DB.t add system versioning", "update DB.t set v='A' where id=1",
			"alter table DB.t drop system versioning", "update DB.t set v='C' where id=1",
			"alter table DB.t add column s timestamp(6) generated always as row start, add column e timestamp(6) generated always as row end, "+
				"add period for system_time(s,e), add system versioning", "update DB.t set v='D' where id=1",
			"delete from DB.t where id=2",
			"create table DB.u like DB.t", "insert into DB.u (id,v) values (7,'u')", "delete from DB.u")
		want := []string{
			"insert (1,a)", "insert (2,b)", "update (1,a)->(1,A)", "update (1,A)->(1,C)", "update (1,C)->(1,D)",
			"delete (2,b)", "insert (7,u)", "delete (7,u)",
		}
		live.await(t, "all rows", func() bool { return len(live.rows) >= len(want) })
		if got := short(live.texts()); !slices.Equal(got, want) {
			t.Fatalf("rows\n  %s", strings.Join(got, "\n  "))
		}
		if err := live.stop(); err != nil {
			t.Fatal(err)
		}
		for i := range live.ends {
			p := begin
			p.GTIDs = begin.GTIDs.Clone()
			for _, e := range live.ends[:i] {
				p.Advance(e)
			}
			rec := startAt(p)
			rec.named = true
			o := d.options()
			o.UntilCaughtUp = true
			again := reading(t, rec, o)
			if err := again.wait(); err != nil {
				t.Fatalf("from %s: %v", p.String(), err)
			}
			if from := len(live.rows) - len(rec.rows); from < 0 || !equalChanges(rec.rows, live.rows[from:]) {
				t.Errorf("from %s: rows\n  %v\nare no end of\n  %v", p.String(), rec.rows, live.rows)
			}
		}
	})
}

func TestASystemVersionedTableIsThere(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shared[2].get(t), "create table DB.t (id int primary key)",
		"alter table DB.t add system versioning")
	o := d.options()
	s, err := Inspect(t.Context(), o)
	testbed.Must(t, err)
	if len(s.Tables) != 1 || s.Tables[0].Name != "t" {
		t.Errorf("tables %v", s.Tables)
	}
}

// What an image lacks says nothing against what was found: each row that holds is handed on as what it is.
func TestRowsOfSystemVersionedTablesThatLackColumns(t *testing.T) {
	t.Parallel()
	s := shared[2].get(t)
	for _, image := range []string{"MINIMAL", "NOBLOB"} {
		for _, table := range append(versionedTables,
			"create table DB.t (id int primary key, b text, v varchar(10), w blob) with system versioning",
			"create table DB.t (id int not null unique, b text, v varchar(10)) with system versioning") {
			d := newDatabase(t, s, table)
			rec := startAt(here(t, s))
			rec.named = true
			r := reading(t, rec, d.options())
			d.exec(append([]string{"set session binlog_row_image=" + image}, versionedScript...)...)
			r.await(t, "all rows of "+table, func() bool { return len(r.rows) >= len(versionedRows) })
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			got := short(r.texts())
			for i, want := range versionedRows {
				if i >= len(got) || !lacks(got[i], want) || len(got) > len(versionedRows) {
					t.Errorf("%s, %s: rows\n  %s\nwant\n  %s", image, table, strings.Join(got, "\n  "),
						strings.Join(versionedRows, "\n  "))
					break
				}
			}
			d.exec("set session binlog_row_image=FULL")
		}
	}
}

// lacks reports whether a row is the wanted one, but for values that it does not have.
func lacks(row, want string) bool {
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" (),->", r) })
	}
	return slices.EqualFunc(split(row), split(want), func(a, b string) bool { return a == b || a == "?" })
}
