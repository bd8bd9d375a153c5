package invalidator

import (
	"slices"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// class is how the keys of a unit are dealt with.
type class uint8

// The classes.
const (
	// deletes: UNLINK, many keys to a command. Plain deletes, which nothing follows.
	deletes class = iota
	// writes: calls of their own for each key. Every other action that the row says all of, and what notices follow.
	writes
	// queries: rebuilt by a query that runs once the change is known to be visible, outside the writers.
	queries
	classes // how many there are
)

// hasOther reports whether a batch holds other actions than deletes.
func hasOther(b *event.Batch) bool {
	for i := range b.Invalidations {
		if b.Invalidations[i].Action != event.ActionDelete {
			return true
		}
	}
	return false
}

// classOf returns how invalidation i is dealt with. Nothing that an older leader left is rebuilt: what it knows is
// forgotten.
func classOf(b *event.Batch, i int) class {
	inv, e := &b.Invalidations[i], b.EffectOf(i)
	switch {
	case inv.Action == event.ActionDelete && (e == nil || !e.Publish && !e.Stream):
		return deletes
	case inv.Action == event.ActionRebuild && e != nil && e.Query != "" && inv.Intent != event.IntentForget && !b.Leftover:
		return queries
	}
	return writes
}

// notices returns how many fields of an invalidation are for what follows its action.
func notices(e *event.Effect) int {
	n := 0
	if e == nil {
		return n
	}
	if e.Publish {
		n += 2
	}
	if e.Stream {
		n++
	}
	return n
}

// noticesOf returns what is told after the action of invalidation i; nil: nothing.
func noticesOf(b *event.Batch, i int) []retry.Notice {
	e := b.EffectOf(i)
	first, _ := cut(b.Fields(i), notices(e))
	if len(first) == 0 {
		return nil
	}
	return []retry.Notice{{Publish: e.Publish, Stream: e.Stream, MaxLen: e.MaxLen, Fields: slices.Clone(first)}}
}

// cut splits fields after the first n; damaged ones are all after the cut.
func cut(f event.Fields, n int) (first, rest event.Fields) {
	rest = f
	for range n {
		_, behind, ok := rest.Next()
		if !ok {
			return nil, f
		}
		rest = behind
	}
	return f[:len(f)-len(rest)], rest
}

// subject returns what tells invalidation i from others of its key, action and effect: the fields that name
// something. Of several with the same subject the last says all; a value is none, so it is left out.
func subject(b *event.Batch, i int) event.Fields {
	fields := b.Fields(i)
	if len(fields) == 0 {
		return nil
	}
	inv, e := &b.Invalidations[i], b.EffectOf(i)
	named := notices(e)
	switch inv.Action {
	case event.ActionRebuild:
		if e != nil && e.Query != "" {
			return fields // its parameters
		}
	case event.ActionHash, event.ActionSet, event.ActionZSet:
		if _, own := cut(fields, named); len(own) > 0 {
			named++
		}
	case event.ActionDelete, event.ActionExpire, event.ActionIncr:
	}
	first, _ := cut(fields, named)
	return first
}
