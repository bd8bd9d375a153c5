package hot

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// maxCounters is how many a summary can have: their numbers have 16 bits.
const maxCounters = 1 << 15

// summary is a Space-Saving summary: a fixed number of counters, found by name through an open hash table, the
// smallest through a heap. Not safe for concurrent use.
type summary struct {
	counters []counter // as many as are in use
	counts   []float64 // of the counters; apart from them, so that the heap touches little memory
	heap     []uint16  // counters, the smallest count first
	place    []uint16  // of each counter in the heap
	index    []uint16  // by hash: a counter plus one; 0: none
	limit    int
}

type counter struct {
	hash uint64
	// error is how much of the count may be others'; variance is that of the count because not everything is looked at.
	error, variance float64
	length          uint32 // of the whole name
	home            uint16 // its place in the index
	text            [MaxName]byte
}

func (c *counter) name() []byte { return c.text[:min(c.length, MaxName)] }

func newSummary(limit int) *summary {
	return &summary{
		counters: make([]counter, 0, limit), counts: make([]float64, 0, limit),
		heap: make([]uint16, 0, limit), place: make([]uint16, 0, limit),
		// At most half full, so that what is looked for is nearby.
		index: make([]uint16, 2<<bits.Len(uint(limit-1))), limit: limit,
	}
}

// add counts a name.
func (s *summary) add(name string, hash uint64, weight, variance float64) {
	at := s.find(name, hash)
	if n := s.index[at]; n != 0 {
		s.raise(int(n-1), weight, variance)
		return
	}
	if len(s.counters) < s.limit {
		i := len(s.counters)
		s.counters = append(s.counters, counter{})
		s.counts = append(s.counts, 0)
		s.heap = append(s.heap, uint16(i))
		s.place = append(s.place, uint16(i))
		s.rename(i, name, hash, at)
		s.up(i)
		s.raise(i, weight, variance)
		return
	}
	i := int(s.heap[0])
	s.forget(int(s.counters[i].home))
	s.counters[i].error = s.counts[i]
	s.rename(i, name, hash, s.find(name, hash))
	s.raise(i, weight, variance)
}

func (s *summary) rename(i int, name string, hash uint64, at int) {
	c := &s.counters[i]
	c.hash, c.length, c.home = hash, uint32(len(name)), uint16(at)
	copy(c.text[:], name)
	s.index[at] = uint16(i + 1)
}

// find returns where in the index the name is, or belongs. Names that are too long to be kept are distinguished by
// their hash.
func (s *summary) find(name string, hash uint64) int {
	mask := len(s.index) - 1
	for at := int(hash) & mask; ; at = (at + 1) & mask {
		n := s.index[at]
		if n == 0 {
			return at
		}
		c := &s.counters[n-1]
		if c.hash == hash && int(c.length) == len(name) && string(c.name()) == name[:min(len(name), MaxName)] {
			return at
		}
	}
}

// forget takes what is at a place out of the index, and moves entries that were put after it for lack of room.
func (s *summary) forget(at int) {
	mask := len(s.index) - 1
	hole := at
	for next := (at + 1) & mask; s.index[next] != 0; next = (next + 1) & mask {
		c := &s.counters[s.index[next]-1]
		belongs := int(c.hash) & mask
		// It may move to the hole unless it belongs between the two.
		if (next-belongs)&mask >= (next-hole)&mask {
			s.index[hole] = s.index[next]
			c.home = uint16(hole)
			hole = next
		}
	}
	s.index[hole] = 0
}

// raise raises a count, and moves it to its place in the heap.
func (s *summary) raise(i int, weight, variance float64) {
	s.counts[i] += weight
	s.counters[i].variance += variance
	at := int(s.place[i])
	for {
		child := 2*at + 1
		if child >= len(s.heap) {
			return
		}
		if r := child + 1; r < len(s.heap) && s.counts[s.heap[r]] < s.counts[s.heap[child]] {
			child = r
		}
		if s.counts[s.heap[child]] >= s.counts[s.heap[at]] {
			return
		}
		s.swap(at, child)
		at = child
	}
}

// up moves the newest counter, whose count is zero, to the top.
func (s *summary) up(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		s.swap(at, parent)
		at = parent
	}
}

func (s *summary) swap(a, b int) {
	s.heap[a], s.heap[b] = s.heap[b], s.heap[a]
	s.place[s.heap[a]], s.place[s.heap[b]] = uint16(a), uint16(b)
}

// scale multiplies all that was counted.
func (s *summary) scale(f float64) {
	for i := range s.counts {
		s.counts[i] *= f
		s.counters[i].error *= f
		s.counters[i].variance *= f * f
	}
}

// gone is what is left of one change after about three windows: it is shown no longer.
const gone = 0.05

// deviations is how many standard deviations the bounds are away: 95 % lie within.
const deviations = 2

// top returns the n largest counts, in changes. What a counter took over from others is not its own for sure, so it
// counts only for the upper bound: else the many keys that changed once would look as hot as what they displaced.
func (s *summary) top(n int) []Count {
	own := func(i uint16) float64 { return max(s.counts[i]-s.counters[i].error, 0) }
	order := make([]uint16, 0, len(s.counters))
	for i := range uint16(len(s.counters)) {
		if s.counts[i] >= gone {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b uint16) int { return cmp.Compare(own(b), own(a)) })
	order = order[:min(max(n, 0), len(order))]
	all := make([]Count, 0, len(order))
	for _, i := range order {
		c := &s.counters[i]
		off := deviations * math.Sqrt(c.variance)
		all = append(all, Count{
			Name: string(c.name()), Length: int(c.length),
			PerSecond: own(i), Low: max(own(i)-off, 0), High: s.counts[i] + off,
		})
	}
	return all
}
