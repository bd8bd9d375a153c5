package app

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/event"
)

// fakeSource hands out steps, and then its error.
type fakeSource struct {
	steps []*canal.Step
	err   error
	age   time.Duration
	// asked are the versions whose age was asked, and log what was called, in order.
	asked      []event.Version
	handedOver int
	settled    int
	// before is called before each step.
	before func(left int)
}

func (s *fakeSource) Next(ctx context.Context) (*canal.Step, error) {
	if s.before != nil {
		s.before(len(s.steps))
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case len(s.steps) == 0:
		return nil, s.err
	}
	step := s.steps[0]
	s.steps = s.steps[1:]
	return step, nil
}

func (s *fakeSource) Handover(last event.Version) time.Duration {
	s.asked = append(s.asked, last)
	return s.age
}

func (s *fakeSource) HandedOver() { s.handedOver++ }

func (s *fakeSource) Settled(ctx context.Context) error {
	s.settled++
	return ctx.Err()
}

// rowsStep is a rows event of these rows.
func rowsStep(size int, rows ...*event.Change) *canal.Step {
	return &canal.Step{Kind: canal.Rows, Size: size, Each: func(f func(*event.Change) error) error {
		for _, c := range rows {
			if err := f(c); err != nil {
				return err
			}
		}
		return nil
	}}
}

// endStep is the end of a transaction at a position.
func endStep(pos uint64) *canal.Step {
	return &canal.Step{Kind: canal.Committed, Tx: &event.Tx{}, End: end(pos)}
}

// The reader's steps, one at a time.

func (r *reader) Row(c *event.Change) error { return r.row(context.Background(), c) }

func (r *reader) Flush() error { return r.flush(context.Background()) }

func (r *reader) Commit(tx *event.Tx, end event.End) error {
	return r.end(context.Background(), &canal.Step{Kind: canal.Committed, Tx: tx, End: end})
}

func (r *reader) Prepare(tx *event.Tx, end event.End) error {
	return r.end(context.Background(), &canal.Step{Kind: canal.Prepared, Tx: tx, End: end})
}

// Resolve is XA COMMIT or XA ROLLBACK.
func (r *reader) Resolve(commit bool, tx *event.Tx, v event.Version, end event.End) error {
	kind := canal.XARolledBack
	if commit {
		kind = canal.XACommitted
	}
	return r.end(context.Background(), &canal.Step{Kind: kind, Tx: tx, Version: v, End: end})
}

func TestTheReaderHandsOnWhenTheSourceIsIdleAndWhenItIsCaughtUpWith(t *testing.T) {
	r, l := newReader(t)
	s := &fakeSource{err: io.EOF, steps: []*canal.Step{
		rowsStep(1, row(100, ""), row(200, "")), endStep(250), {Kind: canal.Idle}, rowsStep(1, row(300, "")), endStep(350),
	}}
	var batches []int
	s.before = func(int) { batches = append(batches, len(l.batches)) }
	r.source = s
	must(t, r.run(t.Context()))
	if got := []int{0, 0, 0, 1, 1, 1}; !slices.Equal(batches, got) {
		t.Errorf("batches before each step: %v, want %v", batches, got)
	}
	if len(l.batches) != 2 || l.batches[1].End.Pos != 350 || s.handedOver != 2 || s.settled != 1 {
		t.Errorf("%d batches, handed over %d times, settled %d times", len(l.batches), s.handedOver, s.settled)
	}
}

