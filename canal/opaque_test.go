package canal

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// A statement changes no mapped table that it names, and calls functions.
func TestAStatementThatCallsAFunctionThatChangesRows(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, s *testbed.Server) { // of its own: on a shared one others' statements are in doubt as well
		d := newDatabase(t, s, "create table DB.t (id int primary key)", "create table DB.plain (id int, v text)",
			"create function DB.writes(x int) returns int begin delete from DB.t where id=x; return 1; end",
			"create function DB.outer_one(x int) returns int begin return DB.WRITES(x); end",
			"create function DB.reads(x int) returns int begin declare n int; select count(*) into n from DB.t for update; "+
				"return length(replace(insert('abc',1,1,'x'),'b','')) + n; end")
		d.allow("execute", d.readable())
		if s.Flavor == testbed.FlavorMySQL { // what functions do
			d.allow("show_routine", "*.*")
		} else {
			d.allow("select", "mysql.proc")
		}
		o := d.options()
		o.Wanted = func(schema, table string) bool { return schema == d.name && (table == "t" || table == "") }
		r := reading(t, newRecorder(), o)
		r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
		for _, c := range []struct{ statement, about string }{
			{"insert into DB.plain (id, v) values (abs(-1), concat('a', 'b'))", ""},
			{"insert into DB.plain values (DB.reads(1), 'DB.writes(1)')", ""},
			{"insert into DB.plain values (DB.writes(1), '')", "DB.writes is a function"},
			{"update DB.plain set id = DB.`Writes` (2)", "DB.writes is a function"},
			{"delete from DB.plain where id = DB.outer_one(3)", "DB.outer_one is a function"},
		} {
			d.exec("set session binlog_format=STATEMENT", c.statement, "set session binlog_format=ROW")
			end := here(t, s)
			r.await(t, "the statement", func() bool { return r.pos.File == end.File && r.pos.Pos == end.Pos })
			var about []string
			for _, x := range r.doubts.List() {
				about = append(about, x.Message)
				if x.Cause != alarm.StatementLogged || !x.EveryTable() {
					t.Errorf("%s: %+v", c.statement, x)
				}
				testbed.Must(t, r.doubts.Dismiss(t.Context(), x.ID, x.Last))
			}
			want := strings.ReplaceAll(c.about, "DB", d.name)
			if want == "" && len(about) > 0 || want != "" && (len(about) != 1 || !strings.HasPrefix(about[0], want)) {
				t.Errorf("%s: in doubt: %q, want %q", c.statement, about, want)
			}
		}
	}
	const trust = "--log-bin-trust-function-creators=1"
	t.Run("MySQL", func(t *testing.T) { run(t, testbed.MySQL(t, trust)) })
	t.Run("MariaDB", func(t *testing.T) { run(t, testbed.MariaDB(t, trust)) })
}
