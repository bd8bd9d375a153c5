package stash

import (
	"slices"
	"time"
	"unsafe"

	"github.com/freshet/freshet/event"
)

// Key is one key that a row of a prepared transaction made stale, with all that its action needs.
type Key struct {
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
func Unknown(tables []string) []Key {
	if len(tables) > MaxUnknown {
		tables = []string{""}
	}
	all := make([]Key, len(tables))
	for i, t := range tables {
		all[i] = Key{Table: t, Action: event.ActionDelete, Unknown: true}
	}
	return all
}

// AllUnknown reports whether there is no key among them, so that they are stored however full the stash is.
func AllUnknown(keys []Key) bool {
	return !slices.ContainsFunc(keys, func(s Key) bool { return !s.Unknown })
}

// Bytes returns about how much memory the key and its fields hold.
func (s *Key) Bytes() int { return int(unsafe.Sizeof(*s)) + len(s.Key) + len(s.Fields) }

// Forget removes the values to write: the rest forgets what the cache holds under the key, or in its field.
func (s *Key) Forget() {
	left, ok := s.Fields.Forget(s.Action, s.Effect)
	if !ok {
		s.Action, s.Effect = event.ActionDelete, nil
	}
	s.Intent, s.Fields = event.IntentForget, left
}

// Shorten makes the key forget instead of write, and where that takes no less room, a plain delete. It reports whether
// there was something to take away.
func (s *Key) Shorten() bool {
	was := len(s.Fields)
	if s.Forget(); was > 0 && len(s.Fields) == was {
		s.Action, s.Effect, s.Fields = event.ActionDelete, nil, nil
	}
	return was > 0
}
