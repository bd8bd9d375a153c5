package router

import "github.com/freshet/freshet/config/spec"

// Trouble is a kind of thing that Route notices and cannot fix.
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
	// ValueUnfit: a value is not of the kind that Redis wants, a score that is no number, so its key was deleted
	// instead.
	ValueUnfit
)

// Reporter takes trouble, once for each row that has it, on the goroutine of Route. The table is schema.table, and the
// template that of the key which the trouble is about; "": it is about no one key. The message is a whole sentence for
// the operator, the same for the same trouble, and holds no value of a row.
type Reporter interface {
	Report(t Trouble, table, template, message string)
}

// MaxKey is the longest key that a template makes, in bytes. It bounds the memory of one row: a text column may
// hold gigabytes, and a template may ask for 1,024 copies. A longer key is counted and reported, and not made.
const MaxKey = 64 << 10

// MaxValue is the largest value that a key, or the field of a hash, is given, in bytes. What is larger is deleted
// instead, counted and reported: it would be carried through the event log, and block Redis while it is written.
const MaxValue = 256 << 10

// fault is what is wrong at a byte offset of a text.
type fault struct {
	at       int
	what, do string
}

// faults adds the faults of one text, which kind and text name: `key "user:{id": …`.
func faults(c *spec.Collector, kind string, t *spec.Text, fs []fault) {
	for _, f := range fs {
		c.Add(t.At(f.at), kind+" "+spec.Quote(t.Value)+": "+f.what, f.do)
	}
}
