package identity

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/proof/testbed"
)

// clusterRig is a watch of a cluster that is moved by hand.
type clusterRig struct {
	*testing.T
	cluster  *testbed.RedisCluster
	nodes    *invalidator.Nodes
	facts    *doubttest.Memory
	book     *doubt.Book
	watch    *Cluster
	finished string
	moved    []string // addresses
	prefix   string
}

func newClusterRig(t *testing.T, o testbed.ClusterOptions) *clusterRig {
	t.Helper()
	r := &clusterRig{T: t, cluster: testbed.Cluster(t, o), facts: &doubttest.Memory{}, book: mustBook(t)}
	nodes, err := invalidator.NewNodes(invalidator.ClusterOptions{
		Seeds: []string{r.cluster.Masters[0].Addr, r.cluster.Masters[1].Addr},
	})
	testbed.Must(t, err)
	t.Cleanup(func() { testbed.Must(t, nodes.Close()) })
	r.nodes = nodes
	r.begin()
	return r
}

// begin is freshet's start: what it knows is what was kept.
func (r *clusterRig) begin() {
	r.Helper()
	w, err := NewCluster(Deps{
		Facts: r.facts, Doubts: r.book, Place: func() (string, bool) { return r.finished, r.finished != "" },
		Log: slog.New(slog.DiscardHandler),
	}, Options{Address: "the cluster", Source: "shop", Prefix: r.prefix}, r.members)
	testbed.Must(r, err)
	r.watch = w
	testbed.Must(r, w.load(r.Context()))
}

func (r *clusterRig) members() (members []Member) {
	l, err := r.nodes.Layout(r.Context())
	testbed.Must(r, err)
	for _, m := range l.Masters {
		member := Member{
			ID: m.ID, Address: m.Address, Redis: m.Looking, Moved: func() { r.moved = append(r.moved, m.Address) },
		}
		for slot, n := range l.Owner {
			if n >= 0 && n == m.Ordinal {
				member.Slots.Add(uint16(slot))
			}
		}
		members = append(members, member)
	}
	return members
}

// look looks at all masters once. Before that Redis has everything be said that there is no news of, as time does.
func (r *clusterRig) look() {
	r.Helper()
	_, err := r.watch.look(r.Context())
	testbed.Must(r, err)
	r.watch.keep(r.Context())
}

// finish says that everything up to a place is finished, and has all masters with slots stamped with it.
func (r *clusterRig) finish(place string) {
	r.Helper()
	r.finished = place
	testbed.Eventually(r, time.Minute, "all masters have a stamp that says "+place, func() bool {
		r.look()
		return !slices.ContainsFunc(r.stamps(), func(s string) bool { return s != place })
	})
}

// stamps returns those of the masters with slots.
func (r *clusterRig) stamps() (all []string) {
	client := r.cluster.Client(nil)
	defer func() { testbed.Must(r, client.Close()) }()
	for _, m := range r.members() {
		if key := m.Slots.stampKey(r.prefix, r.watch.stamp); key != "" {
			_, place, _ := strings.Cut(client.Get(r.Context(), key).Val(), " ")
			all = append(all, place)
		}
	}
	return all
}

// doubts checks from which places on there are doubts.
func (r *clusterRig) doubts(from ...string) {
	r.Helper()
	var got, messages []string
	for _, d := range r.book.List() {
		got, messages = append(got, string(d.Cause)+" "+d.From), append(messages, d.Message)
	}
	var want []string
	for _, f := range from {
		want = append(want, string(alarm.RedisChanged)+" "+f)
	}
	if !slices.Equal(got, want) {
		r.Fatalf("doubts %q, want %q: %s", got, want, strings.Join(messages, "\n"))
	}
}

// fill has each master hold keys, so that it is not empty.
func (r *clusterRig) fill() {
	client := r.cluster.Client(nil)
	defer func() { testbed.Must(r, client.Close()) }()
	for slot := 0; slot < write.Slots; slot += 100 {
		testbed.Must(r, client.Set(r.Context(), "{"+write.SlotTag(uint16(slot))+"}", "old", 0).Err())
	}
}

func (r *clusterRig) has(n int) []int { return r.cluster.Slots(r, r.cluster.Masters[n]) }

// unmarked are slots of a master that have no stamp, and would have none at another one.
func (r *clusterRig) unmarked(from, to int) []int {
	stamp := func(slots ...int) string {
		var set SlotSet
		for _, s := range slots {
			set.Add(uint16(s))
		}
		return set.stampKey(r.prefix, r.watch.stamp)
	}
	gives, takes := r.has(from)[:100], r.has(to)
	return slices.DeleteFunc(slices.Clone(gives), func(slot int) bool {
		return stamp(slot) == stamp(gives...) || stamp(append(takes, slot)...) == stamp(slot)
	})
}

