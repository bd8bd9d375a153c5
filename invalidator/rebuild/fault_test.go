package rebuild

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// sessions returns the ids of the sessions that run a statement with the text in it, waiting until there is one.
func sessions(t *testing.T, s *testbed.Server, text string) []string {
	t.Helper()
	for t.Context().Err() == nil {
		ids := s.QueryText(t, "SELECT coalesce(group_concat(id), '') FROM information_schema.processlist WHERE info LIKE '%"+
			text+"%' AND id <> connection_id()")
		if ids != "" {
			return strings.Split(ids, ",")
		}
	}
	t.Fatal("no session runs " + text)
	return nil
}

// begun runs a query in the background. result waits for it.
func begun(t *testing.T, r *Runner, q Query, values ...string) (result func() (string, error)) {
	t.Helper()
	var got string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		var value event.Fields
		value, _, err = one(t.Context(), r, DefaultSource, q.ID, params(values...), nil)
		if err == nil {
			got = string(value)
		}
	}()
	t.Cleanup(func() { <-done })
	return func() (string, error) {
		<-done
		return got, err
	}
}

func transient(t *testing.T, err error, part string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no Error", err)
	}
	wants(t, e, false, part)
}

func aSlowQueryIsEndedByTheServer(t *testing.T, s *testbed.Server) {
	slow := as(t, event.FormJSON, "SELECT sleep(60) + :a AS a, 'slow one' AS b",
		func(q *Query) { q.Timeout = 50 * time.Millisecond })
	// MySQL's SLEEP returns 1 when it is interrupted: the timeout is found by a query that computes.
	if s.Flavor == testbed.FlavorMySQL {
		slow = as(t, event.FormJSON,
			"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000000000) SELECT count(*) + :a AS a FROM n",
			func(q *Query) { q.Timeout = 50 * time.Millisecond })
		s.Exec(t, "set global cte_max_recursion_depth = 4294967295")
	}
	quick := as(t, event.FormJSON, "SELECT connection_id() AS id")
	r := newRunner(t, options(s, slow, quick))
	before := get(t, r, quick)
	wants(t, fails(t, r, slow, "1"), false, "longer than its timeout of 50ms", "index")
	if after := get(t, r, quick); after != before {
		t.Errorf("the session did not outlive the timeout: %s, then %s", before, after)
	}
}

// A server that does not end the query, or is not there any more, is not waited for.
func TestASilentServerIsLeft(t *testing.T) {
	t.Parallel()
	s := server(t, testbed.FlavorMySQL)
	q := as(t, event.FormJSON, "SELECT :a AS a", func(q *Query) { q.Timeout = time.Millisecond })
	other := as(t, event.FormJSON, "SELECT connection_id() AS id, :a AS a")
	o := options(s, q, other)
	var dead atomic.Bool
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return &mute{Conn: c, dead: &dead, closed: make(chan struct{})}, err
	}
	r := newRunner(t, o)
	before := get(t, r, other, "1")
	testbed.Must(t, errors.Join(r.source.use(t.Context(), time.Hour, r.source.takeIdle(), func(c *conn) error {
		_, err := c.statement(r.byID[q.ID], 1, "") // so that the query is all that is asked for
		return err
	})))
	dead.Store(true)
	wants(t, fails(t, r, q, "1"), false, "longer than its timeout of 1ms")
	dead.Store(false)
	if after := get(t, r, other, "1"); after == before {
		t.Error("the session that did not answer is used again")
	}
}

