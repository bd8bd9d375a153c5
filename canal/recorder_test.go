package canal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

// change is a row change as the recorder keeps it.
type change struct {
	text    string // insert d.t (1,'a'), update d.t (1,'a')->(2,'a'), delete d.t (1,'a')
	version event.Version
	tx      event.GTID
	xid     string
}

// batch is what was handed over at once.
type batch struct {
	last event.Version
	age  time.Duration
	at   time.Time
	rows int
}

// sink takes in calls what a canal hands out in steps.
type sink interface {
	Bind(t *event.Table) ([]event.Need, error)
	Row(c *event.Change) error
	Commit(tx *event.Tx, end event.End) error
	Prepare(tx *event.Tx, end event.End) error
	// Recall reports whether anything of the transaction, which is committed, is remembered. Resolve follows.
	Recall(tx *event.Tx, v event.Version) (known bool, err error)
	Resolve(tx *event.Tx, v event.Version, end event.End) error
	// NotRead says that nobody has read the rows of a transaction that is committed. It is called before Resolve.
	NotRead(tx *event.Tx)
	Flush() error
	Mark(m event.Mark)
}

// binding is a sink's Bind.
func binding(s sink) Bind {
	return func(_ context.Context, t *event.Table) ([]event.Need, error) { return s.Bind(t) }
}

// give gives a step to a sink, whose Row is row.
func (c *Canal) give(step *Step, s sink, row func(*event.Change) error) error {
	switch step.Kind {
	case Rows:
		err := step.Each(row)
		for i := 0; c.o.Doubts != nil && i < len(step.Cascaded); i++ {
			err = errors.Join(err, c.o.Doubts.Record(c.loop.ctx, step.Cascaded[i]))
		}
		return err
	case Committed:
		return s.Commit(step.Tx, step.End)
	case Prepared:
		if r, is := s.(*recorder); is {
			r.note(func() { r.doubted = append(r.doubted, step.Doubted...) })
		}
		return s.Prepare(step.Tx, step.End)
	case XACommitted:
		known, err := s.Recall(step.Tx, step.Version)
		if err != nil {
			return err
		}
		if !known && step.Unread {
			s.NotRead(step.Tx)
		}
		return s.Resolve(step.Tx, step.Version, step.End)
	case XARolledBack:
		return s.Resolve(step.Tx, step.Version, step.End)
	case Moved:
		return s.Commit(step.Tx, step.End)
	case Idle:
		return c.flush(s)
	}
	return nil
}

func (c *Canal) flush(s sink) error {
	err := s.Flush()
	if err == nil {
		c.HandedOver()
	}
	return err
}

// run reads into a sink until ctx ends, and hands on what the sink has then.
func (c *Canal) run(ctx context.Context, s sink) error {
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { c.Watch(watching, s.Mark) })
	defer watch.Wait()
	defer stop()
	defer c.Close()
	step, err := c.Next(ctx)
	for row := s.Row; err == nil; {
		if err = c.give(step, s, row); err == nil {
			step, err = c.Next(ctx)
		}
	}
	if err == io.EOF {
		if err = c.flush(s); err == nil {
			err = c.Settled(ctx)
		}
	}
	if ctx.Err() != nil {
		err = s.Flush()
	}
	return err
}

// recorder is a sink that keeps everything, and a checkpoint. It hands over when it is flushed, and every per rows.
type recorder struct {
	c   *Canal
	per int
	// named adds the columns' names to the rows.
	named bool

	mu       sync.Mutex
	changed  chan struct{}
	rows     []change
	ends     []event.End
	prepares []string // xids
	doubted  []string // tables, by XA PREPARE
	// remembered are the xids of rows; committing: an XA COMMIT is under way.
	remembered []string
	committing bool
	resolves   []string // xid and outcome
	resolved   []event.Version
	notRead    []string // xids
	marks      []event.Mark
	markedAt   []time.Time
	batches    []batch
	tables     []*event.Table
	flushes    int
	commits    int

	gathered int
	last     event.Version
	pending  event.End

	pos    event.Position
	founds []event.Position
	moves  []event.Position
	raises []string
	frozen bool

	// onMark is called with every mark, when it is sent.
	onMark func(event.Mark)
	// onMove is called before the position moves; its error is the checkpoint's.
	onMove func(event.Position) error
	// before is asked before each row; its error is the sink's.
	before func(n int) error
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{}), per: 1000} }

