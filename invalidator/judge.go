package invalidator

import (
	"slices"
	"time"
)

// judge decides what becomes of a unit of which every key has been answered.
func (s *partitionLoop) judge(u *unit) {
	// Jobs come back in any order.
	slices.SortFunc(u.failed, func(f, g failure) int { return f.at - g.at })
	if s.topo.several() && len(u.failed) > 0 {
		if u = s.setStraysApart(u); u == nil {
			return
		}
	}
	if !u.deleted {
		s.firstDeleted(u)
	}
	if len(u.failed) > 0 {
		if u = s.setTroubleApart(u); u == nil {
			return
		}
	}
	if u.trouble != nil {
		u.trouble = nil
		s.troubled.Add(-int64(u.size))
	}
	u.known = s.since(u)
	if s.finishes(u) {
		s.finish(u)
		return
	}
	if s.dueAt(u) <= u.sent && isLate(u.reply(), u.d) {
		// It was late and nothing else: what waited in Redis next to it has D from here on.
		u.known = max(u.known, u.replied)
	}
	if u.final {
		s.engine.metrics.repeated.Add(float64(u.size))
	}
	s.awaitFinal(u)
}

// firstDeleted takes note of a unit's first delete.
func (s *partitionLoop) firstDeleted(u *unit) {
	u.deleted = true
	if n := int64(u.size); !u.paced {
		s.take(load{inFlight: -n, pending: n})
		s.engine.room.changed()
	}
	e := u.entry
	if e.undeleted--; e.undeleted == 0 && !e.shared {
		now := time.Now()
		e.deleted = s.engine.instant(now)
		s.engine.latency.Invalidation.Commits(e.batch, now)
		s.engine.latency.Delete.Observe(e.deleted.sub(e.fetched), now)
	}
}

// since returns since when the unit's changes are known to be visible, not before what was known already: a unit
// whose final delete has to be repeated counts from that one's reply.
func (s *partitionLoop) since(u *unit) instant {
	if u.final && u.known != never {
		return u.known
	}
	return s.known(u)
}

// finishes asks the rule whether the delete that was acknowledged is the unit's last.
func (s *partitionLoop) finishes(u *unit) bool {
	return counts(u.reply(), u.known, u.dark(), u.d) && !s.hasMoved(u)
}

// awaitFinal makes the unit wait for its final delete, or for when it may be parked.
func (s *partitionLoop) awaitFinal(u *unit) {
	u.final = true
	u.begin()
	if u.known != never {
		s.enqueueDue(u)
	} else {
		s.awaitMark(u)
	}
	s.rest(u)
}

// awaitVisible has a unit that is rebuilt by query wait until its changes are known to be visible: what a query read
// before could be the old value, and would have to be asked for once more.
func (s *partitionLoop) awaitVisible(u *unit) {
	if u.known = s.known(u); u.known == never {
		s.awaitMark(u)
		return
	}
	s.ask(u)
}

// awaitMark makes the unit wait for its changes to be known to be visible.
func (s *partitionLoop) awaitMark(u *unit) {
	q := s.waiting[u.entry.source]
	if q == nil {
		q = &fifo[*unit]{}
		s.waiting[u.entry.source] = q
	}
	s.unmarked.Add(int64(u.size))
	q.push(u)
}

// enqueueDue puts a unit whose changes are known to be visible into the queue of its D and class. Units are known to be
// visible in about the order in which they come here; one that would be due before its predecessor waits for it.
func (s *partitionLoop) enqueueDue(u *unit) {
	l := s.outboxTo(u.node)
	i := slices.IndexFunc(l.due, func(q *dueQueue) bool {
		return q.d == u.d && q.class == u.class && q.asks == u.asks
	})
	if i < 0 {
		i = len(l.due)
		l.due = append(l.due, &dueQueue{d: u.d, class: u.class, asks: u.asks})
	}
	if u.queued == 0 {
		u.queued = s.engine.clock()
	}
	l.due[i].units.push(u)
	if u.node != nil {
		u.node.health.hurry()
	}
}

// finish takes a unit out of the load and its entry nearer to the watermark.
func (s *partitionLoop) finish(u *unit) {
	if u.trouble != nil {
		s.troubled.Add(-int64(u.size))
	}
	s.give(load{pending: int64(u.size)})
	s.released(u)
	s.closeAbsorbed(u)
	s.close(u.entry)
}

// close counts one unit of the entry, or one place in line, as finished. The batch is let go with the last that needs
// it, the entry itself once the low watermark has passed it.
func (s *partitionLoop) close(e *entry) {
	e.open--
	s.letGo(e)
	if e.open > 0 {
		s.packResting(e)
		return
	}
	if now := time.Now(); !e.shared {
		s.engine.latency.Finish.Observe(s.engine.instant(now).sub(e.deleted), now)
	}
}

// letGo lets the entry's batch go if nothing needs it any more.
func (s *partitionLoop) letGo(e *entry) {
	if e.open > e.absorbed || e.batch == nil {
		return
	}
	bytes := e.bytes - entryBytes
	e.batch, e.packed, e.units, e.bytes = nil, nil, nil, entryBytes
	s.give(load{bytes: bytes})
}
