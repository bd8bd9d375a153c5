package testbed

import (
	"fmt"
	"slices"
	"testing"
)

// A test of a cluster would prove nothing if slots moved without their keys, or a replica took over nothing.
func TestAClusterMovesSlotsAndFailsOver(t *testing.T) {
	c := Cluster(t, ClusterOptions{Masters: 3, Replicas: 1})
	client := c.Client(nil)
	t.Cleanup(func() { Must(t, client.Close()) })
	for i := range 50 {
		Must(t, client.Set(t.Context(), fmt.Sprintf("{a}%d", i), "x", 0).Err())
	}
	slot := int(client.ClusterKeySlot(t.Context(), "{a}").Val())
	has := func(m *RedisServer) bool { return slices.Contains(c.Slots(t, m), slot) }
	from := c.Masters[slices.IndexFunc(c.Masters, has)]
	to := c.Add(t)
	c.Move(t, from, to, slot)
	if n := to.Client().DBSize(t.Context()).Val(); n != 50 {
		t.Errorf("%d keys have moved", n)
	}
	c.Move(t, to, from, slot)
	c.Forget(t, to, slices.Concat(c.Masters, c.Replicas)...)
	replica := c.Replicas[slices.Index(c.Masters, from)]
	Eventually(t, readyTimeout, "the replica has all keys",
		func() bool { return replica.Client().DBSize(t.Context()).Val() == 50 })
	c.Failover(t, from, replica)
	Eventually(t, readyTimeout, "the slot is the replica's",
		func() bool { return slices.Contains(c.Slots(t, replica), slot) })
	Must(t, replica.Kill())
	Eventually(t, readyTimeout, "the former master takes over again",
		func() bool { return slices.Contains(c.Slots(t, from), slot) })
}

// Where servers move slots by themselves, all keys have moved with them, and none if that was ended half-way.
func TestAClusterMovesSlotsByItself(t *testing.T) {
	c := Cluster(t, ClusterOptions{Masters: 2, Valkey: true})
	client := c.Client(nil)
	t.Cleanup(func() { Must(t, client.Close()) })
	for i := range 50 {
		Must(t, client.Set(t.Context(), fmt.Sprintf("{a}%d", i), "x", 0).Err())
	}
	slot := int(client.ClusterKeySlot(t.Context(), "{a}").Val())
	from, to := c.Masters[0], c.Masters[1]
	if slices.Contains(c.Slots(t, to), slot) {
		from, to = to, from
	}
	for _, stage := range []Stage{Streaming, Granted} {
		release := c.HoldMigrations(t, stage, from, to)
		c.BeginMigration(t, from, to, slot)
		c.AwaitStage(t, stage, from)
		if !c.CancelMigrations(t, from) {
			t.Errorf("%s: nothing was to be ended", stage)
		}
		release()
		Eventually(t, readyTimeout, "no key has moved", func() bool {
			return from.Do(t, "cluster", "countkeysinslot", slot) == int64(50) &&
				to.Do(t, "cluster", "countkeysinslot", slot) == int64(0)
		})
	}
	c.Migrate(t, from, to, slot)
	Eventually(t, readyTimeout, "all keys have moved", func() bool {
		return from.Client().DBSize(t.Context()).Val() == 0 && to.Client().DBSize(t.Context()).Val() == 50
	})
	if c.CancelMigrations(t, from) {
		t.Error("there is something to be ended, and slots have moved")
	}
}
