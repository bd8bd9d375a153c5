package write

import (
	"fmt"
	"time"

	"github.com/freshet/freshet/event"
)

// Item is one action on one key that must be sent now.
type Item struct {
	// Key is without the prefix.
	Key    string
	Action event.Action
	Intent event.Intent
	// Effect may be nil where nothing is put: what has none is forgotten. A hash action whose Effect is nil is a plain
	// HDEL; one with an Effect is guarded.
	Effect *event.Effect
	// Fields are the action's own, without those of publish and stream (see [Split]). For a rebuild by query they are
	// what the query gave, in the form of one from the row; where it gave nothing the Intent is [event.IntentRemove].
	Fields event.Fields
	// Source and Version are the change's.
	Source  string
	Version event.Version
	// D is the mapping's second delete; 0: this action is the only one, if its change is known to be visible.
	D time.Duration
	// Refused says that Redis has refused an action on the key for this change. Then all that is known of the key was
	// removed ([Builder.Fallback]), perhaps what a newer change had left meanwhile: though D is 0, that nothing is known
	// does not say that nothing newer was there.
	Refused bool
	// Begun confirms a mark that this change itself has begun, or found, if it was begun by then (Redis' clock, in ms):
	// see [Builder.Begun] and "What the sender owes". 0: none.
	Begun int64
	// Until is the last moment, by Redis' clock in ms, at which anything but forgetting may take effect: Redis forgets
	// the key instead if it gets the action later. See [Item.Judge]. 0: unknown, which forgets.
	Until int64
	// Leftover says that the item is of an [event.Batch].Leftover. What it forgets stays where the guard knows of a newer
	// change: see "What is done again" in the package comment.
	Leftover bool
	// Named says that it is of an [event.Batch].Named: see "What is done again", too.
	Named bool
	// Now is the time for [event.Effect].ExpireAt.
	Now time.Time
}

// IsGuarded reports whether the item is sent with [Item].Until: whether it is about a value.
func (it *Item) IsGuarded() bool {
	switch it.Action {
	case event.ActionRebuild:
		return true
	case event.ActionHash, event.ActionSet, event.ActionZSet:
		return it.Effect != nil
	}
	return false
}

// NeedsMark reports whether an item that removes its key without writing must leave its version next to it all the
// same. Only without D is an absent key without a companion written: an older value may be on its way still, and it
// must find one. A version that may be another key's is none to leave.
func (it *Item) NeedsMark() bool {
	return it.Action == event.ActionRebuild && it.D == 0 && !it.Leftover && !it.Named
}

// Outcome is what an item did in Redis.
type Outcome uint8

// The outcomes. All of them are a success: the key holds nothing older than the item, or nothing.
const (
	// Written: the value, field, member, counter or shorter TTL is there.
	Written Outcome = iota + 1
	// Removed: the key, field or member is gone, or the negative entry is there, as the item wanted.
	Removed
	// Forgotten: the key or field was removed, since what it should hold could not be confirmed or not be written
	// (or since that was the intent). The application reads it again.
	Forgotten
	// Older: nothing was done, since a newer change has been written.
	Older
	// Absent: there was no key that could have been changed.
	Absent

	outcomes = Absent
)

// String returns the outcome's name, in lower case.
func (o Outcome) String() string {
	if o == 0 || o > outcomes {
		return "unknown"
	}
	return [...]string{"written", "removed", "forgotten", "older", "absent"}[o-1]
}

// Window returns for how long after a change became known to be visible its value may take effect: time enough for the
// first and the final action.
func Window(d time.Duration) time.Duration { return d + 5*time.Second }

// ConfirmsAfter returns how old a companion must be to confirm. That is later than [Window]: owners do not learn at the
// same moment what is visible.
func ConfirmsAfter(d time.Duration) time.Duration { return Window(d) + 5*time.Second }

// Judge settles with which intent an action is sent now, what it was made for or to forget, and until when it may take
// effect. It must be asked before every sending, be it the first, the final one, or one again after a failure. D must
// be set.
//
//   - now is what Redis' clock says, in ms, or less: the sender asks Redis for it. 0: unknown, and Redis forgets the
//     key.
//   - age is for how long the change has been known to be visible, negative if that is not known. For a rebuild by
//     query it is for how long the query has been running.
//   - old says that the change is old news whatever its age is known to be: [event.Batch].Leftover, or part of a
//     backlog.
func (it *Item) Judge(i event.Intent, now int64, age time.Duration, old bool) {
	it.Intent, it.Until = i, now+(Window(it.D)-max(age, 0)).Milliseconds()
	if old || it.Until < now {
		it.Intent = event.IntentForget
	}
}

// Split parts the fields of an invalidation ([event.Batch.Fields]) into those of its notices, which [Builder.Notices]
// wants, and the action's own. It fails on damaged fields.
func Split(e *event.Effect, f event.Fields) (notices, own event.Fields, err error) {
	n := 0
	if e != nil && e.Publish {
		n += 2
	}
	if e != nil && e.Stream {
		n++
	}
	own = f
	for range n {
		_, rest, ok := own.Next()
		if !ok {
			return nil, nil, fmt.Errorf("fields of an invalidation are damaged: want %d for its notices", n)
		}
		own = rest
	}
	return f[:len(f)-len(own)], own, nil
}
