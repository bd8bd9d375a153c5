package rebuild

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// replicated is a source with a replica, and a query that runs on the replica: its value, and the server that it was
// asked of.
type replicated struct {
	t               *testing.T
	source, replica *testbed.Server
	query           Query
	runner          *Runner
	away            atomic.Bool
	// dials counts the connections to each.
	dialsSource, dialsReplica atomic.Int64
}

// withReplica runs a test with a source of each kind and a replica of it. The replica logs nothing, which most do not
// need to.
func withReplica(t *testing.T, f func(r *replicated)) {
	t.Parallel()
	both(t, func(t *testing.T, source *testbed.Server) {
		replica := testbed.MariaDB
		if source.Flavor == testbed.FlavorMySQL {
			replica = testbed.MySQL
		}
		r := &replicated{t: t, source: source, replica: replica(t, "--skip-log-bin")}
		source.Exec(t, "create table shop.t (id int primary key, v int)", "insert into shop.t values (1, 0)")
		r.replica.Follow(t, source)
		r.query = as(t, event.FormString, "SELECT concat(v, ' of ', @@port) FROM t WHERE id = :id",
			func(q *Query) { q.Server = r.replica.Addr })
		o := options(source, r.query)
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			r.dialsSource.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		o.DialReplica = func(ctx context.Context, network, address string) (net.Conn, error) {
			r.dialsReplica.Add(1)
			var d net.Dialer
			if r.away.Load() {
				d.Deadline = time.Unix(1, 0) // nothing answers, not even with a refusal
			}
			return d.DialContext(ctx, network, address)
		}
		r.runner = newRunner(t, o)
		r.lagsFor(time.Hour)
		f(r)
	})
}

// set changes the row.
func (r *replicated) set(v int) {
	r.t.Helper()
	r.source.Exec(r.t, fmt.Sprintf("update shop.t set v = %d where id = 1", v))
}

// following stops and starts the replica.
func (r *replicated) following(action string) {
	r.t.Helper()
	what := " replica"
	if r.source.Flavor == testbed.FlavorMariaDB {
		what = " slave"
	}
	r.replica.Exec(r.t, action+what+" sql_thread")
}

// want runs the query, for one key and for several, and wants its value from a server.
func (r *replicated) want(what string, v int, from *testbed.Server) {
	r.t.Helper()
	want := fmt.Sprint(v, " of ", from.Port)
	all := make([]event.Fields, 4)
	for i := range all {
		all[i] = params("1")
	}
	for _, keys := range [][]event.Fields{all[:1], all} {
		r.runner.Query(r.t.Context(), DefaultSource, r.query.ID, keys, nil,
			func(_ int, value event.Fields, _ bool, err error) bool {
				if err != nil {
					r.t.Errorf("%s: %v", what, err)
				} else if got := joined(r.t, value); got != want {
					r.t.Errorf("%s: %q for one of %d keys, want %q", what, got, len(keys), want)
				}
				return true
			})
	}
}

// lagsFor says for how long the replica is waited for, which does not rest if that is long enough.
func (r *replicated) lagsFor(wait time.Duration) {
	p := r.runner.byID[r.query.ID].replica
	p.wait, p.rests = wait, 0
	p.restsUntil.Store(0)
}

// A query that names a replica runs there, and never reads less than the source had: not while the replica lags, nor
// when it is away, is no replica, or is set up again.
func TestAQueryOnAReplicaReadsWhatTheSourceHad(t *testing.T) {
	withReplica(t, func(r *replicated) {
		r.want("it follows", 0, r.replica)
		for v := range 20 {
			r.set(v)
			r.want("a change has just been committed", v, r.replica)
		}
		r.following("stop")
		r.set(100)
		r.lagsFor(10 * time.Millisecond)
		r.want("it lags", 100, r.source)
		r.set(101)
		r.following("start")
		r.replica.AwaitAllOf(r.t, r.source)
		r.want("it has just lagged", 101, r.source)
		r.lagsFor(time.Hour)
		r.want("it has all again", 101, r.replica)
		r.away.Store(true)
		r.runner.source.closeIdle(time.Time{})
		r.runner.byID[r.query.ID].replica.closeIdle(time.Time{})
		r.want("it is away", 101, r.source)
		r.away.Store(false)
		r.lagsFor(time.Hour)
		r.want("it is back", 101, r.replica)
		r.replica.Exec(r.t, "rename table shop.t to shop.u")
		r.want("it refuses the query", 101, r.source)
		r.replica.Exec(r.t, "rename table shop.u to shop.t")
		r.want("it takes the query", 101, r.replica)
		if n := testutil.ToFloat64(r.runner.byID[r.query.ID].elsewhere); n != 4*5 {
			r.t.Errorf("%v queries were counted on the source, and four times five keys were", n)
		}
	})
}

