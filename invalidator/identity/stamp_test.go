package identity

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/proof/testbed"
)

// finish says that everything up to a place is finished, and has Redis stamped with it.
func (r *rig) finish(place string) {
	r.Helper()
	r.finished = place
	r.look()
	r.look()
	if got := r.stampText(); got != place {
		r.Fatalf("the stamp says %q, want %q", got, place)
	}
}

func (r *rig) stampText() string {
	key, _, _ := r.watch.asked()
	return r.server.Client().Get(r.Context(), key).Val()
}

// since checks that there is one doubt, about the changes from a place on.
func (r *rig) since(place string) {
	r.Helper()
	if l := r.book.List(); len(l) != 1 || l[0].Cause != alarm.RedisChanged || l[0].From != place {
		r.Fatalf("want a doubt about what came after %q: %+v", place, l)
	}
}

func TestAnOldSnapshotSaysHowOldItIs(t *testing.T) {
	t.Parallel()
	both(t, func(r *rig) {
		r.finish("a")
		r.server.Do(r, "save")
		r.finish("b")
		r.restart()
		r.look()
		r.since("a")
	})
}

func TestAnOldSnapshotSaysHowOldItIsAlsoIfFreshetWasDown(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.finish("a")
	r.server.Do(t, "save")
	r.finish("b")
	r.restart()
	r.begin()
	r.look()
	r.since("a")
}

func TestALogThatWasCutOffSaysHowFarItGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t, "--appendonly", "yes"))
	r.finish("a")
	files, err := filepath.Glob(filepath.Join(r.server.Dir, "appendonlydir", "*.incr.aof"))
	testbed.Must(t, err)
	info, err := os.Stat(files[0])
	testbed.Must(t, err)
	r.finish("b")
	testbed.Must(t, r.server.Kill())
	testbed.Must(t, os.Truncate(files[0], info.Size()))
	testbed.Must(t, r.server.Start(t.Context()))
	r.look()
	r.since("a")
}

func TestAPromotedReplicaSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	replica := testbed.Redis(t)
	r.finish("a")
	replica.Do(t, "replicaof", "127.0.0.1", r.server.Port)
	testbed.Eventually(t, 2*time.Minute, "the replica follows",
		func() bool { return replica.Client().DBSize(t.Context()).Val() == 1 })
	r.look()
	replica.Do(t, "replicaof", "no", "one") // it gets nothing more
	r.finish("b")
	testbed.Must(t, r.server.Kill())
	r.server = replica
	r.look()
	r.since("a")
}

// INFO says nothing about it.
func TestDataThatGoesBackUnderARunningServerIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.finish("a")
	key, _, _ := r.watch.asked()
	dump := r.server.Client().Dump(t.Context(), key).Val()
	r.finish("b")
	testbed.Must(t, r.server.Client().RestoreReplace(t.Context(), key, 0, dump).Err())
	r.look()
	r.since("a")
	r.doubtful("the stamp that freshet keeps in it is an older one")
	r.look()
	if n := r.book.List()[0].Count; n != 1 {
		t.Errorf("recorded %d times", n)
	}
}

// A stamp that is gone says nothing, but that databases were swapped does: nothing was deleted in the one that is here
// now.
func TestDatabasesThatAreSwappedAreInDoubt(t *testing.T) {
	t.Parallel()
	both(t, func(r *rig) {
		other := r.server.NewClient(&redis.Options{DB: 1})
		defer other.Close()
		testbed.Must(t, other.Set(t.Context(), "product:1", "old", 0).Err())
		r.finish("a")
		r.server.Do(t, "swapdb", 0, 1)
		r.look()
		r.since("")
		r.doubtful("its databases have been swapped (SWAPDB)")
		r.finish("b")
		if n := r.book.List()[0].Count; n != 1 {
			t.Errorf("recorded %d times", n)
		}
	})
}

// Connections that are made while the doubt is being recorded find the same.
func TestOlderDataIsRecordedOnceHoweverManyConnectionsFindIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.finish("a")
	r.server.Do(t, "save")
	r.finish("b")
	r.restart()
	r.watch.Look(t.Context(), r.server.Client())
	answers := r.watch.take()
	r.watch.Look(t.Context(), r.server.Client())
	answers = append(answers, r.watch.take()...)
	for _, s := range answers {
		is, err := r.watch.compare(t.Context(), r.was, s)
		testbed.Must(t, err)
		r.was = is
	}
	r.since("a")
	if d := r.book.List()[0]; d.Count != 1 || !strings.Contains(d.Message, "was restarted") {
		t.Errorf("%+v", d)
	}
}

func TestAStampThatIsGoneIsNoDoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.finish("a")
	r.server.Do(t, "flushall")
	if err := r.server.Client().Do(t.Context(), "swapdb", 0, 99).Err(); err == nil {
		t.Error("there are more databases than Redis has")
	}
	r.server.Do(t, "set", "product:1", "new")
	r.look()
	r.look()
	r.doubtful("")
	r.finish("b")
	r.doubtful("")
}

