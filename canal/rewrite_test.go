package canal

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// An ALTER TABLE that makes other values of those that rows had, or takes them away, logs no rows.
func TestAnAlterThatChangesValuesIsADoubt(t *testing.T) {
	t.Parallel()
	type alter struct {
		name, columns, clauses string
		doubt                  bool
	}
	alters := []alter{
		{"again", "n int", "drop column n, add column n int default 5", true},
		{"rounded", "n decimal(5,2)", "modify n decimal(5,1)", true},
		{"filled", "n int unsigned", "modify n int(9) unsigned zerofill", true},
		{"labels", "n enum('a','b')", "modify n enum('b','a')", true},
		{"seconds", "n datetime(6)", "modify n datetime", true},
		{"swapped", "n int, m int", "rename column n to m, rename column m to n", true},
		{"moved", "n int, m int", "drop column m, change n m int", true},
		{"computed", "n int, m int as (n+1) stored", "modify m int as (n+2) stored", true},
		{"gone", "n int", "drop column n", true},
		{"named", "n int", "change n m int", true},
		{"renamed", "n int", "rename column n to m", true},
		{"filled_in", "n int", "modify n int not null", true},
		{"unique_now", "n int", "drop primary key, add primary key (n)", true},
		{"narrow", "n varchar(9) character set utf8mb4", "convert to character set latin1", true},

		{
			"wider", "n int, d decimal(5,2), v varchar(5), c char(3), e enum('a'), x text",
			"modify n bigint first, modify d decimal(9,2), " +
				"modify v varchar(50), modify c varchar(3), modify e enum('a','b') comment 'c', modify x mediumtext",
			false,
		},
		{"grown", "n int", "add column m int default 3 first", false},
		{"keyed", "n int, m int", "add index (n), alter column m set default 5, comment 'x'", false},
		{"unicode", "n varchar(9) character set latin1", "convert to character set utf8mb4", false},
	}
	for _, m := range metadata {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := m.start(t, "--binlog-row-metadata="+m.arg)
			d := newDatabase(t, s, "create table DB.last (id int primary key)",
				"create table DB.twice (id int primary key, n int)")
			var rows, statements, want []string
			for _, a := range alters {
				d.exec("create table DB." + a.name + " (id int primary key, " + a.columns + ")")
				rows = append(rows, "insert into DB."+a.name+" (id) values (1)")
				statements = append(statements, "alter table DB."+a.name+" "+a.clauses)
				if a.doubt {
					want = append(want, d.name+"."+a.name)
				}
			}
			if s.Flavor == testbed.FlavorMariaDB {
				statements = append(statements, "alter ignore table DB.twice add unique (n)")
			}
			r := reading(t, newRecorder(), d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			d.exec(append(append([]string{"set session sql_mode=''"}, rows...), statements...)...)
			d.exec("insert into DB.last values (1)")
			last := "insert " + d.name + ".last (1)"
			r.await(t, "the last row", func() bool { return slices.Contains(r.texts(), last) })
			testbed.Must(t, r.stop())
			var got []string
			for _, x := range r.doubts.List() {
				switch x.Cause {
				case alarm.StatementLogged:
					got = append(got, strings.Join(x.Tables, " "))
				case alarm.TruncatedTable:
					if s.Flavor != testbed.FlavorMariaDB || x.Tables[0] != d.name+".twice" {
						t.Errorf("%+v", x)
					}
				default:
					t.Errorf("%+v", x)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("in doubt\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
}

// A table loses its rows with its engine, or with the tables that it is made of.
func TestAnAlterThatTakesAllRowsIsADoubt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.last (id int primary key)", "create table DB.kept (id int primary key)",
			"create table DB.hole (id int primary key)", "create table DB.a (id int, key (id)) engine=MyISAM",
			"create table DB.b (id int, key (id)) engine=MyISAM",
			"create table DB.merged (id int, key (id)) engine=MERGE union=(DB.a)")
		r := reading(t, startAt(here(t, s)), d.options())
		r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
		want := d.name + ".merged"
		d.exec("insert into DB.hole values (1)", "alter table DB.merged union=(DB.b)", "alter table DB.kept engine=innodb")
		if s.QueryText(t, "select count(*) from information_schema.engines where engine='BLACKHOLE' and support<>'NO'") != "0" {
			d.exec("alter table DB.hole engine = Blackhole")
			want = d.name + ".hole " + want
		}
		d.exec("insert into DB.last values (1)")
		r.await(t, "the last row", func() bool { return slices.Contains(r.texts(), "insert "+d.name+".last (1)") })
		var got []string
		for _, x := range r.doubts.List() {
			if x.Cause == alarm.TruncatedTable {
				got = append(got, x.Tables...)
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != want {
			t.Errorf("in doubt: %s, want %s", got, want)
		}
	})
}

// A column that is used goes, or gets another name, and another one takes its place, before any row of the table has
// been read.
func TestAColumnThatGoesBeforeItsTableIsReadIsADoubt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.last (id int primary key)")
		for _, table := range []string{"gone", "named", "grown", "unused"} {
			d.exec("create table DB."+table+" (id int primary key, n int)", "insert into DB."+table+" values (1,1)")
		}
		o := d.options()
		o.Uses = func(t *event.Table, column string) bool {
			return t.Schema == d.name && t.Name != "unused" && column == "n"
		}
		r := reading(t, startAt(here(t, s)), o)
		r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
		d.exec("alter table DB.gone drop column n", "alter table DB.gone add column n int default 5",
			"alter table DB.named rename column n to m", "alter table DB.named add column n int default 5",
			"alter table DB.grown add column m int default 5", "alter table DB.grown drop column m",
			"alter table DB.unused drop column n", "insert into DB.last values (1)")
		r.wantRows(d, "insert DB.last (1)")
		var got []string
		for _, x := range r.doubts.List() {
			got = append(got, string(x.Cause)+" "+strings.Join(x.Tables, " "))
		}
		slices.Sort(got)
		want := []string{
			string(alarm.StatementLogged) + " " + d.name + ".gone", string(alarm.StatementLogged) + " " + d.name + ".named",
		}
		if !slices.Equal(got, want) {
			t.Errorf("in doubt: %q, want %q", got, want)
		}
	})
}

