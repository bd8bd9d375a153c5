package spec

import (
	"time"

	"github.com/freshet/freshet/event"
)

// Mapping says which keys the rows of the tables that it matches make stale, and what is done to them.
type Mapping struct {
	// Pos is where the mapping begins.
	Pos Pos
	// Table is a pattern, schema.table, with * for any run of characters and {00..63} for numbers. Never empty.
	Table Text
	// Events are the changes that count. Default all three.
	Events Events
	// Columns: an UPDATE counts only if one of these, or a column of one of the mapping's keys, changed, or what When
	// says of the row. Empty, the default: every UPDATE counts.
	Columns []Text
	// When is a predicate over row and old. Empty, the default: every row counts.
	When Text
	// Keys are the templates of the keys to delete, or with Rebuild to write instead, none of them twice. At least one,
	// unless there is another action; Rebuild, Publish and Stream are about them, and need one.
	Keys []Text
	// SecondDelete is D of the keys, that of the invalidator where the mapping does not say; 0 (`none`): one delete
	// only.
	SecondDelete time.Duration
	// RateLimit is how many keys of the mapping a second are sent for the first time, in each process that invalidates;
	// 0, the default (`none`): no limit.
	RateLimit int
	// Scope says what free text in keys may be, where all keys that the mapping can have made are looked for in Redis.
	// Empty, the default (`keys`): keys with free text are not looked for. No column is in it twice.
	Scope []FreeText
	// ScopeRows says that these keys are not looked for in Redis: the rows of the table are read, as they are then, and
	// their keys forgotten. Scope is empty then.
	ScopeRows bool

	// The actions other than deletes; nil, or the zero Text: none. Incr is the template of a counter's key.
	Rebuild *Rebuild
	Hash    *Hash
	Set     *Set
	ZSet    *ZSet
	Expire  *Expire
	Incr    Text
	Publish *Publish
	Stream  *Stream
}

// FreeText is what the text of a column may be in keys, fields and members, where its type leaves that open.
type FreeText struct {
	Column Text
	// Holds is a regular expression, in Go's syntax and without anchors, that the whole text matches after its filters.
	// Never empty.
	Holds Text
}

// Events are the kinds of row change that a mapping is for. The zero value means all three.
type Events struct{ Insert, Update, Delete bool }

// OnSource is what a Rebuild's Server is called when the query runs on the server that is streamed from.
const OnSource = "source"

// Rebuild says that the mapping's keys are written, instead of deleted.
type Rebuild struct {
	// Pos is where the action stands, as in all of them.
	Pos Pos
	// FromRow: the value is made of the row as it is after the change. Else Query reads it.
	FromRow bool
	// Query is one SELECT with parameters named as columns (:product_id); empty with FromRow.
	Query Text
	// Server is where the query runs: OnSource, or host:port of a replica. Empty with FromRow.
	Server Text
	// Timeout is how long the query may take. Default 5s, from 10ms to 5m; 0 with FromRow.
	Timeout time.Duration
	// As is how the value is kept in Redis. Default event.FormJSON.
	As event.Form
	// Value is the template of the value; with FromRow and As event.FormString only, and never empty there.
	Value Text
	// Columns are those that the value holds, each maybe `as` another name ("user_name as userName"), none of them
	// twice. Empty, the default: all. With FromRow and another form only.
	Columns []Text
	// Decimals is how a DECIMAL stands in a JSON document. Default DecimalsString.
	Decimals Decimals
	// Rows is how many rows of the query the value holds. Default RowsOne; RowsMany not with event.FormString.
	Rows Rows
	// ExpireAt, when above 0, is how long after it was written the value counts as expired for readers: it stands in
	// the value as expire_at, in Unix milliseconds. Not with event.FormString, nor with RowsMany. From 1ms to 10 years.
	ExpireAt time.Duration
	// TTL is how long the value lives, plus or minus Jitter times TTL; 0, the default (`none`): forever. From 1ms to 10
	// years. Jitter is from 0, the default, to 1.
	TTL    time.Duration
	Jitter float64
	// Missing is what is kept where there is no row; nil, the default: the key is deleted. Not with event.FormHash, nor
	// with RowsMany.
	Missing *Missing
}

// Missing is a negative entry: it says that there is no row.
type Missing struct {
	Pos Pos
	// Cache is the value, as it stands there: no template. At most 64 KiB. Default empty.
	Cache Text
	// TTL is how long it lives. Never 0.
	TTL time.Duration
}

// Decimals is how a DECIMAL stands in a JSON document.
type Decimals string

// The ways: "9.90" keeps every digit for every reader, 9.90 is a number. The zero value is DecimalsString.
const (
	DecimalsString Decimals = "string"
	DecimalsNumber Decimals = "number"
)

// Rows is how many rows of a query a value holds.
type Rows string

// The numbers of rows: one, or any number: a JSON list of objects, or a hash of two columns, the fields' names and
// their values. The zero value is RowsOne.
const (
	RowsOne  Rows = "one"
	RowsMany Rows = "many"
)

// Hash says that one field of a hash is removed, or with Value set. All three are templates; Key and Field are never
// empty.
type Hash struct {
	Pos               Pos
	Key, Field, Value Text
}

// Set says that a member of a set is added or removed. Both are templates. Never empty.
type Set struct {
	Pos         Pos
	Key, Member Text
}

// ZSet says that a member of a sorted set is added, with Score, or removed. All three are templates; Key and Member are
// never empty. Without Score it is not known, and the member is removed, never set.
type ZSet struct {
	Pos                Pos
	Key, Member, Score Text
}

// Expire says that keys are given no more than In to live.
type Expire struct {
	Pos Pos
	// Keys are templates, none of them twice. Never empty.
	Keys []Text
	// In is from 1ms to 10 years.
	In time.Duration
}

// Publish says that a message is published after each acknowledged action on one of the mapping's keys. Both are
// templates. Never empty.
type Publish struct {
	Pos              Pos
	Channel, Message Text
}

// Stream says that an entry is added to a stream after each acknowledged action on one of the mapping's keys.
type Stream struct {
	Pos Pos
	// Key is a template. Never empty.
	Key Text
	// MaxLen is how many entries the stream keeps, about; 0 (`none`): all. Default 10,000.
	MaxLen int64
}
