package invalidator

import (
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// view is what one node of a cluster says about all of them (CLUSTER NODES).
type view struct {
	asked string // the address of the one that says it
	nodes []seenNode
}

// seenNode is a node as another sees it, or it itself.
type seenNode struct {
	id     string
	addr   string // host:port
	myself bool
	master bool
	// epoch is its configuration epoch: of two masters that claim a slot the one with the higher one has it.
	epoch uint64
	slots []slotRange
	// moving are the slots that it is moving elsewhere, and to which node: only a node itself says so.
	moving map[uint16]string
}

// slotRange is the slots from one to another, both included.
type slotRange struct{ from, to uint16 }

// parseView reads CLUSTER NODES (https://redis.io/docs/latest/commands/cluster-nodes/) and CLUSTER SLOTS, which says
// how the cluster wants its nodes to be called. A node that says no host of itself, or "?", is at the host that was
// asked.
func parseView(nodes string, called []redis.ClusterSlot, asked string) view {
	host, _, _ := net.SplitHostPort(asked)
	names := map[string]string{}
	for _, s := range called {
		for _, n := range s.Nodes {
			names[n.ID] = at(n.Addr, host)
		}
	}
	v := view{asked: asked}
	for line := range strings.Lines(nodes) {
		n, ok := parseNode(strings.Fields(line), host)
		if !ok {
			continue
		}
		if name := names[n.id]; name != "" {
			n.addr = name
		}
		v.nodes = append(v.nodes, n)
	}
	return v
}

// at returns host:port with the host that was asked where there is none. An IPv6 address may lack its brackets.
func at(addr, asked string) string {
	colon := strings.LastIndexByte(addr, ':')
	if colon < 0 || addr[colon+1:] == "" || addr[colon+1:] == "0" {
		return ""
	}
	host, port := strings.Trim(addr[:colon], "[]"), addr[colon+1:]
	if host == "" || host == "?" {
		host = asked
	}
	return net.JoinHostPort(host, port)
}

// parseNode reads the words of a line: id, address, flags, master, ping, pong, epoch, link and then slots.
func parseNode(words []string, asked string) (n seenNode, ok bool) {
	if len(words) < 8 {
		return n, false
	}
	addr, _, _ := strings.Cut(words[1], "@")
	n.id, n.addr = words[0], at(addr, asked)
	for flag := range strings.SplitSeq(words[2], ",") {
		n.myself = n.myself || flag == "myself"
		n.master = n.master || flag == "master"
		if flag == "noaddr" || flag == "handshake" {
			return n, false
		}
	}
	n.epoch, _ = strconv.ParseUint(words[6], 10, 64)
	for _, w := range words[8:] {
		n.claim(w)
	}
	return n, true
}

// claim reads 77, 0-5460, [77->-id] (it is moved there), or [77-<-id] (it comes from there).
func (n *seenNode) claim(text string) {
	if moved, is := strings.CutPrefix(text, "["); is {
		slot, to, moving := strings.Cut(strings.TrimSuffix(moved, "]"), "->-")
		if s, err := strconv.ParseUint(slot, 10, 14); err == nil && moving {
			if n.moving == nil {
				n.moving = map[uint16]string{}
			}
			n.moving[uint16(s)] = to
		}
		return
	}
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 14)
	to, err2 := strconv.ParseUint(last, 10, 14)
	if err == nil && err2 == nil && from <= to {
		n.slots = append(n.slots, slotRange{uint16(from), uint16(to)})
	}
}

// agree returns the masters, by id, as far as the views and what masters have said of themselves before (which it
// brings up to date) tell: each as it says itself, and else as the view does that knows its latest epoch.
func agree(views []view, said map[string]seenNode) map[string]seenNode {
	known, asked := map[string]seenNode{}, map[string]bool{}
	for _, v := range views {
		for _, n := range v.nodes {
			if n.myself {
				asked[n.id] = true
				delete(said, n.id)
				if n.master {
					said[n.id] = n
				}
			}
		}
	}
	listed := map[string]bool{}
	for _, v := range views {
		for _, n := range v.nodes {
			listed[n.id] = true
			if o, is := known[n.id]; n.master && !asked[n.id] && (!is || n.epoch > o.epoch) {
				known[n.id] = n
			}
		}
	}
	for id, n := range said {
		if !listed[id] {
			delete(said, id) // forgotten by all
		} else if o, is := known[id]; !is || n.epoch >= o.epoch {
			known[id] = n
		}
	}
	return known
}
