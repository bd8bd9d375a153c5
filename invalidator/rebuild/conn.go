package rebuild

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/freshet/freshet/event"
)

const (
	// maxAge is for how long a session is used. What asks for no transactions (a server without GTIDs, a key that was
	// parked) would otherwise never notice that another server has taken over.
	maxAge = time.Minute
	// executedBytes is more than the text of the transactions that a server has executed.
	executedBytes = 16 << 20
	// grace is how long after the server should have ended a query the connection is closed.
	grace = time.Second
)

// conn is a session on the server. One goroutine at a time uses it.
type conn struct {
	client *client.Conn
	meter  *meter
	maria  bool
	// galera says that the server is a node of a Galera cluster.
	galera bool
	// unites says that the server may be asked for several keys in one statement.
	unites bool
	// statements are the prepared statements.
	statements map[statementKey]*statement
	// unions is how many of them are for several keys.
	unions int
	schema string
	// limit is the time that the server gives a statement; 0: not yet set.
	limit time.Duration
	// made is when it was made, and since since when it has been idle.
	made, since time.Time
	// compared is as of when it is known to have nothing that the source lacks; the zero time: it may have.
	compared time.Time
	// executed is what the server has executed, as far as it was asked. On MariaDB that is what it has replicated, and
	// written is what it wrote itself. logged is the last number of each domain and server in its binlog.
	executed, written event.GTIDSet
	logged            map[event.GTID]uint64
}

// statementKey is the ordinal of a query, for how many keys it is asked, and the kinds of their parameters (kindsOf).
type statementKey struct {
	ordinal, keys int
	kinds         string
}

// statement is a prepared statement, with the columns of its rows.
type statement struct {
	*client.Stmt
	columns []column
}