func TestWithoutAStampNobodyKnowsHowOldTheDataIs(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.server.Do(t, "set", "k", "old")
	r.server.Do(t, "save")
	r.finish("a")
	r.restart()
	r.look()
	r.since("")
}

// What has not been finished since is not said to be, and the stamp of a Redis that was not looked at is not written
// over.
func TestAStampIsMovedOnTheServerOnlyThatWasLookedAt(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.finish("a")
	r.server.Do(t, "save")
	r.finish("b")
	r.restart()
	r.finished = "c"
	r.watch.renew(t.Context(), r.was, "")
	if got := r.stampText(); got != "a" {
		t.Fatalf("the stamp of a server that nobody has looked at says %q", got)
	}
	r.look()
	r.since("a")
	r.finish("c")
}

func TestTwoFreshetsInOneRedisHaveTwoStamps(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	one, other := newRig(t, server), newRig(t, server)
	for _, place := range []string{"a", "b", "c"} {
		one.finish(place)
		other.finish("of another " + place)
	}
	one.doubtful("")
	other.doubtful("")
}

func TestARedisThatRefusesTheStampIsSaidOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.server.Do(t, "acl", "setuser", "some", "on", ">p", "~product:*", "+@all")
	c := r.server.NewClient(&redis.Options{Username: "some", Password: "p"})
	defer func() { testbed.Must(t, c.Close()) }()
	r.finished, r.watch.deps.Redis = "a", c
	for range 3 {
		r.watch.renew(t.Context(), r.was, "")
		r.watch.Look(t.Context(), c)
		r.compare()
	}
	if a := r.alarms.Records(); len(a) != 1 || a[0].Kind != alarm.RedisUnknown || a[0].Count != 1 ||
		!strings.Contains(a[0].Message, "freshet:stamp:") {
		t.Errorf("alarms: %+v", a)
	}
	if err := Try(t.Context(), c, ""); !redis.IsPermissionError(err) {
		t.Errorf("tried: %v", err)
	}
	testbed.Must(t, Try(t.Context(), r.server.Client(), ""))
	r.doubtful("")
}

// member is another process of a group that works on the same Redis, and follows.
func (r *rig) member() *rig {
	r.Helper()
	m := &rig{T: r.T, server: r.server, facts: r.facts, book: r.book, group: r.group, follows: true}
	m.begin()
	return m
}

func newGroup(t *testing.T, server *testbed.RedisServer) (leader, follower *rig) {
	t.Helper()
	leader = &rig{T: t, server: server, facts: &doubttest.Memory{}, group: "g"}
	leader.book = mustBook(t)
	leader.begin()
	return leader, leader.member()
}

// Whatever the other moves, a follower finds nothing wrong, and writes nothing.
func TestAFollowerOnlyReadsTheStamp(t *testing.T) {
	t.Parallel()
	leader, follower := newGroup(t, testbed.Redis(t))
	follower.finished = "of the follower"
	follower.look()
	for _, place := range []string{"a", "b", "c"} {
		leader.finish(place)
		follower.watch.Look(t.Context(), follower.server.Client()) // a new connection
		follower.compare()
		follower.look()
		follower.look()
		if got := follower.stampText(); got != place {
			t.Fatalf("the stamp says %q, want %q", got, place)
		}
	}
	follower.doubtful("")
}

func TestAFollowerSaysHowOldTheDataIs(t *testing.T) {
	t.Parallel()
	leader, follower := newGroup(t, testbed.Redis(t))
	leader.finish("a")
	leader.server.Do(t, "save")
	leader.finish("b")
	follower.look()
	follower.restart()
	follower.look()
	follower.since("a")
	leader.finished = "c" // it has not looked yet
	leader.watch.renew(t.Context(), leader.was, "")
	if got := leader.stampText(); got != "a" {
		t.Fatalf("the stamp of a server that the leader has not looked at says %q", got)
	}
	leader.look()
	leader.since("a") // the same doubt
	if n := leader.book.List()[0].Count; n != 2 {
		t.Errorf("recorded %d times", n)
	}
}

// The stamp has moved while it followed, and it goes on from there.
func TestAFollowerThatLeadsGoesOnWithTheStamp(t *testing.T) {
	t.Parallel()
	leader, follower := newGroup(t, testbed.Redis(t))
	leader.finish("a")
	follower.look()
	for _, place := range []string{"b", "c", "d", "e"} {
		leader.finish(place)
		leader.follows, follower.follows = true, false
		leader.look()
		follower.finish(place + " of the next")
		leader, follower = follower, leader
	}
	leader.doubtful("")
	key, _, _ := leader.watch.asked()
	leader.server.Do(t, "set", key, "b")
	follower.look()
	leader.look()
	leader.since("b")
}

