package checkpoint

import (
	"errors"
	"slices"
	"time"
	"unsafe"

	"github.com/freshet/freshet/event"
)

// The stash: keys of XA transactions, and the values to write under them.
//
// XA PREPARE brings the rows, XA COMMIT makes them visible, and between the two there may be days, a checkpoint and
// a restart. So what the rows made stale is written down, chunk by chunk, before the checkpoint can pass the PREPARE,
// and is kept until the checkpoint has passed the COMMIT: it is removed no earlier than the write that saves that
// position. Removed any earlier, a crash would read the COMMIT again and find nothing to invalidate.
//
// An XID may be used again while its first use is still kept for the checkpoint's sake. A stash is therefore named by
// XID and by the version of the transaction's first row; a COMMIT takes those that are before it.

// The default bounds of a stash.
const (
	DefaultMaxStashKeys  = 5_000_000
	DefaultMaxStashBytes = 512 << 20
)

// ErrStashFull: the keys of prepared XA transactions exceed the bounds of the stash. What does not fit is stored by
// tables ([Unknown]), or the same transaction would end the reader at every start.
var ErrStashFull = errors.New("too many keys in prepared xa transactions: commit or roll back those that XA RECOVER lists on the source")

// Stashed is one key that a row of a prepared transaction made stale, with all that its action needs.
type Stashed struct {
	Key       string
	Table     string
	Mapping   int
	D         time.Duration
	RateLimit int
	Action    event.Action
	Intent    event.Intent
	// Effect and Fields are the invalidation's; a plain delete has neither.
	Effect *event.Effect
	Fields event.Fields
	// Unknown says that this stands for keys that did not fit: rows of Table changed, of any mapped table if it is
	// empty, and which keys they made stale is not known. The rest but Action is zero.
	Unknown bool
}

// MaxUnknown is how many tables of one transaction [Unknown] names. Beyond it, one stands for every mapped table.
const MaxUnknown = 100

// Unknown returns what is stored for the keys of a transaction that do not fit: one entry for each table. Entries of
// that kind have no bound in the stash but how many transactions a source keeps prepared (InnoDB: some 130,000).
func Unknown(tables []string) []Stashed {
	if len(tables) > MaxUnknown {
		tables = []string{""}
	}
	all := make([]Stashed, len(tables))
	for i, t := range tables {
		all[i] = Stashed{Table: t, Action: event.ActionDelete, Unknown: true}
	}
	return all
}

// AllUnknown reports whether there is no key among them, so that they are stored however full the stash is.
func AllUnknown(keys []Stashed) bool {
	return !slices.ContainsFunc(keys, func(s Stashed) bool { return !s.Unknown })
}

// Bytes returns about how much memory the key and its fields hold.
func (s *Stashed) Bytes() int { return int(unsafe.Sizeof(*s)) + len(s.Key) + len(s.Fields) }

// Forget removes the values to write: the rest forgets what the cache holds under the key, or in its field.
func (s *Stashed) Forget() {
	left, ok := s.Fields.Forget(s.Action, s.Effect)
	if !ok {
		s.Action, s.Effect = event.ActionDelete, nil
	}
	s.Intent, s.Fields = event.IntentForget, left
}

// Shorten makes the key forget instead of write, and where that takes no less room, a plain delete. It reports whether
// there was something to take away.
func (s *Stashed) Shorten() bool {
	was := len(s.Fields)
	if s.Forget(); was > 0 && len(s.Fields) == was {
		s.Action, s.Effect, s.Fields = event.ActionDelete, nil, nil
	}
	return was > 0
}

// Prepared describes the stash of one prepared transaction.
type Prepared struct {
	XID string `json:"xid"`
	// First is the version of its first row.
	First event.Version `json:"-"`
	// Since is when its first chunk was stored.
	Since time.Time `json:"since"`
	Keys  int       `json:"keys"`
	Bytes int64     `json:"bytes"`
	// Chunks is how many writes it took.
	Chunks uint32 `json:"chunks"`
}

// Resolution is a prepared transaction whose outcome is known: what the stash holds of XID from before Version may be
// dropped once the checkpoint has passed End.
type Resolution struct {
	XID     string
	Version event.Version
	End     event.End
}

// Resolve says that the prepared transaction xid was committed or rolled back by the transaction that ends at end,
// whose version is v. Its stash is dropped by the save that passes end. Transactions are resolved in commit order.
//
// The GTIDs of end are copied: they are valid during the call only, and what they become is another transaction's,
// which may be passed long before this one.
func (c *Checkpoint) Resolve(xid string, v event.Version, end event.End) {
	end.GTIDs = slices.Clone(end.GTIDs)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resolved = append(c.resolved, Resolution{XID: xid, Version: v, End: end})
	c.dirty = true
}

// passed returns those of the resolutions, from the first, that a position has passed. The caller holds c.mu.
func (c *Checkpoint) passed(p *event.Position) []Resolution {
	n := 0
	for n < len(c.resolved) && hasPassed(p, &c.resolved[n].End) {
		n++
	}
	return c.resolved[:n]
}

// hasPassed reports whether a position surely holds an end. In doubt it says no: a stash that is kept costs room, one
// that is dropped too early costs keys.
func hasPassed(p *event.Position, e *event.End) bool {
	if len(e.GTIDs) == 0 {
		return e.File == p.File && e.Pos <= p.Pos || before(e.File, e.Pos, p.File, p.Pos)
	}
	for _, r := range e.GTIDs {
		last := r.First
		last.Number = r.Last
		if !p.GTIDs.Contains(last) {
			return false
		}
	}
	return true
}
