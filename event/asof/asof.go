// Package asof knows as of when everything is finished: the newest moment at which a source was asked what it held, and
// of which all has been finished since.
package asof

import (
	"math"
	"slices"
	"time"
)

// mostWaiting is how many moments of a [List] wait at most.
const mostWaiting = 256

// List holds the moments at which the source was asked and everything that it held had been handed over. Each waits for
// the work that had been handed over by then, which P names: a place that only rises. The zero List is empty; it is not
// safe for concurrent use.
type List[P any] struct {
	waiting []moment[P]
	at      time.Time
}

type moment[P any] struct {
	made time.Time
	upTo P
}

// Add adds a moment that waits for the work up to a place. When too many wait, every other one is left out, so that
// those of a long backlog lie evenly: what [List.At] returns gets coarser by that, and never too late.
func (l *List[P]) Add(made time.Time, upTo P) {
	l.waiting = append(l.waiting, moment[P]{made, upTo})
	if len(l.waiting) <= mostWaiting {
		return
	}
	kept := l.waiting[:0]
	for i := 0; i < len(l.waiting); i += 2 { // their number is odd: the newest stays
		kept = append(kept, l.waiting[i])
	}
	l.waiting = kept
}

// Finish takes how far all work is finished, by a function that reports whether that reaches a place. It reports
// whether a moment was reached by it.
func (l *List[P]) Finish(reaches func(upTo P) bool) bool {
	n := 0
	for n < len(l.waiting) && reaches(l.waiting[n].upTo) {
		l.at = l.waiting[n].made
		n++
	}
	l.waiting = append(l.waiting[:0], l.waiting[n:]...)
	return n > 0
}

// Waits reports whether a moment is not reached yet.
func (l *List[P]) Waits() bool { return len(l.waiting) > 0 }

// At returns the newest moment that was reached; the zero time before the first.
func (l *List[P]) At() time.Time { return l.at }

// Thin takes one element out of a list of what was known over time, oldest first, once it is longer than most: the one
// that is missed least for its age, so that a few elements reach back over hours while the present is dense. The first
// and the newest always stay. at says when an element became known, in any unit.
func Thin[T any](list []T, most int, at func(*T) int64) []T {
	if len(list) <= most {
		return list
	}
	newest := at(&list[len(list)-1])
	drop, least := 1, math.Inf(1)
	for i := 1; i < len(list)-1; i++ {
		gap := at(&list[i+1]) - at(&list[i-1])
		if missed := float64(gap) / float64(newest-at(&list[i])); missed < least {
			drop, least = i, missed
		}
	}
	return slices.Delete(list, drop, drop+1)
}
