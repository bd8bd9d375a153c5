package invalidator

import "slices"

// lane is what a partition has to send to one node, in the order in which work goes through it.
type lane struct {
	// node is nil for keys of which nobody has the slot.
	node *node
	// gone says that the node has no slots any more: what still waits here goes elsewhere.
	gone    bool
	fresh   [classes]fifo[*unit] // not yet put into jobs for the first time
	due     []*dueQueue          // by D and class: for their final action to fall due
	retries retryHeap            // keys in trouble: for their next attempt in place
	turn    supply               // whose turn it was when a job was last filled
}

// laneTo returns the lane to a node.
func (s *partitionLoop) laneTo(n *node) *lane {
	if last := s.lastLane; last != nil && last.node == n {
		return last
	}
	i := slices.IndexFunc(s.lanes, func(l *lane) bool { return l.node == n })
	if i < 0 {
		i = len(s.lanes)
		s.lanes = append(s.lanes, &lane{node: n, gone: n == nil || !s.topo.has(n)})
	}
	s.lastLane = s.lanes[i]
	return s.lastLane
}

// isEmpty reports whether nothing waits in the lane.
func (l *lane) isEmpty() bool {
	for c := range l.fresh {
		if l.fresh[c].len() > 0 {
			return false
		}
	}
	return len(l.retries) == 0 && !slices.ContainsFunc(l.due, func(q *dueQueue) bool { return q.units.len() > 0 })
}

// hasWork reports whether a job could be filled from the lane now.
func (s *partitionLoop) hasWork(l *lane) bool {
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

// relane takes another topology. Lanes of which nothing is left are let go; what still waits in those of nodes that are
// gone goes on from there ([partitionLoop.advanceLanes]).
func (s *partitionLoop) relane(t *topology) {
	s.topo, s.lastLane = t, nil
	s.lanes = slices.DeleteFunc(s.lanes, func(l *lane) bool { return l.isEmpty() && l.node != nil && !t.has(l.node) })
	for _, n := range t.nodes {
		s.laneTo(n)
	}
	for _, l := range s.lanes {
		l.gone = l.node == nil || !t.has(l.node)
	}
}

// dispatchAny hands out a job to one of several nodes, if there is one that has a slot for what waits for it. If there
// is none, the partition is woken when there may be.
func (s *partitionLoop) dispatchAny() bool {
	s.starved.Store(true) // before the nodes are asked: who frees a slot asks after it has
	for range s.lanes {
		s.nextLane++
		l := s.lanes[s.nextLane%len(s.lanes)]
		if l.gone || !s.hasWork(l) {
			continue
		}
		select {
		case <-l.node.slots:
			s.dispatch(l)
			return true
		default:
		}
	}
	return false
}
