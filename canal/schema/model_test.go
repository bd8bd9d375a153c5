package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/canal/ddl"
)

// TestTrackerAgreesWithServers runs random DDL on real servers and compares, after every statement, what the tracker
// made of its text with what the server says of every table.
func TestTrackerAgreesWithServers(t *testing.T) {
	for _, s := range servers {
		t.Run(string(s.flavor), func(t *testing.T) {
			t.Parallel()
			server := s.start(t, "--sync-binlog=0", "--tmpdir="+t.TempDir())
			conn, asking := connect(t, server), connect(t, server)
			runs, sure, unsure := 0, 0, 0
			rapid.Check(t, func(rt *rapid.T) {
				runs++
				m := newModel(t, rt, conn, fmt.Sprintf("m%d", runs), s.mariaDB)
				for range 3 {
					m.run(m.create())
				}
				var late *Tracker
				var at BinlogPos
				behind := rapid.IntRange(0, 5).Draw(rt, "behind")
				for left := rapid.IntRange(5, 20).Draw(rt, "statements"); left > 0; left-- {
					if left == behind {
						late, at = m.tracker.copy(t), m.log.at
					}
					m.step()
				}
				m.verify(asking, late, at)
				sure += m.sure
				unsure += m.unsure
				m.drop()
			})
			t.Logf("%d definitions followed, %d in doubt", sure, unsure)
			if unsure*10 > sure {
				t.Errorf("in doubt of %d definitions and sure of %d: plain DDL must be followed", unsure, sure)
			}
		})
	}
}

// model is one series of statements in a schema of its own.
type model struct {
	t       *testing.T
	rt      *rapid.T
	conn    *client.Conn
	schema  string
	mariaDB bool
	log     *logged
	session ddl.Session
	tracker *Tracker
	past    []past
	// sure and unsure count the comparisons.
	sure, unsure int
}

// names returns the tables' names. MariaDB 10.11 keeps the old table, too, when one statement both rebuilds and renames
// a table whose name is encoded in that of its file, so there these are plain.
func (m *model) names() []string {
	if m.mariaDB {
		return []string{"t0", "t1", "t2", "t3"}
	}
	return []string{"t0", "t1", "t2", "a b"}
}

func newModel(t *testing.T, rt *rapid.T, conn *client.Conn, schema string, mariaDB bool) *model {
	m := &model{t: t, rt: rt, conn: conn, schema: schema, mariaDB: mariaDB}
	tracker, err := New(Options{Wanted: func(_, table string) bool { return table != "t2" }, MariaDB: mariaDB})
	if err != nil {
		t.Fatal(err)
	}
	m.tracker = tracker
	m.session = ddl.Session{
		Schema: []byte(schema), MariaDB: mariaDB,
		ServerCharset: m.ask("SELECT @@character_set_server"),
	}
	modes := []struct {
		name string
		bits uint64
	}{{"", 0}, {"STRICT_ALL_TABLES", 0}, {"ANSI_QUOTES", 1 << 2}, {"NO_BACKSLASH_ESCAPES", 1 << 20}, {"REAL_AS_FLOAT", 1}}
	mode := rapid.SampledFrom(modes).Draw(rt, "sql_mode")
	m.session.SQLMode = mode.bits
	for _, old := range m.column("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME REGEXP " +
		"'^m[0-9]+$'") {
		m.must("DROP DATABASE " + old)
	}
	m.log = newLogged(t, conn, mariaDB)
	m.run("CREATE DATABASE " + schema +
		rapid.SampledFrom([]string{"", " CHARACTER SET latin1", " COLLATE utf8mb4_bin", " DEFAULT CHARSET=gbk"}).Draw(rt,
			"charset"))
	m.must("USE " + schema)
	m.must("SET sql_mode='" + mode.name + "'")
	return m
}

func (m *model) drop() { m.must("DROP DATABASE " + m.schema) }

func (m *model) must(sql string) {
	m.t.Helper()
	if _, err := m.conn.Execute(sql); err != nil {
		m.t.Fatalf("%s: %v", sql, err)
	}
}

func (m *model) column(sql string) []string {
	r, err := m.conn.Execute(sql)
	if err != nil {
		m.t.Fatalf("%s: %v", sql, err)
	}
	var out []string
	for i := range r.RowNumber() {
		s, _ := r.GetString(i, 0)
		out = append(out, strings.Clone(s))
	}
	return out
}

func (m *model) ask(sql string) string { return m.column(sql)[0] }