func TestANodeOfAClusterThatReadsBackAnOldSnapshotSaysHowOldItIs(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]bool{"freshet runs": false, "freshet is down": true} {
		t.Run(name, func(t *testing.T) {
			r := newClusterRig(t, testbed.ClusterOptions{Masters: 3})
			r.fill()
			r.finish("a")
			one := r.cluster.Masters[1]
			one.Do(t, "save")
			r.finish("b")
			r.doubts()
			testbed.Must(t, one.Kill())
			testbed.Must(t, one.Start(t.Context()))
			r.cluster.Await(t)
			if down {
				r.begin()
			}
			r.look()
			r.doubts("a")
			if !slices.Equal(r.moved, []string{one.Addr}) {
				t.Errorf("left %q", r.moved)
			}
			r.finish("c")
			r.doubts("a")
		})
	}
}

func TestAPromotedReplicaOfAClusterIsInDoubt(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]bool{"freshet runs": false, "freshet is down": true} {
		t.Run(name, func(t *testing.T) {
			r := newClusterRig(t, testbed.ClusterOptions{Masters: 3, Replicas: 1})
			r.fill()
			r.finish("a")
			r.doubts()
			r.finished = "b" // no stamp says so yet
			killed, heir := r.cluster.Masters[0], r.cluster.Replicas[0]
			testbed.Must(t, killed.Kill())
			if down {
				r.begin()
			}
			testbed.Eventually(t, time.Minute, "the replica takes over", func() bool {
				if !down {
					r.finished = ""
					r.look()
				}
				return heir.IsMaster(t.Context())
			})
			r.finished = ""
			testbed.Eventually(t, time.Minute, "the heir is looked at", func() bool {
				r.look()
				return len(r.book.List()) > 0
			})
			r.doubts("a")
			// The former master follows, and takes over again.
			testbed.Must(t, killed.Start(t.Context()))
			r.cluster.Await(t)
			r.finish("c")
			r.cluster.Failover(t, heir, killed)
			testbed.Eventually(t, time.Minute, "the former master is looked at", func() bool {
				r.look()
				return len(r.book.List()) > 1
			})
			r.doubts("a", "c")
		})
	}
}

// Nodes come and go, and slots move, with keys in them and without.
func TestSlotsThatMoveAreNoDoubt(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, testbed.ClusterOptions{Masters: 2, Args: []string{"--appendonly", "yes"}})
	r.fill()
	r.finish("a")
	added := r.cluster.Add(t)
	testbed.Eventually(t, time.Minute, "the node that was added is looked at", func() bool {
		r.look()
		return len(r.watch.nodes) == 3
	})
	slots := r.has(0)
	for n, slot := range []int{slots[0], slots[1], slots[100], slots[500], slots[501]} {
		r.cluster.Move(t, r.cluster.Masters[0], added, slot)
		r.finish(string(rune('b' + n)))
	}
	id := added.NodeID(t)
	testbed.Eventually(t, time.Minute, "the slots are those of the node that was added", func() bool {
		r.look()
		return r.watch.nodes[id].Slots.Len() == 5
	})
	r.cluster.Move(t, added, r.cluster.Masters[1], r.cluster.Slots(t, added)...)
	testbed.Eventually(t, time.Minute, "the node has no slots", func() bool {
		r.look()
		return r.watch.nodes[id].Slots.isEmpty()
	})
	r.cluster.Forget(t, added, r.cluster.Masters...)
	testbed.Must(t, added.Kill())
	r.finish("z")
	r.doubts()
	if len(r.watch.nodes) != 2 {
		t.Errorf("%d nodes are known", len(r.watch.nodes))
	}
}

// Valkey moves slots by itself, there and back, and somebody ends a move half-way.
func TestSlotsThatMigrateAreNoDoubt(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, testbed.ClusterOptions{Masters: 3, Valkey: true})
	c := r.cluster
	r.fill()
	r.finish("a")
	slots := r.has(0)[:200]
	from, to := c.Masters[0], c.Masters[1]
	for n, stage := range []testbed.Stage{testbed.Streaming, testbed.Granted} {
		release := c.HoldMigrations(t, stage, from, to)
		c.BeginMigration(t, from, to, slots...)
		c.AwaitStage(t, stage, from)
		r.look()
		if !c.CancelMigrations(t, from) {
			t.Errorf("at the stage %s there was nothing to be ended", stage)
		}
		release()
		r.finish(string(rune('b' + n)))
	}
	for n := range 4 {
		c.Migrate(t, from, to, slots...)
		r.finish(string(rune('k' + n)))
		from, to = to, from
	}
	r.doubts()
}

