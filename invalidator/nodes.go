package invalidator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// newNode makes a node of the engine, which starts nothing.
func (e *Engine) newNode(r Redis) *node {
	h := newHealth(r, e.clock, e.options.Timeout, e.spans)
	h.alarms, h.log, h.metrics = e.alarms, e.log, e.metrics
	h.busy, h.back = e.counting, e.room.changed
	n := newNode(h, e.options, e.metrics, e.gentlePace)
	n.known, n.unseen, n.topology = e.known, e.unseen, e.topology.Load
	if h.apart = e.cluster != nil; h.apart {
		n.live.freed, n.gentle.freed = e.feedStarved, e.feedStarved
	}
	return n
}

// manner returns how partitions send: with one node its lane, else a lane to nowhere.
func (e *Engine) manner(gentle bool) *lane {
	switch {
	case e.cluster == nil:
		return e.only().lane(gentle)
	case gentle:
		return gentleLane(e.gentlePace)
	}
	return liveLane()
}

// only returns the one node that there is without a cluster.
func (e *Engine) only() *node { return e.topology.Load().nodes[0] }

// isReady reports whether fetching makes sense: some node takes deletes. One that is away stops its own keys only.
func (e *Engine) isReady() bool {
	return slices.ContainsFunc(e.topology.Load().nodes, func(n *node) bool { return n.health.isUp.Load() })
}

// isUp reports whether all of Redis takes deletes.
func (e *Engine) isUp() bool {
	t := e.topology.Load()
	return len(t.nodes) > 0 && !slices.ContainsFunc(t.nodes, func(n *node) bool { return !n.health.isUp.Load() })
}

// kick wakes the probers: there is work after there was none.
func (e *Engine) kick() {
	for _, n := range e.topology.Load().nodes {
		wake(n.health.kick)
	}
}

// hurry has the probers ask at the pace that work takes.
func (e *Engine) hurry() {
	for _, n := range e.topology.Load().nodes {
		n.health.hurry()
	}
}

// feedStarved wakes the partitions that found no slot for their work.
func (e *Engine) feedStarved() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.partitions {
		if s.starved.Swap(false) {
			wake(s.poke)
		}
	}
}

// redisName names Redis for the operator.
func (e *Engine) redisName() string {
	if e.cluster != nil {
		return e.cluster.String()
	}
	return e.only().redis.String()
}

// state says how Redis is, also in a sentence.
func (e *Engine) state() (up bool, sentence string) {
	t := e.topology.Load()
	if !t.several() {
		return t.nodes[0].health.state()
	}
	if len(t.nodes) == 0 {
		why := ""
		if said := e.unread.Load(); said != nil {
			why = " (" + *said + ")"
		}
		return false, fmt.Sprintf("%s has not said yet which node has which keys%s", e.cluster, why)
	}
	var away []string
	for _, n := range t.nodes {
		if up, is := n.health.state(); !up {
			away = append(away, is)
		}
	}
	if len(away) == 0 {
		return true, fmt.Sprintf("all %d nodes of %s answer", len(t.nodes), e.cluster)
	}
	return false, fmt.Sprintf("%d of %d nodes are away: %s", len(away), len(t.nodes), strings.Join(away, "; "))
}

// How often the topology is read: as a rule, and at most.
const (
	readEvery = time.Second
	readLeast = 50 * time.Millisecond
)

