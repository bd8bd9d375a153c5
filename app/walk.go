package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/app/operate"
	"github.com/freshet/freshet/canal/walk"
	"github.com/freshet/freshet/config"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/invalidator/scope"
)

// walking reads rows from their tables, and has their keys written or forgotten: the keys that the router makes from
// them go through the engine as one more partition, like a redo. A value is as new as the newest version that everybody
// was known to see when its row was asked for ([event.Batch].Read), and is handed on under that version. So it replaces
// no newer one, and a change that comes meanwhile is kept right by its own action.
//
// With Kafka the member of the group that answers doubts walks, on its own: the other members' partitions hold the
// changes of the same keys, and each of those goes its way. That is enough. What a row says that was read is what its
// changes up to then have said, and each of these has a record of its own. So where an older record is carried out
// after the row, because its partition lags, and Redis has lost the companion that would have refused it, then the
// record of each newer change follows it in the same partition, and replaces what it wrote. The other way round, a
// value of a row
// may not replace that of a newer change. This change was not visible when the row was asked for, so no member can
// finish it sooner than D later. Until D/2 after the row was asked for its value may be begun, and after that never.
//
// Which member has heard which mark counts for two things. What a member has finished it has heard to be visible, and a
// value under an older version than that does nothing, though the row that was read is newer: somebody has changed it
// around the binlog. So rows are read once this member has heard all that the topic of marks had when the walk began.
// And the server which the row is asked of must be the one that the marks are about. A member that learns of a failover
// more than D/2 later than another may write a row of the former server. That is the same bound as for all values
// (package write, "What is not covered").
type walking struct {
	*shared
	serve func(ctx context.Context, p eventlog.Partition) error
	// take waits until so many keys more may be dealt with.
	take func(ctx context.Context, keys int) error
	// newest returns the newest mark of a source: what everybody sees who reads from its server.
	newest func(source string) (m event.Mark, ok bool)
	// marked returns the newest version that the topic of marks says everybody can see. nil: there is no such topic, and
	// this process has heard first what newest says.
	marked func(ctx context.Context, source string) (event.Version, error)
	// mappings returns those by which rows are routed.
	mappings func(ctx context.Context) ([]spec.Mapping, error)
	// seen takes the columns of the tables; nil: readers do.
	seen    *definitions
	metrics *walkMetrics
	// whose names in facts what is done here: the source's name, or with Kafka the group's, which group is then as well.
	whose, group string
}

// newWalking returns what walks the tables of the source of the configuration.
func (p *process) newWalking(d *deleting, s *scope.Scope) (*walking, error) {
	m, err := newWalkMetrics(p.registry)
	if err != nil {
		return nil, err
	}
	w := &walking{
		shared: p.shared, serve: d.engine.ServeGently, take: s.Take, newest: d.engine.Newest, metrics: m,
		whose: p.config.Source.Name,
	}
	w.mappings = func(ctx context.Context) ([]spec.Mapping, error) {
		return operate.WalkedMappings(ctx, p.config, p.sharedFacts)
	}
	if p.config.EventLog.Kind == config.EventLogKafka {
		w.group = p.config.EventLog.Kafka.Group
		w.whose = w.group
	}
	return w, nil
}

// walkPartition is the number of the partition that a walk is, in logs. No log has it.
const walkPartition = -3

// The bounds of a walk.
const (
	// walkBatch is how many keys a batch of a walk has at most.
	walkBatch = 500
	// refusals is how often in a row a server may refuse a statement before it is believed: DDL is under way for a while.
	refusals = 5
)

// errRemapped says that the reader of the source has other mappings by now.
var errRemapped = errors.New("the mappings have changed")

// walked is one walk: what it is, and how far it has come. Its counters may be read at any time.
type walked struct {
	operate.Walk
	// by is the hash of the mappings that it is for; "": any.
	by string
	// from is where it begins, and until where it ends; the zero place: with the table.
	from, until walk.Place
	// least is what this process must have heard that everybody sees before rows are read. An earlier life of the walk, or
	// another member of the group, has left keys with versions up to there, and only what is as new can take care of them.
	least event.Version
	// handing is asked before the keys of rows up to a place are handed out, at a version. It fails if they must not be.
	// nil: nobody needs to know.
	handing func(ctx context.Context) error
	// rows and keys are how many were handed to the engine. passed is how many rows of the table were passed over, those
	// included that do not meet the condition.
	rows, keys, passed atomic.Int64
	// about is how many rows the source thinks that there are; 0: it is not known. progress is how far the walk was when
	// it was last looked at.
	about    atomic.Int64
	progress atomic.Pointer[event.Progress]
	meters   event.Meter
	// trouble is why the source does not answer, as long as it does not; nil: it does.
	trouble atomic.Pointer[string]

	mu sync.Mutex
	// done is up to where everything is finished. Keys of rows up to handed may have been begun, with versions up to
	// version.
	done, handed walk.Place
	version      event.Version
}

