package event

import (
	"slices"
	"time"
	"unsafe"
)

// Unknown is the [Batch].Age of changes that are not yet known to be visible.
const Unknown time.Duration = -1

// Invalidation is one key that a row change made stale. Its key lies in the text of its [Batch], and directly after
// it what else its action needs: see [Batch.Fields].
type Invalidation struct {
	off, end uint32
	// Origin indexes [Batch].Origins. Those of a batch's invalidations come in any order, and more than once: the rows
	// of one event under two mappings take turns between two origins, as rows of two tables do in a compressed
	// transaction. Whatever encodes a batch must give back any order.
	Origin uint32
	// Row is the row's ordinal, the last part of its version.
	Row    uint32
	Action Action
	Intent Intent
	// Effect is the ordinal in [Batch].Effects plus one; 0: none, as for every plain delete.
	Effect uint16
}

// Batch is a run of invalidations of one source in commit order: several transactions, or a part of one. It is
// the unit that is handed from stage to stage, so that no stage pays for a hand-over per key.
//
// A batch is built by one goroutine (the Add methods), and copied ([Batch.Clone], [Batch.Arrange]) by the stage that
// keeps it; a copy is only read.
type Batch struct {
	Source string
	Term   uint64
	// Age says for how long, on the reader's monotonic clock, everybody had been known to see all changes of the
	// batch when it was handed over; Unknown (negative) if that was not yet known.
	Age time.Duration
	// At is when the batch was handed over, on this process's monotonic clock; the zero time when it came from
	// another process.
	At time.Time
	// Leftover says that an older leader left the batch, after work of a newer one, or that it was found by a scope:
	// nothing of it may be written, only forgotten. Values that are known to be of newer changes may stay.
	Leftover bool
	// Named says that somebody has named the keys: all of it is forgotten, whatever newer changes are known. Its versions
	// are those of other keys.
	Named bool
	// Read, when not zero, is when the source was asked for the rows that the batch was made from, on this process's
	// monotonic clock: they were read from their table, not from the binlog. What the batch says is then as new as that,
	// and Last is the newest version that everybody was known to see before.
	Read time.Time
	// Origins say where the changes stand, and Commons what several of them have in common: [Batch.Origin] is one
	// whole.
	Origins []Placed
	Commons []Common
	// Effects are what the invalidations that have one refer to, each once.
	Effects       []*Effect
	Invalidations []Invalidation
	// Last is the highest version in the batch; zero when it holds no invalidation.
	Last Version
	// End is the progress made once everything up to and including this batch is finished. It covers whole
	// transactions only, so it is before Last while a transaction is open.
	End End

	text []byte
}

// Reset empties the batch for building the next one in the same memory. Only for one that was built, never for a copy.
func (b *Batch) Reset() {
	*b = Batch{
		Origins: b.Origins[:0], Commons: b.Commons[:0], Invalidations: b.Invalidations[:0], Effects: b.Effects[:0],
		text: b.text[:0], Age: Unknown,
	}
}

// Clone returns a copy of exactly the size that its content needs: what is built in one reused, roomy batch is
// handed over as a snug one, since live traffic makes small batches that wait long for their final delete.
func (b *Batch) Clone() *Batch {
	c := b.bare()
	c.Invalidations, c.text = snug(b.Invalidations), snug(b.text)
	return c
}

// bare returns a copy with the invalidations and their text still to be copied.
func (b *Batch) bare() *Batch {
	c := *b
	c.Origins, c.Commons = snug(b.Origins), append([]Common(nil), b.Commons...)
	c.Effects = append([]*Effect(nil), b.Effects...)
	c.End.GTIDs = append([]GTIDRange(nil), b.End.GTIDs...)
	return &c
}

// Arrange is [Batch.Clone] with the invalidations in another order: order holds the ordinal of each, once. Who goes
// through a batch in that order more than once, or later, then finds what it reads side by side.
func (b *Batch) Arrange(order []uint32) *Batch {
	c := b.bare()
	c.Invalidations, c.text = make([]Invalidation, len(order)), make([]byte, 0, len(b.text))
	for at, i := range order {
		from, to := &b.Invalidations[i], &c.Invalidations[at]
		*to = *from
		to.off = uint32(len(c.text))
		to.end = to.off + from.end - from.off
		c.text = append(c.text, b.text[from.off:b.textEnd(int(i))]...)
	}
	return c
}

// snug returns a copy without room to spare, as slices.Clone would leave. What is made and copied in one is not cleared
// first.
func snug[T any](s []T) []T {
	c := make([]T, len(s))
	copy(c, s)
	return c
}

// Grow makes room in an empty batch for so many origins, invalidations and bytes of text.
func (b *Batch) Grow(origins, invalidations, text int) {
	b.Origins = slices.Grow(b.Origins, origins)
	b.Invalidations = slices.Grow(b.Invalidations, invalidations)
	b.text = slices.Grow(b.text, text)
}