// Nobody knows what the node that is gone was when it gave its slots away.
func TestSlotsOfANodeThatIsGoneAreInDoubt(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, testbed.ClusterOptions{Masters: 3})
	r.fill()
	r.finish("a")
	gone := r.cluster.Masters[2]
	r.begin()
	r.cluster.Move(t, gone, r.cluster.Masters[0], r.has(2)...)
	r.cluster.Forget(t, gone, r.cluster.Masters[:2]...)
	testbed.Must(t, gone.Kill())
	testbed.Eventually(t, time.Minute, "the slots are looked at", func() bool {
		r.look()
		return len(r.book.List()) > 0
	})
	r.doubts("")
	r.finish("b")
	r.doubts("")
}

// newSavedCluster is a cluster of two masters, the first of which has saved its data when everything was finished up to
// a. By now everything is up to b.
func newSavedCluster(t *testing.T) (r *clusterRig, one, other *testbed.RedisServer) {
	t.Helper()
	r = newClusterRig(t, testbed.ClusterOptions{Masters: 2})
	r.fill()
	r.finish("a")
	one, other = r.cluster.Masters[0], r.cluster.Masters[1]
	one.Do(t, "save")
	r.finish("b")
	return r, one, other
}

// A stamp that came with a slot says nothing of the other data of the node.
func TestAStampThatCameWithASlotSaysNothing(t *testing.T) {
	t.Parallel()
	r, one, other := newSavedCluster(t)
	r.begin()
	testbed.Must(t, one.Kill())
	testbed.Must(t, one.Start(t.Context()))
	r.cluster.Await(t)
	// All that the other has, and so its stamp.
	r.cluster.Move(t, other, one, r.has(1)...)
	testbed.Eventually(t, time.Minute, "the slots are looked at", func() bool {
		r.look()
		return len(r.watch.nodes) > 0 && len(r.book.List()) > 0
	})
	r.doubts("")
}

// A slot brings older keys, which are forgotten after a while. Data of the time between holds these, and a stamp of
// before the slot came.
func TestAStampOfBeforeASlotCameSaysNothingOfTheSlot(t *testing.T) {
	t.Parallel()
	r, one, other := newSavedCluster(t)
	testbed.Must(t, one.Kill())
	testbed.Must(t, one.Start(t.Context()))
	r.cluster.Await(t)
	r.cluster.Move(t, one, other, r.unmarked(0, 1)[:20]...)
	r.begin() // it was down meanwhile
	r.finished = ""
	testbed.Eventually(t, time.Minute, "the slots are known to have moved", func() bool {
		r.look()
		return r.watch.nodes[other.NodeID(t)].Slots.Len() == len(r.has(1))
	})
	r.doubts("")
	other.Do(t, "save") // with keys that are older than b, and nobody has forgotten them yet
	r.finish("c")
	testbed.Must(t, other.Kill())
	testbed.Must(t, other.Start(t.Context()))
	r.cluster.Await(t)
	r.look()
	r.doubts("", "")
}

func TestTheStampOfAPrefixWithAHashTagIsInItsSlot(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, testbed.ClusterOptions{Masters: 2})
	r.prefix = "{shop}:"
	r.begin()
	r.finish("a")
	if got := r.stamps(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("stamps %q", got)
	}
	r.doubts()
}

func TestASingleRedisThatBecameAClusterIsInDoubtAndBack(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, testbed.ClusterOptions{Masters: 2})
	single := newRig(t, testbed.Redis(t))
	single.facts = r.facts
	single.begin()
	single.server.Do(t, "set", "k", "old")
	single.server.Do(t, "save")
	single.look()
	r.begin()
	r.look()
	r.doubts("")
	single.restart()
	single.begin()
	single.look()
	single.doubtful("read back")
}

func TestSlotSetsAreKeptAsText(t *testing.T) {
	for _, text := range []string{"", "0", "16383", "0-16383", "1-2 5 63-64 127-4000"} {
		var s SlotSet
		testbed.Must(t, s.UnmarshalText([]byte(text)))
		if back, err := s.MarshalText(); err != nil || string(back) != text {
			t.Errorf("%q: %q, %v", text, back, err)
		}
	}
	for _, wrong := range []string{"-", "5-4", "16384", "a"} {
		if new(SlotSet).UnmarshalText([]byte(wrong)) == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

// Most slots that come and go leave the stamp where it is.
func TestAStampSeldomChangesItsSlot(t *testing.T) {
	var s SlotSet
	changes, at := 0, ""
	for slot := range uint16(write.Slots) {
		s.Add(slot)
		if key := s.stampKey("shop:", "x"); key != at {
			changes, at = changes+1, key
		}
	}
	if changes > 40 {
		t.Errorf("%d changes", changes)
	}
	if slot := (write.Names{}).Slot(at); !s.Has(slot) || !strings.HasPrefix(at, "shop:freshet:stamp:{") {
		t.Errorf("%s", at)
	}
}
