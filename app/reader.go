package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/canal"
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
	Route(b *event.Batch, c *event.Change)
	Publish()
}

// source is what the reader asks: a [canal.Canal].
type source interface {
	Next(ctx context.Context) (*canal.Step, error)
	Handover(last event.Version) time.Duration
	HandedOver()
	Settled(ctx context.Context) error
}

// reader asks the source for what it has read, routes each row into the batch under way, and appends the batch to the
// event log when it is full, when the source has nothing more to send for now, or when some of it has waited for 100
// ms. One goroutine runs it.
type reader struct {
	source   source
	log      appender
	router   routing
	xa       *xaMemory
	doubts   *doubt.Book
	troubles *troubles
	tap      *tap
	fresh    *freshness
	latency  *latency.Stages
	name     string // of the source
	term     uint64

	batch event.Batch
	pace  pace
}

// run reads until ctx ends, which is no error, something fails, or the source is caught up with and all that was handed
// on is visible.
func (r *reader) run(ctx context.Context) error {
	caughtUp, err := r.read(ctx)
	if caughtUp {
		if err = r.flush(ctx); err == nil {
			err = r.source.Settled(ctx)
		}
	}
	if ctx.Err() == nil {
		return err
	}
	// Stopped: what was gathered is handed on, if the log still takes it. Nothing is said to have been handed over, since
	// a batch that was not taken is gone.
	if err = r.handOnRest(ctx); errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)) {
		return nil
	}
	return err
}

// read takes one step after the other, until the source is caught up with, or something fails. Here is decided when a
// batch ends.
func (r *reader) read(ctx context.Context) (caughtUp bool, err error) {
	row := func(c *event.Change) error { return r.row(ctx, c) }
	for {
		step, err := r.source.Next(ctx)
		if err != nil {
			return err == io.EOF, err // of the source alone: an error of the log may wrap it, too
		}
		if step.Kind == canal.Rows {
			err = step.Each(row)
			r.cascaded(step)
		} else {
			err = r.end(ctx, step)
		}
		if err == nil && (step.Kind == canal.Idle || r.pace.read(step)) {
			err = r.flush(ctx)
		}
		if err != nil {
			return false, err
		}
	}
}

// row takes one row change. If it panics, canal passes over the rows event; what the batch holds by then is whole, and
// to delete more is always right.
func (r *reader) row(ctx context.Context, c *event.Change) error {
	if c.Tx.XID != "" {
		if err := r.xaRow(c); err != nil {
			return err
		}
	} else {
		r.troubles.begin(c.Version)
		r.router.Route(&r.batch, c)
	}
	return r.handOnIfFull(ctx)
}

// xaRow is row for an XA transaction. If it panics it leaves nothing of the row in the batch: what the row writes must
// not be written before the transaction is committed.
func (r *reader) xaRow(c *event.Change) error {
	from, whole := r.batch.Len(), false
	defer func() {
		if !whole {
			r.batch.Cut(from)
		}
	}()
	unnamed := r.troubles.begin(c.Version)
	r.router.Route(&r.batch, c)
	if r.troubles.lacked(unnamed) { // the row changes when the transaction is committed: what is in doubt is so again then
		r.xa.doubt(c.Tx, c.Version, []string{c.Table.String()})
	}
	err := r.xa.remember(c.Tx, &r.batch, from)
	whole = true
	return err
}

// cascaded takes the doubts about rows that changed along with those of a step. In an XA transaction they change when
// it is committed: the doubts come again then.
func (r *reader) cascaded(s *canal.Step) {
	for i := range s.Cascaded {
		r.troubles.cascaded(&s.Cascaded[i])
		if s.Tx.XID != "" {
			r.xa.doubt(s.Tx, s.Version, s.Cascaded[i].Tables)
		}
	}
}

// end takes the end of a transaction, or the place where reading goes on; there is none in an Idle.
func (r *reader) end(ctx context.Context, s *canal.Step) error {
	var err error
	switch s.Kind {
	case canal.Committed:
		if s.Tx.XID != "" {
			r.xa.abandon(s.Tx, s.End)
		}
	case canal.Prepared:
		// The rows' keys are deleted now as well, and nothing is written under them: which is too early to be of use but
		// keeps the path the same for all rows, and is right where XA COMMIT … ONE PHASE follows. Those actions that count
		// come with XA COMMIT.
		if len(s.Doubted) > 0 {
			r.xa.doubt(s.Tx, s.Version, s.Doubted)
		}
		err = r.xa.seal(s.Tx)
	case canal.XACommitted:
		if err = r.recall(ctx, s); err == nil {
			r.xa.resolved(s.Tx, s.Version, s.End)
		}
	case canal.XARolledBack:
		r.xa.resolved(s.Tx, s.Version, s.End)
	case canal.Moved: // its end comes after all that was read before
	default:
		return nil
	}
	if err != nil {
		return err
	}
	r.batch.End.Add(s.End)
	return r.handOnIfFull(ctx)
}

// recall invalidates again what was remembered of an XA transaction that is now committed, and records the doubt about
// what was not. The batch must not get the end before.
func (r *reader) recall(ctx context.Context, s *canal.Step) error {
	known := false
	unknown, err := r.xa.recall(s.Tx, s.Version, func(k *stashedKey, row uint32) error {
		known = true
		return r.again(ctx, s.Tx, s.Version, k, row)
	})
	switch {
	case err != nil:
	case len(unknown) > 0:
		err = r.unknown(ctx, s.Version, unknown)
	case s.Unread && !known:
		return r.unread(ctx, s.Version)
	}
	if err != nil {
		return fmt.Errorf("xa transaction %s: %w", s.Tx.XID, err)
	}
	return nil
}

