package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
)

// The bounds of a batch. A batch is the unit of every hand-over: large enough that no stage feels its cost for each
// key, small enough that the first key of a burst does not wait for the last.
const (
	batchKeys   = 2000
	batchBytes  = 256 << 10
	batchRanges = 1000
)

// appender is the reader's side of an event log.
type appender interface {
	Append(ctx context.Context, b *event.Batch) error
	Mark(m event.Mark)
}

// routing turns row changes into invalidations.
type routing interface {
	Bind(t *event.Table) ([]event.Need, error)
	Route(b *event.Batch, c *event.Change)
	Publish()
}

// reader is canal's sink: it routes each row into the batch under way and appends the batch to the event log when it is
// full, when the source has nothing more to send for now, or when some of it has waited for 100 ms. It runs on the
// canal's goroutine.
type reader struct {
	ctx    context.Context
	log    appender
	router routing
	// handover tells the canal what is about to be handed over and returns for how long it has been visible.
	handover func(last event.Version) time.Duration
	xa       *xaMemory
	doubts   *doubt.Book
	troubles *troubles
	tap      *tap
	fresh    *freshness
	latency  *latency.Stages
	source   string
	term     uint64

	batch event.Batch
}

// Bind implements canal.Sink. A mapping that does not fit the table stops only itself: a column may be dropped while
// freshet runs, and its keys cannot be named then.
func (r *reader) Bind(t *event.Table) ([]event.Need, error) {
	needs, err := r.router.Bind(t)
	var problems spec.Problems
	if !errors.As(err, &problems) {
		return needs, err
	}
	for _, p := range problems {
		if err := r.troubles.unfit(r.ctx, fmt.Sprintf("table %s: %s", t, p)); err != nil {
			return needs, err
		}
	}
	return needs, nil
}

// Row implements canal.Sink. If it panics, canal passes over the rows event; what the batch holds by then is whole, and
// to delete more is always right.
func (r *reader) Row(c *event.Change) error {
	if c.Tx.XID != "" {
		if err := r.xaRow(c); err != nil {
			return err
		}
	} else {
		r.router.Route(&r.batch, c)
	}
	return r.handOnIfFull()
}

// xaRow is Row for an XA transaction. If it panics it leaves nothing of the row in the batch: what the row writes must
// not be written before the transaction is committed.
func (r *reader) xaRow(c *event.Change) error {
	from, whole := r.batch.Len(), false
	defer func() {
		if !whole {
			r.batch.Cut(from)
		}
	}()
	r.router.Route(&r.batch, c)
	err := r.xa.remember(c.Tx, &r.batch, from)
	whole = true
	return err
}

// Commit implements canal.Sink.
func (r *reader) Commit(tx *event.Tx, end event.End) error {
	if tx.XID != "" {
		r.xa.abandon(tx, end)
	}
	return r.end(end)
}

// end ends a transaction.
func (r *reader) end(end event.End) error {
	r.batch.End.Add(end)
	return r.handOnIfFull()
}

// Prepare implements canal.Sink. The rows' keys are deleted now as well, and nothing is written under them: which is
// too early to be of use but keeps the path the same for all rows, and is right where XA COMMIT … ONE PHASE follows.
// Those actions that count come with Resolve.
func (r *reader) Prepare(tx *event.Tx, end event.End) error {
	if err := r.xa.seal(tx); err != nil {
		return err
	}
	return r.end(end)
}

// Recall implements canal.Sink.
func (r *reader) Recall(tx *event.Tx, v event.Version) (known bool, err error) {
	unknown, err := r.xa.recall(tx, v, func(k *stashedKey, row uint32) error {
		known = true
		return r.again(tx, v, k, row)
	})
	if err == nil && len(unknown) > 0 {
		known, err = true, r.unknown(unknown)
	}
	if err != nil {
		return known, fmt.Errorf("xa transaction %s: %w", tx.XID, err)
	}
	return known, nil
}

// Resolve implements canal.Sink.
func (r *reader) Resolve(tx *event.Tx, v event.Version, end event.End) error {
	r.xa.resolved(tx, v, end)
	return r.end(end)
}

// unknown records the doubt about tables of which a transaction that is now committed changed rows whose keys did not
// fit into the stash. It returns once that is durable: the XA COMMIT must not be passed before.
func (r *reader) unknown(tables []string) error {
	which := "table " + strings.Join(tables, ", ")
	if slices.Contains(tables, "") {
		tables, which = nil, "every mapped table"
	}
	return r.doubts.Record(r.ctx, doubt.Doubt{
		Cause: alarm.XAKeysUnknown, Source: r.source, Tables: tables,
		Message: "an xa transaction was committed that had changed more rows than could be remembered, so some keys of " + which +
			" were not deleted: clear the keys of " + which,
	})
}

// again adds what was remembered at XA PREPARE to the batch, under the version of its XA COMMIT.
func (r *reader) again(tx *event.Tx, v event.Version, k *stashedKey, row uint32) error {
	o := event.Origin{Table: k.Table, Tx: *tx, Event: v, D: k.D, Mapping: k.Mapping, RateLimit: k.RateLimit}
	// Mappings take turns here as they did when the rows were routed.
	at := r.batch.FindOrigin(&o, len(r.batch.Origins))
	if at < 0 {
		at = len(r.batch.Origins)
		r.batch.AddOrigin(o)
	}
	add(&r.batch, k, row)
	r.batch.Invalidations[r.batch.Len()-1].Origin = uint32(at)
	return r.handOnIfFull()
}

// Flush implements canal.Sink.
func (r *reader) Flush() error {
	r.router.Publish()
	if r.batch.Len() == 0 && r.batch.End.IsZero() {
		return nil
	}
	return r.handOn()
}

// Mark implements canal.Sink. It is called on the heartbeat's goroutine.
func (r *reader) Mark(m event.Mark) {
	r.fresh.mark(m)
	r.log.Mark(m)
}

func (r *reader) handOnIfFull() error {
	if r.batch.Len() < batchKeys && len(r.batch.Text()) < batchBytes && len(r.batch.End.GTIDs) < batchRanges {
		return nil
	}
	return r.handOn()
}

func (r *reader) handOn() error {
	if err := r.troubles.record(r.ctx); err != nil {
		return err
	}
	b := &r.batch
	defer b.Reset()
	b.Source, b.Term = r.source, r.term
	if b.Len() > 0 {
		b.Age = r.handover(b.Last)
	}
	b.At = time.Now()
	r.latency.Read.Commits(b, b.At)
	r.fresh.handOn(&b.End)
	r.tap.show(b)
	return r.append(b)
}

// append appends the batch to the log. A panic over it would come again at each start: the tables of the batch are in
// doubt then, and its end goes on without its keys.
func (r *reader) append(b *event.Batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.unappended(b, p)
		}
	}()
	return r.log.Append(r.ctx, b)
}

func (r *reader) unappended(b *event.Batch, p any) error {
	var tables []string
	for i := range b.Commons {
		tables = append(tables, b.Commons[i].Table)
	}
	slices.Sort(tables)
	err := r.doubts.Record(r.ctx, doubt.Doubt{
		Cause: alarm.EventUndecodable, Source: r.source, Tables: slices.Compact(tables),
		Message: fmt.Sprintf("the event log failed over keys of source %s up to %s:%d (%T), so they were not deleted: clear the keys "+
			"of the tables, and please report it", r.source, b.End.File, b.End.Pos, p),
	})
	if err != nil {
		return err
	}
	end := b.End
	b.Reset()
	b.Source, b.Term, b.End, b.At = r.source, r.term, end, time.Now()
	return r.log.Append(r.ctx, b)
}
