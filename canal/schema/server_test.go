package schema

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/proof/testbed"
)

// servers are the two flavors, for tests that hold for both. DDL need not survive a crash here.
var servers = []struct {
	flavor  testbed.Flavor
	mariaDB bool
	start   func(testing.TB, ...string) *testbed.Server
}{
	{testbed.FlavorMySQL, false, testbed.MySQL},
	{testbed.FlavorMariaDB, true, testbed.MariaDB},
}

// connect opens a connection of the kind that the canal uses.
func connect(t testing.TB, s *testbed.Server) *client.Conn {
	t.Helper()
	c, err := client.Connect(s.Addr, s.User, s.Password, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Execute("SET NAMES utf8mb4"); err != nil {
		t.Fatal(err)
	}
	return c
}

// actual returns what a server says of a table, nil if it does not exist.
func actual(t testing.TB, c Conn, n ddl.Name) *definition {
	t.Helper()
	l, err := newLoader(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.table(n)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// differ is [difference], and says as well when letters differ, or what a definition that was followed must know is not
// known.
func differ(believed, actual *definition, mariaDB bool) string {
	if d := difference(believed, actual, mariaDB); d != "" {
		return d
	}
	for i, b := range believed.columns {
		switch a := actual.columns[i]; {
		case b.name != a.name:
			return fmt.Sprintf("column %d is %s, actually %s", i+1, b.name, a.name)
		case b.charset != a.charset:
			return fmt.Sprintf("column %s is in %q, actually in %q", b.name, b.charset, a.charset)
		case b.collation != "" && ddl.CharsetOf(b.collation) == "":
			return fmt.Sprintf("column %s has the collation %s of no character set", b.name, b.collation)
		}
	}
	return ""
}

// logged is a reader of the statements in a server's binlog. It gets them as text, without a dump.
type logged struct {
	conn    Conn
	mariaDB bool
	at      BinlogPos
}

func newLogged(t testing.TB, c Conn, mariaDB bool) *logged {
	t.Helper()
	l, err := newLoader(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	end, err := l.end()
	if err != nil {
		t.Fatal(err)
	}
	return &logged{c, mariaDB, end}
}

// read calls each for every statement from l.at on, up to limit, with the place after it.
func (l *logged) read(limit BinlogPos, each func(end BinlogPos, schema, sql string)) error {
	r, err := l.conn.Execute(fmt.Sprintf("SHOW BINLOG EVENTS IN '%s' FROM %d", l.at.File, l.at.Pos))
	if err != nil {
		return err
	}
	for i := range r.RowNumber() {
		kind, _ := r.GetString(i, 2)
		end, _ := r.GetUint(i, 4)
		info, _ := r.GetString(i, 5)
		if limit.File != "" && end > limit.Pos {
			break
		}
		l.at.Pos = end
		if kind != "Query" {
			continue
		}
		schema, sql := "", strings.Clone(info)
		if rest, ok := strings.CutPrefix(sql, "use "); ok {
			schema, sql, _ = strings.Cut(rest, "; ")
			schema = strings.Trim(schema, "`\"")
		}
		each(l.at, schema, sql)
	}
	return nil
}

// DDLBetween implements [Scanner].
func (l *logged) DDLBetween(_ context.Context, from, to BinlogPos, touches func(ddl.Statement) bool) (bool, error) {
	found := false
	from.Pos = max(from.Pos, 4)
	r := &logged{l.conn, l.mariaDB, from}
	err := r.read(to, func(_ BinlogPos, schema, sql string) {
		found = found || touches(ddl.Parse([]byte(sql), &ddl.Session{Schema: []byte(schema), MariaDB: l.mariaDB}))
	})
	return found, err
}