// A replica that is set up again, within a second and at the same address, has less than it had.
func TestAReplicaThatIsSetUpAgainIsNotBelieved(t *testing.T) {
	withReplica(t, func(r *replicated) {
		r.set(1)
		r.want("it follows", 1, r.replica)
		r.lagsFor(10 * time.Millisecond)
		if r.source.Flavor == testbed.FlavorMySQL {
			r.replica.Exec(r.t, "stop replica", "reset binary logs and gtids", "update shop.t set v = 0 where id = 1",
				"reset binary logs and gtids")
		} else {
			r.replica.Exec(r.t, "stop slave", "set global gtid_slave_pos = ''", "update shop.t set v = 0 where id = 1")
		}
		r.want("it has nothing", 1, r.source)
	})
}

// A source that is reset gives its numbers again: a replica has those of before, and no row of these.
func TestAReplicaOfASourceThatWasResetIsNotBelieved(t *testing.T) {
	withReplica(t, func(r *replicated) {
		for v := range 5 {
			r.set(v + 1)
		}
		r.want("it follows", 5, r.replica)
		reset := "reset master"
		if r.source.Flavor == testbed.FlavorMySQL {
			reset = "reset binary logs and gtids"
		}
		r.lagsFor(10 * time.Millisecond)
		r.source.Exec(r.t, reset)
		r.set(6)
		r.want("it has what was before", 6, r.source)
	})
}

// Which of two servers has more cannot be told where the source keeps no GTIDs.
func TestAReplicaOfASourceWithoutGTIDsIsNotAsked(t *testing.T) {
	t.Parallel()
	source, replica := testbed.MySQL(t, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"), testbed.MySQL(t)
	q := as(t, event.FormString, "SELECT @@port", func(q *Query) { q.Server, q.Schema = replica.Addr, "" })
	r := newRunner(t, options(source, q))
	if got := get(t, r, q); got != fmt.Sprint(source.Port) {
		t.Errorf("it was asked of %s", got)
	}
	all, err := r.Check(t.Context())
	testbed.Must(t, err)
	if all[0].Err != nil || !errors.Is(all[0].Elsewhere, errNoGTIDs) {
		t.Errorf("%v, %v", all[0].Err, all[0].Elsewhere)
	}
}

// What freshet check says of a query and its replica.
func TestCheckTriesQueriesOnTheirReplicas(t *testing.T) {
	withReplica(t, func(r *replicated) {
		for _, c := range []struct {
			what        string
			make, after func()
			says        string
		}{
			{"it follows", nil, nil, ""},
			{"it lags", func() {
				r.lagsFor(10 * time.Millisecond)
				r.following("stop")
				r.set(1)
			}, func() { r.following("start"); r.lagsFor(time.Hour) }, "it lags"},
			{"the table is not there", func() {
				r.replica.AwaitAllOf(r.t, r.source)
				r.replica.Exec(r.t, "rename table shop.t to shop.u")
				r.runner.byID[r.query.ID].replica.closeIdle(time.Time{}) // which have it prepared
			}, func() { r.replica.Exec(r.t, "rename table shop.u to shop.t") }, "use names that exist"},
			{"it is away", func() {
				r.away.Store(true)
				r.runner.byID[r.query.ID].replica.closeIdle(time.Time{})
			}, nil, "no connection to " + r.replica.Addr},
		} {
			if c.make != nil {
				c.make()
			}
			all, err := r.runner.Check(r.t.Context())
			testbed.Must(r.t, err)
			switch e := all[0].Elsewhere; {
			case all[0].Err != nil:
				r.t.Errorf("%s: %v", c.what, all[0].Err)
			case (c.says == "") != (e == nil), e != nil && !strings.Contains(e.Error(), c.says):
				r.t.Errorf("%s: %v, want %q", c.what, e, c.says)
			}
			if c.after != nil {
				c.after()
			}
		}
	})
}
