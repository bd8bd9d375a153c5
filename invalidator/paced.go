package invalidator

import (
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/freshet/freshet/event"
)

// pacedKeys are the keys of one mapping that wait for their first action because the mapping has a rate limit of
// its own. They wait apart from all others, in the order of their arrival.
//
// While a key waits, a later change of it takes its place: within one source, only a lower version by one that is as
// high or higher, of a term that is as high or higher (a mark covers no later terms), and with the larger D of both.
// So a bulk change of one hot key becomes one action each time its turn comes, with the newest value. What arrives
// late (a duplicate, an older leader's) takes nobody's place. The older change is not finished before the newer one's
// actions are: its entry stays open, without its batch, and holds the watermark.
type pacedKeys struct {
	pacer *pacer
	queue fifo[*slot]
	index map[pacedKey]*slot // those whose place may be taken
}

// slot is the place of one waiting key.
type slot struct {
	entry    *entry // of the newest change
	at       uint32 // its ordinal in the entry's batch
	class    class
	d        time.Duration
	absorbed []*entry // of the changes whose place it took
}

// slotBytes is about what a waiting key holds besides its batch, with its places in the queue and the index.
const slotBytes = int64(unsafe.Sizeof(slot{})) + 2*int64(unsafe.Sizeof(pacedKey{})) + 3*8

// pacedKey is what two changes must have in common for one action to serve both.
type pacedKey struct {
	key, subject string // in the text of the slot's batch
	action       event.Action
	class        class
}

// pace has the keys of a unit wait for their mapping's turn.
func (s *partitionLoop) pace(u *unit) {
	by := pacedBy{u.entry.batch.Source, u.limit.mapping, u.limit.rate}
	p := s.paced[by]
	if p == nil {
		by.source = strings.Clone(by.source)
		p = &pacedKeys{pacer: s.engine.pacers.get(by), index: map[pacedKey]*slot{}}
		s.paced[by] = p
	}
	u.entry.open += int32(u.size - 1)
	u.entry.undeleted += int32(u.size - 1)
	s.limited.Add(int64(u.size))
	for i := range u.size {
		s.line(p, &slot{entry: u.entry, at: uint32(u.ordinal(i)), class: u.class, d: u.d})
	}
}

// line puts a change into the place of an older one of its key that still waits, or else at the end of the line.
func (s *partitionLoop) line(p *pacedKeys, n *slot) {
	k := n.key()
	old := p.index[k]
	if old != nil && (n.version().Compare(old.version()) < 0 || n.entry.batch.Term < old.entry.batch.Term) {
		p.queue.push(n) // late: it waits for itself, and nobody takes its place
		return
	}
	delete(p.index, k) // the index must not hold on to an older batch's text
	if old == nil || !sameEffect(n, old) {
		p.index[k] = n
		p.queue.push(n)
		return
	}
	before := old.entry
	old.absorbed = append(old.absorbed, before)
	old.entry, old.at, old.d = n.entry, n.at, max(old.d, n.d)
	p.index[k] = old
	s.limited.Add(-1)
	s.engine.metrics.coalesced.Inc()
	s.give(load{pending: 1})
	before.undeleted--
	before.absorbed++
	before.shared = true
	s.letGo(before)
}

func (n *slot) version() event.Version { return n.entry.batch.Version(int(n.at)) }

func (n *slot) key() pacedKey {
	b, i := n.entry.batch, int(n.at)
	k := pacedKey{key: b.Key(i), action: b.Invalidations[i].Action, class: n.class}
	if about := subject(b, i); len(about) > 0 {
		k.subject = unsafe.String(&about[0], len(about)) // the batch's text is never written again
	}
	return k
}

// sameEffect reports whether two changes of a key are to have the same effect. The batches of a log that is read back
// each have effects of their own.
func sameEffect(n, o *slot) bool {
	e, f := n.entry.batch.EffectOf(int(n.at)), o.entry.batch.EffectOf(int(o.at))
	return e == f || e != nil && f != nil && *e == *f
}