// What it read while it followed, it does not take for what it has put there.
func TestWhatAFollowerHasReadIsNotCompared(t *testing.T) {
	t.Parallel()
	leader, follower := newGroup(t, testbed.Redis(t))
	leader.finish("a")
	follower.look()
	follower.watch.Look(t.Context(), follower.server.Client()) // compared later
	leader.finish("b")
	leader.follows, follower.follows = true, false
	follower.watch.renew(t.Context(), follower.was, "")
	follower.compare()
	follower.look()
	follower.look()
	follower.doubtful("")
	follower.finish("c")
}

// A leader that was stopped asks for a place that it found before. Another has moved the stamp since.
func TestALeaderThatWasStoppedMovesNoStampThatAnotherHasMoved(t *testing.T) {
	t.Parallel()
	leader, next := newGroup(t, testbed.Redis(t))
	leader.finish("a")
	next.follows = false
	next.finish("b")
	leader.finished = "late"
	leader.watch.renew(t.Context(), leader.was, "")
	if got := next.stampText(); got != "b" {
		t.Errorf("the stamp says %q", got)
	}
}

// All members of a group have one stamp, and what they are called says which.
func TestTheStampIsAskedForOnceItsNameIsKnown(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	w, err := New(r.watch.deps, r.watch.options)
	testbed.Must(t, err)
	w.Look(t.Context(), r.server.Client())
	if len(w.take()) != 0 {
		t.Error("who Redis is was compared with nobody")
	}
	leader, follower := newGroup(t, r.server)
	one, _, _ := leader.watch.asked()
	other, _, _ := follower.watch.asked()
	if one != "freshet:stamp:g@cluster" || one != other {
		t.Errorf("the stamps are %s and %s", one, other)
	}
}

// lossy loses replies at random: the command may have taken effect, or not.
type lossy struct{ rand *rand.Rand }

var errLost = &net.OpError{Op: "read", Err: errors.New("i/o timeout")}

func (l lossy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch l.rand.IntN(4) {
		case 0:
			cmd.SetErr(errLost)
			return errLost
		case 1:
			_ = next(ctx, cmd)
			cmd.SetErr(errLost)
			return errLost
		}
		return next(ctx, cmd)
	}
}

func (l lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Whatever is lost on the way, nothing is in doubt as long as Redis holds what it held, and it is once it does not.
func TestLostRepliesAreNoDoubtAndHideNone(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newRig(t, server)
			c := server.NewClient(&redis.Options{})
			defer func() { testbed.Must(t, c.Close()) }()
			draw := rand.New(rand.NewPCG(seed, 0))
			c.AddHook(lossy{draw})
			r.watch.Look(t.Context(), server.Client())
			r.compare()
			r.watch.deps.Redis = c
			var places []string
			for n := range 200 {
				r.finished = fmt.Sprint(n)
				switch draw.IntN(4) {
				case 0:
					r.watch.renew(t.Context(), r.was, "")
				case 1:
					r.watch.Look(t.Context(), server.Client()) // a new connection, compared later
				case 2:
					r.compare()
				case 3:
					r.watch.renew(t.Context(), r.was, "")
					r.watch.Look(t.Context(), server.Client())
					r.compare()
				}
				if is := r.stampText(); is != "" && (len(places) == 0 || places[len(places)-1] != is) {
					places = append(places, is)
				}
				r.doubtful("")
			}
			if len(places) < 20 {
				t.Fatalf("the stamp has moved %d times only", len(places))
			}
			r.compare()
			key, _, _ := r.watch.asked()
			server.Do(t, "set", key, places[len(places)/2])
			r.watch.renew(t.Context(), r.was, "")
			r.watch.Look(t.Context(), server.Client())
			r.compare()
			r.since(places[len(places)/2])
		})
	}
}

// The data may be older than the time that the operator says, and what was deleted within it may be a key of a change
// of long before.
func TestWhatTheOperatorSaysComesOnTopOfTheStamp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stamp string
		want  []string
	}{
		"with a stamp":    {"a", []string{"T", "a"}},
		"without a stamp": {"", []string{"T"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, testbed.Redis(t))
			r.window = time.Hour
			r.begin()
			r.finish("a")
			if c.stamp == "" {
				key, _, _ := r.watch.asked()
				r.server.Do(t, "del", key)
				r.server.Do(t, "set", "k", "old")
			}
			r.server.Do(t, "save")
			r.finished = ""
			r.restart()
			r.look()
			var got []string
			for _, d := range r.book.List() {
				if at, err := time.Parse(time.RFC3339, d.From); err == nil && at.Before(time.Now().Add(-50*time.Minute)) {
					d.From = "T"
				}
				got = append(got, d.From)
			}
			if slices.Sort(got); !slices.Equal(got, c.want) {
				t.Errorf("doubts about what came after %q, want %q", got, c.want)
			}
		})
	}
}
