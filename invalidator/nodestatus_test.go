package invalidator

import (
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

func TestEachNodeSaysHowItIsAndHowManySlotsItHas(t *testing.T) {
	t.Parallel()
	c := newLiveCluster(t, testbed.ClusterOptions{
		Masters: 2, Args: []string{"--cluster-require-full-coverage", "no"},
	}, 0)
	first, second := c.cluster.Masters[0], c.cluster.Masters[1]
	await := func(what string, cond func(a, b NodeStatus, unserved int) bool) {
		t.Helper()
		testbed.Eventually(t, 2*time.Minute, what, func() bool {
			nodes, unserved := c.engine.NodeStatus()
			if len(nodes) != 2 {
				return false
			}
			if nodes[0].Address == second.Addr {
				nodes[0], nodes[1] = nodes[1], nodes[0]
			}
			return nodes[0].Address == first.Addr && cond(nodes[0], nodes[1], unserved)
		})
	}
	await("both answer, and each has half of the slots", func(a, b NodeStatus, unserved int) bool {
		return a.Up && b.Up && a.Slots == Slots/2 && b.Slots == Slots/2 && a.Moving+b.Moving+unserved == 0 &&
			!a.Since.IsZero() && strings.Contains(a.Sentence, first.Addr+" answers")
	})
	c.cluster.BeginMove(t, 7, first, second)
	await("one is being moved", func(a, b NodeStatus, _ int) bool { return a.Moving == 1 && b.Moving == 0 })
	c.cluster.EndMove(t, 7, first, second)
	await("it was moved", func(a, b NodeStatus, _ int) bool {
		return a.Slots == Slots/2-1 && b.Slots == Slots/2+1 && a.Moving == 0
	})
	for _, m := range c.cluster.Masters {
		m.Do(t, "cluster", "delslots", 8, 9, 10)
	}
	await("three are served by nobody", func(a, _ NodeStatus, unserved int) bool {
		return unserved == 3 && a.Slots == Slots/2-4
	})
	before := time.Now()
	testbed.Must(t, second.Kill())
	await("one is away", func(a, b NodeStatus, _ int) bool {
		return a.Up && !b.Up && b.Since.After(before) && strings.Contains(b.Sentence, "is away since")
	})
}

func TestWithoutAClusterThereIsOneNode(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.pass(time.Second)
		if nodes, unserved := r.engine.NodeStatus(); len(nodes) != 1 || unserved != 0 || !nodes[0].Up || nodes[0].Slots != 0 {
			r.Errorf("%+v, %d", nodes, unserved)
		}
	})
}