// mute is a connection that receives nothing while it is dead.
type mute struct {
	net.Conn
	dead   *atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (m *mute) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if m.dead.Load() {
		<-m.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (m *mute) Close() error {
	m.once.Do(func() { close(m.closed) })
	return m.Conn.Close()
}

func aKilledQueryIsTransient(t *testing.T, s *testbed.Server) {
	q := as(t, event.FormJSON, "SELECT 'to be killed' AS a, sleep(:seconds) AS b")
	quick := as(t, event.FormJSON, "SELECT 1 AS a")
	r := newRunner(t, options(s, q, quick))
	result := begun(t, r, q, "60")
	for _, id := range sessions(t, s, "to be killed") {
		s.Exec(t, "KILL "+id)
	}
	_, err := result()
	transient(t, err, "run again")
	if got := get(t, r, quick); got != `{"a":1}` {
		t.Error(got)
	}
}

// An idle session may have ended meanwhile: that is no failure of the query.
func aQueryOutlivesTheEndOfIdleSessions(t *testing.T, s *testbed.Server) {
	q := as(t, event.FormJSON, "SELECT connection_id() AS id, :a AS a")
	r := newRunner(t, options(s, q))
	for range 3 {
		id := strings.Trim(strings.Split(get(t, r, q, "x"), ",")[0], `{"id:`)
		s.Exec(t, "KILL "+id)
		got := get(t, r, q, "x")
		if !strings.HasSuffix(got, `,"a":"x"}`) || strings.Contains(got, `"id":`+id+`,`) {
			t.Errorf("%s after session %s was killed", got, id)
		}
	}
}

func TestAQueryOutlivesARestart(t *testing.T) {
	both(t, func(t *testing.T, s *testbed.Server) {
		q := as(t, event.FormJSON, "SELECT 'through the end' AS a, sleep(:seconds) AS b")
		r := newRunner(t, options(s, q))
		get(t, r, q, "0")
		result := begun(t, r, q, "60")
		sessions(t, s, "through the end")
		testbed.Must(t, s.Kill())
		_, err := result()
		transient(t, err, "it is run again")
		wants(t, fails(t, r, q, "0"), false, "no connection to "+s.Addr)
		testbed.Must(t, s.Start(t.Context()))
		if got := get(t, r, q, "0"); got != `{"a":"through the end","b":0}` {
			t.Error(got)
		}
	})
}

func aLargeResultIsRefusedInBoundedMemory(t *testing.T, s *testbed.Server) {
	s.Exec(t, "create table shop.d (n int)", "insert into shop.d values (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)")
	patient := func(q *Query) { q.Timeout = time.Minute }
	million := "FROM d a, d b, d c, d e, d f, d g"
	rows := as(t, event.FormJSON, "SELECT a.n, repeat('x', 100) AS x "+million, many, patient)
	row := as(t, event.FormString, "SELECT repeat('x', 160000000) AS x", patient)
	list := as(t, event.FormString,
		"SELECT length(group_concat(repeat('x', 100) SEPARATOR '')) AS x FROM d a, d b, d c, d e")
	small := as(t, event.FormJSON, "SELECT 1 AS a")
	s.Exec(t, "set global max_allowed_packet = 1073741824")
	r := newRunner(t, options(s, rows, row, list, small))
	get(t, r, small)
	for _, q := range []Query{rows, row} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		wants(t, fails(t, r, q), true, "larger than 8388608 bytes")
		runtime.ReadMemStats(&after)
		// All that was ever taken, also by the test that runs alongside this one: the growth of a value is about three
		// times its size, a packet up to 16 MiB. The whole result, with its growth, would be some times as much.
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 256<<20 {
			t.Errorf("%s: %d MiB were taken", q.Text, taken>>20)
		}
		if got := get(t, r, small); got != `{"a":1}` {
			t.Error(got)
		}
	}
	// GROUP_CONCAT is not cut at its server's limit.
	if got := get(t, r, list); got != "1000000" {
		t.Errorf("%s bytes of 1000000", got)
	}
}

// What is larger than the limit is refused, what is not is not.
func TestTheLimitIsThatOfTheValue(t *testing.T) {
	t.Parallel()
	s := server(t, testbed.FlavorMariaDB)
	q := as(t, event.FormJSON, "SELECT repeat('x', :n) AS x")
	o := options(s, q)
	o.MaxBytes = 1000
	r := newRunner(t, o)
	if got := get(t, r, q, fmt.Sprint(1000-len(`{"x":""}`))); len(got) != 1000 {
		t.Errorf("%d bytes", len(got))
	}
	wants(t, fails(t, r, q, fmt.Sprint(1001-len(`{"x":""}`))), true, "larger than 1000 bytes")
}

func sessionsReadOnly(t *testing.T, s *testbed.Server) {
	s.Exec(t, "create table shop.t (id int)", "set global log_bin_trust_function_creators = 1",
		"create function shop.sneak() returns int begin insert into shop.t values (1); return 1; end")
	q := as(t, event.FormJSON, "SELECT shop.sneak() AS a")
	mode := as(t, event.FormJSON, `SELECT 'it\'s' AS a, "b" AS b, @@time_zone AS z, @@group_concat_max_len AS n`)
	// What the server's own sql_mode would have made of the text.
	t.Cleanup(func() {
		testbed.Must(t, s.ExecContext(context.Background(), "set global sql_mode = default", "set global time_zone = default",
			"set global sql_select_limit = default"))
	})
	s.Exec(t, "set global sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,STRICT_ALL_TABLES'",
		"set global time_zone = '+05:00'",
		"set global sql_select_limit = 1")
	list := as(t, event.FormJSON, "SELECT 1 AS a UNION ALL SELECT 2", many)
	r := newRunner(t, options(s, q, mode, list))
	if got := get(t, r, list); got != `[{"a":1},{"a":2}]` {
		t.Error(got)
	}
	wants(t, fails(t, r, q), true, "error 1792 (25006)")
	if got := get(t, r, mode); got != `{"a":"it's","b":"b","z":"+00:00","n":8388608}` {
		t.Error(got)
	}
}

// A table that is locked, or being altered, is not waited for longer than any query; not by the server either: sessions
// must not gather after an ALTER.
func aLockedTableIsNotWaitedFor(t *testing.T, s *testbed.Server) {
	s.Exec(t, "create table shop.t (id int)")
	q := as(t, event.FormJSON, "SELECT 'behind the lock' AS a FROM t",
		func(q *Query) { q.Timeout = 50 * time.Millisecond })
	r := newRunner(t, options(s, q))
	conn, err := s.DB().Conn(t.Context())
	testbed.Must(t, err)
	_, err = conn.ExecContext(t.Context(), "lock tables shop.t write")
	testbed.Must(t, err)
	wants(t, fails(t, r, q), false)
	testbed.Must(t, r.Close())
	for s.QueryText(t, "SELECT count(*) FROM information_schema.processlist WHERE state LIKE '%metadata lock%'") != "0" {
	}
	_, err = conn.ExecContext(t.Context(), "unlock tables")
	testbed.Must(t, errors.Join(err, conn.Close()))
}

// A value is committed data as of the time of the run.
func onlyCommittedDataIsRead(t *testing.T, s *testbed.Server) {
	s.Exec(t, "set global transaction isolation level read uncommitted")
	s.Exec(t, "create table shop.t (id int primary key, n int)", "insert into shop.t values (1, 1)")
	q := as(t, event.FormString, "SELECT n FROM t WHERE id = :id")
	r := newRunner(t, options(s, q))
	tx, err := s.DB().BeginTx(t.Context(), nil)
	testbed.Must(t, err)
	_, err = tx.ExecContext(t.Context(), "update shop.t set n = 2")
	testbed.Must(t, err)
	if got := get(t, r, q, "1"); got != "1" {
		t.Errorf("%s before the commit", got)
	}
	testbed.Must(t, tx.Commit())
	if got := get(t, r, q, "1"); got != "2" {
		t.Errorf("%s after the commit", got)
	}
}

// A session that was made before another server took over is not asked any more once a change is committed there: the
// server before would give the row as it was. A server that has not executed the change is not asked either.
func TestAfterAFailoverTheServerThatHasTheChangeIsAsked(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, first *testbed.Server) {
		second := server(t, first.Flavor)
		for _, s := range []*testbed.Server{first, second} {
			s.Exec(t, "create table shop.t (id int primary key, v varchar(9))", "insert into shop.t values (1, 'old')")
		}
		q := as(t, event.FormString, "SELECT v FROM t WHERE id = :id")
		o := options(first, q)
		var to atomic.Pointer[string]
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if a := to.Load(); a != nil {
				address = *a
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		r := newRunner(t, o)
		ask := func(change event.GTIDSet) (string, error) {
			value, _, err := one(t.Context(), r, DefaultSource, q.ID, params("1"), &change)
			if err != nil {
				return "", err
			}
			return joined(t, value), nil
		}
		if got, err := ask(last(t, first)); err != nil || got != "old" {
			t.Fatalf("%q, %v", got, err)
		}
		second.Exec(t, "update shop.t set v = 'new' where id = 1")
		change := last(t, second)
		for range 9 { // which takes the next numbers of MariaDB's
			first.Exec(t, "analyze table shop.t")
		}
		_, err := ask(change) // the endpoint still leads to the server before
		transient(t, err, "has not executed the change")
		if n := idle(r); n != 0 {
			t.Errorf("%d sessions of the server before are kept", n)
		}
		if got, err := ask(event.GTIDSet{}); err != nil || got != "old" {
			t.Fatalf("%q, %v", got, err)
		}
		to.Store(&second.Addr)
		if got, err := ask(change); err != nil || got != "new" {
			t.Errorf("%q, %v: want the row of the server that has taken over", got, err)
		}
	})
}