// An ALTER TABLE of which a clause is not known may have done anything to the values of the table.
func TestAnAlterThatCannotBeReadWholeIsADoubt(t *testing.T) {
	for text, want := range map[string]string{
		"ALTER TABLE wanted ADD INDEX (n), FROBNICATE n, MODIFY n TINYINT": "[shop.wanted]",
		"ALTER TABLE wanted ADD INDEX (n)":                                 "",
		"ALTER TABLE other FROBNICATE n":                                   "",
	} {
		board := newBoard(t, quietLogger(t))
		doubts, err := doubt.New(nil, board, nil)
		testbed.Must(t, err)
		c, err := New(Options{
			Address: "nowhere:1", User: "nobody", Alarms: board, Doubts: doubts,
			Wanted: func(schema, table string) bool { return schema == "shop" && table != "other" },
		}, binding(newRecorder()), newRecorder())
		testbed.Must(t, err)
		l := c.loop
		l.ctx = t.Context()
		testbed.Must(t, l.tables.restore(nil))
		st := ddl.Parse([]byte(text), &ddl.Session{Schema: []byte("shop")})
		testbed.Must(t, l.unseen(&st))
		got := ""
		for _, x := range doubts.List() {
			if got += fmt.Sprint(x.Tables); x.Cause != alarm.StatementLogged {
				t.Errorf("%s: %+v", text, x)
			}
		}
		if got != want {
			t.Errorf("%s: %q is in doubt, want %q", text, got, want)
		}
	}
}
