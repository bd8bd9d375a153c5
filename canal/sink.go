package canal

import (
	"github.com/freshet/freshet/event"
)

// Sink takes what the canal reads, in commit order and on the canal's goroutine, except for Mark. An error from it
// ends [Canal.Run] with that error. Every method but Mark may block: that is the back pressure, and the canal then
// stops reading from the source. The GTIDs of an End are valid only during the call that hands it over.
type Sink interface {
	// Bind is told a definition of a table before the first row under it, and answers with the columns that it
	// wants decoded: none (nil) if it wants no row of this table.
	Bind(t *event.Table) ([]event.Need, error)
	// Row takes one row change. It is valid only during the call.
	Row(c *event.Change) error
	// Commit ends a transaction: of mapped tables or not, and also one of DDL.
	Commit(tx *event.Tx, end event.End) error
	// Prepare ends the rows of an XA transaction that is only prepared (tx.XID is set since its first row): no row
	// is visible yet. What its rows made stale must be remembered durably, by XID, before Prepare returns.
	Prepare(tx *event.Tx, end event.End) error
	// Recall tells that the prepared transaction tx.XID is committed: all that was remembered of it is to be
	// invalidated again, under the version v. It reports whether anything was remembered. Resolve follows.
	Recall(tx *event.Tx, v event.Version) (known bool, err error)
	// Resolve tells that the prepared transaction tx.XID is over, committed or not, with a transaction of its own that
	// ends at end: what was remembered is of no use once that is passed.
	Resolve(tx *event.Tx, v event.Version, end event.End) error
	// Flush is called when the canal is about to wait for the source, and some times a second while the source always
	// has more: what has been gathered is to be handed on.
	Flush() error
	// Mark takes a mark from the heartbeat's goroutine. It must not block.
	Mark(m event.Mark)
}

// Checkpoint is where the canal finds and founds its position. Progress is not saved through it: that is up to
// who knows what is finished.
type Checkpoint interface {
	// Position returns the saved position; the zero position on a first start.
	Position() event.Position
	// Begin saves the position of a first start, durably, before anything is read. It is also called with the present
	// place in another form, when the source has begun or ceased to keep positions by GTID.
	Begin(p event.Position) error
	// Raise saves a new server identity and epoch, durably, before either is used. The position stays.
	Raise(server string, epoch uint32) error
}
