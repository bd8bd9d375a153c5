package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// held takes a lock on the server that queries then wait for, and returns what gives it back.
func held(t *testing.T, s *testbed.Server, name string) (release func()) {
	t.Helper()
	conn, err := s.DB().Conn(t.Context())
	testbed.Must(t, err)
	exec := func(ctx context.Context, sql string) {
		_, err := conn.ExecContext(ctx, sql, name)
		testbed.Must(t, err)
	}
	exec(t.Context(), "DO get_lock(?, 60)")
	return func() {
		exec(context.Background(), "DO release_lock(?)")
		testbed.Must(t, conn.Close())
	}
}

func waiting(t *testing.T, form event.Form) Query {
	return as(t, form, "SELECT get_lock(:name, 600) + release_lock(:name) AS done",
		func(q *Query) { q.Timeout = time.Hour })
}

func thePoolIsBounded(t *testing.T, s *testbed.Server) {
	q := waiting(t, event.FormJSON)
	o := options(s, q)
	o.Pool = 2
	r := newRunner(t, o)
	release := held(t, s, "bound")
	var results []func() (string, error)
	for range 6 {
		results = append(results, begun(t, r, q, "bound", "bound"))
	}
	for len(sessions(t, s, "SELECT get_lock")) < 2 {
	}
	// All places are taken: who waits no longer than this gets none, and has asked the server nothing.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := one(ctx, r, DefaultSource, q.ID, params("bound", "bound"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of its context", err)
	}
	if n := len(sessions(t, s, "SELECT get_lock")); n != 2 || len(r.places) != 2 {
		t.Errorf("%d sessions, %d places taken, want 2", n, len(r.places))
	}
	release()
	for _, result := range results {
		if got, err := result(); err != nil || !strings.Contains(got, `{"done":2}`) {
			t.Errorf("%q %v", got, err)
		}
	}
}

func theCallersContextEndsAQuery(t *testing.T, s *testbed.Server) {
	q := waiting(t, event.FormJSON)
	r := newRunner(t, options(s, q))
	defer held(t, s, "context")()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := one(ctx, r, DefaultSource, q.ID, params("context", "context"), nil)
		done <- err
	}()
	sessions(t, s, "SELECT get_lock")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of its context", err)
	}
	if len(r.source.idle) != 0 {
		t.Error("a session whose query runs on is kept")
	}
}

func closeEndsWhatRuns(t *testing.T, s *testbed.Server) {
	q := waiting(t, event.FormJSON)
	o := options(s, q)
	o.Pool = 1
	r := newRunner(t, o)
	defer held(t, s, "close")()
	runs, waits := begun(t, r, q, "close", "close"), begun(t, r, q, "close", "close")
	sessions(t, s, "SELECT get_lock")
	testbed.Must(t, r.Close())
	for _, result := range []func() (string, error){runs, waits} {
		if _, err := result(); err == nil || !strings.Contains(err.Error(), errClosed.Error()) {
			t.Errorf("%v, want that the process is stopping", err)
		}
	}
	if _, _, err := one(t.Context(), r, DefaultSource, q.ID, params("close", "close"), nil); err == nil {
		t.Error("a query ran after the end")
	}
	testbed.Must(t, r.Close())
}

func idleSessionsAreClosed(t *testing.T, s *testbed.Server) {
	q := as(t, event.FormString, "SELECT connection_id()")
	o := options(s, q)
	o.MaxIdle = time.Millisecond
	r := newRunner(t, o)
	id := get(t, r, q)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	for s.QueryText(t, "SELECT count(*) FROM information_schema.processlist WHERE id = "+id) != "0" {
	}
	if again := get(t, r, q); again == id {
		t.Errorf("session %s was still used", id)
	}
	cancel()
	testbed.Must(t, <-done)
	if _, _, err := one(t.Context(), r, DefaultSource, q.ID, nil, nil); err == nil {
		t.Error("a query ran after the end")
	}
}

