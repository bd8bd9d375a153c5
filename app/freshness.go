package app

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/freshet/freshet/event"
)

// freshnessMarks is how many marks wait at most for their work to be finished. When there are more, every other one
// is left out: what is told is then coarser, not wrong.
const freshnessMarks = 256

// freshness knows as of when the cache is fresh: the newest moment at which the source was asked, and of which all
// changes are finished, final deletes included.
type freshness struct {
	mu      sync.Mutex
	waiting []event.Mark
	asOf    time.Time
}

// mark takes a mark when it is made. Only one that was made when everything had been read says anything about the
// whole source.
func (f *freshness) mark(m event.Mark) {
	if !m.Read {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, m)
	if len(f.waiting) <= freshnessMarks {
		return
	}
	kept := f.waiting[:0]
	for i, w := range f.waiting {
		if i%2 == 1 {
			kept = append(kept, w)
		}
	}
	f.waiting = kept
}

// at returns the moment, given the position up to which everything is finished; zero while it is not known.
func (f *freshness) at(p *event.Position) time.Time {
	file := fileNumber(p.File)
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, m := range f.waiting {
		if !finished(m.Version, p, file) {
			break
		}
		f.asOf = m.Made
		n++
	}
	f.waiting = append(f.waiting[:0], f.waiting[n:]...)
	return f.asOf
}

// finished reports whether a position, which is the end of a transaction, lies behind a version.
func finished(v event.Version, p *event.Position, file uint32) bool {
	if v.IsZero() {
		return true // nothing had been read that concerns a mapping
	}
	if v.Epoch != p.Epoch {
		return v.Epoch < p.Epoch
	}
	if v.File != file {
		return v.File < file
	}
	// A version without a row stands before the event at its place: for all that ends there.
	return v.Pos < p.Pos || v.Pos == p.Pos && v.Row == 0
}

// fileNumber returns 112 for binlog.000112.
func fileNumber(file string) uint32 {
	n, _ := strconv.ParseUint(file[strings.LastIndexByte(file, '.')+1:], 10, 32)
	return uint32(n)
}
