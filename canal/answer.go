package canal

import (
	"sort"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/asof"
)

// requirement is what must be visible before everything up to a version is: the transactions of a batch, or of a run of
// batches. Each batch's requirement is judged on its own; that of a mark needs all before it as well.
type requirement struct {
	last event.Version
	// gtids are the transactions, where the source has GTIDs; of a run of batches those of the last one, and more
	// those of the others.
	gtids []event.GTIDRange
	more  *event.GTIDSet
	// need is the least position that an answer must have, if it is of the same epoch; zero: only GTIDs tell. Answers
	// lie at ends of transactions, so for a transaction it is one byte after where it begins: an answer beyond that
	// holds all of it, even the part that was not yet read.
	need binlogPos
	// open is the last transaction, if its end had not been read when it was handed over; the zero GTID if it had.
	open event.GTID
	// since is when it began to wait, and seen when the source said that it is visible; zero: not yet.
	since, seen time.Time
	// committed is when the first of the transactions was committed, by the source's clock; zero: not known.
	committed time.Time
	// earlier says that it is what was there before the run. If that was finished, fill servers had it then, or are in
	// doubt since; unfinished says that this is not known.
	earlier, unfinished bool
}

// answer is what the source said that everybody can read.
type answer struct {
	// made and received are when it was asked and when the answer was here: what it says was true in between.
	made, received time.Time
	// server and epoch are those of the stream when it was asked.
	server string
	epoch  uint32
	// place is the end of what is visible, where the source answers with a position, and end that of all that it
	// holds, visible or not.
	place, end binlogPos
	// gtids is what is visible, where it answers with a set (named): only what passed since the start of the run,
	// so that old fragments cost nothing. whole says that the set also holds what was executed before.
	gtids event.GTIDSet
	named bool
	// own is what a fill server that is a MariaDB has written itself: the last transaction of each domain.
	own   event.GTIDSet
	whole bool
}

// holds reports whether everything that c needs is visible.
func (a *answer) holds(c *requirement) bool {
	if !a.place.isZero() && !c.need.isZero() && a.epoch == c.last.Epoch {
		return a.place.compare(c.need) >= 0
	}
	if !a.named || !a.whole {
		return false
	}
	for _, r := range c.gtids {
		if !a.gtids.ContainsRange(r) && !a.wrote(r) {
			return false
		}
	}
	if c.more == nil {
		return true
	}
	return !a.lacks(c.more)
}

// ageBy returns how long ago the first of the answers came that holds c. What an answer holds, every later one holds
// too.
func ageBy(answers []answer, c *requirement) time.Duration {
	i := sort.Search(len(answers), func(i int) bool { return answers[i].holds(c) })
	if i == len(answers) {
		return event.Unknown
	}
	return c.since.Sub(answers[i].received)
}

// keep adds an answer to those that ages come from: the newest always, others a spacing apart at least. A few answers
// reach back over hours, while the present is dense.
func keep(answers []answer, a answer, spacing time.Duration) []answer {
	n := len(answers)
	switch {
	case n > 0 && answers[n-1].ahead(&a):
		// The server has less than before: nothing that it said then holds now.
		clear(answers)
		answers = answers[:0]
	case n > 1 && answers[n-1].received.Sub(answers[n-2].received) < spacing:
		answers[n-1] = a
		return answers
	}
	return asof.Thin(append(answers, a), maxAnswers, func(a *answer) int64 { return a.received.UnixNano() })
}

// ahead reports whether a holds something that the later answer b does not.
func (a *answer) ahead(b *answer) bool {
	if !a.place.isZero() && !b.place.isZero() {
		return a.place.compare(b.place) > 0
	}
	return b.lacks(&a.gtids) || b.lacks(&a.own)
}
