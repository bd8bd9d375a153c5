package canal

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// script is DDL between rows, whose columns would be mistaken by who knows only the first or the last definition.
var ddlScript = []string{
	"insert into DB.t values (1,'a',10)",
	"alter table DB.t add column w varchar(10) default 'new' first",
	"insert into DB.t (id,v,n) values (2,'b',20)",
	"alter table DB.t drop column v",
	"insert into DB.t (id,n) values (3,30)",
	"alter table DB.t modify column n bigint unsigned after w",
	"insert into DB.t (id,n) values (4,18446744073709551615)",
	"alter table DB.t rename column w to x",
	"insert into DB.t (x,id) values ('x5',5)",
	"rename table DB.t to DB.u",
	"insert into DB.u (x,id) values ('x6',6)",
	"create table DB.t (a varchar(5), b int primary key)",
	"insert into DB.t values ('y',7)",
	"drop table DB.t",
	"create table DB.t like DB.u",
	"insert into DB.t (x,id) values ('z',8)",
}

var ddlRows = []string{
	"insert DB.t (id=1,v=a,n=10)",
	"insert DB.t (w=new,id=2,v=b,n=20)",
	"insert DB.t (w=new,id=3,n=30)",
	"insert DB.t (w=new,n=18446744073709551615,id=4)",
	"insert DB.t (x=x5,n=NULL,id=5)",
	"insert DB.u (x=x6,n=NULL,id=6)",
	"insert DB.t (a=y,b=7)",
	"insert DB.t (x=z,n=NULL,id=8)",
}

// metadata are the values of binlog_row_metadata of each flavor.
var metadata = []struct {
	name  string
	start func(testing.TB, ...string) *testbed.Server
	arg   string
}{
	{"MySQLFull", testbed.MySQL, "FULL"},
	{"MySQLMinimal", testbed.MySQL, "MINIMAL"},
	{"MariaDBFull", testbed.MariaDB, "FULL"},
	{"MariaDBMinimal", testbed.MariaDB, "MINIMAL"},
	{"MariaDBNoLog", testbed.MariaDB, "NO_LOG"},
}

// onMariaDB runs a test on MariaDB with each kind of metadata, side by side, each on a server of its own.
func onMariaDB(t *testing.T, f func(t *testing.T, s *testbed.Server)) {
	t.Parallel()
	for _, m := range metadata {
		if !strings.HasPrefix(m.name, "MariaDB") {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			f(t, m.start(t, "--binlog-row-metadata="+m.arg))
		})
	}
}

func TestDDLBetweenRowsNeverMixesUpColumns(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.t (id int primary key, v varchar(20), n int)")
			// Live, from before the DDL.
			rec := newRecorder()
			rec.named = true
			live := reading(t, rec, d.options())
			live.await(t, "a first mark", func() bool { return len(live.marks) > 0 })
			begin := live.Position()
			d.exec(ddlScript...)
			live.wantRows(d, ddlRows...)
			if err := live.stop(); err != nil {
				t.Fatal(err)
			}
			// Again, by a process that starts after it, from the checkpoint at its beginning and from every one
			// between.
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
				if got := altered(again.doubts); len(got) > 0 {
					t.Errorf("from %s: in doubt, though the statements explain what the tables are now: %q", p.String(), got)
				}
			}
		})
	}
}

func equalChanges(a, b []change) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestDDLBeforeTheStartDoesNotMatter begins after DDL in the same binlog file, which is looked through from its
// beginning where that is the only place that is known.
func TestDDLBeforeTheStartDoesNotMatter(t *testing.T) {
	t.Parallel()
	for _, m := range metadata {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.t (gone int, id int primary key, v varchar(20))",
				"insert into DB.t values (1,2,'a')",
				"alter table DB.t drop column gone")
			rec := newRecorder()
			rec.named = true
			r := reading(t, rec, d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			d.exec("insert into DB.t values (5,'b')", "alter table DB.t drop column v")
			again := startAt(r.pos)
			again.named = true
			reading(t, again, d.options()).wantRows(d, "insert DB.t (id=5,v=b)")
		})
	}
}

