package canal

import (
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/doubt/alarm"
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
		{"narrow", "n varchar(9) character set utf8mb4", "convert to character set latin1", true},

		{
			"wider", "n int, d decimal(5,2), v varchar(5), c char(3), e enum('a'), x text",
			"modify n bigint first, modify d decimal(9,2), " +
				"modify v varchar(50) not null, modify c varchar(3), modify e enum('a','b') comment 'c', modify x mediumtext",
			false,
		},
		{"named", "n int", "change n m int", false},
		{"renamed", "n int", "rename column n to m", false},
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
