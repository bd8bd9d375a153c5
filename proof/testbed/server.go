package testbed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/freshet/freshet/proof/testbed/internal/port"
)

// The variables by which a user gives the address of a running server. The two databases take
// host:port or user:password@host:port (user root and no password by default), Redis takes
// host:port. Only callers that can live with a shared server honour them.
const (
	EnvMySQL   = "FRESHET_TEST_MYSQL"
	EnvMariaDB = "FRESHET_TEST_MARIADB"
	EnvRedis   = "FRESHET_TEST_REDIS"
)

// Flavor tells the two database servers apart.
type Flavor string

// The flavors, spelled as go-mysql spells them.
const (
	FlavorMySQL   Flavor = "mysql"
	FlavorMariaDB Flavor = "mariadb"
)

// Options say how to start a server. The zero value starts a private one with the defaults.
type Options struct {
	// Args are added to the server's command line after the defaults, so that they win.
	Args []string
	// Shared uses the server whose address the environment gives, if it does, instead of a
	// private one. Such a server cannot be stopped, and others may use it at the same time.
	Shared bool
	// Newest asks for Redis 8 rather than for the Redis of the machine. The databases have one
	// version each.
	Newest bool
	// Valkey asks for Valkey, from 9.0 on, rather than for the Redis of the machine.
	Valkey bool
	// Dir is where the instance's directory is made. Default: the temporary directory, or for tests memory. The
	// path must be short, a Unix socket's path has at most 107 bytes.
	Dir string
	// Log gets a line about what will be installed, before it is. Default: stderr.
	Log io.Writer
}

func (o Options) installer() *installer {
	if o.Log == nil {
		return &installer{log: os.Stderr}
	}
	return &installer{log: o.Log}
}

// Server is a running MySQL or MariaDB server.
type Server struct {
	*Process

	Flavor   Flavor
	Version  string // 9.7.4
	Addr     string // host:port
	Port     int
	Socket   string // path of the Unix socket; empty for a shared server
	User     string // root
	Password string // empty
	Dir      string // the instance's directory; data is below it. Empty for a shared server

	db    *sql.DB
	held  *port.Reservation
	owned *instanceDir
}

// Databases start a private server of each kind, by the kind's name.
var Databases = map[string]func(t testing.TB, args ...string) *Server{"MySQL": MySQL, "MariaDB": MariaDB}

// MySQL starts a private MySQL server for the test: GTIDs on, row metadata and all else at
// the server's default unless args say otherwise. It ends with the test.
func MySQL(t testing.TB, args ...string) *Server {
	t.Helper()
	return lend(t, FlavorMySQL, StartMySQL, Options{Args: args})
}

// MariaDB starts a private MariaDB server for the test, with row events in its binlog. It ends
// with the test.
func MariaDB(t testing.TB, args ...string) *Server {
	t.Helper()
	return lend(t, FlavorMariaDB, StartMariaDB, Options{Args: args})
}

// SharedMySQL is the server that FRESHET_TEST_MYSQL names, or a private one. Take names that
// no other test has.
func SharedMySQL(t testing.TB) *Server {
	t.Helper()
	return forTest(t, StartMySQL, Options{Shared: true})
}

// SharedMariaDB is the server that FRESHET_TEST_MARIADB names, or a private one. Take names
// that no other test has.
func SharedMariaDB(t testing.TB) *Server {
	t.Helper()
	return forTest(t, StartMariaDB, Options{Shared: true})
}

// instance is a server that a test owns.
type instance interface {
	Close() error
	LogTail() string
}

// forTest starts a server, fails the test if it cannot, and closes it with the test. If the
// test failed, the end of the server's log is shown.
func forTest[S instance, O any](t testing.TB, start func(context.Context, O) (S, error), o O) S {
	t.Helper()
	s, err := start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of %T:\n%s", s, s.LogTail())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// DSN returns what go-sql-driver needs to connect, with a default database or "".
func (s *Server) DSN(database string) string { return s.config(database).FormatDSN() }

func (s *Server) config(database string) *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = s.User, s.Password, "tcp", s.Addr, database
	c.Logger = &mysql.NopLogger{} // lost connections are what tests are about
	return c
}