func checkTriesAllQueries(t *testing.T, s *testbed.Server) {
	s.Exec(t, "create table shop.t (id int primary key, name varchar(20), price decimal(9,2), hidden int)",
		"create table shop.secret (id int)", "drop user if exists checker", "create user checker identified by 'pw'",
		"grant select (id, name, price) on shop.t to checker")
	queries := []Query{
		as(t, event.FormJSON, "SELECT id, price AS p, ':x' AS x FROM t WHERE id = :id AND name = :name"),
		as(t, event.FormJSON, "SELECT nme FROM t"),
		as(t, event.FormJSON, "SELECT hidden FROM t"),
		as(t, event.FormJSON, "SELECT id FROM secret WHERE id = :id"),
		as(t, event.FormJSON, "SELECT id, name AS id FROM t"),
		as(t, event.FormString, "SELECT id, name FROM t"),
	}
	o := options(s, queries...)
	o.User, o.Password = "checker", credential.Text("pw")
	r := newRunner(t, o)
	for range 2 { // a second time with the statements as they are
		all, err := r.Check(t.Context())
		testbed.Must(t, err)
		var got []string
		for _, c := range all {
			line := fmt.Sprint(len(c.Query.Params))
			for _, column := range c.Columns {
				line += " " + column.Name + " " + column.Type
			}
			got = append(got, line)
		}
		want := "2 id bigint p decimal x varchar\n0\n0\n1\n0 id bigint id varchar\n0 id bigint name varchar"
		if strings.Join(got, "\n") != want {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
		}
		if all[0].Err != nil {
			t.Error(all[0].Err)
		}
		for i, part := range []string{"", "nme", "hidden", "GRANT SELECT", "two columns called", "as: string needs one"} {
			if i > 0 && (all[i].Err == nil || !strings.Contains(all[i].Err.Error(), part) ||
				!strings.Contains(all[i].Err.Error(), "freshet.yaml:3:5")) {
				t.Errorf("%s: %v, want %q", all[i].Query.Text, all[i].Err, part)
			}
		}
	}
}

func metricsCountQueries(t *testing.T, s *testbed.Server) {
	s.Exec(t, "create table shop.t (id int)")
	good, bad := as(t, event.FormJSON, "SELECT id FROM t WHERE id = :id"), as(t, event.FormJSON, "SELECT nme FROM t")
	bad.Mapping = 1
	o := options(s, good, bad)
	reg := prometheus.NewPedanticRegistry()
	o.Registerer = reg
	r := newRunner(t, o)
	get(t, r, good, "1")
	_, _, err := one(t.Context(), r, DefaultSource, bad.ID, nil, nil)
	if err == nil {
		t.Error("a query of no column ran")
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	want := `# HELP freshet_rebuild_connections Connections of the pool that are in use, and connections that are kept for the next query.
# TYPE freshet_rebuild_connections gauge
freshet_rebuild_connections{state="idle"} 1
freshet_rebuild_connections{state="in_use"} 0
# HELP freshet_rebuild_query_errors_total Queries that failed, by whether running them again may help.
# TYPE freshet_rebuild_query_errors_total counter
freshet_rebuild_query_errors_total{class="permanent",mapping="1",table="shop.t"} 0
freshet_rebuild_query_errors_total{class="permanent",mapping="2",table="shop.t"} 1
freshet_rebuild_query_errors_total{class="transient",mapping="1",table="shop.t"} 0
freshet_rebuild_query_errors_total{class="transient",mapping="2",table="shop.t"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "freshet_rebuild_connections",
		"freshet_rebuild_query_errors_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(r.metrics.duration); n != 2 {
		t.Errorf("%d histograms", n)
	}
	testbed.Must(t, r.Close())
	if n := testutil.ToFloat64(r.metrics.idle); n != 0 {
		t.Errorf("%v sessions are kept after the end", n)
	}
}

// Two mappings may have the same query: it is one, with the longer timeout, and runs on the source if they do not agree
// on another server.
func TestOneQueryOfTwoMappings(t *testing.T) {
	a := as(t, event.FormJSON, "SELECT :a AS a", func(q *Query) { q.Server = "127.0.0.1:2" })
	b := as(t, event.FormJSON, "SELECT  :b  AS a", func(q *Query) { q.Timeout, q.Mapping = time.Minute, 1 })
	r := newRunner(t, Options{Address: "127.0.0.1:1", User: "u", Queries: []Query{a, b}})
	if a.ID != b.ID || r.byID[a.ID].Timeout != time.Minute || r.byID[a.ID].Mapping != 0 ||
		r.byID[a.ID].replica != nil {
		t.Errorf("%s and %s run as %+v", a.ID, b.ID, r.byID[a.ID])
	}
}