// The source always has more, and little of it is mapped: what came before is handed on all the same, and the position
// with it, between transactions and within one.
func TestWhatWasReadIsHandedOnThoughTheSourceHasMore(t *testing.T) {
	const steps, each = 50_000, 40 * time.Microsecond
	for what, step := range map[string]*canal.Step{
		"unmapped transactions":            endStep(150),
		"a transaction that is still open": rowsStep(1),
	} {
		r, l := newReader(t)
		s := &fakeSource{err: errors.New("enough")}
		for range steps {
			s.steps = append(s.steps, step)
		}
		s.steps[0] = rowsStep(1, row(100, ""))
		read := time.Duration(0)
		s.before = func(left int) { read = time.Duration(steps-left) * each }
		r.pace.now = func() time.Time { return time.Unix(0, 0).Add(read) }
		r.pace.handedOn()
		r.source = s
		if err := r.run(t.Context()); err != s.err {
			t.Fatal(err)
		}
		if got, want := s.handedOver, int(steps*each/handOnAfter); got < want*9/10 || got > want {
			t.Errorf("%s: handed on %d times in %s, want about %d", what, got, read, want)
		}
		if len(l.batches) == 0 || l.batches[0].Len() != 1 {
			t.Errorf("%s: the key was not handed on", what)
		}
	}
}

func TestTheReadersErrorsAreItsOwn(t *testing.T) {
	full, broken := errors.New("full"), errors.New("broken")
	for what, c := range map[string]struct{ log, source, want error }{
		"the log":    {full, nil, full},
		"the source": {nil, broken, broken},
	} {
		r, l := newReader(t)
		l.fail = c.log
		s := &fakeSource{err: c.source, steps: []*canal.Step{rowsStep(1, row(100, "")), endStep(150)}}
		if c.log != nil {
			s.steps = append(s.steps, &canal.Step{Kind: canal.Idle})
		}
		r.source = s
		if err := r.run(t.Context()); err != c.want {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if len(l.batches) != 0 || s.settled != 0 {
			t.Errorf("%s: %d batches after an error", what, len(l.batches))
		}
	}
}

// A reader that is stopped in the middle of a transaction hands on what it has, if the log still takes it.
func TestAReaderThatIsStoppedHandsOnWhatItHas(t *testing.T) {
	for _, taken := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		r, l := newReader(t)
		s := &fakeSource{steps: []*canal.Step{
			rowsStep(1, row(100, "")), endStep(150), rowsStep(1, row(200, "")),
			endStep(250),
		}}
		s.before = func(left int) {
			if left == 1 {
				cancel()
			}
		}
		r.source = s
		if !taken {
			l.fail = context.Canceled
		}
		must(t, r.run(ctx))
		if taken && (len(l.batches) != 1 || l.batches[0].Len() != 2 || l.batches[0].End.Pos != 150) {
			t.Errorf("%+v", l.batches)
		}
	}
}

// No position may pass the XA COMMIT of a transaction that nobody has read without the doubt, nor raise one about what
// is remembered.
func TestAnXATransactionThatNobodyReadIsADoubtBeforeItsEnd(t *testing.T) {
	st := openStore(t, t.TempDir())
	defer st.Close()
	r, l := xaReader(t, st)
	durable := false
	kept, err := doubt.New(&doubttest.Memory{Fail: func(_ context.Context, op, _ string) error {
		if op == "put" {
			if durable = true; !r.batch.End.IsZero() || len(l.batches) > 0 && l.batches[len(l.batches)-1].End.Pos >= 550 {
				t.Error("the end comes first")
			}
		}
		return nil
	}}, nil, nil)
	must(t, err)
	r.doubts = kept
	prepare(t, r, xid, 100)
	l.batches = nil
	commit := func(xid string, pos uint64, unread bool) {
		must(t, r.end(t.Context(), &canal.Step{
			Kind: canal.XACommitted, Tx: &event.Tx{XID: xid}, Version: version(1, 1, pos, 0), End: end(pos + 50), Unread: unread,
		}))
		must(t, r.Flush())
	}
	commit(xid, 300, true) // remembered, whatever canal thinks
	commit("X'62',X'',1", 400, false)
	if durable {
		t.Fatalf("doubts %+v", kept.List())
	}
	commit("X'63',X'',1", 500, true)
	all := kept.List()
	if len(all) != 1 || all[0].Cause != alarm.XAUnread || all[0].Source != "orders" ||
		all[0].At != version(1, 1, 500, 0) || !strings.Contains(all[0].Message, "XA RECOVER") {
		t.Fatalf("doubts %+v", all)
	}
	if l.batches[len(l.batches)-1].End.Pos != 550 {
		t.Error("the end was not handed on")
	}
}