// Text returns the buffer of key text to append the next key to; [Batch.Add] takes what was appended.
func (b *Batch) Text() []byte { return b.text }

// Add adds a delete of the newest origin whose key is what text holds beyond the former [Batch.Text].
func (b *Batch) Add(text []byte, row uint32, a Action) {
	b.add(text, uint32(len(text)), row).Action = a
}

// Item is an invalidation to be added to a batch.
type Item struct {
	// Text is what [Batch.Text] returned, with the key and then the fields ([AppendField]) appended.
	Text []byte
	// Key is the length of the key in bytes.
	Key    int
	Row    uint32
	Action Action
	Intent Intent
	// Effect is nil for a plain delete. It is shared by many batches, and never written to.
	Effect *Effect
}

// AddItem adds an invalidation of the newest origin.
func (b *Batch) AddItem(i Item) {
	effect := b.effect(i.Effect)
	inv := b.add(i.Text, uint32(len(b.text)+i.Key), i.Row)
	inv.Action, inv.Intent, inv.Effect = i.Action, i.Intent, effect
}

// add adds an invalidation, and returns it to be filled in where it stands: made elsewhere and copied, it would cost
// twice as much. What may panic comes before the batch is changed, so that the batch is whole if a caller recovers.
func (b *Batch) add(text []byte, end, row uint32) *Invalidation {
	origin := len(b.Origins) - 1
	last := b.Origins[origin].Event
	b.Invalidations = append(b.Invalidations, Invalidation{})
	inv := &b.Invalidations[len(b.Invalidations)-1]
	inv.off, inv.end, inv.Origin, inv.Row = uint32(len(b.text)), end, uint32(origin), row
	b.text = text
	b.Last = last
	b.Last.Row = row
	return inv
}

// effect returns the ordinal of an effect plus one, adding it if it is not there. A configuration has few.
func (b *Batch) effect(e *Effect) uint16 {
	if e == nil {
		return 0
	}
	for i := len(b.Effects) - 1; i >= 0; i-- {
		if b.Effects[i] == e {
			return uint16(i + 1)
		}
	}
	b.Effects = append(b.Effects, e)
	return uint16(len(b.Effects))
}

// Cut takes the invalidations from the n-th on back while the batch is being built, with their text. Last stays as it
// is.
func (b *Batch) Cut(n int) {
	if n < len(b.Invalidations) {
		b.text = b.text[:b.Invalidations[n].off]
		b.Invalidations = b.Invalidations[:n]
	}
}

// Pending returns the key of invalidation i while the batch is still being built: valid until the next Add.
func (b *Batch) Pending(i int) []byte {
	inv := &b.Invalidations[i]
	return b.text[inv.off:inv.end]
}

// Key returns the key of invalidation i. The string shares the batch's text, which is never written again once
// the batch has been handed over, so it stays valid forever; keeping it keeps the text of the whole batch.
func (b *Batch) Key(i int) string {
	inv := &b.Invalidations[i]
	if inv.off == inv.end {
		return ""
	}
	return unsafe.String(&b.text[inv.off], int(inv.end-inv.off))
}

// Fields returns what the action of invalidation i needs in addition to its key; [Effect] says what it holds. It shares
// the batch's text as the key does.
func (b *Batch) Fields(i int) Fields {
	end := b.textEnd(i)
	return Fields(b.text[b.Invalidations[i].end:end:end])
}

// textEnd returns where the text of invalidation i ends, its key and its fields.
func (b *Batch) textEnd(i int) int {
	if i+1 < len(b.Invalidations) {
		return int(b.Invalidations[i+1].off)
	}
	return len(b.text)
}

// EffectOf returns the effect of invalidation i, nil if it has none.
func (b *Batch) EffectOf(i int) *Effect {
	if n := b.Invalidations[i].Effect; n != 0 {
		return b.Effects[n-1]
	}
	return nil
}

// Version returns the version of invalidation i.
func (b *Batch) Version(i int) Version {
	inv := &b.Invalidations[i]
	v := b.Origins[inv.Origin].Event
	v.Row = inv.Row
	return v
}

// Len returns the number of invalidations.
func (b *Batch) Len() int { return len(b.Invalidations) }

// Bytes returns about how much memory a copy of the batch holds.
func (b *Batch) Bytes() int {
	return len(b.text) + len(b.Invalidations)*int(unsafe.Sizeof(Invalidation{})) +
		len(b.Origins)*int(unsafe.Sizeof(Placed{})) +
		len(b.Commons)*int(unsafe.Sizeof(Common{})) + len(b.Effects)*int(unsafe.Sizeof((*Effect)(nil)))
}
