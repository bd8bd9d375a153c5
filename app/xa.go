package app

import (
	"errors"
	"slices"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/stash"
)

// How much of a prepared transaction is stored in one write: so many keys, or so many bytes.
const (
	stashChunk = 10_000
	stashBytes = 4 << 20
)

// stashPayload is how many bytes of what must be written are kept for one prepared transaction. The keys of the rest
// are forgotten when it is committed: a stash is for keys, and a large transaction must not fill it with values.
const stashPayload = 64 << 20

type stashedKey = stash.Key

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

// keptXA is a log's stash as an xaStore.
type keptXA struct{ *stash.Stash }

// Begin implements xaStore.
func (s keptXA) Begin(xid string, first event.Version) xaStash { return s.Stash.Begin(xid, first) }

// xaMemory remembers which keys the rows of a prepared XA transaction made stale, until the transaction is
// resolved. It belongs to the reader's goroutine.
type xaMemory struct {
	store  xaStore
	alarms *alarm.Board

	tx    event.Tx      // the open transaction
	first event.Version // of its first row with a key
	open  xaStash
	chunk []stashedKey
	bytes int // of chunk
	// payload is how many bytes of fields were remembered of the open transaction.
	payload int
	// full says that its keys did not fit into the stash: nothing else of it is remembered.
	full bool
	// unknown are the tables of its rows whose keys are not remembered, or could not be named.
	unknown []string
}

// remember notes the invalidations from index from on, which a row of tx has just added to the batch. A transaction of
// which the rest comes on a new connection goes on where it was. Where it does not come again, as after a failover to a
// server that lacks it, another one may have its XID.
//
// Those in the batch go on as what forgets. Nobody can see the row yet, and perhaps nobody ever will: what it would
// write now could stay in the cache though the transaction is rolled back.
func (x *xaMemory) remember(tx *event.Tx, b *event.Batch, from int) error {
	if from == b.Len() {
		return nil
	}
	x.begin(tx, b.Version(from))
	begin := len(x.chunk)
	for i := from; i < b.Len(); i++ {
		inv := &b.Invalidations[i]
		o := b.Of(i)
		k := stashedKey{
			Key: string(b.Pending(i)), Table: o.Table, Mapping: o.Mapping, D: o.D, RateLimit: o.RateLimit,
			Action: inv.Action, Intent: inv.Intent, Effect: b.EffectOf(i), Fields: slices.Clone(b.Fields(i)),
		}
		x.payload += len(k.Fields)
		x.chunk = append(x.chunk, k)
	}
	withhold(b, from, x.chunk[begin:])
	for i := begin; i < len(x.chunk); i++ {
		if x.payload > stashPayload {
			x.chunk[i].Forget()
		}
		x.bytes += x.chunk[i].Bytes()
	}
	if !x.full && len(x.chunk) < stashChunk && x.bytes < stashBytes {
		return nil
	}
	return x.write()
}

// begin begins a transaction, unless it is the open one. Its first row has the version first.
func (x *xaMemory) begin(tx *event.Tx, first event.Version) {
	if x.is(tx) {
		return
	}
	x.tx, x.first, x.chunk = *tx, first, x.chunk[:0]
	x.bytes, x.payload, x.full, x.unknown = 0, 0, false, nil
	x.open = x.store.Begin(tx.XID, first)
}

// doubt notes tables of which rows change, when the transaction is committed, whose keys are not known; "": any.
func (x *xaMemory) doubt(tx *event.Tx, v event.Version, tables []string) {
	x.begin(tx, v)
	for _, t := range tables {
		x.loseTable(t)
	}
}

// withhold makes the invalidations from index from on, which are remembered as keys, forget instead of write.
func withhold(b *event.Batch, from int, keys []stashedKey) {
	if !slices.ContainsFunc(keys, func(k stashedKey) bool { return k.Intent != event.IntentForget }) {
		return
	}
	were := slices.Clone(b.Invalidations[from:])
	b.Cut(from)
	for i, k := range keys {
		if k.Intent != event.IntentForget {
			k.Forget()
		}
		add(b, &k, were[i].Row)
		b.Invalidations[from+i].Origin = were[i].Origin
	}
}