// settle makes the session what the package promises. GROUP_CONCAT would cut its result at 1 KiB, silently but for a
// warning; a sql_select_limit would cut lists.
func (c *conn) settle(maxBytes int) error {
	version := c.client.GetServerVersion()
	c.maria = strings.Contains(strings.ToLower(version), "mariadb")
	c.unites = !c.maria && unites(version)
	if c.maria {
		on, err := c.client.Execute("SHOW GLOBAL VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'")
		if err != nil {
			return err
		}
		c.galera = on.RowNumber() > 0
		on.Close()
	}
	mode, err := c.text("SELECT @@sql_mode")
	if err != nil {
		return err
	}
	for _, statement := range []string{
		"SET NAMES utf8mb4",
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
		"SET autocommit = 1, time_zone = '+00:00', sql_select_limit = 18446744073709551615, group_concat_max_len = " +
			strconv.Itoa(maxBytes) + ", sql_mode = '" + plainMode(mode) + "'",
	} {
		if _, err := c.client.Execute(statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// plainMode is a sql_mode without what would have the server read a text in another way than package query, or pad CHAR
// values with spaces, which row images are not.
// Source: MySQL Reference Manual, "Server SQL Modes"; MariaDB, "SQL_MODE".
func plainMode(mode string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(mode, ","), func(m string) bool {
		switch m {
		case "ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "PAD_CHAR_TO_FULL_LENGTH",
			"ANSI", "DB2", "MAXDB", "MSSQL", "ORACLE", "POSTGRESQL", "": // they imply ANSI_QUOTES, or another syntax
			return true
		}
		return strings.ContainsAny(m, `'\`)
	}), ",")
}

// text runs a statement that yields one value.
func (c *conn) text(statement string) (string, error) {
	all, err := c.texts(statement)
	if err != nil {
		return "", err
	}
	return all[0], nil
}

// texts runs a statement that yields one row.
func (c *conn) texts(statement string) (all []string, err error) {
	res, err := c.client.Execute(statement)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", statement, err)
	}
	defer res.Close()
	for i := range max(res.ColumnNumber(), 1) {
		s, err := res.GetString(0, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", statement, err)
		}
		all = append(all, strings.Clone(s)) // the result's memory goes back to a pool
	}
	return all, nil
}

// reach returns errBehind unless readers of this session's server see the transactions. The caller that wants the value
// has them from the server that was streamed from, and this one may be another: the one before a failover, or a
// replica. The server is asked when it is not known yet, which a backlog of changes pays for once.
func (c *conn) reach(after *event.GTIDSet) error {
	if after == nil {
		return nil
	}
	for asked := false; ; asked = true {
		if !c.lacks(after) {
			return nil
		}
		if asked {
			return errBehind
		}
		if err := c.ask(); err != nil {
			return err
		}
	}
}

// lacks reports whether the server has not executed all of some transactions, as far as it was asked.
func (c *conn) lacks(after *event.GTIDSet) (is bool) {
	if !c.maria {
		left := after.Subtract(&c.executed)
		return !left.IsEmpty()
	}
	after.Each(func(r event.GTIDRange) {
		is = is || !c.written.ContainsOf(r) && !c.executed.ContainsOf(r) &&
			!(c.executed.ContainsRange(r) && c.isLogged(r)) && !(c.galera && c.logged[ofOrigin(r)] >= r.Last)
	})
	return is
}

// isLogged reports whether MariaDB's binlog holds the last of some transactions, of a domain in which it logs what it
// replicates. That a higher number of another server was replicated says nothing: a replica of a primary that has
// failed may have more of that than the one that was promoted, which has given the numbers to others.
func (c *conn) isLogged(r event.GTIDRange) bool {
	logs := false
	c.executed.Each(func(has event.GTIDRange) {
		logs = logs || has.First.Domain == r.First.Domain && c.logged[ofOrigin(has)] >= has.Last
	})
	return logs && c.logged[ofOrigin(r)] >= r.Last
}

func ofOrigin(r event.GTIDRange) event.GTID {
	return event.GTID{Domain: r.First.Domain, Server: r.First.Server}
}

// errBehind says that the server of a session has not executed what the value must be no older than.
var errBehind = errors.New("the server that answers has not executed the change")

// ask asks what the server has executed and everybody can read.
//
// MySQL's gtid_executed is just that. On MariaDB, gtid_slave_pos is, for what the server has replicated;
// gtid_binlog_pos runs a little ahead of what can be read, so it counts for what the server has committed itself only:
// it is the server that is streamed from then, which has said already that the change can be read. Of transactions of
// another server it says nothing, whatever their number: an ANALYZE TABLE on a replica takes the next one. A node of a
// Galera cluster has no gtid_slave_pos for what comes from other nodes: there all that is in its binlog counts.
func (c *conn) ask() (err error) {
	c.meter.allow(executedBytes)
	if !c.maria {
		c.executed, err = c.gtids(event.MySQL, "SELECT @@global.gtid_executed")
		return err
	}
	said, err := c.texts("SELECT @@global.gtid_slave_pos, @@server_id, @@global.gtid_binlog_pos, @@global.gtid_binlog_state")
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(said[1], 10, 32)
	if err != nil {
		return fmt.Errorf("SELECT @@server_id: %w", err)
	}
	var all event.GTIDSet
	c.executed, err = event.ParseGTIDSet(event.MariaDB, said[0])
	if err == nil {
		all, err = event.ParseGTIDSet(event.MariaDB, said[2])
	}
	if err == nil {
		c.logged, err = lastOfEach(said[3])
	}
	c.written = all.Of(uint32(id))
	return err
}

// lastOfEach reads the last transaction of each domain and server in MariaDB's binlog.
func lastOfEach(state string) (map[event.GTID]uint64, error) {
	last, err := event.ParseBinlogState(state)
	if err != nil {
		return nil, fmt.Errorf("SELECT @@global.gtid_binlog_state: %w", err)
	}
	logged := make(map[event.GTID]uint64, len(last))
	for _, g := range last {
		logged[ofOrigin(event.GTIDRange{First: g})] = g.Number
	}
	return logged, nil
}

func (c *conn) gtids(flavor event.Flavor, statement string) (event.GTIDSet, error) {
	text, err := c.text(statement)
	if err != nil {
		return event.GTIDSet{}, err
	}
	return event.ParseGTIDSet(flavor, text)
}

// limitTo tells the server for how long a statement may run. That leaves out the wait for a locked table while a
// statement is prepared; that wait ends when the session is closed, which both servers notice within a second or so.
// Source: MySQL Reference Manual, max_execution_time (milliseconds); MariaDB, max_statement_time (seconds).
func (c *conn) limitTo(timeout time.Duration) error {
	if c.limit == timeout {
		return nil
	}
	c.meter.allow(handshakeBytes)
	millis := max(1, timeout.Milliseconds())
	statement := fmt.Sprintf("SET SESSION max_execution_time = %d", millis)
	if c.maria {
		statement = fmt.Sprintf("SET SESSION max_statement_time = %d.%03d", millis/1000, millis%1000)
	}
	if _, err := c.client.Execute(statement); err != nil {
		return err
	}
	c.limit = timeout
	return nil
}

// within calls f, which asks for what a server has at hand: one that hangs is not waited for as long as a query is.
func (c *conn) within(d time.Duration, f func() error) error {
	_ = c.meter.SetDeadline(time.Now().Add(d))
	defer c.meter.SetDeadline(time.Time{})
	return f()
}

// statement returns the query's prepared statement for so many keys. The server looks tables up in the schema that is
// chosen when it prepares, and keeps to it.
func (c *conn) statement(q *prepared, keys int, kinds string) (*statement, error) {
	key := statementKey{q.ordinal, keys, kinds}
	if s := c.statements[key]; s != nil {
		return s, nil
	}
	c.meter.allow(handshakeBytes)
	if q.Schema != "" && q.Schema != c.schema {
		if err := c.client.UseDB(q.Schema); err != nil {
			return nil, &prepareError{err}
		}
		c.schema = q.Schema
	}
	text := q.Text
	if keys > 1 {
		text = q.union(keys)
	}
	prepared, err := c.client.Prepare(text)
	if err != nil {
		return nil, &prepareError{err}
	}
	s := &statement{Stmt: prepared}
	if s.columns, err = c.columns(prepared); err != nil {
		return nil, err
	}
	if keys > 1 {
		c.unions++
	} else {
		c.forgetKinds(q)
	}
	c.statements[key] = s
	return s, nil
}

// maxKinds is for how many kinds of parameters a session has a statement of a query for one key, at most.
const maxKinds = 8

// forgetKinds makes room for one more statement of a query for one key.
func (c *conn) forgetKinds(q *prepared) {
	var all []string
	for key := range c.statements {
		if key.ordinal == q.ordinal && key.keys == 1 {
			all = append(all, key.kinds)
		}
	}
	if len(all) < maxKinds {
		return
	}
	for _, one := range all {
		c.forget(q, 1, one)
	}
}

// forget has a query prepared again the next time.
func (c *conn) forget(q *prepared, keys int, kinds string) {
	key := statementKey{q.ordinal, keys, kinds}
	_ = c.statements[key].Close() // the server does not answer
	delete(c.statements, key)
	if keys > 1 {
		c.unions--
	}
}

// run runs the query into s.
func (c *conn) run(q *prepared, args []any, s *sink) error {
	kinds := kindsOf(args)
	statement, err := c.statement(q, 1, kinds)
	if err != nil {
		return err
	}
	// What is received is about as large as the value made of it; a single row can be larger than that before s sees
	// it.
	c.meter.allow(int64(2*s.limit) + handshakeBytes)
	var result mysql.Result
	defer result.Close()
	err = statement.ExecuteSelectStreaming(&result, s.row, s.begin, args...)
	switch {
	case s.err != nil:
		return s.err
	case c.meter.exceeded:
		return tooLarge(s.limit)
	}
	if err == nil && !c.maria && !slices.EqualFunc(s.columns, statement.columns, column.isLike) {
		// The table was altered, or MySQL prepared it again for these parameters, and would take all others in the same way
		// from now on. MariaDB looks at the parameters each time.
		c.forget(q, 1, kinds)
	}
	return err
}

// close ends the session. A server that hangs holds it up for a moment only, and usually not at all: what is written is
// taken by the kernel.
func (c *conn) close() {
	_ = c.meter.SetDeadline(time.Now().Add(grace))
	_ = c.client.Quit()
	c.meter.abort()
}

// meter is a connection that fails once more is read than was allowed.
type meter struct {
	net.Conn
	left     int64
	exceeded bool
}

// allow says how many bytes may be read from now on.
func (m *meter) allow(n int64) { m.left = n }

// Read implements net.Conn.
func (m *meter) Read(b []byte) (int, error) {
	if m.left <= 0 {
		m.exceeded = true
		return 0, errExceeded
	}
	n, err := m.Conn.Read(b[:min(int64(len(b)), m.left)])
	m.left -= int64(n)
	return n, err
}

// abort closes the connection, whatever its state.
func (m *meter) abort() { _ = m.Conn.Close() }
