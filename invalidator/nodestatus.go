package invalidator

import "time"

// NodeStatus is how one node of Redis stands: the only one, or a master of a cluster.
type NodeStatus struct {
	Address string `json:"address"`
	// Up says whether it answers and takes deletes, Since for how long that has been so (zero: it has never answered),
	// and Sentence both, with what it last failed with.
	Up       bool      `json:"up"`
	Since    time.Time `json:"since"`
	Sentence string    `json:"sentence"`
	// Slots are how many slots of a cluster it has, and Moving how many of these are being moved to another node.
	Slots  int `json:"slots"`
	Moving int `json:"moving"`
}

// NodeStatus returns how each node stands, and how many slots of a cluster no node has. Of a cluster that has not said
// yet which node has which slots there are neither. It may be called by any goroutine.
func (e *Engine) NodeStatus() (nodes []NodeStatus, unserved int) {
	t := e.topology.Load()
	at := make(map[*node]int, len(t.nodes))
	for i, n := range t.nodes {
		at[n] = i
		up, sentence := n.health.state()
		nodes = append(nodes, NodeStatus{
			Address: n.redis.String(), Up: up, Since: n.health.sinceTime(), Sentence: sentence,
		})
	}
	if !t.several() || len(nodes) == 0 {
		return nodes, 0
	}
	for slot, n := range t.slots.owner {
		i, has := at[n]
		if !has {
			unserved++
			continue
		}
		nodes[i].Slots++
		if t.slots.takers[uint16(slot)] != nil {
			nodes[i].Moving++
		}
	}
	return nodes, unserved
}

// sinceTime returns when the present state began; zero: it has never answered.
func (h *health) sinceTime() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sinceWall
}

// nodeGauges are read off the nodes.
func (m *metrics) nodeGauges(e *Engine) {
	m.gaugeFunc("redis_nodes", "Nodes of Redis that are written to: 1, or with a cluster its masters that have slots.",
		func() float64 { return float64(len(e.topology.Load().nodes)) })
	m.gaugeFunc("redis_nodes_away", "Of these, the nodes that do not answer or take no deletes.", func() float64 {
		away := 0
		for _, n := range e.topology.Load().nodes {
			if !n.health.isUp.Load() {
				away++
			}
		}
		return float64(away)
	})
	m.gaugeFunc("redis_slots_unserved", "Slots of a cluster that no node has.", func() float64 {
		_, unserved := e.NodeStatus()
		return float64(unserved)
	})
}