// TestColumnsThatCannotBeKnownAreTheTablesDoubt begins, without a checkpoint that knows the columns, before a column
// was dropped. The rows from before are not guessed at, and those after come.
func TestColumnsThatCannotBeKnownAreTheTablesDoubt(t *testing.T) {
	t.Parallel()
	s := testbed.MySQL(t)
	d := newDatabase(t, s, "create table DB.t (id int primary key, a int, b int)",
		"create table DB.u (id int primary key)")
	p := here(t, s)
	d.exec("insert into DB.t values (1,2,3)", "insert into DB.u values (1)",
		"alter table DB.t drop column a, add column c varchar(5) first",
		"insert into DB.t (id) values (2)")
	o := d.options()
	o.Doubts = newBook(t)
	reading(t, startAt(p), o).wantRows(d, "insert DB.u (1)", "insert DB.t (NULL,2,NULL)")
	tables, messages := inDoubt(o.Doubts)
	if !slices.Equal(tables, []string{d.name + ".t"}) || strings.Contains(messages[0], "--skip") {
		t.Errorf("in doubt: %q: %q", tables, messages)
	}
}

func TestRowImagesAreMerged(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key, v varchar(20), w varchar(20), b text)",
			"insert into DB.t values (1,'a','b','long'),(2,'c','d','long')")
		r := reading(t, startAt(here(t, s)), d.options())
		d.exec("set session binlog_row_image=MINIMAL", "update DB.t set v='x' where id=1", "delete from DB.t where id=2",
			"set session binlog_row_image=NOBLOB", "update DB.t set w='y' where id=1", "set session binlog_row_image=FULL")
		r.wantRows(d, "update DB.t (1,?,?,?)->(1,x,?,?)", "delete DB.t (2,?,?,?)", "update DB.t (1,x,b,?)->(1,x,y,?)")
	})
}

