package canal

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/event"
)

// Kind is what a [Step] is.
type Kind uint8

const (
	nothing Kind = iota // of use to the caller
	// Rows are the changes of one rows event, which [Step.Each] hands out. It must be called, once.
	Rows
	// Committed is the end of a transaction: of mapped tables or not, and also one of DDL.
	Committed
	// Prepared is the end of the rows of an XA transaction that is only prepared (Tx.XID is set since its first row): no
	// row is visible yet. What its rows made stale must be remembered durably, by XID, before the next step.
	Prepared
	// XACommitted says that the prepared transaction Tx.XID is committed, by a transaction of its own that ends at End:
	// all that was remembered of it is invalidated again, under the step's Version, and is of no use once End is passed.
	XACommitted
	// XARolledBack says that the prepared transaction Tx.XID is rolled back, with a transaction of its own: what was
	// remembered of it is of no use once End is passed.
	XARolledBack
	// Moved says that reading goes on at End, and not where it was: see [Options].Gap. It comes before anything that is
	// read there.
	Moved
	// Idle says that the source has nothing more to send for now, or that so much was read that no more may wait: all that
	// was read must be handed on, and then [Canal.HandedOver] must be called.
	Idle
)

// Step is what a canal has read. It, and all that it names, is valid until the next call of [Canal.Next].
type Step struct {
	Kind Kind
	// Size is how many bytes of the binlog were read for it.
	Size int
	// Tx is the transaction, and Version that of the present event. In an Idle and a Moved they mean nothing.
	Tx      *event.Tx
	Version event.Version
	// End is where a transaction ends, or where reading goes on.
	End event.End
	// Unread is of XACommitted: if nothing of the transaction is remembered, it may have changed rows that nobody has
	// read, and that must be known durably before a position passes its End.
	Unread bool
	// Cascaded is of Rows, once Each has returned: the doubts about rows that foreign keys had the server change along
	// with these, and that have no row events. They must be durable before a position passes the transaction's End.
	// Where that is an XA transaction, what they are about is changed when it is committed.
	Cascaded []doubt.Doubt
	// Doubted is of Prepared: the tables of doubts that the transaction has given rise to, but for those in Cascaded; "":
	// every mapped table. They are durable, and what they are about is changed once more when it is committed.
	Doubted []string
	// Each calls f for each row change of Rows, which is valid only during the call. It returns f's error, which ends it,
	// and no other: what is wrong with the event is the next step's concern. An event over which f panics is passed over,
	// once it is durable that its table is in doubt.
	Each func(f func(*event.Change) error) error
}

// Checkpoint is where the canal finds and founds its position. Progress is not saved through it: that is up to
// the caller, who knows what is finished.
type Checkpoint interface {
	// Position returns the saved position; the zero position on a first start.
	Position() event.Position
	// Begin saves the position of a first start, durably, before anything is read. It is also called with the present
	// place in another form, when the source has begun or ceased to keep positions by GTID.
	Begin(p event.Position) error
	// Move saves the position from which reading goes on after a gap, under a new epoch and in the place of the one
	// before, durably, before anything is read there. No XA transaction that was prepared before is remembered any more.
	Move(p event.Position) error
	// Raise saves a new server identity and epoch, durably, before either is used. The position stays.
	Raise(server string, epoch uint32) error
}

// Bind is asked for the columns of a table that are to be decoded, before the first row under each definition of it:
// none (nil) if no row of it is wanted. It is called within [Canal.Next], and its error ends that.
type Bind func(ctx context.Context, t *event.Table) ([]event.Need, error)

// Next reads on, and returns what it has read; after [Idle] it waits for more. All calls take the same ctx, which also
// ends a wait.
//
// With [Options].UntilCaughtUp the error is [io.EOF] once everything that the source held at the start has been read. A
// lost connection is made again, forever, with an alarm. Next fails with an error of the [Checkpoint] or of [Bind] as
// it is; with an error that is [retry.ErrHalt] when somebody must decide how to go on; with the server's refusal when
// it refuses who we are at the first connection; when the source's gtid_mode has changed, after which a new Canal goes
// on; and with that of ctx. After an error there is no next step.
func (c *Canal) Next(ctx context.Context) (*Step, error) {
	l := c.loop
	l.ctx = ctx
	l.step.Kind, l.step.Size = nothing, 0
	err := l.next()
	if err == nil {
		return &l.step, nil
	}
	c.Close()
	if errors.Is(err, errCaughtUp) {
		err = io.EOF
	}
	return nil, err
}

// Close closes the connection that the steps come from. The caller of Next calls it.
func (c *Canal) Close() {
	c.loop.hangUp()
	if !c.o.Follow {
		c.o.Servers.release()
	}
}

// Handover is called before a batch of invalidations is handed on: last is the highest version in it. It returns for
// how long all changes in the batch have been known to be visible to everybody, or [event.Unknown]; a mark will cover
// them once they are.
func (c *Canal) Handover(last event.Version) time.Duration {
	return c.vis.handover(c.loop.requirement(last))
}

// HandedOver is called between two steps, when all that was read has been handed on. A mark says so, once it is also
// all that the source had when it was asked.
func (c *Canal) HandedOver() { c.loop.handedOver() }

// Settled waits until all that was handed over is visible to everybody, for which [Canal.Watch] must run.
func (c *Canal) Settled(ctx context.Context) error { return c.vis.settled(ctx) }
