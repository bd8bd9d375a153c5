package event

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Action is what is done to a key.
type Action uint8

// The actions, in the order in which one row's are carried.
const (
	// ActionDelete deletes the key.
	ActionDelete Action = iota + 1
	// ActionRebuild writes the key's value again.
	ActionRebuild
	// ActionHash removes or sets one field of a hash.
	ActionHash
	// ActionSet removes or adds one member of a set.
	ActionSet
	// ActionZSet removes or adds one member of a sorted set.
	ActionZSet
	// ActionExpire shortens the time that the key has left.
	ActionExpire
	// ActionIncr increments a counter.
	ActionIncr

	lastAction = ActionIncr
)

// String returns the action's name as it is written in a mapping.
func (a Action) String() string {
	if a == 0 || a > lastAction {
		return "unknown"
	}
	return [...]string{"delete", "rebuild", "hash", "set", "zset", "expire", "incr"}[a-1]
}

// ParseAction is the inverse of [Action.String].
func ParseAction(s string) (Action, error) {
	for a := ActionDelete; a <= lastAction; a++ {
		if a.String() == s {
			return a, nil
		}
	}
	return 0, fmt.Errorf("action %q is unknown", s)
}

// Intent says which way an action goes for one row image.
type Intent uint8

// The intents.
const (
	// IntentForget removes what the cache holds, whatever it is: always safe, since the application reads again. It is
	// the only one of delete, expire and incr, of a hash without a value, and of every doubt (a row image that lacks
	// a column). Rebuild, set and zset delete the whole key, hash deletes its field.
	IntentForget Intent = iota
	// IntentPut writes the value, the field or the member that the row now has.
	IntentPut
	// IntentRemove says that the row is gone: rebuild writes the negative entry or deletes, hash, set and zset remove
	// the field or member.
	IntentRemove
)

// String returns forget, put or remove.
func (i Intent) String() string {
	if i > IntentRemove {
		return "unknown"
	}
	return [...]string{"forget", "put", "remove"}[i]
}

// ParseIntent is the inverse of [Intent.String].
func ParseIntent(s string) (Intent, error) {
	for i := IntentForget; i <= IntentRemove; i++ {
		if i.String() == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("intent %q is unknown", s)
}

// Form is how a rebuilt value is kept in Redis.
type Form uint8

// The forms: a JSON document, a hash of columns, or a string.
const (
	FormJSON Form = iota
	FormHash
	FormString
)

// String returns the form as it is written at `as`.
func (f Form) String() string {
	if f > FormString {
		return "unknown"
	}
	return [...]string{"json", "hash", "string"}[f]
}

// ParseForm is the inverse of [Form.String].
func ParseForm(s string) (Form, error) {
	for f := FormJSON; f <= FormString; f++ {
		if f.String() == s {
			return f, nil
		}
	}
	return 0, fmt.Errorf("form %q is unknown", s)
}

// Effect is what an action of a mapping does to each of its keys, the same for all rows. With it, and the
// invalidation's fields, an invalidator needs no mappings. It is never written to once it is made.
//
// The fields ([Batch.Fields]) of an invalidation are, in this order:
//
//	if Publish              the channel, the message; both null: nothing is published for this one
//	if Stream               the key of the stream; null: no entry is added for this one
//	rebuild, Query == ""    put: the value (json, string), or field, value, field, value, … (hash)
//	rebuild, Query != ""    the query's parameters, in its order; NULL is a null field
//	hash                    the field; put: the value
//	set                     the member
//	zset                    the member; put: the score
//	delete, expire, incr    none
//
// A hash without a value has no effect: its field is only ever removed, which commutes.
//
// With [IntentForget], rebuild, set and zset have none of their own either; a hash always has its field.
type Effect struct {
	// Publish and Stream: after each acknowledged action, a message is published, or an entry added to a stream.
	Publish, Stream bool
	// MaxLen bounds that stream, about; 0: no bound.
	MaxLen int64

	// As is how a rebuilt value is kept.
	As Form
	// Query identifies the query that reads the value; empty: it is made of the row.
	Query string
	// TTL is how long the value lives, plus or minus at most Jitter times TTL; 0: forever. Jitter is from 0 to 1.
	TTL    time.Duration
	Jitter float64
	// ExpireAt, when above 0, is put inside the value as expire_at: the time of writing plus it, in Unix milliseconds.
	ExpireAt time.Duration
	// Missing says that a negative entry is kept where the row is gone: the value MissingValue for MissingTTL.
	Missing      bool
	MissingValue string
	MissingTTL   time.Duration

	// In is how long expire leaves the key, at most.
	In time.Duration
}

// Fields is a run of byte strings, each of which may be null.
type Fields []byte

// AppendField appends a field to text that will be [Fields].
func AppendField[T string | []byte](dst []byte, value T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(value))+1)
	return append(dst, value...)
}

// AppendNull appends a null field.
func AppendNull(dst []byte) []byte { return append(dst, 0) }

// Next returns the first field, nil if it is null, and the rest. ok is false when there is none, or when the
// fields are damaged.
func (f Fields) Next() (value []byte, rest Fields, ok bool) {
	n, size := binary.Uvarint(f)
	switch {
	case size <= 0:
		return nil, nil, false
	case n == 0:
		return nil, f[size:], true
	case n-1 > uint64(len(f)-size):
		return nil, nil, false
	}
	end := size + int(n-1)
	return f[size:end:end], f[end:], true
}

// All returns all fields; nil ones are null. It fails on damaged fields.
func (f Fields) All() ([][]byte, error) {
	var all [][]byte
	for len(f) > 0 {
		value, rest, ok := f.Next()
		if !ok {
			return nil, fmt.Errorf("fields of an invalidation are damaged after %d", len(all))
		}
		all, f = append(all, value), rest
	}
	return all, nil
}

// Forget returns what is left of the fields of an invalidation that forgets instead of writing: its notices, and
// the field of a hash. It shares memory with f. ok is false when fields are missing.
func (f Fields) Forget(a Action, e *Effect) (left Fields, ok bool) {
	n := 0
	if e != nil && e.Publish {
		n += 2
	}
	if e != nil && e.Stream {
		n++
	}
	if a == ActionHash {
		n++
	}
	rest := f
	for range n {
		if _, rest, ok = rest.Next(); !ok {
			return nil, false
		}
	}
	end := len(f) - len(rest)
	return f[:end:end], true
}