func TestWhatRowsDoNotShowIsAnAlarm(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s,
			"create table DB.t (id int primary key)", "create table DB.p (id int primary key) partition by range (id) "+
				"(partition a values less than (10), partition b values less than (20))",
			"create table DB.x (id int primary key)", "create table DB.y (id int primary key)",
			"create table DB.g (id int, v varchar(9) collate utf8mb4_bin, h int as (v='x'))", "insert into DB.g (v) values ('X')")
		file := "'" + d.QueryText(t, "select @@datadir") + d.name + ".txt'"
		gone := func(c *running) float64 {
			return testutil.ToFloat64(c.canal.m.statements.WithLabelValues(statementTruncate))
		}
		for _, c := range []struct {
			statements []string
			kind       alarm.Kind
			about      string
		}{
			{[]string{"truncate table DB.t"}, alarm.TruncatedTable, "[DB.t] []"},
			{[]string{"alter table DB.p drop partition a"}, alarm.TruncatedTable, "[DB.p] []"},
			{[]string{"rename table DB.y to DB.z"}, alarm.TruncatedTable, "[DB.y DB.z] []"},
			{[]string{"drop table DB.x"}, alarm.TruncatedTable, "[DB.x] []"},
			{
				[]string{"set session binlog_format=STATEMENT", "insert into DB.t values (5)", "set session binlog_format=ROW"},
				alarm.StatementLogged, "[DB.t] []",
			},
			{[]string{
				"select 30 into outfile " + file, "set session binlog_format=STATEMENT",
				"load data infile " + file + " into table DB.t", "set session binlog_format=ROW",
			}, alarm.StatementLogged, "[DB.t] []"},
			{
				[]string{"alter table DB.g modify v varchar(9) collate utf8mb4_general_ci"}, alarm.StatementLogged, "[DB.g] []",
			},
			{[]string{"drop database DB"}, alarm.TruncatedTable, "[] [DB]"},
		} {
			r := reading(t, startAt(here(t, s)), d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec(c.statements...)
			end := here(t, s)
			r.await(t, "the statement", func() bool { return r.pos.File == end.File && r.pos.Pos == end.Pos })
			if !r.alarmed(c.kind) {
				t.Errorf("%s: no alarm", c.statements)
			}
			all := r.doubts.List()
			if want := strings.ReplaceAll(c.about, "DB", d.name); len(all) != 1 ||
				fmt.Sprint(all[0].Tables, all[0].Schemas) != want || all[0].At.IsZero() {
				t.Errorf("%s: %+v, want one about %s", c.statements, all, want)
			}
			if n := gone(r); (c.kind == alarm.TruncatedTable) != (n == 1) {
				t.Errorf("%s: %v counted", c.statements, n)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A statement names a view, or a table with triggers, and changes rows of tables that it does not name.
func TestAStatementThatChangesTablesThatItDoesNotName(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)", "create table DB.plain (id int primary key)",
			"create table DB.`b\\` (id int primary key)", "create table DB.watched (id int primary key)",
			"create trigger DB.copies after insert on DB.watched for each row insert into DB.t values (new.id)")
		views := newDatabase(t, s, "create view DB.v as select id from "+d.name+".t",
			"create view DB.v2 as select * from DB.v")
		d.allow("trigger", d.readable())
		o := d.options()
		o.Wanted = func(schema, table string) bool { return schema == d.name && (table == "t" || table == "") }
		r := reading(t, newRecorder(), o)
		r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
		for _, c := range []struct{ statement, about string }{
			{"insert into DB.plain values (1)", ""},
			{"insert into DB.`b\\` values (1)", ""},
			{"insert into DB.watched values (1)", "DB.watched is a table with triggers"},
			{"insert into VIEWS.v values (2)", "VIEWS.v is a view"},
			{"update VIEWS.v2, DB.plain set VIEWS.v2.id=3 where VIEWS.v2.id=2", "VIEWS.v2 is a view"},
			{"insert into DB.PLAIN values (4)", "DB.PLAIN is a table with triggers"},
			{"insert into DB.t values (5)", "rows of table DB.t were changed"},
		} {
			named := strings.NewReplacer("DB", d.name, "VIEWS", views.name, "PLAIN", "plain")
			if strings.Contains(c.statement, "PLAIN") {
				d.exec("create trigger DB.late after insert on DB.plain for each row delete from DB.t")
			}
			d.exec("set session binlog_format=STATEMENT", named.Replace(c.statement), "set session binlog_format=ROW")
			end := here(t, s)
			r.await(t, "the statement", func() bool { return r.pos.File == end.File && r.pos.Pos == end.Pos })
			var about []string
			for _, x := range r.doubts.List() {
				about = append(about, x.Message)
				named := len(x.Tables) > 0
				if x.Cause != alarm.StatementLogged || len(x.Schemas) > 0 || named != strings.HasPrefix(c.about, "rows") {
					t.Errorf("%s: %+v", c.statement, x)
				}
				if err := r.doubts.Dismiss(t.Context(), x.ID, x.Last); err != nil {
					t.Fatal(err)
				}
			}
			want := named.Replace(c.about)
			if want == "" && len(about) > 0 || want != "" && (len(about) != 1 || !strings.HasPrefix(about[0], want)) {
				t.Errorf("%s: in doubt: %q, want %q", c.statement, about, want)
			}
		}
	})
}

func TestWhatHappensToOtherTablesIsNoAlarm(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)", "create table DB.other (id int primary key)")
		o := d.options()
		o.Wanted = func(schema, table string) bool { return schema == d.name && (table == "t" || table == "") }
		r := reading(t, startAt(here(t, s)), o)
		d.exec("truncate table DB.other", "set session binlog_format=STATEMENT", "insert into DB.other values (5)",
			"set session binlog_format=ROW", "insert into DB.other values (6)", "drop table DB.other",
			"insert into DB.t values (1)")
		r.wantRows(d, "insert DB.t (1)")
		for _, a := range r.board.Records() {
			t.Errorf("alarm: %s", a.Message)
		}
	})
}