// asClause is an error, or several, as a clause.
func asClause(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// readAgain has the topology read soon.
func (e *Engine) readAgain() { wake(e.readNow) }

// follow reads the topology again and again, and ends all nodes when ctx ends.
func (e *Engine) follow(ctx context.Context) {
	var gone sync.WaitGroup
	odd := oddities{alarms: e.alarms, cluster: e.cluster.String()}
	loop := retry.Loop{
		Backoff: retry.Backoff{Min: readLeast, Max: readEvery},
		Reporter: &retry.Reporter{Failed: func(err error) {
			e.alarms.Raise(alarm.RedisAway, fmt.Sprintf("no node of %s says which node has which keys (%s): keys go where "+
				"they went before", e.cluster, asClause(err)))
		}},
	}
	for ctx.Err() == nil {
		wait := readEvery
		if l, err := e.cluster.Layout(ctx); err == nil {
			loop.Succeeded()
			e.adopt(ctx, l, &gone)
			odd.report(l)
		} else if ctx.Err() == nil {
			why := asClause(err)
			e.unread.Store(&why)
			wait = loop.Failed(err)
		}
		if retry.Sleep(ctx, min(wait, readLeast)) != nil {
			break
		}
		timer := time.NewTimer(max(wait-readLeast, 0))
		select {
		case <-timer.C:
		case <-e.readNow:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	gone.Wait()
	for _, n := range e.topology.Load().nodes {
		n.workers.Wait()
	}
}

// adopt takes another topology, if the layout is not that of the present one. Nodes that are in it no more end once
// nothing is under way on them.
func (e *Engine) adopt(ctx context.Context, l *Layout, gone *sync.WaitGroup) {
	was := e.topology.Load()
	now := max(e.clock(), was.since+1)
	t := &topology{since: now, slots: noSlots(e.options.KeyPrefix)}
	var fresh []*node
	for _, r := range l.Nodes {
		i := slices.IndexFunc(was.nodes, func(n *node) bool { return n.redis == r })
		if i >= 0 {
			t.nodes = append(t.nodes, was.nodes[i])
			continue
		}
		n := e.newNode(r)
		n.health.routed = now
		t.nodes, fresh = append(t.nodes, n), append(fresh, n)
	}
	defer e.adopted.Store(l)
	if same := t.slots.take(l, t.nodes, was, now); same && len(fresh) == 0 && len(t.nodes) == len(was.nodes) {
		e.read()
		return
	}
	for _, n := range fresh {
		n.start(ctx)
	}
	e.topology.Store(t)
	for _, n := range was.nodes {
		n.health.reroute(now)
		if t.has(n) {
			continue
		}
		gone.Go(func() {
			n.end()
			e.cluster.Release(n.redis)
		})
	}
	e.log.Info("slots of the cluster have other nodes", "cluster", e.cluster.String(), "nodes", len(t.nodes))
	e.room.changed()
	e.read()
}

// Masters returns the masters of the cluster as the engine knows them, and whose each slot is: it sends no key
// elsewhere. It may be called by any goroutine.
func (e *Engine) Masters() (masters []Master, owner *[Slots]int16) {
	l := e.adopted.Load()
	if l == nil {
		return nil, nil
	}
	return l.Masters, &l.Owner
}

// read says that the topology was read.
func (e *Engine) read() {
	e.readings.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.partitions {
		wake(s.poke)
	}
}

// noSlots is a table in which nobody has a slot.
func noSlots(prefix string) *slotTable {
	t := &slotTable{names: write.Names{Prefix: prefix}}
	for i := range t.moved {
		t.moved[i] = always
	}
	return t
}

// take fills an empty table from a layout. A slot that has another owner than in the topology before has moved; what
// the first layout says has not. It reports whether nothing differs from the topology before.
func (t *slotTable) take(l *Layout, nodes []*node, was *topology, now instant) (same bool) {
	same, first := true, len(was.nodes) == 0
	for slot, n := range l.Owner {
		if n >= 0 {
			t.owner[slot] = nodes[n]
		}
		t.moved[slot] = was.slots.moved[slot]
		if t.owner[slot] != was.slots.owner[slot] {
			if same = false; !first {
				t.moved[slot] = now
			}
		}
	}
	if len(l.Takers) > 0 {
		t.takers = make(map[uint16]*node, len(l.Takers))
	}
	for slot, n := range l.Takers {
		t.takers[slot] = nodes[n]
		same = same && was.slots.takers[slot] == nodes[n]
	}
	return same && len(t.takers) == len(was.slots.takers)
}