// pacedReady returns the keys of a mapping whose turn it is; nil if there are none.
func (s *partitionLoop) pacedReady() *pacedKeys {
	if len(s.paced) == 0 || s.engine.pacer.ready() > s.now {
		return nil
	}
	for _, p := range s.paced {
		if p.queue.len() > 0 && p.pacer.ready() <= s.now {
			return p
		}
	}
	return nil
}

// fillPaced puts the keys whose turn it is into a job; those that are rebuilt by query wait to be visible.
func (s *partitionLoop) fillPaced(j *job) {
	j.kind = firsts
	for p := s.pacedReady(); p != nil && j.fits(p.queue.head().class); p = s.pacedReady() {
		s.fillTurn(j, p, p.queue.head().class)
	}
}

// fillTurn takes the keys of one class from a mapping whose turn it is.
func (s *partitionLoop) fillTurn(j *job, p *pacedKeys, c class) {
	most, taken := min(p.pacer.most(), s.engine.pacer.most()), 0
	for taken < most && p.queue.len() > 0 && p.queue.head().class == c && j.fits(c) {
		room := most - taken
		if c != queries {
			room = min(room, j.most(c)-j.size)
		}
		u := s.takeRun(p, room)
		taken += u.size
		if c == queries {
			s.admit(u)
			continue
		}
		for whole := false; !whole; { // a little heavier than a round trip should be, if they are heavy
			whole = j.add(u, j.most(c))
		}
	}
	s.limited.Add(-int64(taken))
	p.pacer.take(s.now, taken)
	s.engine.pacer.take(s.now, taken)
}

// takeRun makes a unit of the first keys, up to most, that are of one batch and have one D.
func (s *partitionLoop) takeRun(p *pacedKeys, most int) *unit {
	first := p.queue.head()
	u := &unit{
		entry: first.entry, d: first.d, class: first.class, known: never, moved: always, routed: never, paced: true,
		limit: &limit{},
	}
	if !s.topo.several() {
		u.node, u.routed = s.topo.nodes[0], s.topo.since
	}
	for u.size < most && p.queue.len() > 0 {
		n := p.queue.head()
		if n.entry != u.entry || n.d != u.d || n.class != u.class {
			break
		}
		p.queue.pop()
		if k := n.key(); p.index[k] == n {
			delete(p.index, k)
		}
		u.idx = append(u.idx, n.at)
		u.limit.absorbed = append(u.limit.absorbed, n.absorbed...)
		u.size++
	}
	if p.queue.len() == 0 {
		p.index = map[pacedKey]*slot{} // a map that grew stays large
	}
	u.begin()
	u.idx = slices.Clip(u.idx)
	u.entry.open -= int32(u.size - 1)
	u.entry.undeleted -= int32(u.size - 1)
	more := unitBytes + int64(4*len(u.idx)+8*len(u.limit.absorbed))
	u.entry.bytes += more
	s.take(load{bytes: more})
	return u
}

// shareAbsorbed has a part of a unit that is set apart serve the older changes, too: nobody can tell whose keys are in
// which part. It returns about how many bytes more that holds.
func (s *partitionLoop) shareAbsorbed(u, apart *unit) int64 {
	if u.limit == nil {
		return 0
	}
	apart.limit = &limit{absorbed: slices.Clone(u.limit.absorbed)}
	for _, e := range apart.limit.absorbed {
		e.open++
		e.absorbed++
	}
	return int64(8 * len(apart.limit.absorbed))
}

// closeAbsorbed finishes the older changes that a unit's actions have served as well.
func (s *partitionLoop) closeAbsorbed(u *unit) {
	if u.limit == nil {
		return
	}
	for _, e := range u.limit.absorbed {
		e.absorbed--
		s.close(e)
	}
}
