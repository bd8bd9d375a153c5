package invalidator

import (
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet/freshet/event"
)

// group is the invalidations of a batch that have a D and a class in common, without duplicates.
type group struct {
	d     time.Duration
	class class
	// rate and mapping are whose rate limit paces them; rate 0: none does.
	rate, mapping int
	// idx are their ordinals in the batch; nil: all of the batch.
	idx  []uint32
	size int
	// node has their slots; nil: nobody has, or it is not settled yet, for they are paced. See [topology.split].
	node *node
}

// dedup removes duplicates within a batch: of those of one key it keeps the one with the largest D, and of these
// the first. It may, since a unit's final delete waits for a mark that covers the whole batch. It belongs to one
// goroutine, and its memory is used again for each batch.
type dedup struct {
	slots    []uint64 // half of the hash, then the ordinal plus one; 0: free
	ds       []time.Duration
	groupOf  []uint16 // by ordinal of the invalidation: its group, or dropped
	byCommon []uint16 // by ordinal in the batch's commons: their group
	mixed    bool     // there are effects, or keys that are paced by themselves
}

const dropped = 1<<16 - 1

// split returns the batch's groups and how many duplicates it had.
func (s *dedup) split(b *event.Batch) ([]group, int) {
	n := b.Len()
	if n == 0 {
		return nil, 0
	}
	s.reset(b, n)
	if s.mixed || hasOther(b) {
		return s.splitMixed(b, n)
	}
	if len(s.ds) == 1 {
		return s.splitOne(b, n)
	}
	return s.splitMany(b, n)
}

func (s *dedup) reset(b *event.Batch, n int) {
	size := 16
	for size < 2*n {
		size *= 2
	}
	if size > len(s.slots) {
		s.slots = make([]uint64, size)
	} else if len(s.slots) > 1<<16 && size < len(s.slots)/16 {
		s.slots = make([]uint64, size) // a huge batch is no reason to keep so much forever
	}
	s.ds, s.byCommon, s.mixed = s.ds[:0], s.byCommon[:0], len(b.Effects) > 0
	for i := range b.Commons {
		s.mixed = s.mixed || b.Commons[i].RateLimit > 0
		d := max(b.Commons[i].D, 0)
		g := slices.Index(s.ds, d)
		if g < 0 {
			g = len(s.ds)
			s.ds = append(s.ds, d)
		}
		s.byCommon = append(s.byCommon, uint16(g))
	}
	clear(s.slots[:size])
}

// find looks for the i-th key among those before it. It returns the slot of an equal key, or the free slot that
// it put i into and -1.
func (s *dedup) find(b *event.Batch, i int, mask uint64) (slot uint64, equal int) {
	key := b.Key(i)
	h := xxhash.Sum64String(key)
	half := h >> 32
	for at := h & mask; ; at = (at + 1) & mask {
		v := s.slots[at]
		if v == 0 {
			s.slots[at] = half<<32 | uint64(i+1)
			return at, -1
		}
		if j := int(uint32(v)) - 1; v>>32 == half && b.Key(j) == key {
			return at, j
		}
	}
}

func (s *dedup) mask(n int) uint64 {
	size := 16
	for size < 2*n {
		size *= 2
	}
	return uint64(size - 1)
}

// splitOne is split for the common case of one D.
func (s *dedup) splitOne(b *event.Batch, n int) ([]group, int) {
	mask := s.mask(n)
	var idx []uint32
	found := 0
	for i := range n {
		_, equal := s.find(b, i, mask)
		switch {
		case equal >= 0:
			if found++; found == 1 {
				idx = make([]uint32, i, n)
				for j := range idx {
					idx[j] = uint32(j)
				}
			}
		case found > 0:
			idx = append(idx, uint32(i))
		}
	}
	return []group{{d: s.ds[0], idx: idx, size: n - found}}, found
}

func (s *dedup) splitMany(b *event.Batch, n int) ([]group, int) {
	mask := s.mask(n)
	s.groupOf = slices.Grow(s.groupOf[:0], n)[:n]
	groups := make([]group, len(s.ds))
	for i := range groups {
		groups[i].d = s.ds[i]
	}
	found := 0
	for i := range n {
		g := s.byCommon[b.Origins[b.Invalidations[i].Origin].Common]
		s.groupOf[i] = g
		if slot, j := s.find(b, i, mask); j >= 0 {
			found++
			if s.ds[g] > s.ds[s.groupOf[j]] {
				groups[s.groupOf[j]].size--
				s.groupOf[j] = dropped
				s.slots[slot] = s.slots[slot]>>32<<32 | uint64(i+1)
			} else {
				s.groupOf[i] = dropped
				continue
			}
		}
		groups[g].size++
	}
	for i := range groups {
		groups[i].idx = make([]uint32, 0, groups[i].size)
	}
	for i, g := range s.groupOf {
		if g != dropped {
			groups[g].idx = append(groups[g].idx, uint32(i))
		}
	}
	return slices.DeleteFunc(groups, func(g group) bool { return g.size == 0 }), found
}
