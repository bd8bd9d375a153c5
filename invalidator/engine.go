package invalidator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/retry"
)

// Engine deletes keys, or writes them again. See the package comment.
type Engine struct {
	options Options
	start   time.Time
	store   retry.Store
	alarms  Alarms
	log     *slog.Logger
	metrics *metrics
	latency *latency.Stages
	spans   *spans
	// topology is where keys are sent. cluster says how it changes; nil: it never does.
	topology atomic.Pointer[topology]
	cluster  Cluster
	adopted  atomic.Pointer[Layout] // the last layout of cluster
	// gentlePace paces the gentle lanes of all nodes together.
	gentlePace *pacer
	// readings is how often the topology was read, and readNow has it read again.
	readings atomic.Uint64
	readNow  chan struct{}
	// unread is why the topology could not be read, the last time that it could not.
	unread  atomic.Pointer[string]
	room    *room
	pacer   *pacer
	pacers  pacers
	queries *queryPool
	hot     Hot
	marks   *marks
	// stored tells the retrier that keys were parked.
	stored chan struct{}
	// repeating is set while parked keys wait for a delete that is repeated because of a silence.
	repeating atomic.Bool
	// toldParked is until when the log does not say again why keys are parked.
	toldParked atomic.Int64

	mu         sync.Mutex
	partitions map[*partitionLoop]struct{}
	stopped    bool
	serving    sync.WaitGroup
}

// New returns an engine. It starts nothing and does not connect to Redis.
func New(d Deps, o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if (d.Redis == nil) == (d.Cluster == nil) || d.Store == nil {
		err = errors.Join(err, errors.New("invalidator: needs a redis, or a cluster, and a store"))
	}
	if err != nil {
		return nil, err
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	if d.Latency == nil {
		d.Latency = latency.New()
	}
	if d.Alarms == nil {
		d.Alarms = (*alarm.Board)(nil)
	}
	e := &Engine{
		options: o, start: time.Now(), store: d.Store, alarms: d.Alarms, log: d.Log,
		latency: d.Latency, pacer: &pacer{rate: o.RateLimit}, marks: &marks{},
		hot: d.Hot, stored: make(chan struct{}, 1), spans: &spans{},
		gentlePace: &pacer{rate: 2 * o.GentleRate}, cluster: d.Cluster, readNow: make(chan struct{}, 1),
		partitions: map[*partitionLoop]struct{}{},
	}
	e.room = &room{
		limit: load{int64(o.MaxInFlight), int64(o.MaxPending), o.MaxMemory},
		more:  make(chan struct{}),
	}
	e.metrics = newMetrics(e)
	e.spans.saw(o.ShortestD)
	e.room.ready, e.room.filled = e.isReady, e.kick
	first := &topology{since: always}
	if d.Cluster != nil {
		first.slots = noSlots(o.KeyPrefix)
	} else {
		first.nodes = []*node{e.newNode(d.Redis)}
	}
	e.topology.Store(first)
	e.queries = newQueryPool(e, d.Rebuilder)
	return e, e.metrics.register(d.Registerer)
}

// counting reports whether the D of anything is counted, or will be once what is in Redis comes back: whether anything
// is unfinished besides keys that wait for a mark. These may wait forever, if their reader is gone for good, and it
// makes no difference to them when Redis was silent before: their D is counted from the mark on.
func (e *Engine) counting() bool {
	return e.room.inFlight.Load()+e.room.pending.Load() > e.unmarked() || e.repeating.Load()
}

// unmarked returns how many keys wait for a mark.
func (e *Engine) unmarked() int64 {
	return e.sum(func(s *partitionLoop) int64 { return s.unmarked.Load() })
}

// clock returns the present instant.
func (e *Engine) clock() instant { return e.instant(time.Now()) }

func (e *Engine) instant(t time.Time) instant { return instant(t.Sub(e.start)) }

// Run runs what all partitions share: the writers to Redis, those who rebuild by query and who ends what waits for
// them for long, the prober that asks whether Redis is there, and the retrier of parked keys. It blocks until ctx ends
// or a fault stops it, and must be called once. When it ends, so does every Serve; it returns after them.
func (e *Engine) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var helpers sync.WaitGroup
	for range e.options.QueryWorkers {
		helpers.Go(func() { e.queries.work(work) })
	}
	helpers.Go(func() { e.queries.expire(work) })
	if e.cluster != nil {
		helpers.Go(func() { e.follow(work) })
	} else {
		e.only().start(work)
		helpers.Go(e.only().workers.Wait)
	}
	r := retrier{engine: e, done: make(chan *job, 1)}
	err := r.run(ctx)

	e.mu.Lock()
	e.stopped = true
	for s := range e.partitions {
		s.giveUp()
	}
	e.mu.Unlock()
	e.serving.Wait()
	cancel()
	helpers.Wait()
	return err
}

