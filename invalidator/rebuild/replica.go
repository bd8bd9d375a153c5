package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// A query that names a replica runs there once that has executed whatever the source had when the run began, so that it
// reads nothing older than it would have read on the source. What the change's own transaction says would not be
// enough: a replica may commit in another order than the source (replica_preserve_commit_order, domains of MariaDB),
// and the guard of versions takes the value of a run for one that holds all that was finished before it. A replica that
// lags, or is away, is no reason to wait: the source is asked.

const (
	// lagWait is for how long a replica that lags is waited for. A worker can do nothing else meanwhile, and keys that
	// have waited for 5 s go without their queries.
	lagWait = 100 * time.Millisecond
	// waitRests is how many times as long as it waited for its replica a query runs on the source, if it took less time
	// than that itself: a replica that always lags a little must not take the time of many queries. lagRest is for how
	// long a replica that lagged by more is not asked, or one whose history the source does not have.
	waitRests = 10
	lagRest   = waitRests * lagWait
	// dialWait is for how long a connection to a replica is waited for, or what it says of itself, and awayRest for how
	// long one that was away is not asked.
	dialWait = time.Second
	awayRest = 30 * time.Second
	// trial is for how long the others leave a replica that has rested to the one that finds out whether it is back.
	trial = 2 * dialWait
)

// moment is what a value must be no older than.
type moment struct {
	after *event.GTIDSet // transactions; nil: none
	began time.Time      // of the run
	// source is what the source had after that; nil: it was not asked yet.
	source *position
}

// position is what a source has executed, at least as far as everybody can read it. On MariaDB logged is the last
// number of each domain and server.
type position struct {
	has    event.GTIDSet
	logged map[event.GTID]uint64
}

// poolOf returns the pool of the replica at an address.
func (r *Runner) poolOf(address string) *pool {
	p := r.replicas[address]
	if p == nil {
		p = &pool{
			runner: r, address: address, tls: r.o.ReplicaTLS, dial: r.o.DialReplica,
			patience: dialWait, wait: lagWait, rests: waitRests,
		}
		r.replicas[address] = p
	}
	return p
}

// run calls f, which asks a query for some keys, with a session on the server that the query names, which has executed
// what is asked for. If that is a replica that cannot be used, f is called again with one on the source.
func (r *Runner) run(ctx context.Context, q *prepared, keys int, m *moment, f func(*conn) error) error {
	if q.replica != nil {
		ran, err := r.onReplica(ctx, q, m, f)
		if ran {
			return err
		}
		q.elsewhere.Add(float64(keys))
	}
	return r.source.with(ctx, q.Timeout, func(c *conn) error {
		if err := c.reach(m.after); err != nil {
			return err
		}
		return f(c)
	})
}

// onReplica calls f with a session on the replica of a query. Unless it has run, the source must be asked.
func (r *Runner) onReplica(ctx context.Context, q *prepared, m *moment, f func(*conn) error) (ran bool, err error) {
	p := q.replica
	if time.Now().UnixNano() < q.onSourceUntil.Load() || !p.isTried() {
		return false, nil
	}
	var why *unfit
	var waited, took time.Duration
	err = p.with(ctx, q.Timeout, func(c *conn) (err error) {
		waited, err = c.await(ctx, p.wait, m, func() (*position, error) { return r.position(ctx, q, m.after) })
		if why = nil; errors.As(err, &why) {
			return nil // with the session all is well
		}
		if err != nil {
			return err
		}
		p.restsUntil.Store(0)
		began := time.Now()
		defer func() { took = time.Since(began) }()
		return f(c)
	})
	var unreachable *connectError
	var wrong *fault
	switch e, fromServer := retry.ServerError(err); {
	case why != nil && why.source && !errors.Is(why, errNoGTIDs):
		return true, why.error // it can be asked for nothing else either
	case why != nil:
		p.rest(lagRest)
	case err == nil, isContext(err), errors.Is(err, errClosed), errors.Is(err, errApart), errors.As(err, &wrong),
		fromServer && isSlow(e):
		if waited > took {
			q.onSourceUntil.Store(time.Now().Add(p.rests * waited).UnixNano())
		}
		return true, err
	case errors.As(err, &unreachable), errors.Is(err, errTimeout), isLost(err):
		p.rest(awayRest)
	}
	return false, nil
}

// isTried reports whether a replica is asked now. Of those that come once it has rested, the first finds out whether it
// is back; if it hangs, no other is held up.
func (p *pool) isTried() bool {
	until, now := p.restsUntil.Load(), time.Now()
	return until == 0 ||
		until <= now.UnixNano() && p.restsUntil.CompareAndSwap(until, now.Add(trial).UnixNano())
}