// add adds what was remembered to a batch.
func add(b *event.Batch, k *stashedKey, row uint32) {
	b.AddItem(event.Item{
		Text: append(append(b.Text(), k.Key...), k.Fields...), Key: len(k.Key), Row: row,
		Action: k.Action, Intent: k.Intent, Effect: k.Effect,
	})
}

// write stores the chunk. If it does not fit, or one before it did not, only its tables are kept.
func (x *xaMemory) write() error {
	var err error
	if !x.full {
		err = x.open.Append(x.chunk)
	}
	if errors.Is(err, stash.ErrFull) {
		x.full = true
		x.alarms.Raise(alarm.XAKeysUnknown,
			"the keys of a prepared xa transaction do not fit into the store, so its commit will leave stale keys: "+
				err.Error())
		err = nil
	}
	if x.full {
		x.lose()
	}
	clear(x.chunk) // not to keep what it names
	x.chunk, x.bytes = x.chunk[:0], 0
	return err
}

// lose keeps the tables of the chunk: one more than can be named stands for all.
func (x *xaMemory) lose() {
	for i := range x.chunk {
		x.loseTable(x.chunk[i].Table)
	}
}

func (x *xaMemory) loseTable(t string) {
	if len(x.unknown) <= stash.MaxUnknown && !slices.Contains(x.unknown, t) {
		x.unknown = append(x.unknown, t)
	}
}

// is reports whether tx is the open transaction.
func (x *xaMemory) is(tx *event.Tx) bool {
	return x.open != nil && x.tx.XID == tx.XID && x.tx.GTID == tx.GTID
}

// seal stores what is left of a transaction that is now prepared.
func (x *xaMemory) seal(tx *event.Tx) error {
	if !x.is(tx) {
		return nil // it changed no mapped row
	}
	err := x.write()
	if err == nil && len(x.unknown) > 0 {
		err = x.open.Append(stash.Unknown(x.unknown))
	}
	x.open, x.unknown = nil, nil
	return err
}

// abandon lets go of a transaction that was never prepared: XA COMMIT … ONE PHASE commits it with its rows, so they
// need no second time. What was stored of it already is dropped once the checkpoint has passed end.
func (x *xaMemory) abandon(tx *event.Tx, end event.End) {
	if !x.is(tx) {
		return
	}
	behind := x.first
	behind.Row++
	x.store.Resolve(tx.XID, behind, end)
	x.leave()
}

// leave forgets the open transaction, if there is one, but for what is stored of it.
func (x *xaMemory) leave() {
	clear(x.chunk)
	x.open, x.chunk, x.bytes, x.unknown = nil, x.chunk[:0], 0, nil
}

// recall calls each with the keys of a transaction that was prepared before v and is now committed, and with the
// ordinals that they have as rows of the commit. What is written under a key twice has two versions, so that the later
// one wins as it does in the table; plain deletes need none of their own. It returns the tables of keys that did not
// fit.
func (x *xaMemory) recall(tx *event.Tx, v event.Version, each func(k *stashedKey, row uint32) error) (unknown []string,
	err error,
) {
	row := uint32(0)
	err = x.store.Recall(tx.XID, v, func(keys []stashedKey) error {
		for i := range keys {
			k := &keys[i]
			if k.Unknown {
				if !slices.Contains(unknown, k.Table) {
					unknown = append(unknown, k.Table)
				}
				continue
			}
			if row == 0 || k.Effect != nil || k.Action != event.ActionDelete {
				row++
			}
			if err := each(k, row); err != nil {
				return err
			}
		}
		return nil
	})
	return unknown, err
}

// resolved lets go of what is remembered, once the checkpoint has passed end.
func (x *xaMemory) resolved(tx *event.Tx, v event.Version, end event.End) {
	x.store.Resolve(tx.XID, v, end)
}
