package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/event"
)

// Runner runs the queries of one source.
type Runner struct {
	o       Options
	queries []*prepared
	byID    map[string]*prepared
	metrics *metrics
	// source has the sessions on the source, and replicas those on the servers that queries name, by address.
	source   *pool
	replicas map[string]*pool
	// places are for the queries that run: who holds one may have a session of each pool.
	places chan struct{}
	// life ends with Close, and with it all that runs.
	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	active sync.WaitGroup
}

// prepared is a query with what belongs to it for as long as the Runner lives.
type prepared struct {
	Query
	ordinal int   // of its statement in each connection
	replica *pool // where it runs; nil: on the source
	// aloneUntil is until when it is not asked for several keys together, in nanoseconds of [time.Time.UnixNano].
	aloneUntil atomic.Int64
	// onSourceUntil is until when it runs on the source, since waiting for its replica took longer than it did itself.
	onSourceUntil atomic.Int64
	counters
}

// New returns a Runner. It connects when it is asked for the first value.
func New(o Options) (*Runner, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Runner{
		o: o, byID: map[string]*prepared{}, metrics: newMetrics(), replicas: map[string]*pool{},
		places: make(chan struct{}, o.Pool),
	}
	r.life, r.end = context.WithCancel(context.Background())
	r.source = r.poolOfSource()
	for i := range o.Queries {
		q := o.Queries[i]
		if q.Timeout == 0 {
			q.Timeout = DefaultTimeout
		}
		p := &prepared{Query: q, ordinal: i, counters: r.metrics.counters(&q)}
		if q.Server != "" {
			p.replica = r.poolOf(q.Server)
		}
		r.queries = append(r.queries, p)
		if first := r.byID[q.ID]; first == nil {
			r.byID[q.ID] = p
		} else {
			first.Timeout = max(first.Timeout, q.Timeout)
			if first.replica != p.replica {
				first.replica = nil
			}
		}
	}
	if err := r.metrics.register(o.Registerer); err != nil {
		r.end()
		return nil, fmt.Errorf("rebuild: metrics: %w", err)
	}
	return r, nil
}

// Query runs the query with the given fingerprint for each of the parameters, some together in one statement, and
// calls answer for each with the value that it makes, in the fields of event.Effect; missing says that there is none:
// no row, a string that is NULL, or a hash of which all columns are NULL. Once answer has returned false, nothing more
// is asked, and what is left has no answer. It waits for a place in the pool until ctx ends. after are transactions
// that the server must have executed, so that what is read is no older than they are: a session that was made before
// another server took over is closed. nil: none is asked for. See the package for its errors.
func (r *Runner) Query(ctx context.Context, source, id string, params []event.Fields, after *event.GTIDSet,
	answer func(i int, value event.Fields, missing bool, err error) (more bool),
) {
	m := &moment{after: after, began: time.Now()}
	q, err := r.query(source, id)
	leave := func() {}
	if err == nil {
		leave, err = r.enter(ctx)
	}
	if err != nil {
		for i := 0; i < len(params) && answer(i, nil, false, err); i++ {
		}
		return
	}
	defer leave()
	var all []asked
	for i := range params {
		if a, err := q.arguments(params[i]); err == nil {
			all = append(all, asked{i, a, kindsOf(a)})
		} else if !answer(i, nil, false, err) {
			return
		}
	}
	slices.SortStableFunc(all, func(a, b asked) int { return strings.Compare(a.kinds, b.kinds) })
	more := true
	for from, to := 0, 0; from < len(all) && more; from = to {
		to = from + q.size(alike(all[from:]))
		sinks := make([]*sink, to-from)
		if len(sinks) > 1 {
			sinks = r.together(ctx, q, all[from:to], m)
		}
		for i, s := range sinks {
			if s == nil && more {
				s = r.alone(ctx, q, all[from+i].args, m)
			}
			if s != nil {
				value, missing, err := s.result()
				more = answer(all[from+i].i, value, missing, err) && more
			}
		}
	}
}

// result is what became of a query.
func (s *sink) result() (value event.Fields, missing bool, err error) {
	if s.err != nil {
		return nil, false, s.query.explain(s.err)
	}
	value, missing = s.value()
	return value, missing, nil
}

// query returns the query that is asked for.
func (r *Runner) query(source, id string) (*prepared, error) {
	q := r.byID[id]
	switch {
	case source != r.o.Source:
		return nil, permanent("the change is of the source %q, and the queries of this process run on %q: handle "+
			"its changes with an invalidator that has that source", source, r.o.Source)
	case q == nil:
		return nil, permanent("the query %s is not in this process's configuration: give it the mappings that the "+
			"reader has", id)
	}
	return q, nil
}

// alone asks the query for one key.
func (r *Runner) alone(ctx context.Context, q *prepared, args []any, m *moment) *sink {
	began := time.Now()
	s := &sink{}
	err := r.run(ctx, q, 1, m, func(c *conn) error {
		*s = sink{query: &q.Query, limit: r.o.MaxBytes, maria: c.maria}
		return c.run(q, args, s)
	})
	q.observe(time.Since(began), err)
	s.query, s.err = &q.Query, err
	return s
}

// arguments are the parameters as the library takes them.
func (q *prepared) arguments(params event.Fields) ([]any, error) {
	all, err := params.All()
	if err != nil {
		return nil, permanent("%s: %s", q.name(), err)
	}
	if len(all) != len(q.Params) {
		return nil, permanent("%s was asked for with %d parameters and has %d: give all processes the same mappings",
			q.name(), len(all), len(q.Params))
	}
	args := make([]any, len(all))
	for i, v := range all {
		if v != nil {
			args[i] = v
		}
	}
	return args, nil
}

// enter takes a place in the pool; leave gives it back.
func (r *Runner) enter(ctx context.Context) (leave func(), err error) {
	select {
	case r.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.life.Done():
		return nil, errClosed
	}
	// Close sets closed before it waits, and nobody adds to active after that: a WaitGroup must not be added to while
	// it is waited for.
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		<-r.places
		return nil, errClosed
	}
	r.active.Add(1)
	r.metrics.inUse.Inc()
	return func() {
		r.metrics.inUse.Dec()
		<-r.places
		r.active.Done()
	}, nil
}

// Run closes idle connections in time until ctx ends, and then all: see [Runner.Close].
func (r *Runner) Run(ctx context.Context) error {
	t := time.NewTicker(max(r.o.MaxIdle/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			for _, p := range r.pools() {
				p.closeIdle(time.Now().Add(-r.o.MaxIdle))
			}
		case <-ctx.Done():
			return r.Close()
		}
	}
}

// Close ends the queries that run, which then fail, and closes all connections. It returns when that is done; the
// second time it does nothing.
func (r *Runner) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end()
	r.active.Wait()
	for _, p := range r.pools() {
		p.closeIdle(time.Time{})
	}
	return nil
}

// pools are those of all servers.
func (r *Runner) pools() []*pool { return append(slices.Collect(maps.Values(r.replicas)), r.source) }

// errClosed and errTimeout are what a query ended of.
var (
	errClosed  = errors.New("this process is stopping")
	errTimeout = errors.New("the query took longer than its timeout")
)
