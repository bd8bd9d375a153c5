package invalidator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
	"github.com/freshet/freshet/retry"
)

// together are calls to a real server that may share one.
type together struct {
	*testing.T
	server *testbed.RedisServer
	redis  *Single
	b      *write.Builder
	pos    uint64
}

func newTogether(t *testing.T, server *testbed.RedisServer, o SingleOptions) *together {
	t.Helper()
	b, err := write.New(write.Options{})
	testbed.Must(t, err)
	return &together{T: t, server: server, redis: single(t, o), b: b, pos: 4}
}

func (g *together) item(key, value string) *write.Item {
	return &write.Item{
		Key: key, Action: event.ActionRebuild, Intent: event.IntentPut, Effect: &event.Effect{As: event.FormString},
		Fields: event.AppendField(nil, value), Source: "s", Version: event.Version{Epoch: 1, File: 1, Pos: g.pos},
		D: time.Second, Until: 1 << 60,
	}
}

func asSome(server *testbed.RedisServer) SingleOptions {
	return SingleOptions{Address: server.Addr, Username: "some", Password: credential.Text("secret")}
}

// known has freshet know the keys: their companions confirm.
func (g *together) known(keys ...string) {
	for _, k := range keys {
		g.server.Do(g.T, "set", write.Names{}.Version(k), "010100800 0 s")
		g.server.Do(g.T, "set", k, "old")
	}
	g.pos = 9
}

// do sends the items' calls in one round trip, and returns what became of each.
func (g *together) do(items ...*write.Item) (outcomes []write.Outcome, errs []error) {
	g.b.Reset()
	var calls []*write.Call
	for _, it := range items {
		calls = g.b.Append(calls, it)
	}
	g.redis.Do(g.Context(), calls)
	for i, it := range items {
		o, err := g.b.Outcome(it, calls[i:i+1])
		outcomes, errs = append(outcomes, o), append(errs, err)
	}
	return outcomes, errs
}

// scripts returns how many scripts have been called since it was asked last.
func (g *together) scripts() (n int) {
	g.Helper()
	stats := g.server.Client().InfoMap(g.Context(), "commandstats").Val()
	_, _ = fmt.Sscanf(stats["Commandstats"]["cmdstat_evalsha"], "calls=%d,", &n)
	var refused int
	text := stats["Commandstats"]["cmdstat_evalsha"]
	for i := range text {
		if _, err := fmt.Sscanf(text[i:], "rejected_calls=%d,", &refused); err == nil {
			break
		}
	}
	g.server.Do(g.T, "config", "resetstat")
	return n + refused
}

func keysOf(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("k:%d", i))
	}
	return keys
}

func (g *together) items(keys []string) (items []*write.Item) {
	for _, k := range keys {
		items = append(items, g.item(k, "new "+k))
	}
	return items
}

func (g *together) written(keys []string, outcomes []write.Outcome, errs []error) {
	g.Helper()
	for i, k := range keys {
		if have := g.server.Client().Get(g.Context(), k).Val(); outcomes[i] != write.Written || errs[i] != nil ||
			have != "new "+k {
			g.Errorf("%s: %s, %v, holds %q", k, outcomes[i], errs[i], have)
		}
	}
}

func TestCallsThatFollowOneAnotherShareAScript(t *testing.T) {
	server := testbed.Redis(t)
	g := newTogether(t, server, SingleOptions{Address: server.Addr})
	keys := keysOf(20)
	g.known(keys...)
	for range 2 { // the second time after the scripts were lost
		server.Do(t, "script", "flush")
		outcomes, errs := g.do(g.items(keys)...)
		g.written(keys, outcomes, errs)
	}
	g.scripts()
	outcomes, errs := g.do(g.items(keys)...)
	g.written(keys, outcomes, errs)
	if n := g.scripts(); n != 2 {
		t.Errorf("%d scripts for %d keys", n, len(keys))
	}
	// A key that nothing is known of is forgotten, and no other.
	server.Do(t, "unlink", write.Names{}.Version(keys[7]))
	outcomes, errs = g.do(g.items(keys)...)
	for i := range keys {
		want := write.Written
		if i == 7 {
			want = write.Forgotten
		}
		if errs[i] != nil || outcomes[i] != want {
			t.Errorf("%s: %s, %v", keys[i], outcomes[i], errs[i])
		}
	}
	if n := g.scripts(); n != 2 {
		t.Errorf("%d scripts for %d keys", n, len(keys))
	}
}

// A script that fails half-way has done a part, and its error does not say which. What it holds is sent again, each
// call alone: so that each has its own answer, and none of the others is in trouble.
func TestACallThatFailsHalfWayFailsForItsOwnKeyOnly(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "acl", "setuser", "some", "on", ">secret", "~*", "+@all", "-unlink")
	g := newTogether(t, server, asSome(server))
	keys := keysOf(5)
	g.known(keys...)
	server.Do(t, "unlink", write.Names{}.Version(keys[2])) // nothing is known of it, so it must be removed
	g.do(g.items(keys)...)                                 // loads the scripts
	g.pos++
	g.scripts()
	outcomes, errs := g.do(g.items(keys)...)
	if n := g.scripts(); n != 1+len(keys) {
		t.Errorf("%d scripts, want one for all and one each", n)
	}
	if retry.ClassifyRedis(errs[2]) == retry.None {
		t.Errorf("%s: %s, %v", keys[2], outcomes[2], errs[2])
	}
	others := append(keysOf(2), keys[3:]...)
	g.written(others, append(outcomes[:2:2], outcomes[3:]...), append(errs[:2:2], errs[3:]...))
}

// What was refused together is sent again. What stands after it must not have been done by then: of two calls about one
// member, for the same change, the later one counts.
func TestWhatIsSentAgainStaysInItsOrder(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "acl", "setuser", "some", "on", ">secret", "~s", "~freshet:*", "+@all")
	g := newTogether(t, server, asSome(server))
	server.Do(t, "sadd", "s", "m", "n")
	server.Do(t, "hset", "freshet:m:{s}", "<", "010100800 0 s", ">", "010100800")
	g.pos = 9
	member := func(key string, intent event.Intent) *write.Item {
		it := g.item(key, "m")
		it.Action, it.Intent = event.ActionSet, intent
		return it
	}
	_, errs := g.do(member("s", event.IntentRemove), member("forbidden", event.IntentRemove), member("s", event.IntentPut))
	if errs[0] != nil || retry.ClassifyRedis(errs[1]) != retry.Key || errs[2] != nil {
		t.Errorf("%v", errs)
	}
	if server.Do(t, "sismember", "s", "m") != int64(1) {
		t.Error("the member that was added last is missing")
	}
}

func TestAKeyThatMayNotBeTouchedHoldsUpNoneOfItsCall(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "acl", "setuser", "some", "on", ">secret", "~k:*", "~freshet:*", "+@all")
	g := newTogether(t, server, asSome(server))
	keys := []string{"k:0", "forbidden", "k:1"}
	g.known(keys...)
	outcomes, errs := g.do(g.items(keys)...)
	if retry.ClassifyRedis(errs[1]) != retry.Key {
		t.Errorf("%s, %v", outcomes[1], errs[1])
	}
	g.written([]string{"k:0", "k:1"}, []write.Outcome{outcomes[0], outcomes[2]}, []error{errs[0], errs[2]})
}

// deletes are items that delete.
func (g *together) deletes(keys ...string) (items []*write.Item) {
	for _, k := range keys {
		items = append(items, &write.Item{Key: k, Action: event.ActionDelete, Intent: event.IntentForget, Source: "s"})
	}
	return items
}

func TestDeletesShareACommandAndEachHasItsAnswer(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "acl", "setuser", "some", "on", ">secret", "~k:*", "~freshet:*", "+@all")
	g := newTogether(t, server, asSome(server))
	keys := keysOf(250)
	g.known(keys[:120]...)
	server.Do(t, "config", "resetstat")
	outcomes, errs := g.do(g.deletes(keys...)...)
	removed := 0
	for i, o := range outcomes {
		if errs[i] != nil {
			t.Fatalf("%s: %v", keys[i], errs[i])
		}
		if o == write.Removed {
			removed++
		}
	}
	text := server.Client().InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_unlink"]
	if removed != 120 || !strings.HasPrefix(text, "calls=3,") {
		t.Errorf("%d of 120 removed with %s", removed, text)
	}
	// One that Redis refuses is in trouble alone.
	g.known("k:0", "k:1")
	server.Do(t, "set", "forbidden", "old")
	outcomes, errs = g.do(g.deletes("k:0", "forbidden", "k:1")...)
	if outcomes[0] != write.Removed || outcomes[2] != write.Removed || errs[0] != nil || errs[2] != nil ||
		retry.ClassifyRedis(errs[1]) != retry.Key {
		t.Errorf("%v, %v", outcomes, errs)
	}
	if n := server.Client().Exists(t.Context(), "k:0", "k:1", "forbidden").Val(); n != 1 {
		t.Errorf("%d keys are left", n)
	}
}

func TestWhatRedisRefusesIsRefusedToEachCall(t *testing.T) {
	server := testbed.Redis(t)
	g := newTogether(t, server, SingleOptions{Address: server.Addr})
	keys := keysOf(3)
	g.known(keys...)
	g.do(g.items(keys)...)
	for _, refuses := range [][2][]any{
		{{"replicaof", "127.0.0.1", "1"}, {"replicaof", "no", "one"}},
		{{"config", "set", "min-replicas-to-write", "1"}, {"config", "set", "min-replicas-to-write", "0"}},
	} {
		server.Do(t, refuses[0]...)
		_, errs := g.do(g.items(keys)...)
		for i, err := range errs {
			if retry.ClassifyRedis(err) != retry.Away {
				t.Errorf("%v, %s: %v", refuses[0], keys[i], err)
			}
		}
		server.Do(t, refuses[1]...)
		outcomes, errs := g.do(g.items(keys)...)
		g.written(keys, outcomes, errs)
	}
}

// Nobody knows what became of a call without an answer. To carry it out again is harmless.
func TestACallOfSeveralWithoutAnAnswerIsNotAnswered(t *testing.T) {
	server := testbed.Redis(t)
	p := proxy.StartRESP(t, server.Addr)
	g := newTogether(t, server, SingleOptions{Address: p.Addr()})
	keys := keysOf(5)
	g.known(keys...)
	g.do(g.items(keys)...) // loads the scripts
	for _, action := range []proxy.Action{proxy.DropReply, proxy.DropCommand} {
		g.pos++
		p.OnCommand(func(proxy.Command) proxy.Action { return action })
		_, errs := g.do(g.items(keys)...)
		for i, err := range errs {
			if retry.ClassifyRedis(err) != retry.Away {
				t.Errorf("%s: %v", keys[i], err)
			}
		}
		p.OnCommand(nil)
		outcomes, errs := g.do(g.items(keys)...)
		g.written(keys, outcomes, errs)
	}
}

// A node of a cluster takes a call of keys of one slot only. So does a server that has slots without saying so.
func TestInAClusterCallsOfOneKeyShareAScript(t *testing.T) {
	t.Parallel()
	cluster := testbed.Cluster(t, testbed.ClusterOptions{Masters: 3})
	server := cluster.Masters[0]
	var keys []string
	for _, slot := range cluster.Slots(t, server)[:3] {
		keys = append(keys, fmt.Sprintf("{%s}:k", write.SlotTag(uint16(slot))))
	}
	fields := func(g *together) (items []*write.Item) {
		for _, f := range []string{"a", "b", "c"} {
			it := g.item("{"+write.SlotTag(uint16(cluster.Slots(t, server)[0]))+"}:h", "")
			it.Action, it.Fields = event.ActionHash, event.AppendField(event.AppendField(nil, f), "v")
			items = append(items, it)
		}
		return items
	}
	nodes, err := NewNodes(ClusterOptions{Seeds: []string{server.Addr}})
	testbed.Must(t, err)
	defer func() { testbed.Must(t, nodes.Close()) }()
	node, err := nodes.node(server.Addr)
	testbed.Must(t, err)
	defer func() { testbed.Must(t, node.Close()) }()
	g := newTogether(t, server, SingleOptions{Address: server.Addr})
	unaware := g.redis
	for name, c := range map[string]struct {
		redis       *Single
		first, then int
	}{
		"a node":            {node, 3, 3},
		"a server unawares": {unaware, 1 + 3, 3},
	} {
		g.redis = c.redis
		g.known(keys...)
		g.do(g.items(keys[:1])...)
		g.do(fields(g)...) // loads the scripts
		g.redis.slots.Store(c.redis == node)
		for _, want := range []int{c.first, c.then} {
			g.scripts()
			outcomes, errs := g.do(g.items(keys)...)
			g.written(keys, outcomes, errs)
			if n := g.scripts(); n != want {
				t.Errorf("%s: %d scripts for %d keys, want %d", name, n, len(keys), want)
			}
		}
		_, errs := g.do(fields(g)...)
		if n := g.scripts(); n != 1 || errs[0] != nil || errs[2] != nil {
			t.Errorf("%s: %d scripts for fields of one hash; %v", name, n, errs)
		}
	}
}

// As for one key: the call took effect and its reply was lost, or it was lost itself, at every write.
func TestAReplyLostOfACallOfSeveralLosesNothing(t *testing.T) {
	atEachWrite(t, 2, "two actions", func(l *live, at int) (check func(lost bool)) {
		var things []thing
		value := fmt.Sprintf("value %d", at)
		for i := range 4 {
			key := fmt.Sprintf("k:%d:%d", at, i)
			l.server.Do(t, "set", key, "old")
			things = append(things, put(key, value))
		}
		l.do(things...)
		return func(lost bool) {
			for _, th := range things {
				got := l.server.Client().Get(t.Context(), th.key).Val()
				if got != value && (!lost || got != "") {
					t.Errorf("with write %d lost: %s is %q, want %q", at, th.key, got, value)
				}
			}
		}
	})
}