func (r *recorder) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

// patience is how long tests wait for what must come: long enough for a machine with far too much to do.
const patience = 2 * time.Minute

// await waits until cond, which is asked under the lock, says true.
func (r *recorder) await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		ok, changed := r.ask(cond)
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("not in time: %s; %d rows, %d commits, %d marks, last rows %v", what, len(r.rows), r.commits, len(r.marks),
				tail(r.texts(), 5))
		}
	}
}

// ask asks cond under the lock, and returns what is closed when the answer may be another one.
func (r *recorder) ask(cond func() bool) (bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cond(), r.changed
}

// when is closed once cond, which is asked under the lock, says true, or stop is closed.
func (r *recorder) when(stop <-chan struct{}, cond func() bool) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			ok, changed := r.ask(cond)
			if ok {
				return
			}
			select {
			case <-changed:
			case <-stop:
				return
			}
		}
	}()
	return done
}

func tail[T any](s []T, n int) []T { return s[max(0, len(s)-n):] }

// marked reports whether the last mark covers the version. It needs the lock.
func (r *recorder) marked(v event.Version) bool {
	return len(r.marks) > 0 && r.marks[len(r.marks)-1].Version.Compare(v) >= 0
}

// texts needs the lock.
func (r *recorder) texts() []string {
	out := make([]string, len(r.rows))
	for i, c := range r.rows {
		out[i] = c.text
	}
	return out
}

func (r *recorder) Bind(t *event.Table) ([]event.Need, error) {
	r.note(func() { r.tables = append(r.tables, t) })
	var needs []event.Need
	for i, c := range t.Columns {
		needs = append(needs, event.Need{Column: i, Text: c.Class != event.ClassJSON})
	}
	return needs, nil
}

func (r *recorder) Row(c *event.Change) error {
	if r.before != nil {
		r.mu.Lock()
		n := len(r.rows)
		r.mu.Unlock()
		if err := r.before(n); err != nil {
			return err
		}
	}
	if c.Tx.XID != "" {
		r.note(func() { r.remembered = append(r.remembered, c.Tx.XID) })
	}
	text := c.Op.String() + " " + c.Table.String() + " "
	image := func(vs []event.Value) string { return r.image(c.Table, vs) }
	if c.Before != nil {
		text += image(c.Before)
	}
	if c.Before != nil && c.After != nil {
		text += "->"
	}
	if c.After != nil {
		text += image(c.After)
	}
	r.note(func() {
		r.rows = append(r.rows, change{text, c.Version, c.Tx.GTID, c.Tx.XID})
		r.gathered++
		r.last = c.Version
	})
	if r.gathered >= r.per {
		return r.hand()
	}
	return nil
}

func (r *recorder) image(t *event.Table, vs []event.Value) string {
	var parts []string
	for i := range vs {
		switch v := &vs[i]; v.Kind {
		case event.Absent:
			parts = append(parts, "?")
		case event.Null:
			parts = append(parts, "NULL")
		case event.Opaque:
			parts = append(parts, "*")
		default:
			parts = append(parts, string(v.AppendText(nil)))
		}
		if r.named {
			parts[i] = t.Columns[i].Name + "=" + parts[i]
		}
	}
	return "(" + strings.Join(parts, ",") + ")"
}

func (r *recorder) hand() error {
	if r.gathered > 0 {
		age := r.c.Handover(r.last)
		r.note(func() {
			r.batches = append(r.batches, batch{r.last, age, time.Now(), r.gathered})
			r.gathered = 0
		})
	}
	r.note(func() {
		if !r.frozen {
			r.pos.Advance(r.pending)
		}
		r.pending = event.End{}
	})
	return nil
}

func (r *recorder) Commit(_ *event.Tx, end event.End) error {
	r.note(func() {
		r.pending.Add(end)
		r.commits++
		end.GTIDs = slices.Clone(end.GTIDs)
		r.ends = append(r.ends, end)
	})
	return nil
}

func (r *recorder) Prepare(tx *event.Tx, end event.End) error {
	r.note(func() { r.prepares = append(r.prepares, tx.XID) })
	return r.Commit(tx, end)
}

