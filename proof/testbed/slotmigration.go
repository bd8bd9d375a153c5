package testbed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server may move slots by itself, as Valkey does from 9.0 on: it sends a copy of them and what is written meanwhile,
// holds back writes, and then they are the other's at once. No node says before that they are being moved.

// Stage is how far such a migration is when it is held up.
type Stage string

const (
	// Streaming: the copy is made, and what is written to the slots is sent after it.
	Streaming Stage = "streaming"
	// Granted: nobody may write to the giver, and the taker may have the slots.
	Granted Stage = "granted"
	// Failed: the giver has given up. The taker may not know yet.
	Failed Stage = "failed"
)

// states are those of a giver at a stage.
var states = map[Stage]string{Streaming: "waiting-to-pause", Granted: "failover-granted", Failed: "failed"}

// Migrates reports whether the servers of the cluster know CLUSTER MIGRATESLOTS.
func (c *RedisCluster) Migrates(t testing.TB) bool {
	t.Helper()
	known, is := c.Masters[0].Do(t, "command", "info", "cluster|migrateslots").([]any)
	return is && len(known) == 1 && known[0] != nil
}

// BeginMigration has a server move slots to another one by itself. It does not wait for that.
func (c *RedisCluster) BeginMigration(t testing.TB, from, to *RedisServer, slots ...int) {
	t.Helper()
	words := []any{"cluster", "migrateslots", "slotsrange"}
	for _, slot := range slots {
		words = append(words, slot, slot)
	}
	words = append(words, "node", to.NodeID(t))
	Eventually(t, readyTimeout, "slots begin to be moved", func() bool {
		err := from.client.Do(t.Context(), words...).Err()
		// Of one that has just failed the rest may not be gone yet.
		if err != nil && !redis.HasErrorPrefix(err, "ERR I am already migrating slot") {
			t.Fatalf("testbed: redis %v: %v", words, err)
		}
		return err == nil
	})
}

// HoldMigrations has migrations between two servers stop at a stage, until the returned function is called, or the
// server that holds them up is started again.
func (c *RedisCluster) HoldMigrations(t testing.TB, stage Stage, from, to *RedisServer) (release func()) {
	t.Helper()
	holder, what := from, "prevent-pause"
	if stage == Granted {
		holder, what = to, "prevent-failover"
	}
	holder.Do(t, "debug", "slotmigration", what, 1)
	return func() {
		t.Helper()
		holder.Do(t, "debug", "slotmigration", what, 0)
	}
}

// AwaitStage waits until the last migration that a server began is at a stage.
func (c *RedisCluster) AwaitStage(t testing.TB, stage Stage, from *RedisServer) {
	t.Helper()
	Eventually(t, readyTimeout, "a migration is "+string(stage), func() bool {
		return from.migration(t)["state"] == states[stage]
	})
}

// Announce has a server tell the cluster another port of this machine as its own; 0: that at which it listens. It waits
// until another one knows.
func (c *RedisCluster) Announce(t testing.TB, s *RedisServer, port int, to *RedisServer) {
	t.Helper()
	s.Do(t, "config", "set", "cluster-announce-port", port)
	at := fmt.Sprintf("%s 127.0.0.1:%d@", s.NodeID(t), cmp.Or(port, s.Port))
	Eventually(t, readyTimeout, "a server is known at "+at, func() bool {
		return strings.Contains(to.client.ClusterNodes(t.Context()).Val(), at)
	})
}

// AwaitTaken waits until a server says itself that it has slots. Others may not know yet.
func (c *RedisCluster) AwaitTaken(t testing.TB, to *RedisServer, slots ...int) {
	t.Helper()
	id := to.NodeID(t)
	Eventually(t, readyTimeout, "slots are taken", func() bool {
		return !slices.ContainsFunc(slots, func(slot int) bool { return to.ownerOf(t.Context(), slot) != id })
	})
}

// Takes reports whether a server says itself, within 15 s, that it has a slot.
func (c *RedisCluster) Takes(t testing.TB, to *RedisServer, slot int) bool {
	t.Helper()
	id := to.NodeID(t)
	for begun := time.Now(); time.Since(begun) < 15*time.Second; time.Sleep(50 * time.Millisecond) {
		if to.ownerOf(t.Context(), slot) == id {
			return true
		}
	}
	return false
}

// CancelMigrations ends the migrations that a server began, and reports whether there were any.
func (c *RedisCluster) CancelMigrations(t testing.TB, from *RedisServer) bool {
	t.Helper()
	err := from.client.Do(t.Context(), "cluster", "cancelslotmigrations").Err()
	if err != nil && !strings.Contains(err.Error(), "No migrations ongoing") {
		t.Fatalf("testbed: cancel migrations: %v", err)
	}
	return err == nil
}

// Migrate has a server move slots by itself, and waits until all masters know that they are the other's. One that fails
// is begun again.
func (c *RedisCluster) Migrate(t testing.TB, from, to *RedisServer, slots ...int) {
	t.Helper()
	c.BeginMigration(t, from, to, slots...)
	c.EndMigration(t, from, to, slots...)
}

// EndMigration waits until slots that a server is moving by itself are the other's, for all masters.
func (c *RedisCluster) EndMigration(t testing.TB, from, to *RedisServer, slots ...int) {
	t.Helper()
	id := to.NodeID(t)
	Eventually(t, readyTimeout, "slots have been moved", func() bool {
		if !slices.ContainsFunc(c.members, func(s *RedisServer) bool {
			return s.IsMaster(t.Context()) && slices.ContainsFunc(slots, func(slot int) bool {
				return s.ownerOf(t.Context(), slot) != id
			})
		}) {
			return true
		}
		last := from.migration(t)
		if state := last["state"]; state == "failed" || state == "cancelled" {
			t.Logf("slots are moved again: %s", last["message"])
			c.BeginMigration(t, from, to, slots...)
		}
		return false
	})
}

// migration is what a server says of the migration that it began last; nil: it began none.
func (s *RedisServer) migration(t testing.TB) map[string]string {
	t.Helper()
	all, _ := s.Do(t, "cluster", "getslotmigrations").([]any)
	for _, one := range all { // the newest is first
		says := words(one)
		if says["operation"] == "EXPORT" {
			return says
		}
	}
	return nil
}

// words reads a map of words, in either version of the protocol.
func words(reply any) map[string]string {
	said := map[string]string{}
	switch m := reply.(type) {
	case map[any]any:
		for k, v := range m {
			text, _ := v.(string)
			said[k.(string)] = text
		}
	case []any:
		for i := 0; i+1 < len(m); i += 2 {
			name, _ := m[i].(string)
			said[name], _ = m[i+1].(string)
		}
	}
	return said
}
