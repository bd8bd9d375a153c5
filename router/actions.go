package router

import (
	"time"

	"github.com/freshet/freshet/event"
)

// Rebuild says that the mapping's keys are written anew, instead of deleted.
type Rebuild struct {
	// Pos is where the action stands, as in all of them.
	Pos Pos
	// FromRow: the value is made of the row as it is after the change. Else Query reads it.
	FromRow bool
	// Query is one SELECT with parameters named as columns; empty with FromRow.
	Query Text
	// As is how the value is kept in Redis. Default JSON.
	As event.Form
	// Value is the template of the value; with FromRow and As event.FormString only.
	Value Text
	// Columns are those that the value holds, each maybe `as` another name. Empty, the default: all. With FromRow and
	// another form only.
	Columns []Text
	// DecimalNumbers writes DECIMAL as numbers in JSON. Default: as strings.
	DecimalNumbers bool
	// Many: the value holds all rows of the query, as a list. Default: one row.
	Many bool
	// ExpireAt, when above 0, is put inside the value: how long after writing it counts as expired.
	ExpireAt time.Duration
	// TTL is how long the value lives, plus or minus Jitter times TTL; 0: for ever. Jitter is from 0 to 1.
	TTL    time.Duration
	Jitter float64
	// Missing is the negative entry that is kept where there is no row. Nil: the key is deleted.
	Missing *Missing
}

// Missing is a negative entry: it says that there is no row.
type Missing struct {
	// Cache is the value, as it stands there.
	Cache string
	// TTL is how long it lives.
	TTL time.Duration
}

// Hash says that one field of a hash is removed, or with Value set. All three are templates.
type Hash struct {
	Pos               Pos
	Key, Field, Value Text
}

// Set says that a member of a set is added or removed. Both are templates.
type Set struct {
	Pos         Pos
	Key, Member Text
}

// ZSet says that a member of a sorted set is added, with Score, or removed. All three are templates.
type ZSet struct {
	Pos                Pos
	Key, Member, Score Text
}

// Expire says that keys are given no more than In to live.
type Expire struct {
	Pos  Pos
	Keys []Text
	In   time.Duration
}

// Publish says that a message is published after each acknowledged action on one of the mapping's keys. Both are
// templates.
type Publish struct {
	Pos              Pos
	Channel, Message Text
}

// Stream says that an entry is added to a stream after each acknowledged action on one of the mapping's keys.
type Stream struct {
	Pos Pos
	// Key is a template.
	Key Text
	// MaxLen is how many entries the stream keeps, about; 0: all.
	MaxLen int64
}
