package invalidator

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// A key strays that a node does not serve, or that waited for a node which may not be its own any more. It is in no
// trouble, and the node is not away. It waits until the topology has been read again, and goes where that says.

// errRerouted is in what was not sent, since the topology is another one by now.
var errRerouted = errors.New("the slots of the cluster have moved")

// isStray reports whether an error says nothing about the key but that its node does not serve it, and whether the
// node said ASK.
func isStray(err error) (strays, asks bool) {
	if errors.Is(err, errRerouted) || errors.Is(err, redis.ErrClosed) {
		return true, false
	}
	return retry.IsRedirection(err)
}

// classify is [retry.ClassifyRedis]. Where there are several nodes, one that does not serve a key is not away, and one
// of which the client was closed serves none.
func (n *node) classify(err error) retry.Class {
	if n.health.apart && err != nil {
		if strays, _ := isStray(err); strays {
			return retry.Key
		}
	}
	return retry.ClassifyRedis(err)
}

// stray says that the node does not serve the key. What is known of its first action counts for nothing at another.
func (a *action) stray(err error, asks bool) {
	a.err, a.strays, a.asks = err, true, asks
	a.first.unproven = true
}

// spread makes the round trip of a writer where there are several nodes. What is added to a stream goes to the node of
// the stream's slot. That this one is away, or does not serve it, is no news of the writer's own node: the key strays.
func (w *writer) spread(ctx context.Context) {
	var own, streams []*write.Call
	for _, c := range w.calls {
		if stream, is := c.Stream(); is && w.node.topology().nodeOf(stream, false) != w.node {
			c.Asking = false
			streams = append(streams, c)
		} else {
			own = append(own, c)
		}
	}
	if len(own) > 0 {
		w.node.redis.Do(ctx, own)
	}
	for len(streams) > 0 {
		first, _ := streams[0].Stream()
		to := w.node.topology().nodeOf(first, false)
		var together []*write.Call
		streams = slices.DeleteFunc(streams, func(c *write.Call) bool {
			stream, _ := c.Stream()
			if stream != first && w.node.topology().nodeOf(stream, false) != to {
				return false
			}
			together = append(together, c)
			return true
		})
		if to != nil {
			to.redis.Do(ctx, together)
		}
		for _, c := range together {
			if to == nil || retry.ClassifyRedis(c.Err) == retry.Away {
				c.Reply, c.Err = nil, errRerouted
			}
		}
	}
}

// isNew reports whether the slot of a key came to the node after something had begun, or so shortly before that a mark
// of the former owner's clock might seem older than it is.
func (n *node) isNew(item *write.Item, began instant) bool {
	if !n.health.apart {
		return false
	}
	moved := n.topology().movedAt(item.Key)
	return moved != always && began < moved.add(write.ConfirmsAfter(item.D))
}

// stray is a unit that strays.
type stray struct {
	unit *unit
	// read is how often the topology had been read when it began to.
	read uint64
}

// stray has a unit wait for the topology to be read again.
func (s *partitionLoop) stray(u *unit) {
	u.begin()
	s.engine.metrics.strayed.Add(float64(u.size))
	s.strays = append(s.strays, stray{u, s.engine.readings.Load()})
	s.engine.readAgain()
}

// setStraysApart takes the keys that a node does not serve out of a unit, to stray as units of their own. It returns
// what is left of the unit, nil if nothing is.
func (s *partitionLoop) setStraysApart(u *unit) *unit {
	var failed []failure
	parts := make([]int, u.size) // by key: 0 stays, 1 strays, 2 strays and asks
	apart := 0
	for _, f := range u.failed {
		switch {
		case !f.strays:
			failed = append(failed, f)
			continue
		case f.asks:
			parts[f.at] = 2
		default:
			parts[f.at] = 1
		}
		apart++
	}
	if apart == 0 {
		return u
	}
	place := 0 // among those that stay
	next := 0
	for i, p := range parts {
		if p != 0 {
			continue
		}
		for next < len(failed) && failed[next].at < i {
			next++
		}
		if next < len(failed) && failed[next].at == i {
			failed[next].at = place
		}
		place++
	}
	units := s.divide(u, parts, 3)
	for p, part := range units[1:] {
		if part != nil {
			part.asks = p == 1
			s.stray(part)
		}
	}
	if units[0] != nil {
		units[0].failed = failed
	}
	return units[0]
}

// divide divides a unit that is in no queue by the part of each key, and returns the units by part; nil for those that
// have no keys. One of them is the unit itself.
func (s *partitionLoop) divide(u *unit, parts []int, n int) []*unit {
	units := make([]*unit, n)
	first := parts[0]
	units[first] = u
	if !slices.ContainsFunc(parts, func(p int) bool { return p != first }) {
		return units
	}
	idx, errs := make([][]uint32, n), make([][]string, n)
	for i, p := range parts {
		idx[p] = append(idx[p], uint32(u.ordinal(i)))
		if u.trouble != nil {
			errs[p] = append(errs[p], u.trouble.errors[i])
		}
	}
	size := int64(u.size)
	for p := range units {
		switch {
		case len(idx[p]) == 0:
		case p == first:
			u.entry.hold(s, int64(4*cap(idx[p])))
			u.idx, u.size = idx[p], len(idx[p])
		default:
			units[p] = s.part(u, idx[p], size)
		}
		if units[p] != nil && u.trouble != nil {
			t := *u.trouble
			t.errors = errs[p]
			units[p].trouble = &t
		}
	}
	return units
}

// part makes a unit of some of another's keys, of which there are so many in all. They have been answered as those of
// the other have: a unit without an answer would count as finished.
func (s *partitionLoop) part(u *unit, idx []uint32, of int64) *unit {
	part := &unit{
		entry: u.entry, d: u.d, node: u.node, routed: u.routed, moved: u.moved, asks: u.asks, class: u.class,
		known: u.known, queued: u.queued, first: u.first, deleted: u.deleted, final: u.final, paced: u.paced,
		forget: u.forget, idx: idx, size: len(idx), sent: u.sent, replied: u.replied, slowest: u.slowest,
	}
	part.queried = u.queried * int64(part.size) / of
	u.queried -= part.queried
	more := unitBytes + int64(4*cap(idx)) + s.shareAbsorbed(u, part)
	if u.trouble != nil {
		more += u.trouble.bytes
	}
	u.entry.hold(s, more)
	u.entry.open++
	if !part.deleted {
		u.entry.undeleted++
	}
	return part
}
