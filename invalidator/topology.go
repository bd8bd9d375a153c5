package invalidator

import (
	"slices"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
)

// topology says which node has each slot. It is never changed: another one takes its place as a whole
// ([Engine.adopt]). With one node there are no slots, and nothing is asked.
type topology struct {
	// since is when it took the place of the one before, and tells it from all others; always: it is the first.
	since instant
	nodes []*node
	slots *slotTable // nil: there is one node, and never another
}

// slotTable is what a topology says of each slot of a Cluster.
type slotTable struct {
	names write.Names
	// owner has the slot; nil: nobody.
	owner [write.Slots]*node
	// moved is when it was noticed that the slot has another owner; always: it never had.
	moved [write.Slots]instant
	// takers are the nodes that slots are being moved to.
	takers map[uint16]*node
}

// several reports whether keys are sorted by node.
func (t *topology) several() bool { return t.slots != nil }

// nodeOf returns the node of a key; nil: its slot has none. asks says that the owner of its slot has said ASK.
func (t *topology) nodeOf(key string, asks bool) *node {
	if t.slots == nil {
		return t.nodes[0]
	}
	return t.slots.nodeOf(t.slots.names.Slot(key), asks)
}

func (t *slotTable) nodeOf(slot uint16, asks bool) *node {
	if asks {
		if taker := t.takers[slot]; taker != nil {
			return taker
		}
	}
	return t.owner[slot]
}

// movedAt returns when it was noticed that the slot of a key has another owner; always: it never had.
func (t *topology) movedAt(key string) instant {
	if t.slots == nil {
		return always
	}
	return t.slots.moved[t.slots.names.Slot(key)]
}

// isMoving reports whether the slot of a key is being moved.
func (t *topology) isMoving(key string) bool {
	return t.slots != nil && t.slots.takers[t.slots.names.Slot(key)] != nil
}

// has reports whether a node is one of those that have slots.
func (t *topology) has(n *node) bool { return slices.Contains(t.nodes, n) }

// split splits the groups of a batch by node. Keys that wait in line are split when their turn comes.
func (t *topology) split(b *event.Batch, groups []group) []group {
	if t.slots == nil {
		for i := range groups {
			groups[i].node = t.nodes[0]
		}
		return groups
	}
	split := make([]group, 0, len(groups)*len(t.nodes))
	at := map[*node]int{} // in split, of the group that is being split
	for _, g := range groups {
		if g.rate > 0 {
			split = append(split, g)
			continue
		}
		clear(at)
		for i := range g.size {
			n := i
			if g.idx != nil {
				n = int(g.idx[i])
			}
			to := t.nodeOf(b.Key(n), false)
			k, known := at[to]
			if !known {
				k = len(split)
				at[to] = k
				part := g
				part.node, part.size, part.idx = to, 0, make([]uint32, 0, g.size/max(len(t.nodes), 1)+1)
				split = append(split, part)
			}
			split[k].idx = append(split[k].idx, uint32(n))
			split[k].size++
		}
	}
	return split
}
