package invalidator

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet/freshet/event"
)

// splitMixed is split for a batch that holds other actions than deletes, or keys that are paced by themselves: its
// groups differ in D, class or mapping.
//
// Of invalidations that have key, action, effect and subject in common (see [subject]) the one with the highest
// version stays, which is the last but for what was written down twice, with the largest D of all. Guards and
// notices need no more: a value of a lower version would be replaced at once, a counter that was incremented once
// for the batch differs from every generation read before it.
func (s *dedup) splitMixed(b *event.Batch, n int) ([]group, int) {
	mask := s.mask(n)
	s.groupOf = slices.Grow(s.groupOf[:0], n)[:n]
	var groups []group
	found := 0
	for i := range n {
		g := s.groupFor(&groups, b, i)
		slot, j := s.findSame(b, i, mask)
		if j < 0 {
			s.groupOf[i] = g
			continue
		}
		found++
		with := s.groupOf[j]
		if groups[g].d > groups[with].d {
			with = g
		}
		stays, goes := i, j
		if b.Version(i).Compare(b.Version(j)) < 0 {
			stays, goes = j, i
		}
		s.groupOf[stays], s.groupOf[goes] = with, dropped
		s.slots[slot] = s.slots[slot]>>32<<32 | uint64(stays+1)
	}
	for _, g := range s.groupOf {
		if g != dropped {
			groups[g].size++
		}
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

// groupFor returns the ordinal of the group that invalidation i belongs to. There are few.
func (s *dedup) groupFor(groups *[]group, b *event.Batch, i int) uint16 {
	o := b.Of(i)
	g := group{d: max(o.D, 0), class: classOf(b, i)}
	if o.RateLimit > 0 {
		g.rate, g.mapping = o.RateLimit, o.Mapping
	}
	at := slices.IndexFunc(*groups, func(h group) bool {
		return h.d == g.d && h.class == g.class && h.rate == g.rate && h.mapping == g.mapping
	})
	if at < 0 {
		at = len(*groups)
		*groups = append(*groups, g)
	}
	return uint16(at)
}

// findSame is find for whole invalidations.
func (s *dedup) findSame(b *event.Batch, i int, mask uint64) (slot uint64, equal int) {
	h := xxhash.Sum64String(b.Key(i))
	if named := subject(b, i); len(named) > 0 {
		h = h*31 + xxhash.Sum64(named)
	}
	h += uint64(b.Invalidations[i].Action)
	half := h >> 32
	for at := h & mask; ; at = (at + 1) & mask {
		v := s.slots[at]
		if v == 0 {
			s.slots[at] = half<<32 | uint64(i+1)
			return at, -1
		}
		if j := int(uint32(v)) - 1; v>>32 == half && isSame(b, i, j) {
			return at, j
		}
	}
}

// isSame reports whether one of two invalidations says all that both say.
func isSame(b *event.Batch, i, j int) bool {
	x, y := &b.Invalidations[i], &b.Invalidations[j]
	o, p := b.Of(i), b.Of(j)
	if x.Action != y.Action || x.Effect != y.Effect || b.Key(i) != b.Key(j) || classOf(b, i) != classOf(b, j) {
		return false
	}
	if (o.RateLimit > 0 || p.RateLimit > 0) && (o.RateLimit != p.RateLimit || o.Mapping != p.Mapping) {
		return false // one is paced, or both are, by different limits
	}
	return string(subject(b, i)) == string(subject(b, j))
}
