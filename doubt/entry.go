package doubt

import (
	"reflect"
	"slices"
	"time"

	"github.com/freshet/freshet/event"
)

// entry is a doubt in memory.
type entry struct {
	Doubt
	// put is when it last became durable; zero: it never was.
	put time.Time
	// behind: it has come since, so that it must be put.
	behind bool
	// ending: what is kept of it may be dropped at any moment, so it does not keep what comes.
	ending bool
	// kept are the definitions that a keeper has returned last: they are among the doubt's own.
	kept []*event.Table
}

// renew makes a new doubt of what came last, since the one before is dismissed. The caller has the lock.
func (e *entry) renew(b *Book) {
	e.Since, e.Count, e.put, e.behind = e.Last, 1, time.Time{}, true
	e.begin()
	raise(b.repeated)
}

// define adds definitions to those that the doubt has: keys of each may be stale until it is answered. The caller has
// the lock.
func (e *entry) define(tables []*event.Table) {
	all, news := slices.Clone(e.Definitions), false // copies of the doubt share it
	for _, t := range tables {
		if !slices.ContainsFunc(all, func(o *event.Table) bool { return reflect.DeepEqual(o, t) }) {
			all, news = append(all, t), true
		}
	}
	if news {
		e.Definitions = newest(all)
	}
}

// merge is define for what a keeper returns. It returns the same again and again.
func (e *entry) merge(tables []*event.Table) {
	if !slices.Equal(e.kept, tables) {
		e.define(tables)
		e.kept = tables
	}
}

// lose adds lost records to those that the doubt is about, and reports whether it is about more than before. The caller
// has the lock.
func (e *entry) lose(l *Lost) (wider bool) {
	all := e.Lost.or(l)
	wider = e.Lost != nil && (all == nil || *all != *e.Lost)
	e.Lost = all
	return wider
}

// begin forgets how the doubt was being answered: that begins again. The caller has the lock.
func (e *entry) begin() { e.Answer, e.Progress, e.Stuck = "", nil, false }

// ask takes note of when an operator asked for the answer, if one did. The caller has the lock.
func (e *entry) ask(asked bool, at time.Time) {
	e.Asked = e.Asked || asked
	if at.After(e.AskedAt) {
		e.AskedAt = at
	}
}
