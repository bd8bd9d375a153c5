package retry

import "errors"

// ErrHalt is what every error is that another attempt would meet again until somebody has decided how to go on: the
// position is lost, or records of the event log are. A supervisor must not simply start the process again, so it ends
// with exit code 3.
var ErrHalt = errors.New("halted")

// Halt returns an error with this text that is an [ErrHalt].
func Halt(text string) error { return halt(text) }

type halt string

func (h halt) Error() string { return string(h) }

func (halt) Is(target error) bool { return target == ErrHalt }

// Class is what an error says about who is in trouble, and so about what helps.
type Class uint8

// The classes.
const (
	// None: no error, or an answer that is none (redis.Nil).
	None Class = iota
	// Away: the server as a whole does not answer, or does not take this kind of command from us. What was sent
	// may have taken effect. Only waiting helps: the same is tried again forever, nothing is parked for it.
	Away
	// Key: Redis refuses this one key or command; others may pass.
	Key
	// Memory: Redis has no memory for a value. The key is deleted instead, which needs none.
	Memory
	// Refused: the source answers, and says no. Waiting alone will not help: somebody must change something.
	Refused
	// Lost: the source no longer has the position that was asked for. A gap: never waited out, never skipped.
	Lost
	// Fatal: a fault of the program, or a server that cannot do what is asked at all. No attempt will ever pass.
	Fatal
)
