package invalidator

import "container/heap"

// advanceBoxes has what waits in the outboxes go where the present topology says, once it would be sent. What still
// waits for D is looked at when that is over: there may be millions of keys, and slots may move for hours.
func (s *partitionLoop) advanceBoxes() {
	s.takeTurns()
	s.takeStrays()
	for _, l := range s.outboxes { // those that are added meanwhile hold nothing of another topology
		for c := range l.fresh {
			for q := &l.fresh[c]; q.len() > 0 && s.isOutdated(q.head()); {
				s.reroute(q.pop())
			}
		}
		for _, q := range l.due {
			for q.units.len() > 0 && s.isOutdated(q.units.head()) {
				due := s.dueAt(q.units.head())
				if due > s.now && (due != never || !l.gone && !q.units.head().asks) {
					break
				}
				s.reroute(q.units.pop())
			}
		}
		for len(l.retries) > 0 && s.isOutdated(l.retries[0]) && (s.retryReady(l) || l.gone) {
			s.reroute(heap.Pop(&l.retries).(*unit))
		}
	}
}

// isOutdated reports whether a unit was split by another topology than the present one.
func (s *partitionLoop) isOutdated(u *unit) bool { return u.routed != s.topo.since }

// reroute splits a unit, which is in no queue, by the present topology, and puts it where it has to wait next. Keys of
// which the slot has moved go on apart: D is counted from then for them, and what their former owner's clock has said
// counts no more.
func (s *partitionLoop) reroute(u *unit) {
	s.rouse(u)
	if u.next > 0 {
		u = s.setUnsentApart(u)
	}
	type place struct {
		node        *node
		moved, asks bool
	}
	var places []place
	at, since := map[place]int{}, map[place]instant{}
	parts := make([]int, u.size)
	for i := range u.size {
		key := u.key(i)
		p := place{node: s.topo.nodeOf(key, u.asks), asks: u.asks && s.topo.isMoving(key)}
		moved := s.topo.movedAt(key)
		switch {
		case u.routed == never: // it has had no node yet
		case moved > u.routed:
			p.moved = true
			since[p] = max(since[p], moved)
		case p.node != u.node: // its slot is being moved
			p.moved = true
			since[p] = s.now
		}
		n, known := at[p]
		if !known {
			n = len(places)
			at[p] = n
			places = append(places, p)
		}
		parts[i] = n
	}
	for n, part := range s.divide(u, parts, len(places)) {
		if p := places[n]; p.moved {
			part.moved, part.first.unproven = max(part.moved, since[p]), true
		}
		part.node, part.routed, part.asks = places[n].node, s.topo.since, places[n].asks
		s.requeue(part)
	}
}

// setUnsentApart takes the keys of a unit that are in no job yet out of it, and returns them as a unit of their own.
// The others stay where they are: a writer may be reading them, and what comes back names them by their places.
func (s *partitionLoop) setUnsentApart(u *unit) *unit {
	idx := make([]uint32, u.size-u.next)
	for i := range idx {
		idx[i] = uint32(u.ordinal(u.next + i))
	}
	unsent := s.part(u, idx, int64(u.size))
	unsent.begin()
	if u.trouble != nil {
		t := *u.trouble
		t.errors = t.errors[u.next:]
		unsent.trouble = &t
		u.trouble.errors = u.trouble.errors[:u.next]
	}
	if u.size = u.next; u.out == 0 {
		s.judge(u) // all of it has come back
	}
	return unsent
}

// requeue puts a unit that has found its node where it has to wait next.
func (s *partitionLoop) requeue(u *unit) {
	switch l := s.outboxTo(u.node); {
	case u.trouble != nil && !u.trouble.park:
		heap.Push(&l.retries, u)
	case u.final:
		s.enqueueDue(u)
		s.rest(u)
	case u.class == queries:
		s.admit(u)
	default:
		l.fresh[u.class].push(u)
	}
}

// hasMoved reports whether the slot of one of the unit's keys has moved since the unit was split.
func (s *partitionLoop) hasMoved(u *unit) bool {
	if !s.topo.several() || !s.isOutdated(u) {
		return false
	}
	for i := range u.size {
		if s.topo.movedAt(u.key(i)) > u.routed {
			return true
		}
	}
	return false
}

// takeStrays sends the units that strayed where the topology says, if it has been read since.
func (s *partitionLoop) takeStrays() {
	if len(s.strays) == 0 {
		return
	}
	read := s.engine.readings.Load()
	waiting := s.strays
	s.strays = nil
	for _, w := range waiting {
		if w.read == read {
			s.strays = append(s.strays, w)
			continue
		}
		s.reroute(w.unit)
	}
	if len(s.strays) > 0 {
		s.engine.readAgain()
	}
}

// takeTurns takes the keys whose turn it is, by the rate limits of their mappings, to the outboxes of their nodes: one
// that is away must not hold up the others.
func (s *partitionLoop) takeTurns() {
	for p := s.pacedReady(); p != nil; p = s.pacedReady() {
		u := s.takeRun(p, p.pacer.most())
		s.limited.Add(-int64(u.size))
		p.pacer.take(s.now, u.size)
		s.reroute(u)
	}
}
