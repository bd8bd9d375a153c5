package rebuild

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// No trouble of a replica holds up queries, nor does its trouble with the source.
func TestAReplicaHoldsUpNoQuery(t *testing.T) {
	withReplica(t, func(r *replicated) {
		for _, f := range []func(*replicated){
			aReplicaWaitedForRests, aReplicaAheadForAMoment, aReplicaThatHangs, aSourceThatIsAway,
		} {
			r.set(0)
			r.lagsFor(time.Hour)
			r.want("it follows", 0, r.replica)
			f(r)
		}
	})
}

// A replica that hangs holds up no query, however long that may take: it is the source that is asked. Once it has
// rested, one query finds out whether it is back, and no other waits for that.
func aReplicaThatHangs(r *replicated) {
	testbed.Must(r.t, r.replica.Pause())
	defer func() { testbed.Must(r.t, r.replica.Resume()) }()
	for greets(r.t, r.replica) {
	}
	r.runner.byID[r.query.ID].Timeout = time.Hour
	r.want("it hangs", 0, r.source)
	before := r.dialsReplica.Load()
	r.runner.byID[r.query.ID].replica.restsUntil.Store(1)
	var all sync.WaitGroup
	for range DefaultPool {
		all.Go(func() { r.want("it still hangs", 0, r.source) })
	}
	all.Wait()
	if n := r.dialsReplica.Load() - before; n != 1 {
		r.t.Errorf("%d queries tried whether it is back, want one", n)
	}
}

// greets reports whether a server says anything to a new connection: one that is stopped goes on for a moment.
func greets(t *testing.T, s *testbed.Server) bool {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr)
	testbed.Must(t, err)
	defer c.Close()
	testbed.Must(t, c.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	n, _ := c.Read(make([]byte, 1))
	return n > 0
}

// What cannot be asked of a source that is away is asked once, and costs no session on the replica.
func aSourceThatIsAway(r *replicated) {
	source, replica := r.dialsSource.Load(), r.dialsReplica.Load()
	testbed.Must(r.t, r.source.Kill())
	r.runner.source.closeIdle(time.Time{})
	_, _, err := one(r.t.Context(), r.runner, DefaultSource, r.query.ID, params("1"), nil)
	transient(r.t, err, "no connection to "+r.source.Addr)
	if s, p := r.dialsSource.Load()-source, r.dialsReplica.Load()-replica; s != 1 || p != 0 {
		r.t.Errorf("%d connections to the source and %d to the replica, want one and none", s, p)
	}
}

// A source that waits for another replica (semi-synchronous replication) does not show what this one has executed
// already. That is no other history: a moment later it does.
func aReplicaAheadForAMoment(r *replicated) {
	if r.source.Flavor == testbed.FlavorMariaDB {
		return // its gtid_binlog_pos runs ahead of what it shows
	}
	ctx := r.t.Context()
	testbed.Must(r.t, r.source.HoldCommits(ctx, time.Hour))
	var all sync.WaitGroup
	defer all.Wait()
	defer func() { testbed.Must(r.t, r.source.ReleaseCommits(ctx)) }()
	all.Go(func() { r.set(1) })
	for r.replica.QueryText(r.t, "select v from shop.t where id = 1") != "1" {
	}
	r.lagsFor(time.Millisecond)
	r.want("the source does not show it yet", 0, r.source)
	if left := time.Until(time.Unix(0, r.runner.byID[r.query.ID].replica.restsUntil.Load())); left > lagRest {
		r.t.Errorf("it rests for %s", left)
	}
	r.lagsFor(time.Hour)
	r.runner.source.closeIdle(time.Time{})
	all.Go(func() { r.want("the source shows it", 1, r.replica) })
	for idle(r.runner) == 0 { // it has said what it has
	}
}

