package group

import (
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// grace is how long trouble may last that passes by itself before it is logged. A coordinator moves in less.
const grace = 5 * time.Second

// trouble decides what of a row of failures is said.
type trouble struct {
	since time.Time
	class broker.Class // of what was said last
}

// worthSaying is asked about each failure: once for each class of them, when waiting alone will not help or has not.
func (t *trouble) worthSaying(err error) bool {
	if t.since.IsZero() {
		t.since = time.Now()
	}
	class := broker.Classify(err)
	if passes := class == broker.Transient || class == broker.Fenced; passes && time.Since(t.since) < grace || class == t.class {
		return false
	}
	t.class = class
	return true
}

// over is to be called after a success, and reports whether anything had been said.
func (t *trouble) over() bool {
	said := t.class != broker.None
	*t = trouble{}
	return said
}
