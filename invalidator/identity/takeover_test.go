package identity

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// runID is what a server calls itself.
func runID(t *testing.T, s *testbed.RedisServer) string {
	t.Helper()
	info, ok := parse(s.Client().Info(t.Context()).Val(), 0)
	if !ok {
		t.Fatal("it does not say who it is")
	}
	return info.run
}

// What a process finishes counts for the Redis that On names, so it must name no other from before the first command
// goes there until what that one lacks is recorded.
func TestWorkIsSaidToBeDoneOnARedisOnceWhatItLacksIsRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	on := func(want string) {
		t.Helper()
		if got := r.watch.On(); got != want {
			t.Fatalf("on %q, want %q", got, want)
		}
	}
	on("")
	r.look()
	former := runID(t, r.server)
	on(former)
	next := testbed.Redis(t)
	next.Do(t, "set", "k", "v")
	next.Do(t, "save")
	testbed.Must(t, next.Kill())
	testbed.Must(t, next.Start(t.Context()))
	testbed.Must(t, r.watch.Look(t.Context(), next.Client())) // a new connection
	on(notSure)
	testbed.Must(t, r.watch.Look(t.Context(), r.server.Client())) // and another
	r.compare()
	on(former)
	r.server = next
	testbed.Must(t, r.watch.Look(t.Context(), next.Client()))
	on(notSure)
	r.compare()
	r.doubtful("has read back what it had saved")
	on(runID(t, next))
	r.begin()
	on(runID(t, next)) // as it was kept
}

func TestWhoTakesWorkOverSaysWhatRedisLacksOfIt(t *testing.T) {
	t.Parallel()
	leader, follower := newGroup(t, testbed.Redis(t))
	leader.finish("a")
	follower.look()
	here := runID(t, leader.server)
	take := func(on string, at time.Time) {
		t.Helper()
		testbed.Must(t, follower.watch.TakeOver(t.Context(), "topic/3", on, at))
	}
	take(here, time.Now())
	// By then this server had not been started yet, or holds nothing.
	take("another", time.Now().Add(-time.Hour))
	leader.doubtful("")
	// It may have been there already: the clock that says when is that of another process.
	take("another", time.Now())
	leader.since("a")
	leader.doubtful("another process, which had topic/3 before, worked on another one to the end")
	key, _, _ := leader.watch.asked()
	leader.server.Do(t, "del", key)
	leader.server.Do(t, "set", "k", "v")
	take("another", time.Now())
	list := leader.book.List()
	if len(list) != 2 || list[0].From != "" && list[1].From != "" {
		t.Errorf("without a stamp nobody knows what it lacks: %+v", list)
	}
	testbed.Must(t, follower.watch.Look(t.Context(), testbed.Redis(t).Client()))
	if err := follower.watch.TakeOver(t.Context(), "topic/3", "another", time.Now()); err == nil {
		t.Error("it is taken over though nobody knows which redis this is")
	}
}

func TestWhoTakesWorkOnAClusterOverSaysWhatItsMastersLack(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, testbed.ClusterOptions{Masters: 3})
	r.fill()
	r.finish("a")
	on := r.watch.On()
	if n := strings.Count(on, "."); n != 2 {
		t.Fatalf("three masters are named %q", on)
	}
	take := func(on string) {
		t.Helper()
		testbed.Must(t, r.watch.TakeOver(t.Context(), "topic/3", on, time.Now()))
	}
	take(on)
	take("another") // all masters began with nothing
	r.doubts()
	for _, m := range r.cluster.Masters {
		m.Do(t, "save")
	}
	testbed.Must(t, r.cluster.Masters[1].Kill())
	testbed.Must(t, r.cluster.Masters[1].Start(t.Context()))
	testbed.Eventually(t, time.Minute, "it is known again", func() bool {
		r.look()
		return len(r.book.List()) == 1 && r.watch.On() != on && r.watch.On() != notSure
	})
	r.doubts("a")
	take(r.watch.On())
	if n := r.book.List()[0].Count; n != 1 {
		t.Errorf("recorded %d times", n)
	}
	take(on)
	if n := r.book.List()[0].Count; n != 2 || len(r.book.List()) != 1 {
		t.Errorf("recorded %d times: %+v", n, r.book.List())
	}
}

// What is done on a master that has just got its first slot, or replaced another one, is done on a server of which
// nothing is recorded. The first connection to it may come before the first look at it.
func TestWorkOnAMasterThatNobodyHasLookedAtIsOnNoneThatIsKnown(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, testbed.ClusterOptions{Masters: 2})
	r.look()
	on := r.watch.On()
	if strings.Count(on, ".") != 1 {
		t.Fatalf("two masters are named %q", on)
	}
	added := r.cluster.Add(t)
	testbed.Must(t, r.watch.Look(t.Context(), added.Addr, added.Client()))
	r.cluster.Move(t, r.cluster.Masters[0], added, r.has(0)[:5]...)
	testbed.Eventually(t, time.Minute, "the node that was added has slots", func() bool {
		return slices.ContainsFunc(r.members(), func(m Member) bool { return m.Address == added.Addr && !m.Slots.isEmpty() })
	})
	if is := r.watch.On(); is != notSure {
		t.Errorf("on %q while nobody has looked at a master", is)
	}
	r.watch.follow()
	if is := r.watch.On(); is != notSure {
		t.Errorf("on %q before a master has answered", is)
	}
	r.look()
	if is := r.watch.On(); strings.Count(is, ".") != 2 {
		t.Errorf("three masters are named %q", is)
	}
	if !slices.Equal(r.moved, []string{added.Addr}) {
		t.Errorf("left %q", r.moved)
	}
}

func TestTwoNamesOfARedis(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		apart bool
	}{
		{"a", "b", true},
		{"a", "a", false},
		{"a.b.c", "b.d", false},
		{"a.b", "c.d", true},
		{"", "a", false},
		{"a", notSure, false},
	} {
		if Apart(c.a, c.b) != c.apart || Apart(c.b, c.a) != c.apart {
			t.Errorf("%q and %q", c.a, c.b)
		}
	}
}
