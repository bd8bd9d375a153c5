package broker

import "errors"

// errClosed is what a closed client says.
var errClosed = errors.New("the client is closed")

// Error is a failure of Kafka as an operator should read it: what was tried and where, what went wrong, and what to
// do about it. It holds no secret and nothing of a record.
type Error struct {
	// Class is what it means for who called.
	Class Class
	// What was tried, and where: "produce to shop.invalidations/3".
	What string
	// Err is what went wrong.
	Err error
	// Advice is what to do, in a clause; "" where waiting is all.
	Advice string
}

// Error returns the sentence.
func (e *Error) Error() string {
	s := "kafka: " + e.What + ": " + e.Err.Error()
	if e.Advice != "" {
		s += ": " + e.Advice
	}
	return s
}

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }
