package invalidator

import (
	"strconv"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
)

// do has things done.
func (c *liveCluster) do(things ...thing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pos++
	c.log.batches <- batchOfThings(origin(c.pos, clusterD), things...)
	c.engine.Mark(markAt(c.pos))
	c.fetched++
}

// ownerOf returns the slot of a key, the node that has it, and another node.
func (c *liveCluster) ownerOf(key string) (slot int, has, other *testbed.RedisServer) {
	return c.slotOf(int(write.Names{}.Slot(key)))
}

// routed waits until the engine sends a key to a server.
func (c *liveCluster) routed(key string, to *testbed.RedisServer) {
	c.Helper()
	testbed.Eventually(c, time.Minute, key+" is sent to the new owner of its slot", func() bool {
		n := c.engine.topology.Load().nodeOf(key, false)
		return n != nil && n.redis.String() == to.Addr
	})
}

// Each action is done while the slot of its key is being moved, before and after.
func TestEveryActionWhileSlotsMove(t *testing.T) {
	t.Parallel()
	c := newLiveCluster(t, testbed.ClusterOptions{Masters: 2}, 0)
	r, ctx := c.client, t.Context()
	sub := r.Subscribe(ctx, "changes")
	defer func() { testbed.Must(t, sub.Close()) }()
	_, err := sub.Receive(ctx)
	testbed.Must(t, err)
	round, begin := 0, time.Now().UnixMilli()
	all := func() {
		round++
		n := strconv.Itoa(round)
		text := &event.Effect{As: event.FormString}
		c.do(
			thing{"text", event.ActionRebuild, event.IntentPut, text, []string{n}},
			thing{"whole", event.ActionRebuild, event.IntentPut, &event.Effect{As: event.FormHash}, []string{"a", n, "b", n}},
			thing{"gone", event.ActionRebuild, event.IntentRemove, &event.Effect{
				Missing: true, MissingValue: "none",
				MissingTTL: time.Hour,
			}, nil},
			thing{"fields", event.ActionHash, event.IntentPut, &event.Effect{}, []string{"f", n}},
			thing{"fields", event.ActionHash, event.IntentForget, nil, []string{"g"}},
			thing{"members", event.ActionSet, event.IntentRemove, &event.Effect{}, []string{strconv.Itoa(round - 1)}},
			thing{"members", event.ActionSet, event.IntentPut, &event.Effect{}, []string{n}},
			thing{"scores", event.ActionZSet, event.IntentPut, &event.Effect{}, []string{"m", n}},
			thing{"soft", event.ActionExpire, event.IntentForget, &event.Effect{In: time.Minute}, nil},
			thing{"gen", event.ActionIncr, event.IntentForget, nil, nil},
			thing{
				"told", event.ActionDelete, event.IntentForget, &event.Effect{Publish: true, Stream: true, MaxLen: 1000},
				[]string{"changes", n, "log", n},
			},
		)
	}
	keys := []string{"text", "whole", "gone", "fields", "members", "scores", "soft", "gen", "told", "log"}
	fill := func() {
		testbed.Must(t, r.HSet(ctx, "fields", "g", "old").Err())
		testbed.Must(t, r.Set(ctx, "soft", "v", time.Hour).Err())
		testbed.Must(t, r.Set(ctx, "told", "old", 0).Err())
	}
	fill()
	all()
	c.caughtUp()
	for _, key := range keys {
		slot, has, other := c.ownerOf(key)
		c.cluster.BeginMove(t, slot, has, other)
		all()
		c.cluster.MoveKeys(t, slot, has, other)
		all()
		c.cluster.EndMove(t, slot, has, other)
		all()
	}
	fill()
	all()
	c.caughtUp()
	// No older value is there, and as time goes on the newest is.
	check := func() (missing string) {
		n := strconv.Itoa(round)
		for what, got := range map[string][]string{
			"text":     {r.Get(ctx, "text").Val(), n},
			"whole, a": {r.HGet(ctx, "whole", "a").Val(), n},
			"whole, b": {r.HGet(ctx, "whole", "b").Val(), n},
			"gone":     {r.Get(ctx, "gone").Val(), "none"},
			"fields":   {r.HGet(ctx, "fields", "f").Val(), n},
		} {
			switch got[0] {
			case got[1]:
			case "":
				missing = what
			default:
				t.Fatalf("%s is %q, want %q", what, got[0], got[1])
			}
		}
		if left := r.HGet(ctx, "fields", "g").Val(); left != "" {
			t.Fatalf("a field is %q", left)
		}
		for _, m := range r.SMembers(ctx, "members").Val() {
			if m != n {
				t.Fatalf("a member is %s, want %s alone", m, n)
			}
		}
		if score, err := r.ZScore(ctx, "scores", "m").Result(); err == nil && score != float64(round) {
			t.Fatalf("a score is %v, want %s", score, n)
		}
		return missing
	}
	check()
	if ttl := r.TTL(ctx, "soft").Val(); ttl > time.Minute || ttl == -1 {
		t.Errorf("it expires in %s", ttl)
	}
	if n := r.Exists(ctx, "told").Val(); n != 0 {
		t.Error("a key is not deleted")
	}
	if n, err := r.Get(ctx, "gen").Int64(); err != nil || n <= begin {
		t.Errorf("a counter is %d, %v", n, err)
	}
	if newest := r.XRevRangeN(ctx, "log", "+", "-", 1).Val(); len(newest) != 1 || newest[0].Values["key"] != "told" {
		t.Errorf("the stream ends with %+v", newest)
	}
	for told := ""; told != strconv.Itoa(round); {
		m, err := sub.ReceiveMessage(ctx)
		testbed.Must(t, err)
		told = m.Payload
	}
	testbed.Eventually(t, 2*time.Minute, "values are written again", func() bool {
		all()
		c.caughtUp()
		return check() == ""
	})
	if parked, dead := c.store.counts(); parked+dead != 0 {
		t.Errorf("%d parked, %d dead", parked, dead)
	}
}

// Two masters have two clocks: a mark by that of the former owner may seem older than it is.
func TestNoValueIsWrittenForAWhileAfterItsSlotHasMoved(t *testing.T) {
	t.Parallel()
	c := newLiveCluster(t, testbed.ClusterOptions{Masters: 2}, 0)
	n := 0
	put := func() string {
		n++
		c.do(put("text", strconv.Itoa(n)))
		c.caughtUp()
		got := c.client.Get(t.Context(), "text").Val()
		if got != "" && got != strconv.Itoa(n) {
			t.Fatalf("it is %q, want %d", got, n)
		}
		return got
	}
	testbed.Eventually(t, time.Minute, "a value is written", func() bool { return put() != "" })
	slot, has, other := c.ownerOf("text")
	c.cluster.Move(t, has, other, slot)
	c.routed("text", other)
	moved := c.engine.topology.Load().movedAt("text")
	if got := put(); got != "" {
		t.Errorf("a value is written right after its slot has moved: %s", got)
	}
	testbed.Eventually(t, time.Minute, "a value is written again", func() bool { return put() != "" })
	if since := c.engine.clock().sub(moved); since < write.ConfirmsAfter(clusterD) {
		t.Errorf("a value is written %s after its slot has moved", since)
	}
}

// What is parked is tried where its slot is then.
func TestAParkedKeyIsDeletedWhereItsSlotIs(t *testing.T) {
	t.Parallel()
	c := newLiveCluster(t, testbed.ClusterOptions{Masters: 2}, 0)
	for _, m := range c.cluster.Masters {
		m.Do(t, "acl", "setuser", "default", "resetkeys", "~fine", "~freshet:*")
	}
	c.do(thing{"secret", event.ActionDelete, event.IntentForget, nil, nil}, put("fine", "1"))
	c.caughtUp()
	if parked, dead := c.store.counts(); parked != 1 || dead != 0 {
		t.Fatalf("%d parked, %d dead", parked, dead)
	}
	slot, has, other := c.ownerOf("secret")
	for _, m := range c.cluster.Masters {
		m.Do(t, "acl", "setuser", "default", "allkeys")
	}
	testbed.Must(t, c.client.Set(t.Context(), "secret", "old", 0).Err())
	c.cluster.Move(t, has, other, slot)
	testbed.Eventually(t, 2*time.Minute, "the key is settled", func() bool {
		parked, dead := c.store.counts()
		return parked+dead == 0
	})
	if got := c.client.Get(t.Context(), "secret").Val(); got != "" {
		t.Errorf("it holds %q", got)
	}
}
