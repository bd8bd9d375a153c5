package app

import (
	"cmp"
	"sync"
	"time"

	"github.com/freshet/freshet/event"
)

// freshnessMarks is how many marks wait at most for their work to be finished. When there are more, every other one
// is left out: what is told is then coarser, not wrong.
const freshnessMarks = 256

// freshness knows as of when the cache is fresh: the newest moment at which the source was asked, and of which all
// changes are finished, final deletes included.
//
// A mark that was made when everything had been read says that all that the source held is among what has been
// handed on since the start. It is its place in the stream that counts, not the mark's version: what was known to be
// visible when it was handed on needs no mark, so a version may be behind it.
type freshness struct {
	mu sync.Mutex
	// handed and finished are where the last transaction ends that was handed on, and that everything up to is finished.
	handed, finished place
	waiting          []moment
	asOf             time.Time
}

// place is the end of a transaction in the binlog; the zero place is before all others. Those of another server, which
// has an epoch of its own, are behind those of the server before: work is handed on, and finished, in that order.
type place struct {
	epoch, file uint32
	pos         uint64
}

// moment is when the source was asked, and the place that has to be finished for the cache to be fresh as of then.
type moment struct {
	made time.Time
	upTo place
}

// handOn takes the end of a batch, before the batch is appended.
func (f *freshness) handOn(e *event.End) {
	if e.IsZero() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handed = placeOf(e.Epoch, e.File, e.Pos)
}

// finish takes the end of what is finished.
func (f *freshness) finish(e event.End) {
	if e.IsZero() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finished = placeOf(e.Epoch, e.File, e.Pos)
}

// mark takes a mark when it is made. Only one that was made when everything had been read says anything about the
// whole source.
func (f *freshness) mark(m event.Mark) {
	if !m.Read {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, moment{m.Made, f.handed})
	if len(f.waiting) <= freshnessMarks {
		return
	}
	kept := f.waiting[:0]
	for i, w := range f.waiting {
		if i%2 == 0 { // their number is odd: the newest stays
			kept = append(kept, w)
		}
	}
	f.waiting = kept
}

// at returns the moment; zero while it is not known.
func (f *freshness) at() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, m := range f.waiting {
		if f.finished.before(m.upTo) {
			break
		}
		f.asOf = m.made
		n++
	}
	f.waiting = append(f.waiting[:0], f.waiting[n:]...)
	return f.asOf
}

func (p place) before(o place) bool {
	return cmp.Or(cmp.Compare(p.epoch, o.epoch), cmp.Compare(p.file, o.file), cmp.Compare(p.pos, o.pos)) < 0
}

// placeOf returns the place at a position of a binlog file.
func placeOf(epoch uint32, file string, pos uint64) place {
	_, n, _ := event.SplitFile(file) // canal has read it
	return place{epoch, n, pos}
}