// A replica of a primary that has failed has more of that than the one that was promoted, which gives the numbers to
// transactions of its own. A session of before that leads to the replica has none of these.
func TestAReplicaOfAFailedPrimaryHasNoChangeOfThePromotedOne(t *testing.T) {
	t.Parallel()
	failed, promoted := server(t, testbed.FlavorMariaDB), server(t, testbed.FlavorMariaDB)
	replica := testbed.MariaDB(t, "--log-slave-updates")
	replica.Follow(t, failed)
	for _, s := range []*testbed.Server{failed, promoted} {
		s.Exec(t, "create table shop.t (id int primary key, v varchar(9))", "insert into shop.t values (1, 'old')")
	}
	promoted.Exec(t, "update shop.t set v = 'new' where id = 1")
	change := last(t, promoted)
	for n := range 20 {
		failed.Exec(t, fmt.Sprintf("insert into shop.t values (%d, 'more')", 2+n))
	}
	replica.AwaitAllOf(t, failed)
	q := as(t, event.FormString, "SELECT v FROM t WHERE id = :id")
	r := newRunner(t, options(replica, q))
	ask := func(change event.GTIDSet) (string, error) {
		value, _, err := one(t.Context(), r, DefaultSource, q.ID, params("1"), &change)
		if err != nil {
			return "", err
		}
		return joined(t, value), nil
	}
	if got, err := ask(last(t, failed)); err != nil || got != "old" {
		t.Fatalf("%q, %v: want what it has replicated", got, err)
	}
	got, err := ask(change)
	if err == nil {
		t.Fatalf("the replica is asked, and says %q", got)
	}
	transient(t, err, "has not executed the change")
}

