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
	// lagRest is for how long one that lagged by more is not asked.
	lagRest = time.Second
	// dialWait is for how long a connection to a replica is waited for, and awayRest for how long one that was away is not
	// asked.
	dialWait = time.Second
	awayRest = 30 * time.Second
)

// poolOf returns the pool of the replica at an address.
func (r *Runner) poolOf(address string) *pool {
	p := r.replicas[address]
	if p == nil {
		p = &pool{
			runner: r, address: address, tls: r.o.ReplicaTLS, dial: r.o.DialReplica,
			patience: dialWait, wait: lagWait,
		}
		r.replicas[address] = p
	}
	return p
}

// run calls f with a session on the server that a query names, which has executed what is asked for. If that is a
// replica that cannot be used, f is called again with one on the source.
func (r *Runner) run(ctx context.Context, q *prepared, after *event.GTIDSet, f func(*conn) error) error {
	if q.replica != nil {
		ran, err := r.onReplica(ctx, q, after, f)
		if ran {
			return err
		}
		q.elsewhere.Inc()
	}
	return r.source.with(ctx, q.Timeout, func(c *conn) error {
		if err := c.reach(after); err != nil {
			return err
		}
		return f(c)
	})
}

// onReplica calls f with a session on the replica of a query. Unless it has run, the source must be asked.
func (r *Runner) onReplica(ctx context.Context, q *prepared, after *event.GTIDSet, f func(*conn) error) (
	ran bool, err error,
) {
	p := q.replica
	if time.Now().UnixNano() < p.restsUntil.Load() {
		return false, nil
	}
	var unknown error // what the source has
	err = p.with(ctx, q.Timeout, func(c *conn) error {
		err := c.await(ctx, p.wait, func() (has event.GTIDSet, err error) {
			has, unknown = r.position(ctx, q, after)
			return has, unknown
		})
		if err != nil {
			return err
		}
		return f(c)
	})
	var unreachable *connectError
	var wrong *fault
	switch e, fromServer := retry.ServerError(err); {
	case unknown != nil: // the source will say why
	case err == nil, isContext(err), errors.Is(err, errClosed), errors.Is(err, errApart), errors.As(err, &wrong),
		fromServer && isSlow(e):
		return true, err
	case errors.Is(err, errBehind):
		p.rest(lagRest)
	case errors.As(err, &unreachable), errors.Is(err, errTimeout), errors.Is(err, errAhead), isLost(err):
		p.rest(awayRest)
	}
	return false, nil
}

// rest has a replica not be asked for a while.
func (p *pool) rest(d time.Duration) { p.restsUntil.Store(time.Now().Add(d).UnixNano()) }

// position asks a session on the source, which has executed what is asked for, for what that is.
func (r *Runner) position(ctx context.Context, q *prepared, after *event.GTIDSet) (has event.GTIDSet, err error) {
	err = r.source.with(ctx, q.Timeout, func(c *conn) error {
		if err := c.reach(after); err != nil {
			return err
		}
		has, err = c.position()
		return err
	})
	if err == nil && has.IsEmpty() {
		err = errNoGTIDs
	}
	return has, err
}

// position returns what the source has executed, at least as far as everybody can read it; empty: it keeps no GTIDs,
// and nobody can tell whether a replica has it.
func (c *conn) position() (event.GTIDSet, error) {
	c.meter.allow(executedBytes)
	switch {
	case c.galera: // where the numbers may be its own
		return event.GTIDSet{}, nil
	case c.maria:
		return c.gtids(event.MariaDB, "SELECT @@global.gtid_binlog_pos")
	}
	return c.gtids(event.MySQL, "SELECT if(@@global.gtid_mode = 'ON', @@global.gtid_executed, '')")
}

// Why a replica is not asked.
var (
	errNoGTIDs = errors.New("the source keeps no GTIDs, by which it could be told what a replica has, or is a node of a " +
		"Galera cluster")
	errAhead = errors.New("it has transactions that the source lacks: it replicates from another server, or the source " +
		"was reset; set it up again")
	errLags = fmt.Errorf("it lags, or is no replica of the source: %w", errBehind)
)

// await waits until readers of this session's server, a replica, see what the source has executed when it is asked now.
// The replica is asked each time, for it may have been set up again since, and first: what it has by then the source
// has as well, if it is the source of that, and gave no numbers again.
func (c *conn) await(ctx context.Context, most time.Duration, source func() (event.GTIDSet, error)) error {
	if err := c.ask(); err != nil {
		return err
	}
	has, err := source()
	if err != nil {
		return err
	}
	if c.isAhead(&has) {
		return errAhead
	}
	began := time.Now()
	for pause := time.Millisecond; c.lacks(&has); pause = min(2*pause, 50*time.Millisecond) {
		if time.Since(began) > most {
			return errLags
		}
		if err := retry.Sleep(ctx, pause); err != nil {
			return err
		}
		if err := c.ask(); err != nil {
			return err
		}
	}
	return nil
}

// isAhead reports whether a replica has transactions that the source does not have, and would have written.
func (c *conn) isAhead(source *event.GTIDSet) (is bool) {
	more := c.executed.Subtract(source)
	if !c.maria {
		return more.SharesOrigin(source)
	}
	more.Each(func(of event.GTIDRange) {
		source.Each(func(has event.GTIDRange) { is = is || of.First.Domain == has.First.Domain })
	})
	return is
}