// unread records the doubt about a transaction that is now committed, and whose rows nobody has read.
func (r *reader) unread(ctx context.Context, at event.Version) error {
	return r.doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.XAUnread, Source: r.name, At: at,
		Message: "an XA COMMIT on source " + r.name + " of a transaction that was prepared before reading began: " +
			"its rows were not read, so their keys may be stale; commit or roll back what XA RECOVER lists " +
			"before a first start or `position set` (on MySQL, and grant XA_RECOVER_ADMIN, so that others are distinguished)",
	})
}

// unknown records the doubt about tables of which a transaction that is now committed changed rows whose keys did not
// fit into the stash. It returns once that is durable: the XA COMMIT must not be passed before.
func (r *reader) unknown(ctx context.Context, at event.Version, tables []string) error {
	which := "table " + strings.Join(tables, ", ")
	if slices.Contains(tables, "") {
		tables, which = nil, "every mapped table"
	}
	return r.doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.XAKeysUnknown, Source: r.name, Tables: tables, At: at,
		Message: "an xa transaction was committed that had changed more rows than could be remembered, rows that have no " +
			"events, or rows whose images lack a column of a key, so some keys of " + which + " were not deleted",
	})
}

// again adds what was remembered at XA PREPARE to the batch, under the version of its XA COMMIT.
func (r *reader) again(ctx context.Context, tx *event.Tx, v event.Version, k *stashedKey, row uint32) error {
	o := event.Origin{Table: k.Table, Tx: *tx, Event: v, D: k.D, Mapping: k.Mapping, RateLimit: k.RateLimit}
	// Mappings take turns here as they did when the rows were routed.
	at := r.batch.FindOrigin(&o, len(r.batch.Origins))
	if at < 0 {
		at = len(r.batch.Origins)
		r.batch.AddOrigin(o)
	}
	add(&r.batch, k, row)
	r.batch.Invalidations[r.batch.Len()-1].Origin = uint32(at)
	return r.handOnIfFull(ctx)
}

// flush hands on all that was read.
func (r *reader) flush(ctx context.Context) error {
	if err := r.handOnRest(ctx); err != nil {
		return err
	}
	r.source.HandedOver()
	r.pace.handedOn()
	return nil
}

// handOnRest hands on what the batch holds.
func (r *reader) handOnRest(ctx context.Context) error {
	r.router.Publish()
	if r.batch.Len() > 0 || !r.batch.End.IsZero() {
		return r.handOn(ctx)
	}
	return nil
}

// leave hands on what was gathered of a stream that ended at a gap. What was remembered of an XA transaction that it
// broke off in is of no use: the rest of it will not come.
func (r *reader) leave(ctx context.Context) error {
	r.xa.leave()
	return r.handOnRest(ctx)
}

// mark takes a mark, on the goroutine that watches the source.
func (r *reader) mark(m event.Mark) {
	r.fresh.mark(m)
	r.log.Mark(m)
}

func (r *reader) handOnIfFull(ctx context.Context) error {
	if r.batch.Len() < batchKeys && len(r.batch.Text()) < batchBytes && len(r.batch.End.GTIDs) < batchRanges {
		return nil
	}
	return r.handOn(ctx)
}

// handOn hands on the batch. A panic over it would come again at each start: the tables of the batch are in doubt then,
// and its end goes on without its keys. Canal knows only of the table whose row made the batch full.
func (r *reader) handOn(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.failed(ctx, p)
		}
	}()
	doubted, err := r.troubles.record(ctx)
	if err != nil {
		return err
	}
	b := &r.batch
	b.Source, b.Term = r.name, r.term
	last := b.Last
	if doubted.Compare(last) > 0 { // a row without keys: its doubt is answered once a mark covers it
		last = doubted
	}
	if b.Len() > 0 || !doubted.IsZero() {
		b.Age = r.source.Handover(last)
	}
	b.At = time.Now()
	r.latency.Read.Commits(b, b.At)
	r.fresh.handOn(&b.End)
	r.tap.show(b)
	err = r.log.Append(ctx, b)
	b.Reset()
	return err
}

// failed records the doubt after a panic over the batch, and appends its end alone.
func (r *reader) failed(ctx context.Context, p any) error {
	b := &r.batch
	var tables []string
	for i := range b.Commons {
		tables = append(tables, b.Commons[i].Table)
	}
	slices.Sort(tables)
	err := r.doubts.Record(ctx, doubt.Doubt{
		Cause: alarm.EventUndecodable, Source: r.name, Tables: slices.Compact(tables),
		Message: fmt.Sprintf("freshet failed over keys of source %s up to %s:%d (%T), so they were not deleted: clear the "+
			"keys of the tables, and please report it", r.name, b.End.File, b.End.Pos, p),
	})
	if err != nil {
		return err
	}
	end := b.End
	b.Reset()
	b.Source, b.Term, b.End, b.At = r.name, r.term, end, time.Now()
	err = r.log.Append(ctx, b)
	b.Reset()
	return err
}
