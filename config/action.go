package config

import "time"

// Rebuild says that the mapping's keys are written anew, instead of deleted.
type Rebuild struct {
	// Pos is where the action stands, as in all of them.
	Pos Pos
	// FromRow: the value is made of the row as it is after the change. Else Query reads it.
	FromRow bool
	// Query is one SELECT with parameters named as columns (:product_id); empty with FromRow. Its syntax is not
	// checked here.
	Query Text
	// Server is where the query runs: source. Empty with FromRow.
	Server Text
	// Timeout is how long the query may take. Default 5s, from 10ms to 5m; 0 with FromRow.
	Timeout time.Duration
	// As is how the value is kept in Redis. Default json.
	As Form
	// Value is the template of the value; exactly with As FormString and FromRow.
	Value Text
	// Columns are those that the value holds, each maybe `as` another name ("user_name as userName"); empty, the
	// default: all. Only with FromRow and As other than FormString. None of them twice. Their syntax is not checked
	// here.
	Columns []Text
	// Decimals is how a DECIMAL stands in a JSON document. Default DecimalsString.
	Decimals Decimals
	// Rows is how many rows of the query the value holds. Default RowsOne; RowsMany only with As FormJSON.
	Rows Rows
	// ExpireAt, when above 0, is how long after it was written the value counts as expired for readers: it stands in
	// the value as expire_at, in Unix milliseconds. Not with FormString, nor with RowsMany. From 1ms to 10 years.
	ExpireAt time.Duration
	// TTL is how long the value lives; 0, the default (`none`): for ever. From 1ms to 10 years.
	TTL time.Duration
	// Jitter is how much longer or shorter than TTL it may be, as a part of it. From 0, the default, to 1.
	Jitter float64
	// Missing is what is kept where there is no row; nil, the default: the key is deleted. Not with FormHash.
	Missing *Missing
}

// Missing is a negative entry: it says that there is no row.
type Missing struct {
	Pos Pos
	// Cache is the value, as it stands there: no template. Default empty.
	Cache Text
	// TTL is how long it lives. Never 0.
	TTL time.Duration
}

// Form is how a rebuilt value is kept in Redis.
type Form string

// The forms: a string that holds JSON, a hash with a field for each column, a string made by a template or of the
// first column of a query.
const (
	FormJSON   Form = "json"
	FormHash   Form = "hash"
	FormString Form = "string"
)

// Decimals is how a DECIMAL stands in a JSON document.
type Decimals string

// The ways: "9.90" keeps every digit for every reader, 9.90 is a number.
const (
	DecimalsString Decimals = "string"
	DecimalsNumber Decimals = "number"
)

// Rows is how many rows of a query a value holds.
type Rows string

// The numbers of rows: one, as an object, or any number, as a list of them.
const (
	RowsOne  Rows = "one"
	RowsMany Rows = "many"
)

// Hash says that one field of a hash is removed or set.
type Hash struct {
	Pos Pos
	// Key and Field are templates. Never empty.
	Key, Field Text
	// Value is the template of the field's value; empty: the field is removed, not set.
	Value Text
}

// Set says that a member of a set is added or removed.
type Set struct {
	Pos Pos
	// Key and Member are templates. Never empty.
	Key, Member Text
}

// ZSet says that a member of a sorted set is added or removed.
type ZSet struct {
	Pos Pos
	// Key and Member are templates. Never empty.
	Key, Member Text
	// Score is the template of the score; empty: the member is removed, not set.
	Score Text
}

// Expire says that keys are given less time to live.
type Expire struct {
	Pos Pos
	// Keys are templates, none of them twice. Never empty.
	Keys []Text
	// In is how long the keys live at most from then on. From 1ms to 10 years.
	In time.Duration
}

// Publish says that a message is published after each acknowledged action on a key of the mapping.
type Publish struct {
	Pos Pos
	// Channel and Message are templates. Never empty.
	Channel, Message Text
}

// Stream says that an entry is added to a stream after each acknowledged action on a key of the mapping.
type Stream struct {
	Pos Pos
	// Key is a template. Never empty.
	Key Text
	// MaxLen is how many entries the stream keeps, about; 0 (`none`): all. Default 10,000.
	MaxLen int64
}
