package canal

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/freshet/freshet/canal/login"
	"github.com/freshet/freshet/retry"
)

const (
	// dialTimeout bounds the making of a connection, and each wait within its handshake.
	dialTimeout = 5 * time.Second
	// queryTimeout bounds each wait within the answer to a question. Questions about old binlogs
	// (BINLOG_GTID_POS reads a file) take long on a slow disk.
	queryTimeout = 60 * time.Second
)

// Error numbers of the servers that decide what is done; they are the same on MySQL and MariaDB.
// Source: MySQL Server Error Message Reference.
const (
	errDBAccessDenied       = 1044
	errAccessDenied         = 1045
	errHostNotPrivileged    = 1130
	errUnknownVariable      = 1193
	errSpecificAccessDenied = 1227
)

// session is one connection to the source. One goroutine at a time uses it. It is closed when the context that it
// was opened with ends, so that no wait outlives it.
type session struct {
	conn *client.Conn
	link *link
	stop func() bool // ends the watch over the context
	// address is where it leads to.
	address string
	// wait is for how long it waits for locks, lost says that it did so in vain, and locks takes note of that, see
	// patience.go.
	wait  time.Duration
	lost  bool
	locks *locks
}

// connect opens a connection to the server that is read, whose reads wait for at most timeout.
func (o *Options) connect(ctx context.Context, timeout time.Duration) (*session, error) {
	address, err := o.address(ctx)
	if err != nil {
		return nil, err
	}
	s, err := o.connectTo(ctx, address, timeout)
	if err != nil {
		o.Servers.Lost()
	}
	return s, err
}

// connectTo does so to one of the servers.
func (o *Options) connectTo(ctx context.Context, address string, timeout time.Duration) (*session, error) {
	s, err := o.connectOnce(ctx, address, o.TLS != nil)
	if o.TLSOptional && errors.Is(err, login.ErrNoTLS) {
		s, err = o.connectOnce(ctx, address, false)
	}
	if err != nil && strings.Contains(err.Error(), "readInitialHandshake") {
		err = fmt.Errorf("%w: it has not greeted as MySQL and MariaDB do; is source.addresses right?", err)
	}
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", address, err)
	}
	s.address = address
	s.link.timeout = timeout
	s.locks = &locks{}
	s.wait = lockWait
	wait, all := lockWait, ""
	if s.isMariaDB() { // see patience.go
		wait, all = 0, ", @@session.max_error_count = 65535"
	}
	if err := s.exec("SET NAMES utf8mb4, @@session.lock_wait_timeout = " + inSeconds(wait) + all); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// Session opens a connection to the source for questions. It returns which server answers, and what closes it. It is
// closed when ctx ends.
func Session(ctx context.Context, o Options) (c *client.Conn, server string, closes func(), err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, "", nil, err
	}
	s, err := o.connect(ctx, queryTimeout)
	if err != nil {
		return nil, "", nil, err
	}
	info, err := o.identify(s)
	if err == nil { // the caller has the bare connection
		err = s.exec("SET SESSION lock_wait_timeout = " + inSeconds(lockOfRows))
	}
	if err != nil {
		s.close()
		return nil, "", nil, fmt.Errorf("source %s: %w", s.address, err)
	}
	return s.conn, info.Server, s.close, nil
}

func (o *Options) connectOnce(ctx context.Context, address string, secure bool) (*session, error) {
	s := &session{stop: func() bool { return true }}
	dial := func(dctx context.Context, network, address string) (net.Conn, error) {
		dctx, cancel := context.WithTimeout(dctx, dialTimeout)
		defer cancel()
		c, err := o.Dial(dctx, network, address)
		if err != nil {
			return nil, err
		}
		s.stop() // of the attempt before
		s.link = newLink(c, dialTimeout)
		s.stop = context.AfterFunc(ctx, func() { c.Close() })
		return s.link, nil
	}
	at := login.Server{Address: address, User: o.User, Password: o.Password, Briefly: o.briefly}
	if secure {
		at.TLS = o.TLS
	}
	var err error
	if s.conn, err = login.Connect(ctx, at, dial); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// close ends the connection.
func (s *session) close() {
	s.stop()
	_ = s.conn.Close()
}

// quit ends it politely: servers log connections that break, and this one is opened every few seconds.
func (s *session) quit() {
	s.stop()
	if s.conn.Quit() != nil {
		_ = s.conn.Close()
	}
}

// exec runs a statement that yields no rows.
func (s *session) exec(statement string) error {
	_, err := s.rows(statement)
	return err
}

// rows runs a statement and returns its rows as text; NULL is "".
func (s *session) rows(statement string) ([][]string, error) {
	_, rows, err := s.query(statement)
	return rows, err
}

// named runs a statement and returns its rows by the names of their columns, in lower case.
func (s *session) named(statement string) ([]map[string]string, error) {
	names, rows, err := s.query(statement)
	out := make([]map[string]string, len(rows))
	for i, r := range rows {
		out[i] = make(map[string]string, len(names))
		for j, name := range names {
			out[i][strings.ToLower(name)] = r[j]
		}
	}
	return out, err
}

// query runs a statement and returns the names of its columns, and its rows as text.
func (s *session) query(statement string) (names []string, out [][]string, err error) {
	r, err := s.Execute(statement)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", statement, err)
	}
	defer r.Close()
	if r.Resultset == nil {
		return nil, nil, nil
	}
	for _, f := range r.Fields {
		names = append(names, string(f.Name))
	}
	out = make([][]string, r.RowNumber())
	for i := range out {
		out[i] = make([]string, r.ColumnNumber())
		for j := range out[i] {
			v, err := r.GetString(i, j)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: row %d: %w", statement, i, err)
			}
			out[i][j] = strings.Clone(v) // the result's memory goes back to a pool
		}
	}
	return names, out, nil
}

// row runs a statement that yields one row.
func (s *session) row(statement string) ([]string, error) {
	rows, err := s.rows(statement)
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 {
		return nil, fmt.Errorf("%s: %d rows, want 1", statement, len(rows))
	}
	return rows[0], nil
}

// foldsNames reports whether the server compares names of schemas and tables without letter case. Source: MySQL
// Reference Manual, "Identifier Case Sensitivity"; the same on MariaDB: with 1 names are kept in lower case, with 2 as
// they were written, and compared in lower case with both.
func (s *session) foldsNames() (bool, error) {
	r, err := s.row("SELECT @@lower_case_table_names")
	if err != nil {
		return false, err
	}
	return r[0] != "0", nil
}

// pairs runs SHOW VARIABLES or SHOW STATUS and returns names in lower case with their values.
func (s *session) pairs(statement string) (map[string]string, error) {
	rows, err := s.rows(statement)
	if err != nil {
		return nil, err
	}
	m := make(map[string]string, len(rows))
	for _, r := range rows {
		if len(r) >= 2 {
			m[strings.ToLower(r[0])] = r[1]
		}
	}
	return m, nil
}

// quote writes a string literal that means the same under every sql_mode: one of them decides what a backslash means.
func quote(s string) string {
	if strings.Contains(s, `\`) {
		return "_utf8mb4 X'" + hex.EncodeToString([]byte(s)) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// isDenied reports whether the server refused who we are or what we may do: nothing that time repairs.
func isDenied(err error) bool {
	e, ok := retry.ServerError(err)
	if !ok {
		return false
	}
	switch e.Code {
	case errDBAccessDenied, errAccessDenied, errHostNotPrivileged, errSpecificAccessDenied:
		return true
	}
	return false
}
