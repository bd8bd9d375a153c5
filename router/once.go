package router

import (
	"time"

	"github.com/freshet/freshet/event"
)

// once remembers which counters the open transaction has asked for: one increment makes all that was cached under the
// former generation unreachable, and more do no harm. What is forgotten too early is therefore only counted once more.
type once struct {
	gtid event.GTID
	// last is the version of the last row that asked for a counter.
	last event.Version
	// seen holds the second delete of each counter's key.
	seen  map[string]time.Duration
	bytes int
}

// The bounds of what is remembered of a transaction.
const (
	maxCounters     = 4096
	maxCounterBytes = 1 << 20
)

// begin forgets the transaction before, if the row is of another one.
//
// It must never take two transactions for one, since the second would lose its increment. A GTID tells them apart;
// where there is none, only rows of one rows event surely belong together. And the same transaction may come again,
// from its beginning: the connection was lost, and what was made of the first rows may have been lost with it. Then
// versions do not rise, or (from another server) are of another epoch or file, for no transaction spans two files.
func (o *once) begin(c *event.Change) {
	v := c.Version
	same := v.Compare(o.last) > 0 && v.Epoch == o.last.Epoch && v.File == o.last.File
	if c.Tx.GTID.IsZero() {
		same = same && o.gtid.IsZero() && v.Pos == o.last.Pos
	} else {
		same = same && c.Tx.GTID == o.gtid
	}
	if !same && len(o.seen) > 0 {
		clear(o.seen)
		o.bytes = 0
	}
	o.gtid, o.last = c.Tx.GTID, v
}

// has reports whether the counter was asked for already, with a second delete no shorter than d, and remembers it.
func (o *once) has(key []byte, d time.Duration) bool {
	if before, ok := o.seen[string(key)]; ok {
		if before < d {
			o.seen[string(key)] = d
		}
		return before >= d
	}
	if len(o.seen) >= maxCounters || o.bytes+len(key) > maxCounterBytes {
		return false
	}
	if o.seen == nil {
		o.seen = map[string]time.Duration{}
	}
	o.seen[string(key)] = d
	o.bytes += len(key)
	return false
}