// Which history a replica of MariaDB has no number says: servers that went apart give the same ones.
func TestAReplicaOfAnotherHistoryIsNotAsked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		// writes are what the failed primary has written that the promoted server lacks, and more what that one writes.
		writes, more int
		failed       bool // the query names the failed primary, and not a replica of it
	}{
		{"a replica that logs nothing has as many transactions of the failed primary", 2, 2, false},
		{"the failed primary has more than the promoted server, which wrote nothing", 1, 0, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			failed, promoted := server(t, testbed.FlavorMariaDB), testbed.MariaDB(t, "--log-slave-updates")
			failed.Exec(t, "create table shop.t (id int primary key, v varchar(40))", "insert into shop.t values (1, 'old')")
			at := failed
			promoted.Follow(t, failed)
			promoted.AwaitAllOf(t, failed)
			promoted.Exec(t, "stop slave")
			for range c.writes {
				failed.Exec(t, "update shop.t set v = concat(v, '-lost') where id = 1")
			}
			if !c.failed {
				at = testbed.MariaDB(t, "--skip-log-bin")
				at.Follow(t, failed)
				at.AwaitAllOf(t, failed)
			}
			want := "old"
			for range c.more {
				want += "-new"
				promoted.Exec(t, "update shop.t set v = concat(v, '-new') where id = 1")
			}
			q := as(t, event.FormString, "SELECT v FROM t WHERE id = :id", func(q *Query) { q.Server = at.Addr })
			if got := get(t, newRunner(t, options(promoted, q)), q, "1"); got != want {
				t.Errorf("%q, want %q, which the promoted server has", got, want)
			}
		})
	}
}

// Where queries run that could not run on the server that they name, and that a server that is away is asked once for
// all of its queries.
func checkSaysWhereQueriesRun(t *testing.T, s *testbed.Server) {
	s.Exec(t, "create table shop.t (id int primary key)")
	on := func(address, sql string) Query {
		return as(t, event.FormJSON, sql, func(q *Query) { q.Server = address })
	}
	var dials atomic.Int64
	o := options(s,
		on("127.0.0.1:1", "SELECT id FROM t"), on("127.0.0.1:1", "SELECT id + 1 AS id FROM t"),
		on("127.0.0.1:1", "SELECT id + 2 AS id FROM t"), on("127.0.0.1:2", "SELECT id + 2 AS id FROM t"),
		on("", "SELECT id + 3 AS id FROM t"), on("127.0.0.1:2", "SELECT id + 3 AS id FROM t"),
		on("", "SELECT id + 4 AS id FROM t"))
	o.DialReplica = func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, errors.New("no route to it")
	}
	all, err := newRunner(t, o).Check(t.Context())
	testbed.Must(t, err)
	var got []string
	for _, c := range all {
		switch {
		case c.Elsewhere == nil:
			got = append(got, "-")
		case errors.Is(c.Elsewhere, errDisagree):
			got = append(got, "disagree")
		default:
			got = append(got, "away")
		}
	}
	if want := "away away disagree disagree - disagree -"; strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("it was dialled %d times", n)
	}
}

// Waiting for a replica must not take the time of many queries: they run on the source for some times as long.
func aReplicaWaitedForRests(r *replicated) {
	p := r.runner.byID[r.query.ID].replica
	p.rests = waitRests
	r.following("stop")
	r.set(1)
	r.runner.source.closeIdle(time.Time{})
	got := make(chan string)
	go func() {
		value, _, err := one(r.t.Context(), r.runner, DefaultSource, r.query.ID, params("1"), nil)
		got <- fmt.Sprintf("%s %v", joined(r.t, value), err)
	}()
	for idle(r.runner) == 0 { // the source has said what it has
	}
	r.following("start")
	if v, want := <-got, fmt.Sprintf("1 of %d <nil>", r.replica.Port); v != want {
		r.t.Errorf("%q, want %q", v, want)
	}
	if r.runner.byID[r.query.ID].onSourceUntil.Load() == 0 {
		r.t.Error("the next queries wait as well")
	}
	r.runner.byID[r.query.ID].onSourceUntil.Store(0)
}
