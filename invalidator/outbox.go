package invalidator

import "slices"

// outbox is what a partition has to send to one node, in the order in which work goes through it.
type outbox struct {
	// node is nil for keys of which nobody has the slot.
	node *node
	// lane is the way to it; nil for no node.
	lane *lane
	// gone says that the node has no slots any more: what still waits here goes elsewhere.
	gone    bool
	fresh   [classes]fifo[*unit] // not yet put into jobs for the first time
	due     []*dueQueue          // by D and class: for their final action to fall due
	retries retryHeap            // keys in trouble: for their next attempt in place
	turn    supply               // whose turn it was when a job was last filled
}

// outboxTo returns the outbox to a node.
func (s *partitionLoop) outboxTo(n *node) *outbox {
	if last := s.lastBox; last != nil && last.node == n {
		return last
	}
	i := slices.IndexFunc(s.outboxes, func(l *outbox) bool { return l.node == n })
	if i < 0 {
		i = len(s.outboxes)
		l := &outbox{node: n, gone: n == nil || !s.topo.has(n)}
		if n != nil {
			l.lane = n.lane(s.gentle)
		}
		s.outboxes = append(s.outboxes, l)
	}
	s.lastBox = s.outboxes[i]
	return s.lastBox
}

// isEmpty reports whether nothing waits in the outbox.
func (l *outbox) isEmpty() bool {
	for c := range l.fresh {
		if l.fresh[c].len() > 0 {
			return false
		}
	}
	return len(l.retries) == 0 && !slices.ContainsFunc(l.due, func(q *dueQueue) bool { return q.units.len() > 0 })
}

// hasWork reports whether a job could be filled from the outbox now.
func (s *partitionLoop) hasWork(l *outbox) bool {
	if s.lane.pacer.ready() > s.now {
		return false
	}
	if s.retryReady(l) || !s.topo.several() && s.pacedReady() != nil {
		return true
	}
	for c := deletes; c <= writes; c++ {
		if s.freshReady(l, c) || s.finalReady(l, c) != nil {
			return true
		}
	}
	return false
}

// address takes another topology. Outboxes of which nothing is left are let go; what still waits in those of nodes that
// are gone goes on from there ([partitionLoop.advanceBoxes]).
func (s *partitionLoop) address(t *topology) {
	s.topo, s.lastBox = t, nil
	s.outboxes = slices.DeleteFunc(s.outboxes, func(l *outbox) bool {
		return l.isEmpty() && l.node != nil && !t.has(l.node)
	})
	for _, n := range t.nodes {
		s.outboxTo(n)
	}
	for _, l := range s.outboxes {
		l.gone = l.node == nil || !t.has(l.node)
	}
}

// dispatchAny hands out a job to one of several nodes, if there is one that has a slot for what waits for it. If there
// is none, the partition is woken when there may be.
func (s *partitionLoop) dispatchAny() bool {
	s.starved.Store(true) // before the nodes are asked: who frees a slot asks after it has
	for range s.outboxes {
		s.nextBox++
		l := s.outboxes[s.nextBox%len(s.outboxes)]
		if l.gone || !s.hasWork(l) {
			continue
		}
		select {
		case <-l.lane.slots:
			s.dispatch(l)
			return true
		default:
		}
	}
	return false
}
