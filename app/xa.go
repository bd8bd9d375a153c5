package app

import (
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/embedded"
)

// stashChunk is how many keys of a prepared transaction are stored in one write.
const stashChunk = 10_000

type stashedKey = embedded.Stashed

// xaStore keeps durably what the rows of prepared XA transactions made stale.
type xaStore interface {
	// Begin begins the keys of the transaction xid, whose first row has the version first, in the place of any that an
	// earlier reading of it has left.
	Begin(xid string, first event.Version) xaStash
	// Recall calls each with the keys of the transactions xid that were begun before v.
	Recall(xid string, v event.Version, each func([]stashedKey) error) error
	// Resolve lets go of what Recall returns, once the checkpoint has passed end.
	Resolve(xid string, v event.Version, end event.End)
}

// xaStash takes the keys of one transaction.
type xaStash interface {
	// Append returns when the keys are durable.
	Append(keys []stashedKey) error
}

// xaMemory remembers which keys the rows of a prepared XA transaction made stale, until the transaction is
// resolved. It belongs to the reader's goroutine.
type xaMemory struct {
	store xaStore

	xid   string
	first event.Version // of the open transaction's first row with a key
	open  xaStash
	chunk []stashedKey
}

// remember notes the keys from index from on, which a row of tx has just added to the batch. A transaction of which
// the rest comes on a new connection goes on where it was.
func (x *xaMemory) remember(tx *event.Tx, b *event.Batch, from int) error {
	if from == b.Len() {
		return nil
	}
	if x.open == nil || x.xid != tx.XID {
		x.xid, x.first, x.chunk = tx.XID, b.Version(from), x.chunk[:0]
		x.open = x.store.Begin(tx.XID, x.first)
	}
	for i := from; i < b.Len(); i++ {
		o := &b.Origins[b.Invalidations[i].Origin]
		x.chunk = append(x.chunk, stashedKey{
			Key: string(b.Pending(i)), Table: o.Table, Mapping: o.Mapping, D: o.D, Action: b.Invalidations[i].Action,
		})
	}
	if len(x.chunk) < stashChunk {
		return nil
	}
	return x.write()
}

func (x *xaMemory) write() error {
	err := x.open.Append(x.chunk)
	x.chunk = x.chunk[:0]
	return err
}

// seal stores what is left of a transaction that is now prepared.
func (x *xaMemory) seal(tx *event.Tx) error {
	if x.open == nil || x.xid != tx.XID {
		return nil // it changed no mapped row
	}
	err := x.write()
	x.open, x.xid = nil, ""
	return err
}

// abandon lets go of a transaction that was never prepared: XA COMMIT … ONE PHASE commits it with its rows, so they
// need no second time. What was stored of it already is dropped once the checkpoint has passed end.
func (x *xaMemory) abandon(tx *event.Tx, end event.End) {
	if x.open == nil || x.xid != tx.XID {
		return
	}
	behind := x.first
	behind.Row++
	x.store.Resolve(tx.XID, behind, end)
	x.open, x.xid, x.chunk = nil, "", x.chunk[:0]
}

// recall calls each with the keys of a transaction that was prepared before v and is now committed.
func (x *xaMemory) recall(tx *event.Tx, v event.Version, each func(stashedKey) error) error {
	return x.store.Recall(tx.XID, v, func(keys []stashedKey) error {
		for _, k := range keys {
			if err := each(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// resolved lets go of what is remembered, once the checkpoint has passed end.
func (x *xaMemory) resolved(tx *event.Tx, v event.Version, end event.End) {
	x.store.Resolve(tx.XID, v, end)
}
