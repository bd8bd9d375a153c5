package canal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// lacking probes a server of whose tables those in schema shop are wanted, and returns the settings that leave out
// changes of them.
func lacking(t *testing.T, s *testbed.Server) (settings []string) {
	t.Helper()
	info, err := Probe(t.Context(), shopOptions(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range info.Lacks {
		if l.What == "" || l.Do == "" {
			t.Errorf("%+v says too little", l)
		}
		settings = append(settings, l.Setting)
	}
	return settings
}

func shopOptions(s *testbed.Server) Options {
	return Options{Address: s.Addr, User: "root", Wanted: func(schema, table string) bool {
		return schema == "shop" && (table == "" || table == "product")
	}}
}

func TestABinlogThatLeavesOutMappedTablesIsFound(t *testing.T) {
	t.Parallel()
	for flavor, start := range testbed.Databases {
		for _, c := range []struct {
			arg  string
			want []string
		}{
			{"--binlog-ignore-db=shop", []string{"binlog-ignore-db"}},
			{"--binlog-do-db=other", []string{"binlog-do-db"}},
			{"--binlog-ignore-db=other", nil},
			{"--binlog-do-db=shop", nil},
		} {
			t.Run(flavor+c.arg, func(t *testing.T) {
				t.Parallel()
				s := start(t, c.arg)
				s.Exec(t, "create database shop", "create database other", "create table shop.product (id int primary key)")
				if got := lacking(t, s); !slices.Equal(got, c.want) {
					t.Errorf("%v, want %v", got, c.want)
				}
			})
		}
	}
}

// The servers compare the names in these options in a way of their own, whatever lower_case_table_names says. The
// binlog shows what is left out.
func TestTheLetterCaseOfIgnoredSchemasIsTheServers(t *testing.T) {
	t.Parallel()
	for _, folds := range []string{"--lower-case-table-names=0", "--lower-case-table-names=1"} {
		for _, arg := range []string{
			"--binlog-ignore-db=shop", "--binlog-ignore-db=SHOP", "--binlog-do-db=shop",
			"--binlog-do-db=SHOP",
		} {
			t.Run(folds+arg, func(t *testing.T) {
				t.Parallel()
				s := testbed.MariaDB(t, folds, arg)
				s.Exec(t, "create database shop", "create table shop.product (id int primary key)")
				before := s.GTIDs(t)
				s.Exec(t, "use shop", "insert into product values (1)")
				leftOut := s.GTIDs(t) == before
				if got := lacking(t, s); leftOut != (len(got) == 1) {
					t.Errorf("left out of the binlog: %v; found %v", leftOut, got)
				}
			})
		}
	}
}

func TestAnIncompleteBinlogIsADoubtWhileItIsRead(t *testing.T) {
	t.Parallel()
	s := testbed.MySQL(t, "--binlog-ignore-db=shop")
	s.Exec(t, "create database shop", "create table shop.product (id int primary key)")
	r := reading(t, startAt(here(t, s)), shopOptions(s))
	r.await(t, "a doubt", func() bool { return len(r.doubts.List()) > 0 })
	if d := r.doubts.List(); len(d) != 1 || d[0].Cause != alarm.BinlogIncomplete ||
		!strings.Contains(d[0].Message, "shop") {
		t.Errorf("%+v", d)
	}
	// The setting is the same after an answer: more changes are left out. Who has dismissed it knows.
	d := r.doubts.List()[0]
	testbed.Must(t, r.doubts.Answered(t.Context(), d.ID, d.Last, "forgotten"))
	for range 2 {
		testbed.Must(t, r.canal.lookForLacks(t.Context()))
		if is := r.doubts.List(); len(is) != 1 || is[0].ID != d.ID || is[0].Count != 1 {
			t.Fatalf("after an answer: %+v", is)
		}
	}
	testbed.Must(t, r.doubts.Dismiss(t.Context(), d.ID, time.Time{}))
	for range 2 {
		testbed.Must(t, r.canal.lookForLacks(t.Context()))
		if is := r.doubts.List(); len(is) != 0 {
			t.Fatalf("after a dismissal: %+v", is)
		}
	}
}

// replicate makes one server replicate from another, and waits until it has what the other has.
func replicate(t *testing.T, replica, from *testbed.Server) {
	t.Helper()
	replica.Follow(t, from)
	replica.AwaitAllOf(t, from)
}

func TestAReplicaThatDoesNotLogWhatItReplicatesIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, setting string
		start         func(testing.TB, ...string) *testbed.Server
		off, on       string
	}{
		{"MySQL", "log_replica_updates", testbed.MySQL, "--log-replica-updates=OFF", "--log-replica-updates=ON"},
		{"MariaDB", "log_slave_updates", testbed.MariaDB, "--log-slave-updates=OFF", "--log-slave-updates=ON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			primary := c.start(t)
			primary.Exec(t, "create database shop", "create table shop.product (id int primary key)")
			lone := c.start(t, c.off)
			if got := lacking(t, lone); len(got) > 0 {
				t.Errorf("a server that replicates nothing: %v", got)
			}
			replicate(t, lone, primary)
			if got := lacking(t, lone); !slices.Equal(got, []string{c.setting}) {
				t.Errorf("%v, want %s", got, c.setting)
			}
			logging := c.start(t, c.on)
			replicate(t, logging, primary)
			if got := lacking(t, logging); len(got) > 0 {
				t.Errorf("a replica that logs all: %v", got)
			}
			filtering := c.start(t, c.on, "--replicate-ignore-table=shop.review")
			replicate(t, filtering, primary)
			if got := lacking(t, filtering); !slices.Equal(got, []string{"replicate_ignore_table"}) {
				t.Errorf("a replica with a filter: %v", got)
			}
		})
	}
}

// A server is given a filter while it is read. What was known when the connection was made is not said again.
func TestABinlogThatBecomesIncompleteIsADoubt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start  func(testing.TB, ...string) *testbed.Server
		filter []string
	}{
		"MySQL": {testbed.MySQL, []string{
			"stop replica sql_thread", "change replication filter replicate_ignore_table=(shop.review)", "start replica sql_thread",
		}},
		"MariaDB": {testbed.MariaDB, []string{
			"stop slave", "set global replicate_ignore_table='shop.review'", "start slave",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, s := c.start(t), c.start(t, "--binlog-ignore-db=shop", "--log-slave-updates=ON")
			s.Exec(t, "create database shop", "create table shop.product (id int primary key)")
			replicate(t, s, primary)
			r := reading(t, startAt(here(t, s)), shopOptions(s))
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			look := func(want string) {
				t.Helper()
				testbed.Must(t, r.canal.lookForLacks(t.Context()))
				var got []string
				for _, d := range r.doubts.List() {
					got = append(got, fmt.Sprint(d.Subject, " ", d.Count))
				}
				slices.Sort(got)
				if got := strings.Join(got, ", "); got != want {
					t.Errorf("in doubt: %s, want %s", got, want)
				}
			}
			look("binlog-ignore-db 1")
			s.Exec(t, c.filter...)
			look("binlog-ignore-db 1, replicate_ignore_table 1")
			look("binlog-ignore-db 1, replicate_ignore_table 1")
		})
	}
}