// DB returns connections without a default database. They are closed with the server.
func (s *Server) DB() *sql.DB { return s.db }

// Exec runs statements one after the other on one connection, and fails the test at the first
// error.
func (s *Server) Exec(t testing.TB, statements ...string) {
	t.Helper()
	if err := s.ExecContext(t.Context(), statements...); err != nil {
		t.Fatal(err)
	}
}

// ExecContext runs statements one after the other on one connection.
func (s *Server) ExecContext(ctx context.Context, statements ...string) error {
	c, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("testbed: connect to %s: %w", s.Addr, err)
	}
	defer c.Close()
	for _, q := range statements {
		if _, err := c.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("testbed: %s: %w", q, err)
		}
	}
	return nil
}

// QueryText runs a query that yields one row and returns its first column as text, or fails
// the test.
func (s *Server) QueryText(t testing.TB, query string, args ...any) string {
	t.Helper()
	var v sql.NullString
	if err := s.db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("testbed: %s: %v", query, err)
	}
	return v.String
}

// Close kills the server, gives its port back and removes its directory. A shared server is
// left as it is.
func (s *Server) Close() error {
	err := s.db.Close()
	if s.argv == nil {
		return err
	}
	err = errors.Join(err, s.Kill())
	s.held.Release()
	return errors.Join(err, s.owned.remove())
}

// startServer starts a private database server.
func startServer(ctx context.Context, flavor Flavor, p *program, defaults []string, o Options) (_ *Server, err error) {
	template, err := dataTemplate(ctx, p)
	if err != nil {
		return nil, err
	}
	held, err := port.Reserve()
	if err != nil {
		return nil, err
	}
	s := &Server{
		Flavor: flavor, Version: p.version, Addr: held.Addr, Port: held.Port, User: "root",
		Process: &Process{name: p.name}, held: held,
	}
	if s.owned, err = newInstanceDir(o.Dir, p.name); err != nil {
		held.Release()
		return nil, err
	}
	s.Dir = s.owned.path
	s.Socket = filepath.Join(s.Dir, "socket")
	data := filepath.Join(s.Dir, "data")
	s.Process.dir, s.logPath = s.Dir, filepath.Join(s.Dir, "log")
	s.argv = append(append([]string{}, p.argv...), "--no-defaults")
	s.argv = append(s.argv, p.args...)
	s.argv = append(s.argv, "--datadir="+data, "--socket="+s.Socket, "--port="+strconv.Itoa(s.Port),
		"--bind-address=127.0.0.1", "--tmpdir="+s.Dir, "--pid-file="+filepath.Join(s.Dir, "pid"), "--server-id="+
			strconv.Itoa(s.Port))
	s.argv = append(append(append(s.argv, asUser()...), defaults...), o.Args...)
	if err := s.connect(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := copyTree(data, template); err != nil {
		return nil, errors.Join(fmt.Errorf("testbed: data directory: %w", err), s.Close())
	}
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connect prepares connections; none is made yet.
func (s *Server) connect() error {
	c, err := mysql.NewConnector(s.config(""))
	if err != nil {
		return fmt.Errorf("testbed: %w", err)
	}
	s.db = sql.OpenDB(c)
	s.ready = s.db.PingContext
	return nil
}

// sharedServer connects to the server that the environment names.
func sharedServer(ctx context.Context, flavor Flavor, address string) (*Server, error) {
	s := &Server{Flavor: flavor, User: "root", Addr: address, Process: &Process{name: string(flavor)}}
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		s.User, s.Password, _ = strings.Cut(address[:i], ":")
		s.Addr = address[i+1:]
	}
	_, number, err := net.SplitHostPort(s.Addr)
	if err == nil {
		s.Port, err = strconv.Atoi(number)
	}
	if err != nil {
		return nil, fmt.Errorf("testbed: %q is not host:port or user:password@host:port: %w", s.Addr, err)
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	var version string
	if err := s.db.QueryRowContext(ctx, "select version()").Scan(&version); err != nil {
		return nil, errors.Join(fmt.Errorf("testbed: shared server %s: %w", s.Addr, err), s.Close())
	}
	s.Version = versionPattern.FindString(version)
	return s, nil
}
