package invalidator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshet/freshet/invalidator/write"
)

// The world's Redis as a cluster: each row's key lies in a slot of its own, which moves from node to node. A node
// hangs by itself, and has a clock of its own.

// slotMove is the move of a row's slot: from begin on the node that has it makes no new key, at carried the keys that
// it has go, and at end it is the other's.
type slotMove struct {
	row, to             int
	begin, carried, end time.Duration
}

// drawNodes makes a cluster of the world's Redis. It draws nothing in other worlds.
func (s *scenario) drawNodes(yes func(float64) bool, span func(a, b time.Duration) time.Duration) {
	s.nodes = 1
	if s.moves == 0 || len(s.errands) > 0 || !yes(s.moves) {
		return
	}
	s.nodes = 3
	anyNode := func() int { return int(span(0, time.Duration(s.nodes))) }
	for i := range s.stalls {
		s.stalls[i].node = anyNode()
	}
	for i := range s.refusals {
		s.refusals[i].node = anyNode()
	}
	for range s.nodes {
		s.clocks = append(s.clocks, span(-time.Minute, time.Minute))
	}
	for row := range s.rows {
		at := time.Duration(0)
		for range 3 {
			c := s.changes[int(span(0, time.Duration(len(s.changes))))]
			m := slotMove{row: row, to: anyNode(), end: c.event + span(-s.d/2, 2*s.d)}
			if len(s.stalls) > 0 && yes(0.5) {
				// A replica takes over from a node that hangs.
				st := s.stalls[int(span(0, time.Duration(len(s.stalls))))]
				m.end = st.from + span(0, st.to-st.from+time.Millisecond)
			}
			if m.end <= at || m.to == s.owner(row, m.end) {
				continue
			}
			m.begin, m.carried = m.end, m.end
			if yes(0.5) {
				m.begin = max(at, m.end-span(0, s.d))
				m.carried = m.begin + span(0, m.end-m.begin+1)
			}
			s.slotMoves = append(s.slotMoves, m)
			at = m.end
		}
	}
	for i := range s.fills {
		if f := &s.fills[i]; !s.kinds[f.row].instant {
			s.write(f, yes, span)
			s.follows(f, span)
		}
	}
	s.settleEnd()
}

// owner returns the node that has a row's slot.
func (s *scenario) owner(row int, t time.Duration) int {
	node := row % max(s.nodes, 1)
	for _, m := range s.slotMoves {
		if m.row == row && m.end <= t {
			node = m.to
		}
	}
	return node
}

// moving returns the move of a row's slot that is under way.
func (s *scenario) moving(row int, t time.Duration) *slotMove {
	for i := range s.slotMoves {
		if m := &s.slotMoves[i]; m.row == row && m.begin <= t && t < m.end {
			return m
		}
	}
	return nil
}

// holdsUp reports whether a hang matters to a fill: that it began to wait for then is of the node that hangs.
func (s *scenario) holdsUp(st stall, f *fill) bool {
	return s.nodes < 2 || st.node == s.owner(f.row, max(f.read, st.from))
}

// follows bounds a fill that waits at a node whose slot moves to another: its reader hears of that and follows, or
// gives up, within D.
func (s *scenario) follows(f *fill, span func(a, b time.Duration) time.Duration) {
	for _, m := range s.slotMoves {
		if m.row == f.row && f.read < m.end && m.end < f.written {
			f.written = min(f.written, m.end+s.bound(f.row)-span(1, 3*time.Millisecond))
		}
	}
}

// rowOf returns the row that a key of any kind belongs to; -1: it is none.
func rowOf(key string) int {
	_, text, ok := strings.Cut(key, "row:")
	if !ok {
		return -1
	}
	row, err := strconv.Atoi(strings.TrimRight(text, "}"))
	if err != nil {
		return -1
	}
	return row
}

// redirect is what a node answers about a key that it does not serve; "" if it does. whole says that a key and its
// companion are asked for. The caller holds mu.
func (w *world) redirect(node int, key string, asking, whole bool) string {
	row := rowOf(key)
	if w.nodes < 2 || row < 0 {
		return ""
	}
	_, cached := w.cache[w.key(row)]
	_, marked := w.guards[w.key(row)]
	has, m := w.owner(row, w.now()), w.moving(row, w.now())
	here := w.place[row] == node
	all := cached && here && (!whole || marked)
	some := here && (cached || whole && marked)
	switch {
	case node == has && m == nil:
		return ""
	case node == has && all:
		return ""
	case node == has && some:
		return "TRYAGAIN Multiple keys request during rehashing of slot"
	case node == has:
		return fmt.Sprintf("ASK %d node:%d", row, m.to)
	case m != nil && node == m.to && asking && whole && !all:
		return "TRYAGAIN Multiple keys request during rehashing of slot"
	case m != nil && node == m.to && asking:
		return ""
	}
	return fmt.Sprintf("MOVED %d node:%d", row, has)
}

// put says that a node has made a row's key.
func (w *world) put(node, row int) { w.place[row] = node }

// fillsAt returns the node at which a reader that follows redirections fills a row's key.
func (w *world) fillsAt(row int) int {
	_, cached := w.cache[w.key(row)]
	has, m := w.owner(row, w.now()), w.moving(row, w.now())
	if m != nil && !(cached && w.place[row] == has) {
		return m.to
	}
	return has
}

// startMoves has the keys of slots go with them.
func (w *world) startMoves() {
	for row := range w.rows {
		w.place[row] = w.owner(row, 0)
	}
	for _, m := range w.slotMoves {
		for _, at := range []time.Duration{m.carried, m.end} {
			w.after(at, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.place[m.row] = m.to
				w.note("row %d is carried to node %d", m.row, m.to)
			})
		}
	}
}

// simCluster is the world's cluster, as one process of freshet sees it.
type simCluster struct{ w *world }

// String implements [Cluster].
func (simCluster) String() string { return "simulated cluster" }

// Release implements [Cluster].
func (simCluster) Release(Redis) {}

// Layout implements [Cluster]. What it says may be out of date, but never older than what it has said.
func (c simCluster) Layout(ctx context.Context) (*Layout, error) {
	w := c.w
	w.mu.Lock()
	back := w.now() + w.delay()
	asOf := w.now()
	if w.chance(0.3) {
		asOf -= time.Duration(w.rng.Int64N(int64(w.d)))
	}
	asOf = max(asOf, w.saidOf)
	w.saidOf = asOf
	lost := w.chance(w.lose)
	w.mu.Unlock()
	if err := w.until(ctx, back); err != nil {
		return nil, err
	}
	if lost {
		return nil, errLost
	}
	l := &Layout{Takers: map[uint16]int16{}}
	ordinal := func(node int) int16 {
		r := simRedis{w, node}
		at := slices.Index(l.Nodes, Redis(r))
		if at < 0 {
			at = len(l.Nodes)
			l.Nodes = append(l.Nodes, r)
		}
		return int16(at)
	}
	for slot := range l.Owner {
		l.Owner[slot] = -1
	}
	for row := range w.rows {
		slot := write.Names{}.Slot(w.key(row))
		l.Owner[slot] = ordinal(w.owner(row, asOf))
		if m := w.moving(row, asOf); m != nil {
			l.Takers[slot] = ordinal(m.to)
		}
	}
	return l, nil
}
