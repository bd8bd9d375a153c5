package router

import (
	"errors"

	"github.com/freshet/freshet/event"
)

// verdict says whether a mapping is for a row change, or what it asks for that the change has not.
type verdict uint8

const (
	wrongEvent verdict = iota
	unchanged
	predicateFalse
	admitted
)

// label is the verdict's value of the metric label `by`; empty for admitted.
func (v verdict) label() string {
	return [...]string{"events", "columns", "when", ""}[v]
}

// errDoubtful stands for a predicate that cannot be evaluated for any row of the table.
var errDoubtful = errors.New("it reads a column that the table lacks")

// admit decides whether the mapping is for the change, and what an action that writes does with the after-image. An
// error says that the predicate could not be evaluated, which counts as true, and as a reason to write nothing.
func (x *run) admit() (verdict, error) {
	u, c := x.u, x.c
	switch {
	case !u.Events[c.Op&3]:
		return wrongEvent, nil
	case c.Op == event.Update && !u.all && !u.changed(c) && !x.turned():
		return unchanged, nil
	case u.predicate != nil:
		return x.asks()
	}
	x.after = event.IntentPut
	return admitted, nil
}

// turned reports whether the predicate may say something else of the row as it is than of the row as it was, each on
// its own: the row came to, or ceased to be, what the mapping is about, whichever of the columns it names changed. What
// cannot be evaluated may have turned.
func (x *run) turned() bool {
	u, c := x.u, x.c
	switch {
	case u.predicate == nil || !u.doubtful && same(u.reads, c):
		return false
	case u.doubtful:
		return true
	}
	was, err := u.predicate.alone(&x.machine, c.Before, u.reads)
	if err != nil {
		return true
	}
	is, err := u.predicate.alone(&x.machine, c.After, u.reads)
	return err != nil || was != is
}

// asks is admit for a mapping with a predicate.
func (x *run) asks() (verdict, error) {
	u := x.u
	x.after = event.IntentForget
	if u.doubtful {
		return admitted, errDoubtful
	}
	yes, err := u.predicate.eval(&x.machine, x.c, u.reads)
	if !u.Writes || err != nil {
		return verdictOf(yes), err
	}
	return x.membership(yes)
}

func verdictOf(yes bool) verdict {
	if yes {
		return admitted
	}
	return predicateFalse
}

// membership decides for a mapping that writes. What such a mapping keeps is the set of rows for which the predicate
// holds on their own, without an old row. The after-image is written only if it is one of them. And a row that was one
// and no longer is counts, though the predicate, which sees both images, is false: row.status == 'live' is false when a
// live row becomes a draft, and in every DELETE.
func (x *run) membership(yes bool) (verdict, error) {
	u, c := x.u, x.c
	x.after = event.IntentRemove
	var err error
	switch c.Op {
	case event.Insert: // the predicate saw the after-image alone
		if yes {
			x.after = event.IntentPut
		}
		return verdictOf(yes), nil
	case event.Update:
		var is bool
		if is, err = u.predicate.alone(&x.machine, c.After, u.reads); err != nil {
			x.after = event.IntentForget
		} else if is {
			x.after = event.IntentPut
		}
	}
	if yes || x.after == event.IntentPut {
		return verdictOf(yes), err
	}
	was, wrong := u.predicate.alone(&x.machine, c.Before, u.reads)
	return verdictOf(was || err != nil), errors.Join(err, wrong)
}

// changed reports whether a column that the mapping looks at may have changed.
func (u *rule) changed(c *event.Change) bool {
	for _, s := range u.compare {
		if !c.Before[s].Same(&c.After[s]) {
			return true
		}
	}
	return false
}