func (r *recorder) Recall(tx *event.Tx, v event.Version) (known bool, err error) {
	r.note(func() {
		known = slices.Contains(r.remembered, tx.XID)
		r.committing = true
		r.gathered++
		r.last = v
		r.last.Row = 1
	})
	return known, nil
}

func (r *recorder) NotRead(tx *event.Tx) { r.note(func() { r.notRead = append(r.notRead, tx.XID) }) }

func (r *recorder) Resolve(tx *event.Tx, v event.Version, end event.End) error {
	r.note(func() {
		r.resolves = append(r.resolves, fmt.Sprintf("%s %v", tx.XID, r.committing))
		r.resolved = append(r.resolved, v)
		r.committing = false
	})
	return r.Commit(tx, end)
}

func (r *recorder) Flush() error {
	r.note(func() { r.flushes++ })
	return r.hand()
}

func (r *recorder) Mark(m event.Mark) {
	if r.onMark != nil {
		r.onMark(m)
	}
	r.note(func() {
		r.marks = append(r.marks, m)
		r.markedAt = append(r.markedAt, time.Now())
	})
}

func (r *recorder) Position() event.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pos
	p.GTIDs = r.pos.GTIDs.Clone()
	return p
}

func (r *recorder) Begin(p event.Position) error {
	r.note(func() {
		r.founds = append(r.founds, p)
		r.pos = p
		r.pos.GTIDs = p.GTIDs.Clone()
	})
	return nil
}

func (r *recorder) Move(p event.Position) error {
	if r.onMove != nil {
		if err := r.onMove(p); err != nil {
			return err
		}
	}
	r.note(func() {
		r.moves = append(r.moves, p)
		r.pos = p
		r.pos.GTIDs = p.GTIDs.Clone()
	})
	return nil
}

func (r *recorder) Raise(server string, epoch uint32) error {
	r.note(func() {
		r.raises = append(r.raises, fmt.Sprintf("%s %d", server, epoch))
		r.pos.Raise(server, epoch)
	})
	return nil
}

// running is a canal that runs.
type running struct {
	*recorder
	t      testing.TB
	canal  *Canal
	cancel context.CancelFunc
	done   chan error
	board  *alarm.Board
	doubts *doubt.Book
}

// reading starts a canal for the test; it is stopped with it at the latest.
func reading(t testing.TB, r *recorder, o Options) *running {
	t.Helper()
	return readingInto(t, r, r, o)
}

// readingInto is reading with another sink than the recorder.
func readingInto(t testing.TB, r *recorder, s sink, o Options) *running {
	t.Helper()
	if o.User == "" {
		o.User = "root"
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 200 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = quietLogger(t)
	}
	if o.Alarms == nil {
		o.Alarms = newBoard(t, o.Logger)
	}
	if o.Doubts == nil {
		var err error
		if o.Doubts, err = doubt.New(nil, o.Alarms, nil); err != nil {
			t.Fatal(err)
		}
	}
	c, err := New(o, binding(s), r)
	if err != nil {
		t.Fatal(err)
	}
	r.c = c
	ctx, cancel := context.WithCancel(context.Background())
	out := &running{
		recorder: r, t: t, canal: c, cancel: cancel, done: make(chan error, 1), board: o.Alarms,
		doubts: o.Doubts,
	}
	go func() { out.done <- c.run(ctx, s) }()
	t.Cleanup(func() { out.stop() })
	return out
}

// stop ends the canal and returns what Run returned.
func (r *running) stop() error {
	r.cancel()
	return r.wait()
}

// wait waits for Run to return.
func (r *running) wait() error {
	r.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case err := <-r.done:
		r.done <- err
		return err
	case <-timeout.C:
		v := r.canal.vis
		v.mu.Lock()
		r.t.Logf("queue %+v, answers %+v, server %s, epoch %d", v.queue, tail(v.answers, 2), v.server, v.epoch)
		v.mu.Unlock()
		stacks := make([]byte, 1<<20)
		r.t.Fatalf("Run did not return:\n%s", stacks[:runtime.Stack(stacks, true)])
		return errors.New("not reached")
	}
}

// alarmed reports whether an alarm of the kind has been raised.
func (r *running) alarmed(k alarm.Kind) bool {
	for _, rec := range r.board.Records() {
		if rec.Kind == k {
			return true
		}
	}
	return false
}
