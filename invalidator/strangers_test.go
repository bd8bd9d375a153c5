package invalidator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// saying is the view of the first of some masters, which have as many slots each; those whose names begin with "-" have
// none.
func saying(ids ...string) view {
	var b strings.Builder
	for i, id := range ids {
		id, empty := strings.CutPrefix(id, "-")
		flags, slots := "master", fmt.Sprintf("%d-%d", i*100, i*100+99)
		if i == 0 {
			flags = "myself,master"
		}
		if empty {
			slots = ""
		}
		fmt.Fprintf(&b, "%s %s:6379@16379 %s - 0 0 %d connected %s\n", id, id, flags, i+1, slots)
	}
	return parseView(b.String(), nil, strings.TrimPrefix(ids[0], "-")+":6379")
}

// Keys of one cluster must never go to another, whichever answers first or alone.
func TestNodesOfAnotherClusterAreLeftOut(t *testing.T) {
	a, b := saying("a1", "a2", "a3"), saying("a2", "a1", "a3")
	other, made := saying("b1", "b2"), saying("c1", "c2")
	alone := saying("-x1")
	for name, c := range map[string]struct {
		readings  [][]view
		ours      []string // of the last reading
		strangers []string
		failed    string
	}{
		"one":                                {[][]view{{a, b}}, []string{"a1:6379", "a2:6379"}, nil, ""},
		"two, and none is known":             {[][]view{{a, other}}, nil, nil, "b1:6379 is a node of another cluster than a1:6379"},
		"two, in another order":              {[][]view{{other, a}}, nil, nil, "b1:6379 is a node of another cluster than a1:6379"},
		"another one comes":                  {[][]view{{a}, {other, a, b}}, []string{"a1:6379", "a2:6379"}, []string{"b1:6379"}, ""},
		"another one answers alone":          {[][]view{{a}, {other, a}, {other}}, nil, nil, "none answers"},
		"a node without slots answers alone": {[][]view{{a, alone}, {saying("-x2")}}, nil, nil, "none answers"},
		"a node without slots is left in":    {[][]view{{a}, {a, alone}}, []string{"a1:6379", "x1:6379"}, nil, ""},
		"all were made new":                  {[][]view{{a, b}, {made}}, []string{"c1:6379"}, nil, ""},
		"a node was forgotten and is another's": {
			[][]view{{saying("a1", "a2", "b1")}, {a, saying("b1", "b2")}}, []string{"a1:6379"}, []string{"b1:6379"}, "",
		},
		"no node is part of a cluster yet": {[][]view{{alone, saying("-x2")}}, []string{"x1:6379", "x2:6379"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var k kin
			var ours []view
			var strangers []string
			var err error
			for _, views := range c.readings {
				ours, strangers, err = k.of(views)
			}
			var got []string
			for _, v := range ours {
				got = append(got, v.asked)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.ours) || !slices.Equal(strangers, c.strangers) {
				t.Errorf("%q, strangers %q", got, strangers)
			}
			if (err == nil) != (c.failed == "") || err != nil && !strings.Contains(err.Error(), c.failed) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestASeedOfAnotherClusterGetsNoKeys(t *testing.T) {
	t.Parallel()
	ours := testbed.Cluster(t, testbed.ClusterOptions{Masters: 2})
	other := testbed.Cluster(t, testbed.ClusterOptions{Masters: 3})
	nodes, err := NewNodes(ClusterOptions{Seeds: []string{ours.Masters[0].Addr, other.Masters[0].Addr}})
	testbed.Must(t, err)
	defer func() { testbed.Must(t, nodes.Close()) }()
	testbed.Must(t, other.Masters[0].Pause())
	_, err = nodes.Layout(t.Context())
	testbed.Must(t, err)
	testbed.Must(t, other.Masters[0].Resume())
	testbed.Eventually(t, time.Minute, "the other cluster is noticed", func() bool {
		l, err := nodes.Layout(t.Context())
		testbed.Must(t, err)
		for _, n := range l.Nodes {
			if !slices.ContainsFunc(ours.Masters, func(m *testbed.RedisServer) bool { return m.Addr == n.String() }) {
				t.Fatalf("keys go to %s", n)
			}
		}
		return slices.Equal(l.Strangers, []string{other.Masters[0].Addr})
	})
}

func TestWhatIsWrongWithAClusterIsAnAlarmWhenItComesOrChanges(t *testing.T) {
	var got alarms
	o := oddities{alarms: &got, cluster: "the cluster"}
	whole := &Layout{}
	lacks := func(slots int, strangers ...string) *Layout {
		l := &Layout{Strangers: strangers}
		for i := range slots {
			l.Owner[i] = -1
		}
		return l
	}
	for i, c := range []struct {
		is                  *Layout
		unserved, strangers int
	}{
		{whole, 0, 0},
		{lacks(3), 1, 0},
		{lacks(3), 1, 0},
		{lacks(4), 2, 0},
		{whole, 2, 0},
		{lacks(4), 3, 0},
		{lacks(0, "x"), 3, 1},
		{lacks(0, "x"), 3, 1},
		{lacks(0, "x", "y"), 3, 2},
		{whole, 3, 2},
		{lacks(0, "x"), 3, 3},
	} {
		o.report(c.is)
		if u, s := got.count(alarm.RedisSlotsUnserved), got.count(alarm.RedisStranger); u != c.unserved || s != c.strangers {
			t.Errorf("after %d: %d and %d alarms, want %d and %d", i, u, s, c.unserved, c.strangers)
		}
	}
}
