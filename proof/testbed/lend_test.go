package testbed_test

import (
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// runs is a package's tests.
type runs func() int

func (f runs) Run() int { return f() }

// A test gets the server that the one before has given back, with nothing of that in it, and another one if the first
// has been changed in a way that is not undone.
func TestAServerIsLentAgainIfItIsAsItWas(t *testing.T) {
	for _, d := range databases {
		t.Run(string(d.flavor), func(t *testing.T) {
			pid := 0
			// with has a test use a server, and reports whether it is the one of the test before.
			with := func(name string, use func(t *testing.T, s *testbed.Server)) (same bool) {
				t.Run(name, func(t *testing.T) {
					s := d.start(t)
					same = s.Pid() == pid
					pid = s.Pid()
					if got := s.QueryText(t, "select count(*) from information_schema.schemata where schema_name='shop'"); got != "0" {
						t.Error("a database is left")
					}
					if got := s.QueryText(t, "select count(*) from mysql.user where user='reader'"); got != "0" {
						t.Error("a user is left")
					}
					file, at := position(t, s)
					use(t, s)
					s.Exec(t, "create database shop", "create table shop.t (id int primary key)", "insert into shop.t values (1)")
					if _, now := position(t, s); file != "binlog.000001" || now <= at || at > 1000 {
						t.Errorf("the binlog began at %s:%d, and is at %d", file, at, now)
					}
				})
				return same
			}
			tests := runs(func() int {
				with("first", func(t *testing.T, s *testbed.Server) {
					s.Exec(t, "create user reader identified by 'x'", "grant select on *.* to reader", "flush logs")
				})
				if !with("second", func(t *testing.T, s *testbed.Server) { s.DB().SetMaxOpenConns(1) }) {
					t.Error("a server that is as it was is not used again")
				}
				for name, use := range map[string]func(t *testing.T, s *testbed.Server){
					"a setting":  func(t *testing.T, s *testbed.Server) { s.Exec(t, "set global max_connections=77") },
					"a password": func(t *testing.T, s *testbed.Server) { s.Exec(t, "alter user root@localhost identified by 'x'") },
					"an XA transaction": func(t *testing.T, s *testbed.Server) {
						s.Exec(t, "create database other", "create table other.t (id int)")
						c, err := s.DB().Conn(t.Context())
						testbed.Must(t, err)
						for _, q := range []string{"xa start 'x'", "insert into other.t values (1)", "xa end 'x'", "xa prepare 'x'"} {
							_, err := c.ExecContext(t.Context(), q)
							testbed.Must(t, err)
						}
						if err := c.Raw(func(any) error { return driver.ErrBadConn }); !errors.Is(err, driver.ErrBadConn) {
							t.Fatal(err) // the connection is closed
						}
					},
					"a table of the server": func(t *testing.T, s *testbed.Server) { s.Exec(t, "create table mysql.x (id int)") },
					"a restart": func(t *testing.T, s *testbed.Server) {
						testbed.Must(t, s.Kill())
						testbed.Must(t, s.Start(t.Context()))
					},
				} {
					with("before "+name, func(*testing.T, *testbed.Server) {})
					if !with(name, use) {
						t.Errorf("%s: it is not used again before", name)
					}
					if with("after "+name, func(*testing.T, *testbed.Server) {}) {
						t.Errorf("%s: it is used again after that", name)
					}
				}
				return 0
			})
			if code := testbed.WithServers(tests).Run(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

func position(t *testing.T, s *testbed.Server) (file string, at int) {
	t.Helper()
	ask := "show binary log status"
	if s.Flavor == testbed.FlavorMariaDB {
		ask = "show master status"
	}
	rows, err := s.DB().QueryContext(t.Context(), ask)
	testbed.Must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	testbed.Must(t, err)
	into := make([]any, len(columns))
	for i := range into {
		into[i] = new(any)
	}
	into[0], into[1] = &file, &at
	if !rows.Next() {
		t.Fatal("no binlog")
	}
	testbed.Must(t, rows.Scan(into...))
	return file, at
}

// No more than a few servers wait for the next test. Those that do not, are closed, and no other one.
func TestFewServersWaitToBeLentAgain(t *testing.T) {
	tests := runs(func() int {
		for name, n := range map[string]int{"many": 8, "as many": 8} {
			t.Run(name, func(t *testing.T) {
				for range n {
					testbed.MariaDB(t).Exec(t, "create database shop")
				}
			})
		}
		return 0
	})
	if code := testbed.WithServers(tests).Run(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
