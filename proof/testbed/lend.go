package testbed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// maxKept is how many servers wait for a next test: each holds 100 to 250 MB.
	maxKept = 6
	// tidyTimeout bounds how long a server may take to be as it was. A test may have left it paused.
	tidyTimeout = 10 * time.Second
)

// shelf keeps the database servers that tests have given back, for the next test that asks for one with the same
// arguments. It is open while WithServers runs tests.
type shelf struct {
	mu   sync.Mutex
	open bool
	kept []*lent // the one that was given back last is the last
}

// lent is a server that tests have one after the other, each as if it had just been started.
type lent struct {
	*Server
	like string // the arguments
	pid  int    // of the process that was described; 0: none
	was  string // what describes it at its start
}

var servers shelf

// WithServers gives a test of a package the database server that another test has given back, if that is as it was when
// it was started: a start takes a second of the processor. What a test has in databases, users and binlogs is removed;
// a server that was stopped, or has other settings, plugins or files than before, is not given to another test.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.WithServers(m)) }
func WithServers(m TestingM) TestingM { return withServers{m} }

type withServers struct{ tests TestingM }

// Run implements TestingM.
func (m withServers) Run() int {
	servers.mu.Lock()
	servers.open = true
	servers.mu.Unlock()
	code := m.tests.Run()
	servers.mu.Lock()
	kept := servers.kept
	servers.open, servers.kept = false, nil
	servers.mu.Unlock()
	for _, l := range kept {
		if err := l.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// lend is forTest for a database server that may have been another test's before.
func lend(t testing.TB, flavor Flavor, start func(context.Context, Options) (*Server, error), o Options) *Server {
	t.Helper()
	like := string(flavor) + " " + strings.Join(o.Args, " ")
	l, open := servers.take(like)
	if !open {
		return forTest(t, start, o)
	}
	if l == nil {
		s, err := start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		l = &lent{Server: s, like: like, pid: s.Pid()}
		if l.was, err = l.asIs(t.Context()); err != nil {
			l.pid = 0 // nobody can say how it was: a server without a binlog, for one
		}
	}
	t.Cleanup(func() {
		var err error
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", l.name, l.LogTail())
			err = l.Close()
		} else {
			err = servers.giveBack(l)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return l.Server
}

// take returns a server that waits; nil: there is none. It also reports whether servers are lent at all.
func (f *shelf) take(like string) (_ *lent, open bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, l := range slices.Backward(f.kept) {
		if l.like == like {
			f.kept = slices.Delete(f.kept, i, i+1)
			return l, true
		}
	}
	return nil, f.open
}

// giveBack keeps a server for the next test if it is as it was, and else closes it.
func (f *shelf) giveBack(l *lent) error {
	if err := l.tidy(); err != nil {
		return l.Close()
	}
	// The next test has connections of its own, and a Server that nobody else knows.
	next := *l.Server
	if err := errors.Join(l.db.Close(), next.connect()); err != nil {
		return errors.Join(err, l.Close())
	}
	l.Server = &next
	f.mu.Lock()
	f.kept = append(f.kept, l)
	var oldest *lent
	if len(f.kept) > maxKept {
		oldest = f.kept[0]
		f.kept = slices.Delete(f.kept, 0, 1)
	}
	f.mu.Unlock()
	if oldest == nil {
		return nil
	}
	return oldest.Close()
}

// errNotAsBefore says that a server is not to be used by another test.
var errNotAsBefore = errors.New("it is not as it was when it was started")

// tidy makes the server what it was when it was started, or returns an error.
func (l *lent) tidy() error {
	if l.pid == 0 || l.Pid() != l.pid {
		return errNotAsBefore
	}
	ctx, cancel := context.WithTimeout(context.Background(), tidyTimeout)
	defer cancel()
	c, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := l.clear(ctx, c); err != nil {
		return err
	}
	is, err := l.describe(ctx, c)
	if err == nil && is != l.was {
		err = errNotAsBefore
	}
	return err
}

// clear ends other connections and removes what tests put into a server, and its binlogs last.
func (l *lent) clear(ctx context.Context, c *sql.Conn) error {
	replica, reset := "SHOW REPLICA STATUS", "RESET BINARY LOGS AND GTIDS"
	if l.Flavor == FlavorMariaDB {
		replica, reset = "SHOW ALL SLAVES STATUS", "RESET MASTER"
	}
	for _, q := range []string{replica, "XA RECOVER"} {
		if rows, err := texts(ctx, c, q); err != nil || len(rows) > 0 {
			return errors.Join(errNotAsBefore, err)
		}
	}
	if _, err := c.ExecContext(ctx, "SET sql_log_bin = 0, foreign_key_checks = 0"); err != nil {
		return err
	}
	for _, list := range []string{
		"SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND " +
			"user NOT IN ('system user', 'event_scheduler')",
		"SELECT CONCAT('DROP DATABASE `', REPLACE(schema_name, '`', '``'), '`') FROM information_schema.schemata " +
			"WHERE schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')",
		"SELECT CONCAT('DROP USER ', QUOTE(user), '@', QUOTE(host)) FROM mysql.user " +
			"WHERE user <> 'root' AND user NOT LIKE 'mysql.%' AND user <> 'mariadb.sys'",
	} {
		statements, err := texts(ctx, c, list)
		if err != nil {
			return err
		}
		for _, s := range statements {
			// A connection may have ended by itself.
			if _, err := c.ExecContext(ctx, s); err != nil && !strings.HasPrefix(s, "KILL ") {
				return err
			}
		}
	}
	_, err := c.ExecContext(ctx, reset)
	return err
}

// asIs describes the server over a connection of its own.
func (l *lent) asIs(ctx context.Context) (string, error) {
	c, err := l.db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return l.describe(ctx, c)
}

// describe returns all that a test could have changed of a server: its settings, plugins, users, own tables, binlogs
// and files.
func (l *lent) describe(ctx context.Context, c *sql.Conn) (string, error) {
	questions := []string{
		"SHOW GLOBAL VARIABLES", "SHOW PLUGINS", "SHOW BINARY LOGS", "SHOW DATABASES", "SHOW TABLES FROM mysql",
		"SHOW TABLES FROM sys", "SELECT * FROM mysql.user ORDER BY 1, 2", "SELECT * FROM mysql.func",
		"SELECT * FROM mysql.servers", "SELECT COUNT(*) FROM mysql.time_zone_name",
	}
	if l.Flavor == FlavorMySQL {
		questions = append(questions, "SELECT component_urn FROM mysql.component",
			"SELECT * FROM performance_schema.persisted_variables")
	}
	var all []string
	for _, q := range questions {
		rows, err := texts(ctx, c, q)
		if err != nil {
			return "", fmt.Errorf("%s: %w", q, err)
		}
		all = append(append(all, q), rows...)
	}
	files, err := os.ReadDir(filepath.Join(l.Dir, "data"))
	for _, f := range files {
		all = append(all, f.Name())
	}
	return strings.Join(all, "\n"), err
}

// texts returns the rows of a query, the columns of each separated by tabs.
func texts(ctx context.Context, c *sql.Conn, query string) (all []string, err error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		words := make([]string, len(values))
		for i, v := range values {
			words[i] = v.String
		}
		all = append(all, strings.Join(words, "\t"))
	}
	return all, rows.Err()
}
