package leader

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// What is led may hear of the successor before the leader looks: its next write fails. That ends the leadership, not
// the process.
func TestALeaderThatLearnsOfItsSuccessorFromAWriteStandsBy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l, err := New(r.client, Options{
		Names: r.names, Source: r.source, Session: 6 * time.Second, Watch: time.Hour,
		Log: r.log(),
	})
	must(t, err)
	again := errors.New("leads again")
	var first uint64
	err = l.Run(t.Context(), func(_ context.Context, cp *Checkpoint) error {
		if first != 0 {
			return again
		}
		first = cp.Term()
		r.open() // a successor
		return fmt.Errorf("raise the epoch: %w", cp.Raise("b", 7))
	})
	if !errors.Is(err, again) {
		t.Errorf("run: %v", err)
	}
}

// A leader that is stopped just when another has taken over has nothing to save and nothing to complain of.
func TestALeaderThatIsStoppedAfterItWasDeposedEndsWithoutAnError(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l, err := New(r.client, Options{
		Names: r.names, Source: r.source, Session: 6 * time.Second, Watch: time.Hour,
		Log: r.log(),
	})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	must(t, l.Run(ctx, func(_ context.Context, cp *Checkpoint) error {
		r.open() // a successor
		stop()
		return cp.Raise("b", 7)
	}))
}
