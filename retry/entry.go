package retry

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/freshet/freshet/event"
)

// Entry is one key in trouble: parked until its next attempt, or dead-lettered. It carries no value: whatever was to be
// done, retry and replay delete the key, and the application reads again. What is told of the change it does carry.
type Entry struct {
	// ID is given by the store; it orders entries by arrival.
	ID  uint64
	Key string
	// Action is what was to be done at Version, for who looks at the entry. The attempt is a delete all the same.
	Action  event.Action
	Source  string
	Table   string
	Version event.Version
	// Foreign says that Version may be another key's: this one was not changed by it, but found by a scope, named, or is
	// done again. So nothing may take it for a change of this key.
	Foreign bool
	// D is the second delete of its mapping. A parked key lacks exactly one action: it was parked no earlier than
	// D after its mark.
	D time.Duration
	// Error is the last attempt's, in words.
	Error string
	// Attempts counts those made so far, in place and parked.
	Attempts int
	// First and Last are when the first and the last attempt failed.
	First, Last time.Time
	// Due is when the next attempt must be made; zero for a dead letter.
	Due time.Time
	// Notices are sent after the attempt that passes.
	Notices []Notice
	// Untold counts those that found no room among them.
	Untold int
}

// Notice is what is sent after an acknowledged action on a key: a message, an entry of a stream, or both.
type Notice struct {
	// Publish and Stream say which; MaxLen bounds the stream, about; 0: no bound.
	Publish bool  `json:"publish,omitempty"`
	Stream  bool  `json:"stream,omitempty"`
	MaxLen  int64 `json:"max_len,omitempty"`
	// Fields are those of the action: channel and message, then the stream's key.
	Fields event.Fields `json:"fields"`
}

func (n Notice) equal(o Notice) bool {
	return n.Publish == o.Publish && n.Stream == o.Stream && n.MaxLen == o.MaxLen && bytes.Equal(n.Fields, o.Fields)
}

// The bounds of what one entry has to tell: of a key that changes again and again, with another message each time.
const (
	maxNotices     = 16
	maxNoticeBytes = 256 << 10
)

// mergeNotices returns both without duplicates, up to their bounds, and how many found no room.
func mergeNotices(all, more []Notice) (_ []Notice, untold int) {
	size := 0
	for _, n := range all {
		size += len(n.Fields)
	}
	for _, n := range more {
		switch {
		case slices.ContainsFunc(all, n.equal):
		case len(all) >= maxNotices || len(all) > 0 && size+len(n.Fields) > maxNoticeBytes:
			untold++
		default:
			all, size = append(slices.Clip(all), n), size+len(n.Fields)
		}
	}
	return all, untold
}

// Merge adds to e what is known from another entry of the same source, table and key, whatever its action: one delete
// serves both. The higher version stays, with its action, but the key's own before one that is not; ID and Due stay.
// What both have to tell is kept, up to 16 notices and 256 KiB of them; the others are counted.
func (e *Entry) Merge(o *Entry) {
	if e.Foreign == o.Foreign && o.Version.Compare(e.Version) > 0 || e.Foreign && !o.Foreign {
		e.Version, e.Action, e.Foreign = o.Version, o.Action, o.Foreign
	}
	if o.Last.After(e.Last) {
		e.Last, e.Error = o.Last, o.Error
	}
	if e.First.IsZero() || !o.First.IsZero() && o.First.Before(e.First) {
		e.First = o.First
	}
	e.D = max(e.D, o.D)
	notices, untold := mergeNotices(e.Notices, o.Notices)
	e.Notices, e.Untold = notices, e.Untold+o.Untold+untold
	e.Attempts = max(e.Attempts, o.Attempts)
}

// Held is how many keys in trouble a store holds, as far as this process knows.
type Held struct {
	// Parked wait for their next attempt: with Kafka those in the partitions that this process was given.
	Parked int
	// DeadLetters were given up. They are all the store's, or the group's, once Counted is set.
	DeadLetters int
	Counted     bool
}

// Store keeps parked keys and dead letters durably. Every method returns only when its effect is durable. One that
// fails may have taken effect all the same; each can be repeated, and then leads to the same.
type Store interface {
	// Park stores entries in one write, under IDs of the store's own; one with a zero Due is a dead letter at once.
	// A store may make one entry of several that lack the same delete, and then gives it a new ID, so that an
	// attempt under way does not settle what was parked since. It fails with [ErrFull] when they do not fit:
	// nothing is stored then.
	Park(ctx context.Context, entries []Entry) error
	// Due returns up to n parked entries that are due at now, the earliest first, and leaves them in the store.
	Due(ctx context.Context, now time.Time, n int) ([]Entry, error)
	// NextDue returns when the earliest parked entry is due; zero when nothing is parked.
	NextDue(ctx context.Context) (time.Time, error)
	// Settle removes the entries done by ID and stores again those that failed, parked for later or, with a zero
	// Due, as dead letters: all of it in one write. IDs that are not there any more are passed over. It is never
	// refused for want of room.
	Settle(ctx context.Context, done []uint64, again []Entry) error
}

// ErrFull is returned by [Store].Park when the entries do not fit into the store's bounds. Nothing was stored: the
// caller keeps the keys, stops reading, raises an alarm and tries again, for dead letters may be purged meanwhile.
var ErrFull = errors.New("the store of parked keys and dead letters is full")

// Filter selects dead letters. The zero filter selects all.
type Filter struct {
	// IDs selects by ID; empty selects any.
	IDs []uint64
	// Table selects by the whole name schema.table; "" selects any.
	Table string
	// Key selects by the whole key; "" selects any.
	Key string
	// Before selects those whose last attempt failed before it; the zero time selects any.
	Before time.Time
}

// IsZero reports whether the filter selects everything.
func (f *Filter) IsZero() bool {
	return len(f.IDs) == 0 && f.Table == "" && f.Key == "" && f.Before.IsZero()
}

// Match reports whether the filter selects e.
func (f *Filter) Match(e *Entry) bool {
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, e.ID)) &&
		(f.Table == "" || f.Table == e.Table) &&
		(f.Key == "" || f.Key == e.Key) &&
		(f.Before.IsZero() || e.Last.Before(f.Before))
}