// run executes a statement, and moves the tracker over what the server logged of it.
func (m *model) run(sql string) {
	_, refused := m.conn.Execute(sql)
	if refused != nil {
		m.rt.Logf("refused: %s: %v", sql, refused)
	}
	err := m.log.read(BinlogPos{}, func(end BinlogPos, schema, sql string) {
		m.rt.Logf("logged: %s", sql)
		session := m.session
		session.Schema = []byte(schema)
		session.Failed = refused != nil // a CREATE OR REPLACE of MariaDB has dropped the old table by then
		st := ddl.Parse([]byte(sql), &session)
		m.past = append(m.past, past{end, st})
		m.tracker.Apply(&st)
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// past is a statement that was logged up to end.
type past struct {
	end BinlogPos
	st  ddl.Statement
}

// DDLBetween implements [Scanner].
func (m *model) DDLBetween(_ context.Context, from, to BinlogPos, touches func(ddl.Statement) bool) (bool, error) {
	for _, p := range m.past {
		if from.before(p.end) && !to.before(p.end) && touches(p.st) {
			return true, nil
		}
	}
	return false, nil
}

// copy returns a tracker that knows the same.
func (t *Tracker) copy(tb testing.TB) *Tracker {
	c, err := Decode(t.Encode(), t.o)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// verify has the server's tables compared with what was known of them some statements ago, which explain them, and with
// what is known once a statement that is not logged has altered one.
func (m *model) verify(conn Conn, late *Tracker, at BinlogPos) {
	for _, named := range []bool{false, true} {
		if late == nil {
			break
		}
		if found := m.found(conn, late.copy(m.t), at, named); len(found) > 0 {
			m.rt.Fatalf("not explained by the statements from %s on: %q", at, found)
		}
	}
	for n, e := range m.tracker.tables {
		if n.Schema != m.schema || e.status != known {
			continue
		}
		m.must("SET sql_log_bin=0")
		_, refused := m.conn.Execute("ALTER TABLE " + n.SQL() +
			" ADD COLUMN unlogged INT(3) ZEROFILL FIRST")
		m.must("SET sql_log_bin=1")
		// it has no room for a column
		if e := (*mysql.MyError)(nil); errors.As(refused, &e) && e.Code == mysql.ER_TOO_BIG_ROWSIZE {
			continue
		}
		if refused != nil {
			m.t.Fatal(refused)
		}
		for _, named := range []bool{false, true} {
			if found := m.found(conn, m.tracker.copy(m.t), m.log.at, named); !slices.Equal(found, []string{n.String()}) {
				m.rt.Fatalf("%s was altered without a log, found %q", n, found)
			}
		}
		break
	}
}

// found returns the tables that Verify finds to be altered past the binlog.
func (m *model) found(conn Conn, t *Tracker, at BinlogPos, named bool) []string {
	var out []string
	err := t.Verify(m.t.Context(), conn, m, at, named, func(n ddl.Name, how string) error {
		m.rt.Logf("%s: %s", n, how)
		out = append(out, n.String())
		return nil
	})
	if err != nil {
		m.rt.Fatal(err)
	}
	return out
}

// step executes a random statement and compares.
func (m *model) step() {
	m.run(m.statement())
	saved, err := Decode(m.tracker.Encode(), m.tracker.o)
	if err != nil {
		m.t.Fatal(err)
	}
	m.tracker = saved
	for _, table := range m.names() {
		m.compare(ddl.Name{Schema: m.schema, Table: table})
	}
}

func (m *model) compare(n ddl.Name) {
	e := m.tracker.get(n)
	a := m.actual(n)
	switch {
	case e.status == doubt:
		m.rt.Logf("%s is in doubt", n)
		m.unsure++
		// As the canal does it when a row comes: the server is asked.
		if a != nil {
			m.tracker.define(n, a)
		} else {
			m.tracker.absent(n)
		}
	case a == nil && e.status != absent:
		m.rt.Fatalf("%s does not exist, the tracker says %v", n, e.def)
	case a == nil:
	case e.status == absent:
		m.rt.Fatalf("%s exists, the tracker says it does not", n)
	default:
		m.sure++
		if d := differ(e.def, a, m.mariaDB); d != "" {
			m.rt.Fatalf("%s: %s", n, d)
		}
	}
}

// actual is [actual] without its locks and settings, for speed and since nobody else is there.
func (m *model) actual(n ddl.Name) *definition {
	where := " WHERE TABLE_SCHEMA = '" + n.Schema + "' AND TABLE_NAME = '" + n.Table + "'"
	table := m.column("SELECT TABLE_COLLATION FROM information_schema.TABLES" + where)
	if len(table) == 0 {
		return nil
	}
	r, err := m.conn.Execute("SELECT COLUMN_NAME, COLUMN_TYPE, COALESCE(COLLATION_NAME, '') FROM " +
		"information_schema.COLUMNS" +
		where + " ORDER BY ORDINAL_POSITION")
	if err != nil {
		m.t.Fatal(err)
	}
	d := &definition{charset: loadedCharset(table[0])}
	for i := range r.RowNumber() {
		name, _ := r.GetString(i, 0)
		typ, _ := r.GetString(i, 1)
		collation, _ := r.GetString(i, 2)
		d.columns = append(d.columns,
			column{
				name: strings.Clone(name), typ: strings.Clone(typ), text: collation != "",
				charsets: loadedCharset(strings.Clone(collation)),
			})
	}
	return d
}
