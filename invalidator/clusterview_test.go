package invalidator

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
)

// Lines as Redis 7.0 prints them.
const (
	ofA = "aaa 10.0.0.1:6379@16379,a.example myself,master - 0 0 1 connected 0-99 [7->-bbb] [8-<-ccc]\n" +
		"bbb 10.0.0.2:6379@16379 master - 0 1 2 connected 100-199 300\n" +
		"ccc :0@0 master,noaddr - 0 1 9 disconnected 400\n" +
		"ddd 10.0.0.4:6379@16379 slave aaa 0 1 1 connected\n"
	ofB = "bbb :6379@16379 myself,master - 0 0 5 connected 100-199 50\n" +
		"aaa 10.0.0.1:6379@16379 master,fail - 0 1 1 connected 0-99\n"
)

func TestWhatANodeSaysOfItselfCountsFirst(t *testing.T) {
	called := []redis.ClusterSlot{{Start: 0, End: 99, Nodes: []redis.ClusterNode{{ID: "aaa", Addr: "a.example:6379"}}}}
	a := parseView(ofA, called, "seed:1")
	b := parseView(ofB, []redis.ClusterSlot{{Nodes: []redis.ClusterNode{{ID: "bbb", Addr: "?:6379"}}}}, "asked:7")
	said := map[string]seenNode{}
	known := agree([]view{a, b}, said)
	if len(known) != 2 || known["aaa"].addr != "a.example:6379" || known["bbb"].addr != "asked:6379" {
		t.Errorf("%+v", known)
	}
	if known["aaa"].moving[7] != "bbb" || len(known["aaa"].moving) != 1 {
		t.Errorf("moving %v", known["aaa"].moving)
	}
	if got := known["bbb"].slots; len(got) != 2 || got[0] != (slotRange{100, 199}) || got[1] != (slotRange{50, 50}) {
		t.Errorf("%v: what another says of it counts", got)
	}
	c := &Nodes{options: ClusterOptions{Node: SingleOptions{}}, singles: map[clusterNode]*Single{}}
	l, err := c.layOut(known)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for slot, want := range map[int]string{0: "a.example:6379", 50: "asked:6379", 150: "asked:6379", 300: "", 400: ""} {
		got := ""
		if n := l.Owner[slot]; n >= 0 {
			got = l.Nodes[n].String()
		}
		if got != want {
			t.Errorf("slot %d is of %q, want %q", slot, got, want)
		}
	}
	if to := l.Nodes[l.Takers[7]].String(); to != "asked:6379" {
		t.Errorf("slot 7 is moved to %s", to)
	}
}

// A slot is with another master for a while, and comes back: a search of the masters that ended meanwhile has missed
// it.
func TestSlotsThatWereElsewhereAreNoticed(t *testing.T) {
	t.Parallel()
	cluster := testbed.Cluster(t, testbed.ClusterOptions{Masters: 2})
	nodes, err := NewNodes(ClusterOptions{Seeds: []string{cluster.Masters[0].Addr}})
	testbed.Must(t, err)
	t.Cleanup(func() { testbed.Must(t, nodes.Close()) })
	said := func() string {
		for range 2 { // at first the seed alone is asked
			_, _, err := nodes.Masters(t.Context())
			testbed.Must(t, err)
		}
		_, as, err := nodes.Masters(t.Context())
		testbed.Must(t, err)
		return as
	}
	before := said()
	if again := said(); before == "" || again != before {
		t.Errorf("%q and %q, and nothing has moved", before, again)
	}
	one, other := cluster.Masters[0], cluster.Masters[1]
	slot := cluster.Slots(t, one)[0]
	cluster.Move(t, one, other, slot)
	cluster.Move(t, other, one, slot)
	if after := said(); after == before {
		t.Error("it is as if nothing had been")
	}
}

// A node that has a port for TLS only, and no tls-cluster, says that its port is 0.
func TestMastersWithoutAPortAreCounted(t *testing.T) {
	v := parseView("aaa 127.0.0.1:0@8301 myself,master - 0 0 1 connected 0-99\n"+
		"bbb 127.0.0.1:0@8302 master - 0 0 2 connected\n", nil, "seed:1")
	c := &Nodes{singles: map[clusterNode]*Single{}}
	l, err := c.layOut(agree([]view{v}, map[string]seenNode{}))
	if err != nil || l.Portless != 1 || len(l.Nodes) != 0 {
		t.Errorf("%d without a port, %d nodes, %v", l.Portless, len(l.Nodes), err)
	}
}

// One that does not answer keeps what it has said, until others know of something later.
func TestANodeThatIsSilentKeepsWhatItHasSaid(t *testing.T) {
	said := map[string]seenNode{}
	agree([]view{parseView(ofA, nil, "a:1"), parseView(ofB, nil, "b:1")}, said)
	known := agree([]view{parseView(ofA, nil, "a:1")}, said)
	if n := known["bbb"]; n.epoch != 5 || len(n.slots) != 2 || n.slots[1] != (slotRange{50, 50}) {
		t.Errorf("of an older epoch: %+v", n)
	}
	later := "aaa 10.0.0.1:6379@16379 myself,slave bbb 0 0 6 connected\n" +
		"bbb 10.0.0.2:6379@16379 master - 0 1 6 connected 0-199\n"
	known = agree([]view{parseView(later, nil, "a:1")}, said)
	if n := known["bbb"]; len(known) != 1 || n.epoch != 6 || len(n.slots) != 1 {
		t.Errorf("after a failover: %+v", known)
	}
	if agree([]view{parseView("aaa 10.0.0.1:6379@16379 myself,slave ccc 0 0 6 connected\n", nil, "a:1")}, said); len(said) != 0 {
		t.Errorf("what nobody knows any more is remembered: %+v", said)
	}
}

func FuzzParseView(f *testing.F) {
	f.Add(ofA)
	f.Add(ofB)
	f.Fuzz(func(_ *testing.T, nodes string) {
		c := &Nodes{singles: map[clusterNode]*Single{}}
		_, _ = c.layOut(agree([]view{parseView(nodes, nil, "asked:1")}, map[string]seenNode{}))
		_ = c.Close()
	})
}

// CLUSTER NODES has addresses of IPv6 without brackets, and CLUSTER SLOTS lacks the masters that have no slots.
func TestAMasterWithoutSlotsIsFoundByIPv6(t *testing.T) {
	for line, want := range map[string]string{
		"fd00::7:6379@16379,a.example,shard-id=x": "[fd00::7]:6379",
		"::1:6379@16379": "[::1]:6379", ":6379@16379": "asked:6379",
		"10.0.0.1:6379@16379": "10.0.0.1:6379", ":0@0": "",
	} {
		v := parseView("aaa "+line+" master - 0 0 1 connected", nil, "asked:7")
		if got := v.nodes[0].addr; got != want {
			t.Errorf("%s is at %q, want %q", line, got, want)
		}
	}
}
