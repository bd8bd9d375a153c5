package app

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/event"
)

// stopping is a log that takes nothing more: the process is told to stop while it has a batch.
type stopping struct {
	*fakeLog
	cancel context.CancelFunc
}

func (s *stopping) Append(ctx context.Context, _ *event.Batch) error {
	s.cancel()
	return ctx.Err()
}

// What the log did not take counts as not handed over, or a mark would say that all was.
func TestABatchThatTheLogDidNotTakeIsNotHandedOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, l := newReader(t)
	s := &fakeSource{steps: []*canal.Step{rowsStep(1, row(100, "")), endStep(150), {Kind: canal.Idle}}}
	r.source, r.log = s, &stopping{l, cancel}
	must(t, r.run(ctx))
	if s.handedOver != 0 {
		t.Errorf("nothing was appended, and it was handed over %d times", s.handedOver)
	}
}

// broken is a log that ends.
type broken struct{ *fakeLog }

func (*broken) Append(context.Context, *event.Batch) error {
	return fmt.Errorf("log: %w", io.EOF)
}

func TestAnErrorOfTheLogIsNotTheEndOfTheSource(t *testing.T) {
	r, l := newReader(t)
	s := &fakeSource{steps: []*canal.Step{rowsStep(1, row(100, "")), endStep(150), {Kind: canal.Idle}}}
	r.source, r.log = s, &broken{l}
	if err := r.run(t.Context()); err == nil || s.settled != 0 {
		t.Error("an error of the log is taken for caught up")
	}
}