// Serve runs one partition: it fetches its batches, deletes their keys and commits what is finished. Several
// partitions may be served at once; Run must be running.
//
// It returns nil when ctx ends: what is under way in Redis then comes back first, for at most the timeout of a
// round trip, what is finished is committed, and the rest is dropped, for the log hands it out again. It also
// returns nil when the log ends (io.EOF), after everything is finished, final deletes included. It fails when the
// log does, or when Redis will never do what is asked of it.
func (e *Engine) Serve(ctx context.Context, p eventlog.Partition) error {
	return e.serve(ctx, p, false)
}

// ServeGently is Serve for work that nobody waits for, such as the answer to a doubt: its keys go to Redis in small
// round trips, one after the other over all such partitions, so that readers of Redis hardly notice, and live keys are
// not held up.
func (e *Engine) ServeGently(ctx context.Context, p eventlog.Partition) error {
	return e.serve(ctx, p, true)
}

func (e *Engine) serve(ctx context.Context, p eventlog.Partition, gentle bool) error {
	s := newPartition(ctx, e, p, gentle)
	defer s.giveUp()
	if !e.enlist(s) {
		return nil
	}
	defer e.serving.Done()
	err := s.run()
	e.mu.Lock()
	delete(e.partitions, s)
	e.mu.Unlock()
	if err != nil {
		return fmt.Errorf("invalidator: %w", err)
	}
	return nil
}

func (e *Engine) enlist(s *partitionLoop) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return false
	}
	e.partitions[s] = struct{}{}
	e.serving.Add(1)
	return true
}

// Mark takes a mark: D is counted from now on for the changes that it covers. It does not block, and may be called
// by any goroutine.
func (e *Engine) Mark(m event.Mark) {
	e.marks.add(m, e.clock())
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.partitions {
		wake(s.poke)
	}
}

// Moved says that a node is another server from now on, and that the connections to the one before have been left. It
// may be called by any goroutine.
func (e *Engine) Moved(r Redis) {
	for _, n := range e.topology.Load().nodes {
		if n.redis == r {
			n.health.watch.move(e.clock())
		}
	}
}

// Answered returns when the last command was sent that a node has answered; zero: it has answered none. It may be called
// by any goroutine.
func (e *Engine) Answered(r Redis) time.Time {
	for _, n := range e.topology.Load().nodes {
		if n.redis == r {
			if seen := n.health.watch.lastSeen(); seen != always {
				return e.start.Add(time.Duration(seen))
			}
		}
	}
	return time.Time{}
}

// Visible returns the newest version of a source that everybody is known to see: zero if nothing was read of it yet.
// False: no mark of it has come. It may be called by any goroutine.
func (e *Engine) Visible(source string) (event.Version, bool) {
	m, ok := e.marks.newest(source)
	return m.Version, ok
}

// Newest returns the newest mark of a source: what its servers say that everybody can see, and which of them has said
// so last. False: none has come. It may be called by any goroutine.
func (e *Engine) Newest(source string) (event.Mark, bool) { return e.marks.newest(source) }

// parkedNow is told that the store has taken keys. It says why once a minute: the keys themselves may be many.
func (e *Engine) parkedNow(entries []retry.Entry) {
	now, told := e.clock(), e.toldParked.Load()
	if now >= instant(told) && e.toldParked.CompareAndSwap(told, int64(now.add(time.Minute))) {
		e.log.Warn("keys are in trouble and tried again later; until then they may be stale",
			"keys", len(entries), "table", entries[0].Table, "redis", e.redisName(), "error", entries[0].Error)
	}
	buried := 0
	for i := range entries {
		if entries[i].Due.IsZero() {
			buried++
		}
	}
	e.metrics.parked.Add(float64(len(entries) - buried))
	e.buried(buried)
	wake(e.stored)
}

// buried counts keys that were given up.
func (e *Engine) buried(n int) {
	if n == 0 {
		return
	}
	e.metrics.buried.Add(float64(n))
	e.alarms.Raise(alarm.DeadLetter, "keys were given up after their last attempt and may stay stale: "+
		"see freshet dlq list, fix the cause, then freshet dlq replay")
}