// A node of a Galera cluster has what its binlog has, whichever node wrote it first.
func TestANodeOfAGaleraClusterHasWhatOthersWrote(t *testing.T) {
	t.Parallel()
	node, replica := server(t, testbed.FlavorMariaDB, "--wsrep-on=ON"), server(t, testbed.FlavorMariaDB)
	q := as(t, event.FormString, "SELECT v FROM t WHERE id = :id", func(q *Query) { q.Server = replica.Addr })
	node.Exec(t, "create table shop.t (id int primary key, v int)", "insert into shop.t values (1, 0)")
	r := newRunner(t, options(node, q))
	for v := 1; v < 4; v++ {
		conn, err := node.DB().Conn(t.Context())
		testbed.Must(t, err)
		for _, statement := range []string{"set server_id = 4000", fmt.Sprintf("update shop.t set v = %d", v)} {
			_, err := conn.ExecContext(t.Context(), statement)
			testbed.Must(t, err)
		}
		testbed.Must(t, conn.Close())
		change := last(t, node)
		if value, _, err := one(t.Context(), r, DefaultSource, q.ID, params("1"), &change); err != nil {
			t.Errorf("%s: %v", change.String(), err)
		} else if got := joined(t, value); got != fmt.Sprint(v) {
			t.Errorf("%q, want %d", got, v)
		}
	}
}

// last returns the last transaction that a server has executed.
func last(t *testing.T, s *testbed.Server) (set event.GTIDSet) {
	t.Helper()
	flavor := event.MySQL
	if s.Flavor == testbed.FlavorMariaDB {
		flavor = event.MariaDB
	}
	all, err := event.ParseGTIDSet(flavor, s.GTIDs(t))
	testbed.Must(t, err)
	all.Each(func(r event.GTIDRange) {
		g := r.First
		g.Number = r.Last
		set.Add(g)
	})
	return set
}

func idle(r *Runner) int {
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	return len(r.source.idle)
}
