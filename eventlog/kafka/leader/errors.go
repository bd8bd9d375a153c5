package leader

import (
	"errors"
	"fmt"

	"github.com/freshet/freshet/retry"
)

// Errors of a leader.
var (
	// ErrDeposed: another reader of the source has taken a higher term. What was to be written does not count.
	ErrDeposed = errors.New("another reader of the source has taken over")
	// ErrRunning: the position cannot be set by hand while readers of the source run.
	ErrRunning = errors.New("readers of the source are running")
	// ErrNewer: the checkpoint was written by a newer version of freshet.
	ErrNewer = errors.New("written by a newer version")

	errDamaged = errors.New("damaged")
)

// LostError says that a source was read before and its position is not known any more: the checkpoint topic is empty
// or damaged. Nobody may lead until somebody has decided where to go on. It is a [retry.ErrHalt].
type LostError struct {
	Source string
	// Topic is the checkpoint topic.
	Topic string
	// Reason is what happened.
	Reason error
}

// Error implements error.
func (e *LostError) Error() string {
	return fmt.Sprintf("position lost: source %s: topic %s: %v; changes since the last position may be missing from the "+
		"event log: "+
		"clear the mapped keys in Redis, then choose where to go on with `freshet position set …`", e.Source, e.Topic,
		e.Reason)
}

// Is makes a LostError a [retry.ErrHalt].
func (e *LostError) Is(target error) bool { return target == retry.ErrHalt }

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Reason }
