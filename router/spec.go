package router

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// Pos is a place in the configuration. Line and Column count from 1, Column in characters; 0 means not known.
type Pos struct {
	File         string
	Line, Column int
}

// String returns file:line:column, without what is not known.
func (p Pos) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Text is a text of the configuration with its place, so that a fault inside it can be shown where it stands.
type Text struct {
	Value string
	// Pos is where the first character of Value stands.
	Pos Pos
	// Locate returns where the character at a byte offset of Value stands; it knows of quotes, escapes and folded
	// lines. Nil: the text stands in one line as it is.
	Locate func(offset int) Pos
}

// at returns where the character at a byte offset stands. An offset behind the end is where the text ends.
func (t *Text) at(offset int) Pos {
	offset = min(max(offset, 0), len(t.Value))
	if t.Locate != nil {
		return t.Locate(offset)
	}
	p := t.Pos
	if p.Column > 0 {
		p.Column += utf8.RuneCountInString(t.Value[:offset])
	}
	return p
}

// Events are the kinds of row change that a mapping is for. The zero value means all three.
type Events struct{ Insert, Update, Delete bool }

// Mapping says which keys the rows of the tables that it matches make stale.
type Mapping struct {
	// Pos is where the mapping begins.
	Pos Pos
	// Table is a pattern, schema.table, with * for any run of characters and {00..63} for numbers. Required.
	Table Text
	// Events are the changes that count. Default all three.
	Events Events
	// Columns: an UPDATE counts only if one of these, or a column of one of the mapping's keys, changed, or what When says
	// of the row. Empty, the default: every UPDATE counts.
	Columns []Text
	// When is a predicate over row and old. Empty, the default: every row counts.
	When Text
	// Keys are the templates of the keys to delete, or with Rebuild to write anew. At least one, unless there is another
	// action; Rebuild, Publish and Stream are about them, and need one.
	Keys []Text
	// SecondDelete is D of the keys; 0: one delete only.
	SecondDelete time.Duration
	// RateLimit is how many keys of the mapping a second are sent for the first time; 0: no limit.
	RateLimit int

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

// Trouble is a kind of thing that Route notices and cannot mend.
type Trouble uint8

// The kinds of trouble.
const (
	// ColumnAbsent: a row image lacked a column of a key, so that key could not be named.
	ColumnAbsent Trouble = iota + 1
	// KeyTooLong: a key would have been longer than [MaxKey].
	KeyTooLong
	// PredicateFailed: a `when` failed at run time and counted as true.
	PredicateFailed
	// ValueTooLarge: a value would have been larger than [MaxValue], so its key was deleted instead.
	ValueTooLarge
	// ValueUnfit: a value is not of the kind that Redis wants, a score that is no number, so its key was deleted instead.
	ValueUnfit
)

// Reporter is told of trouble, once for each row that has it, on the goroutine of Route. The table is schema.table. The
// message is a whole sentence for the operator, the same for the same trouble, and holds no value of a row.
type Reporter interface {
	Report(t Trouble, table, message string)
}

// MaxKey is the longest key that a template makes, in bytes. It bounds the memory of one row: a text column may
// hold gigabytes, and a template may ask for 1,024 copies. A longer key is counted and reported, and not made.
const MaxKey = 64 << 10

// MaxValue is the largest value that a key, or the field of a hash, is given, in bytes. What is larger is deleted
// instead, counted and reported: it would be carried through the event log, and block Redis while it is written.
const MaxValue = 256 << 10