// resume takes over how far an earlier life of the walk had come. One of an earlier version did not count what it has
// passed over.
func (k *walked) resume(rows, keys, passed int64) {
	k.rows.Store(rows)
	k.keys.Store(keys)
	k.passed.Store(max(rows, passed))
}

// hands takes note that keys are about to be handed out.
func (k *walked) hands(to walk.Place, v event.Version) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.handed = to; v.Compare(k.version) > 0 {
		k.version = v
	}
}

// settle takes note that all is finished that was handed out.
func (k *walked) settle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.handed = k.done
}

// what says what the walk is for: to forget is to answer a doubt.
func (k *walked) what() string {
	if k.Forget {
		return forDoubt
	}
	return forWarmUp
}

// meter takes how far the walk is. One goroutine at a time calls it.
func (k *walked) meter() {
	p := k.meters.Take(time.Now(), k.passed.Load(), k.about.Load())
	p.Keys = k.keys.Load()
	k.progress.Store(p)
}

// reached returns up to where everything is finished.
func (k *walked) reached() walk.Place {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.done
}

// notYet says that a walk cannot begin, and may later.
type notYet struct{ error }

// run walks until all keys are finished, by these mappings. Once wanted ends, nothing more is read: it finishes what
// was handed to the engine, and fails with the cause of that. It fails with a [walk.Refusal] if the table cannot be
// walked, or with ctx, or if the engine does, or is stopped.
func (w *walking) run(ctx, wanted context.Context, k *walked, mappings []spec.Mapping) error {
	o := w.source()
	troubles := &troubles{
		alarms: w.alarms, doubts: w.doubts, source: w.config.Source.Name, group: w.group, seen: w.seen,
	}
	route, err := operate.WalkRouter(mappings, &k.Walk, troubles)
	if err != nil {
		return notYet{err}
	}
	if !k.Forget {
		if err := operate.Queried(w.config, route, &k.Walk); err != nil {
			return walk.Refusal{Why: err} // another member was asked
		}
	}
	p := &walkRun{
		walking: w, walked: k, route: route,
		pace: newWalkPace(shortestD(mappings), w.config.ScopeRate),
	}
	p.reading, p.end = context.WithCancel(wanted)
	defer p.end()
	p.walk = walk.New(walk.Options{
		Schema: k.Schema, Table: k.Name, Where: k.Where, Until: k.until, Bind: route.Bind,
		Connect: func(ctx context.Context) (walk.Conn, func(), error) { return p.connect(ctx, o) },
	}, k.from)
	defer p.walk.Close()
	if err := w.serve(ctx, p); err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if p.done == p.issued {
		k.settle()
	}
	switch {
	case p.err != nil:
		return p.err
	case !p.finished():
		return errStopped
	}
	_, err = troubles.record(ctx)
	return err
}

// runWhile does run, and calls wanted every [looksEach] meanwhile. Once that returns false, nobody waits for the walk
// any more: it reads no more rows, and runWhile fails with errDismissed. Once a reader has other mappings it fails with
// errRemapped: the walk can go on by these.
//
// Both wait until what was handed to the engine is finished. The first action of a value leaves the version of the walk
// next to the key, and so the final action of an older change of the key does nothing: it relies on that of the walk.
func (w *walking) runWhile(ctx context.Context, k *walked, wanted func(ctx context.Context) bool) error {
	mappings, err := w.mappings(ctx)
	if err != nil {
		return notYet{err}
	}
	running := w.metrics.running.WithLabelValues(k.what())
	running.Inc()
	defer running.Dec()
	by := config.MappingsHash(mappings)
	if k.by != "" && k.by != by {
		return errRemapped
	}
	if w.marked != nil {
		v, err := w.marked(ctx, w.config.Source.Name)
		if err != nil {
			return notYet{fmt.Errorf("the brokers do not say what everybody can see: %w", err)}
		}
		if v.Compare(k.least) > 0 {
			k.least = v
		}
	}
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- w.run(ctx, reading, k, mappings) }()
	ticker := time.NewTicker(looksEach)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C:
			if reading.Err() != nil {
				continue
			}
			if !wanted(ctx) {
				stop(errDismissed)
			} else if now, err := w.mappings(ctx); err == nil && config.MappingsHash(now) != by {
				stop(errRemapped)
			}
		}
	}
}
