package invalidator

import (
	"slices"
	"sync"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/asof"
)

// keepMarks is how many marks of a source are remembered. One comes with every heartbeat; remembering fewer than
// there were only makes a change look visible since later than it was.
const keepMarks = 64

// marks remembers when which mark became known here. All methods may be called by any goroutine.
type marks struct {
	mu      sync.Mutex
	sources map[string][]knownMark
	// lastRead is when it was last heard of each source that its reader had handed over everything.
	lastRead map[string]instant
}

// knownMark is a mark, and when it became known.
type knownMark struct {
	mark event.Mark
	at   instant
	// read is when it was last heard, with no higher version, that the reader had handed over everything; always:
	// never.
	read instant
}

// add remembers a mark. One of an older term than is known, or of no higher version than its term's last, says
// nothing new, but for that the source was caught up with (Read), and when it was asked.
func (m *marks) add(mark event.Mark, at instant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sources == nil {
		m.sources, m.lastRead = map[string][]knownMark{}, map[string]instant{}
	}
	known := m.sources[mark.Source]
	if n := len(known); n > 0 {
		last := &known[n-1]
		switch {
		case mark.Term < last.mark.Term:
			return
		case mark.Term == last.mark.Term && mark.Version.Compare(last.mark.Version) <= 0:
			last.mark.Made, last.mark.Read = mark.Made, mark.Read
			if mark.Read {
				last.read = at
			}
			m.heard(mark, at)
			return
		}
	}
	m.heard(mark, at)
	k := knownMark{mark, at, always}
	if mark.Read {
		k.read = at
	}
	// What a mark that is left out alone covered counts as known since the next one.
	m.sources[mark.Source] = asof.Thin(append(known, k), keepMarks, func(k *knownMark) int64 { return int64(k.at) })
}

// heard takes note of what a mark that is not out of date says about its reader. The caller holds mu.
func (m *marks) heard(mark event.Mark, at instant) {
	if mark.Read {
		m.lastRead[mark.Source] = at
	}
}

// covering returns since when a mark is known that covers the record; never if none is.
func (m *marks) covering(source string, term uint64, v event.Version) instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.sources[source]
	since := never
	for i, k := range slices.Backward(known) {
		switch {
		case k.mark.Covers(source, term, v):
			since = k.at
		case known[0].mark.Term == known[i].mark.Term:
			return since // within a term marks only rise, so the ones before cover even less
		}
	}
	return since
}

// unseen returns the last instant at which the record was known not to be there yet: its reader had handed over all
// that the source held, and nothing confirmed the record. always: there was none, so the record may be from any time
// before its reader began, or before this process heard of it: part of a backlog. Only the reader's own term counts,
// since the one before was caught up with another part of the binlog.
func (m *marks) unseen(source string, term uint64, v event.Version) instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range slices.Backward(m.sources[source]) {
		if k.mark.Term == term && k.read != always && v.Compare(k.mark.Version) > 0 {
			return k.read
		}
	}
	return always
}

// newest returns the newest version of a source that everybody is known to see: zero if nothing was read of it yet.
// False: no mark of it has come.
func (m *marks) newest(source string) (v event.Version, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.sources[source]
	if len(known) == 0 {
		return event.Version{}, false
	}
	return known[len(known)-1].mark.Version, true
}

// read returns what the marks say about how far the readers are, at the present instant.
func (m *marks) read(now instant) heardRead {
	m.mu.Lock()
	defer m.mu.Unlock()
	said, oldest := heardRead{ago: -1, still: true}, now
	for source, known := range m.sources {
		at, ever := m.lastRead[source]
		if !ever {
			return heardRead{ago: -1}
		}
		oldest = min(oldest, at)
		said.still = said.still && known[len(known)-1].mark.Read
		said.ago = now.sub(oldest)
	}
	return said
}

// known returns since when everybody is known to see the unit's changes: since a mark, or since the age that the
// batch came with.
func (s *partitionLoop) known(u *unit) instant {
	return s.engine.known(u.entry)
}

// known returns since when everybody is known to see what the entry's batch holds. It may be called by any goroutine
// that has a unit of it.
//
// Rows that were read from their table count as known to be visible when the source was asked for them. They have every
// change up to the version that they are handed on under, which everybody was known to see by then. A newer change was
// not known to be visible then, so it is settled no sooner than D later: what package write asks of a value. And what
// a slow reader had read before then is in the cache D later, whatever it was that changed.
func (e *Engine) known(of *entry) instant {
	if of.walked {
		return of.aged
	}
	return min(e.marks.covering(of.source, of.term, of.last), of.aged)
}

// unseen returns when what the entry's batch holds was last known not to be there yet; always: never.
func (e *Engine) unseen(of *entry) instant {
	if of.walked {
		return of.aged
	}
	b := of.batch
	return e.marks.unseen(b.Source, b.Term, b.Version(0))
}

// aged returns since when everybody had been known to see a batch that was fetched then, by its age; never: it has
// none.
func (e *Engine) aged(b *event.Batch, fetched instant) instant {
	if b.Age < 0 {
		return never
	}
	if !b.At.IsZero() {
		fetched = e.instant(b.At)
	}
	return fetched.add(-b.Age)
}