// rest has a replica not be asked for a while.
func (p *pool) rest(d time.Duration) { p.restsUntil.Store(time.Now().Add(d).UnixNano()) }

// position asks a session on the source, which has executed what is asked for, for what that is.
func (r *Runner) position(ctx context.Context, q *prepared, after *event.GTIDSet) (has *position, err error) {
	err = r.source.with(ctx, q.Timeout, func(c *conn) error {
		if err := c.reach(after); err != nil {
			return err
		}
		has, err = c.position()
		return err
	})
	if err == nil && has.has.IsEmpty() {
		err = errNoGTIDs
	}
	if err != nil {
		return nil, &unfit{err, true}
	}
	return has, nil
}

// position returns what the server has executed; empty: it keeps no GTIDs, and nobody can tell whether a replica has
// it.
func (c *conn) position() (*position, error) {
	c.meter.allow(executedBytes)
	switch {
	case c.galera: // where the numbers may be its own
		return &position{}, nil
	case !c.maria:
		has, err := c.gtids(event.MySQL, "SELECT if(@@global.gtid_mode = 'ON', @@global.gtid_executed, '')")
		return &position{has: has}, err
	}
	said, err := c.texts("SELECT @@global.gtid_binlog_pos, @@global.gtid_binlog_state")
	if err != nil {
		return nil, err
	}
	p := &position{}
	if p.has, err = event.ParseGTIDSet(event.MariaDB, said[0]); err == nil {
		p.logged, err = lastOfEach(said[1])
	}
	return p, err
}

// unfit is why a replica is not asked, although its session answers; source says that it is the source that does not
// say what it has.
type unfit struct {
	error
	source bool
}

func (e *unfit) Unwrap() error { return e.error }

// Why a replica is not asked.
var (
	errNoGTIDs = errors.New("the source keeps no GTIDs, by which it could be told what a replica has, or is a node of a " +
		"Galera cluster")
	errAhead = errors.New("it has transactions that the source lacks. If the source does not merely wait for another " +
		"replica (semi-synchronous replication), it replicates from another server, or the source was reset: set it up again")
	errLags     = fmt.Errorf("it lags, or is no replica of the source: %w", errBehind)
	errDisagree = errors.New("other mappings have the same query and do not name this server: write the same server in all " +
		"of them")
)

// await waits until readers of this session's server, a replica, see what the source had after a moment, for at most so
// long, and returns how long it waited. If there is no use in it the error is an [unfit].
//
// The replica is asked for each run, for it may have been set up again since the last one, and before the source: what
// it has by then the source has as well, if it is the source of that, and gave no numbers again.
func (c *conn) await(ctx context.Context, most time.Duration, m *moment, source func() (*position, error)) (
	waited time.Duration, err error,
) {
	if m.source != nil && c.compared.After(m.began) && !c.lacks(&m.source.has) {
		return 0, nil
	}
	asked := time.Now()
	c.compared = time.Time{}
	if err := c.within(dialWait, c.ask); err != nil {
		return 0, err
	}
	began, pause := time.Now(), time.Millisecond
	sleep := func(late error) error {
		if time.Since(began) > most {
			return &unfit{error: late}
		}
		defer func() { pause = min(2*pause, 50*time.Millisecond) }()
		return retry.Sleep(ctx, pause)
	}
	for {
		if m.source, err = source(); err != nil {
			return 0, err
		}
		if !c.isAhead(m.source) {
			break
		}
		// The source sends what it does not show yet, such as what it waits with for other replicas.
		if err := sleep(errAhead); err != nil {
			return 0, err
		}
	}
	c.compared = asked
	for c.lacks(&m.source.has) {
		if err := sleep(errLags); err != nil {
			return 0, err
		}
		if err := c.within(dialWait, c.ask); err != nil {
			return 0, err
		}
		waited = time.Since(began)
	}
	return waited, nil
}

// isAhead reports whether a replica has transactions that the source does not have, and would have written.
func (c *conn) isAhead(source *position) (is bool) {
	more := c.executed.Subtract(&source.has)
	if !c.maria {
		return more.SharesOrigin(&source.has)
	}
	more.Each(func(of event.GTIDRange) {
		source.has.Each(func(has event.GTIDRange) { is = is || of.First.Domain == has.First.Domain })
	})
	for origin, last := range c.logged {
		has, known := source.logged[origin]
		is = is || known && has < last
	}
	return is
}
