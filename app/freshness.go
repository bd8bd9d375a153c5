package app

import (
	"sync"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/asof"
)

// freshness knows as of when the cache is fresh: the newest moment at which the source was asked, and of which all
// changes are finished, final deletes included.
//
// A mark that was made when everything had been read says that all that the source held is among what has been
// handed on since the start. It is its place in the stream that counts, not the mark's version: what was known to be
// visible when it was handed on needs no mark, so a mark's version may be before it.
type freshness struct {
	mu sync.Mutex
	// handed and finished are where the last transaction ends that was handed on, and that everything up to is
	// finished. Those of another server, which has an epoch of its own, come after those of the server before: work is
	// handed on, and finished, in that order.
	handed, finished event.Version
	moments          asof.List[event.Version]
	// visible is the version of the newest mark that was made when everything had been read.
	visible event.Version
}

// handOn takes the end of a batch, before the batch is appended.
func (f *freshness) handOn(e *event.End) {
	if e.IsZero() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handed = event.VersionAt(e.Epoch, e.File, e.Pos)
}

// finish takes the end of what is finished.
func (f *freshness) finish(e event.End) {
	if e.IsZero() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finished = event.VersionAt(e.Epoch, e.File, e.Pos)
}

// mark takes a mark when it is made. Only one that was made when everything had been read says anything about the
// whole source.
func (f *freshness) mark(m event.Mark) {
	if !m.Read {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moments.Add(m.Made, f.handed)
	f.visible = m.Version
}

// upTo returns the newest version that everybody was known to see when everything had been read. No change that was
// handed on before has a higher one.
func (f *freshness) upTo() event.Version {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.visible
}

// at returns the moment; zero while it is not known.
func (f *freshness) at() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moments.Finish(func(upTo event.Version) bool { return f.finished.Compare(upTo) >= 0 })
	return f.moments.At()
}
