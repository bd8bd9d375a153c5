package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/proof/testbed"
)

// rig is a watch that is moved by hand.
type rig struct {
	*testing.T
	server *testbed.RedisServer
	facts  *doubttest.Memory
	book   *doubt.Book
	alarms *alarm.Board
	watch  *Watch
	log    strings.Builder
	was    known
	db     int
	prefix string
	// finished is up to where everything is finished.
	finished string
	// follows says that another process moves the stamp; group that there are others.
	follows bool
	group   string
	window  time.Duration
}

func newRig(t *testing.T, server *testbed.RedisServer) *rig {
	t.Helper()
	r := &rig{T: t, server: server, facts: &doubttest.Memory{}}
	book, err := doubt.New(nil, nil, nil)
	testbed.Must(t, err)
	r.book = book
	r.begin()
	return r
}

// begin is freshet's start: what it knows is what was kept.
func (r *rig) begin() {
	r.Helper()
	board, err := alarm.New(slog.New(slog.NewTextHandler(&r.log, nil)), nil)
	testbed.Must(r, err)
	r.alarms = board
	d := Deps{
		Redis: r.server.Client(), Alarms: board, Facts: r.facts, Doubts: r.book,
		Place: func() (string, bool) { return r.finished, r.finished != "" },
		Log:   slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	o := Options{Address: "redis:6379", Source: "shop", DB: r.db, Prefix: r.prefix, Window: r.window}
	if r.group != "" {
		o.Source, o.Group = "", r.group
		d.Leads = func() bool { return !r.follows }
		d.Name = func(context.Context) (string, error) { return r.group + "@cluster", nil }
	}
	w, err := New(d, o)
	testbed.Must(r, err)
	r.watch = w
	r.was, err = w.load(r.Context())
	testbed.Must(r, err)
}

// look has Redis asked once.
func (r *rig) look() {
	r.Helper()
	r.watch.deps.Redis = r.server.Client()
	r.watch.renew(r.Context(), r.was, "")
	r.watch.Look(r.Context(), r.server.Client())
	r.compare()
}

// compare has compared what was answered.
func (r *rig) compare() {
	r.Helper()
	for _, s := range r.watch.take() {
		is, err := r.watch.compare(r.Context(), r.was, s)
		testbed.Must(r, err)
		r.was = is
		r.watch.worksOn(is.Run)
		r.watch.keep(r.Context(), is)
	}
}

// doubtful checks how many doubts there were, and what the first says; want "" is for none.
func (r *rig) doubtful(want string) {
	r.Helper()
	list, cause := r.book.List(), alarm.RedisChanged
	if strings.Contains(want, "redis.db") || strings.Contains(want, "key_prefix") {
		cause = alarm.RedisMoved
	}
	switch {
	case want == "" && len(list) > 0:
		r.Fatalf("a false doubt: %s", list[0].Message)
	case want != "" && (len(list) != 1 || list[0].Cause != cause || !strings.Contains(list[0].Message, want)):
		r.Fatalf("want a doubt that says %q: %+v", want, list)
	}
}

func (r *rig) restart() {
	r.Helper()
	testbed.Must(r, r.server.Kill())
	testbed.Must(r, r.server.Start(r.Context()))
}

func both(t *testing.T, run func(r *rig)) {
	t.Run("redis", func(t *testing.T) { run(newRig(t, testbed.Redis(t))) })
	t.Run("redis 8", func(t *testing.T) { run(newRig(t, testbed.Redis8(t))) })
}

func TestARedisThatReadsBackAnOldSnapshotIsInDoubt(t *testing.T) {
	t.Parallel()
	both(t, func(r *rig) {
		r.server.Do(r, "set", "k", "old")
		r.look()
		r.server.Do(r, "save")
		r.server.Do(r, "unlink", "k")
		r.look()
		r.doubtful("")
		r.restart()
		if r.server.Do(r, "get", "k") != "old" {
			r.Fatal("the key is not back")
		}
		r.look()
		r.doubtful("was restarted, and has read back")
		r.look()
		if n := r.book.List()[0].Count; n != 1 {
			r.Errorf("told %d times", n)
		}
	})
}

func TestARestartWhileFreshetIsDownIsNoticed(t *testing.T) {
	t.Parallel()
	both(t, func(r *rig) {
		r.server.Do(r, "set", "k", "old")
		r.look()
		r.server.Do(r, "save")
		r.restart()
		r.begin()
		r.look()
		r.doubtful("was restarted, and has read back")
	})
}

func TestARedisThatBeginsWithNothingIsNoDoubt(t *testing.T) {
	t.Parallel()
	both(t, func(r *rig) {
		r.server.Do(r, "set", "k", "old")
		r.look()
		r.restart()
		r.server.Do(r, "set", "filled by a reader", "1") // before anybody has looked
		r.look()
		r.doubtful("")
		r.server.Do(r, "flushall")
		r.look()
		r.doubtful("")
	})
}

func TestARedisThatReadItsLogBackIsInDoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t, "--appendonly", "yes"))
	r.server.Do(t, "set", "k", "old")
	r.look()
	r.restart()
	r.look()
	r.doubtful("was restarted")
}

func TestARedisOfBefore7SaysNotWhatItReadSoAnyKeyIsADoubt(t *testing.T) {
	was := known{Run: "a", Repl: "x", Seen: time.Now()}
	info := "run_id:b\r\nmaster_replid:y\r\nuptime_in_seconds:0\r\nrole:master\r\naof_enabled:0\r\n"
	for more, doubtful := range map[string]bool{
		"": false, "db0:keys=1,expires=0\r\n": true,
		"db3:keys=1,expires=0\r\n": false,
	} {
		s, ok := parse(info+more, 0)
		if why := suspicion(was, s, was.Seen.Add(time.Second)); !ok || (why != "") != doubtful {
			t.Errorf("%q: %v, %q", more, ok, why)
		}
	}
}

func TestAPromotedReplicaIsInDoubt(t *testing.T) {
	t.Parallel()
	both(t, func(r *rig) {
		master, replica := r.server, testbed.Redis(r)
		if strings.HasPrefix(master.Version, "8") {
			replica = testbed.Redis8(r)
		}
		master.Do(r, "set", "k", "old")
		r.look()
		replica.Do(r, "replicaof", "127.0.0.1", master.Port)
		testbed.Eventually(r, 2*time.Minute, "the replica follows", func() bool {
			return replica.Client().Exists(r.Context(), "k").Val() == 1
		})
		r.look() // the master has drawn a new name for its history, for it has a replica now
		r.doubtful("")
		testbed.Must(r, master.Kill())
		r.server = replica
		r.look() // it is a replica still
		r.doubtful("")
		replica.Do(r, "replicaof", "no", "one")
		r.look()
		r.doubtful("a replica has taken the place of its master")
	})
}

func TestAMasterThatFollowedAnotherMeanwhileIsInDoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	other := testbed.Redis(t)
	other.Do(t, "set", "k", "of another")
	r.look()
	r.server.Do(t, "replicaof", "127.0.0.1", other.Port)
	testbed.Eventually(t, 2*time.Minute, "it follows",
		func() bool { return r.server.Client().Exists(t.Context(), "k").Val() == 1 })
	r.server.Do(t, "replicaof", "no", "one")
	r.look()
	r.doubtful("has taken over its data")
}

func TestAnotherServerAtTheSameAddressIsInDoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.look()
	other := testbed.Redis(t)
	other.Do(t, "set", "k", "1")
	info, err := other.Client().Info(t.Context()).Result()
	testbed.Must(t, err)
	// It has been running for long.
	info = strings.Replace(info, "uptime_in_seconds:", "uptime_in_seconds:99", 1)
	r.watch.answered(time.Now(), info, nil, found{is: absent})
	r.look() // by a connection that is still to the first: both were seen
	r.doubtful("another server answers")
}

// What is cached under another prefix, or in another database, was never deleted.
func TestAnotherPlaceInTheSameRedisIsInDoubt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		move       func(r *rig)
	}{
		{"another prefix", `with redis.key_prefix "eu:": what is cached there already`, func(r *rig) { r.prefix = "eu:" }},
		{"another database", "redis.db 3 with", func(r *rig) { r.db = 3; r.server.Do(r, "copy", "k", "k", "db", "3") }},
		{"another database, which is empty", "", func(r *rig) { r.db = 3 }},
		{"the same", "", func(*rig) {}},
		{"it was not kept", "", func(r *rig) {
			r.prefix, r.was.Place = "eu:", ""
			r.watch.keep(r.Context(), r.was)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, testbed.Redis(t))
			r.server.Do(t, "set", "k", "1")
			r.look()
			c.move(r)
			r.begin()
			r.look()
			r.doubtful(c.want)
			r.begin()
			r.look()
			r.look() // said once
			r.doubtful(c.want)
		})
	}
}

func TestARedisThatDoesNotSayWhoItIsIsSaidOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.server.Do(t, "set", "k", "1")
	r.server.Do(t, "acl", "setuser", "some", "on", ">p", "~*", "+@all", "-info")
	c := r.server.NewClient(&redis.Options{Username: "some", Password: "p"})
	defer func() { testbed.Must(t, c.Close()) }()
	for range 3 {
		r.watch.Look(t.Context(), c)
		r.watch.answered(time.Now(), "# Server\r\nredis_version:7.0.0\r\n", nil, found{})
	}
	r.watch.answered(time.Now(), "", errors.New("i/o timeout"), found{}) // nothing to be said
	if a := r.alarms.Records(); len(a) != 1 || a[0].Kind != alarm.RedisUnknown || a[0].Count != 1 ||
		!strings.Contains(a[0].Message, "does not say who it is") {
		t.Errorf("alarms: %+v", a)
	}
	if len(r.watch.take()) != 0 {
		t.Error("somebody was seen")
	}
	r.doubtful("")
}

// Connections of before may go on answering, and nobody knows whether they lead to the server that is written to.
func TestItIsKnownThatNoNewConnectionComesAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{})
		defer func() { testbed.Must(t, client.Close()) }()
		w, err := New(Deps{Redis: client, Facts: &doubttest.Memory{}, Doubts: mustBook(t)}, Options{})
		testbed.Must(t, err)
		unheard := func(want time.Duration, why string) {
			t.Helper()
			since, err := w.Unheard()
			if want == 0 && !since.IsZero() || want > 0 && (!since.Equal(time.Now().Add(-want)) || err == nil ||
				err.Error() != why) {
				t.Errorf("nothing was heard since %v (%v), want %s (%s)", since, err, want, why)
			}
		}
		unheard(0, "")
		time.Sleep(unheardFor + time.Second)
		unheard(unheardFor+time.Second, "none was tried")
		const master = "run_id:a\r\nuptime_in_seconds:9\r\nrole:master\r\n"
		for _, says := range []string{master, "nothing"} {
			for _, then := range []struct {
				says string
				err  error
				why  string
			}{
				{"", errors.New("i/o timeout"), "i/o timeout"},
				{"run_id:a\r\nuptime_in_seconds:0\r\nloading:1\r\n", nil, "the server there is still loading its data"},
				{"run_id:b\r\nuptime_in_seconds:9\r\nrole:slave\r\n", nil, "the server there is a replica"},
			} {
				w.hears(w.answered(time.Now(), says, nil, found{}))
				unheard(0, "")
				for range unheardFor / time.Second {
					w.hears(w.answered(time.Now(), then.says, then.err, found{}))
					time.Sleep(time.Second)
				}
				unheard(0, "")
				time.Sleep(time.Second)
				unheard(unheardFor+time.Second, then.why)
			}
		}
	})
}

func TestWhileRedisReadsItsDataNothingIsSettled(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.look()
	r.watch.answered(time.Now(), "run_id:b\r\nuptime_in_seconds:0\r\nrole:master\r\nloading:1\r\n", nil, found{})
	if len(r.watch.take()) != 0 {
		t.Error("an empty Redis was seen, and it is only reading")
	}
}

// While no new connection comes about, deletes go to the former server, over those that there are. The next one may
// have been filled meanwhile.
func TestARedisThatBeginsWhileTheFormerOneIsAtWorkIsInDoubt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		atWork time.Duration // how long ago it was
		want   string
	}{
		"it began after that": {80 * time.Second, ""}, "it began before": {30 * time.Second, "another server answers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, testbed.Redis(t))
			r.look()
			r.was.Seen = time.Now().Add(-90 * time.Second)
			worked := time.Now().Add(-c.atWork)
			r.watch.deps.Answered = func() time.Time { return worked }
			for range 2 {
				why := r.watch.answered(time.Now(), "run_id:b\r\nuptime_in_seconds:60\r\nrole:master\r\n"+
					"rdb_last_load_keys_loaded:0\r\naof_enabled:0\r\ndb0:keys=1\r\n", nil, found{})
				testbed.Must(t, why)
				worked = time.Now() // that is the next one
			}
			r.compare()
			r.doubtful(c.want)
		})
	}
}

// The uptime is in whole seconds. A server that began with nothing more than a second before the former one was last at
// work may have been filled by others until then.
func TestARedisThatBeganBeforeTheFormerOneWasLeftIsInDoubt(t *testing.T) {
	t.Parallel()
	seen := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		began, looked time.Duration // since the former one was seen
		doubtful      bool
	}{
		{100 * time.Millisecond, time.Second, false}, // a restart
		{-100 * time.Millisecond, time.Second, false},
		{-1100 * time.Millisecond, 200 * time.Millisecond, true},
		{-1100 * time.Millisecond, time.Second, true},
		{-1900 * time.Millisecond, 100 * time.Millisecond, true},
	} {
		for phase := range 10 {
			at := seen.Add(time.Duration(phase) * 100 * time.Millisecond)
			began, looked := at.Add(c.began), at.Add(c.looked)
			info := fmt.Sprintf("run_id:b\r\nuptime_in_seconds:%d\r\nserver_time_usec:%d\r\nrdb_last_load_keys_loaded:0\r\n"+
				"aof_enabled:0\r\ndb0:keys=1\r\n", looked.Unix()-began.Unix(), looked.UnixMicro())
			s, ok := parse(info, 0)
			if why := suspicion(known{Run: "a", Seen: at}, s, looked); !ok || (why != "") != c.doubtful {
				t.Errorf("it began %s after the former one was seen, and was looked at after %s, at %s: %q", c.began, c.looked,
					looked.Format(".000"), why)
			}
		}
	}
}

// A connection that was used before it was known who Redis was may lead to another server than those that are looked
// at.
func TestAConnectionThatNobodyHasLookedAtIsLeft(t *testing.T) {
	t.Parallel()
	for _, looks := range []bool{true, false} {
		client, left := testbed.Redis(t).Client(), 0
		w, err := New(Deps{
			Redis: client, Facts: &doubttest.Memory{}, Doubts: mustBook(t), Moved: func() { left++ },
		}, Options{})
		testbed.Must(t, err)
		if looks {
			testbed.Must(t, w.Look(t.Context(), client))
		}
		_, err = w.load(t.Context())
		testbed.Must(t, err)
		testbed.Must(t, w.Look(t.Context(), client))
		if looks != (left == 1) {
			t.Errorf("there was one: %v, and connections were left %d times", looks, left)
		}
	}
}

// The doubt comes before what is kept: a crash between them finds the change once more.
func TestRunKeepsWhoRedisIsAfterTheDoubtIsRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	r.server.Do(t, "set", "k", "old")
	r.look()
	r.server.Do(t, "save")
	r.restart()
	kept := make(chan int, 100)
	r.facts.After = func(context.Context, string, string) error {
		kept <- len(r.book.List())
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- r.watch.Run(ctx) }()
	<-kept // read
	if n := <-kept; n != 1 {
		t.Errorf("%d doubts when the new identity was kept", n)
	}
	stop()
	testbed.Must(t, <-ran)
}

func mustBook(t *testing.T) *doubt.Book {
	t.Helper()
	b, err := doubt.New(nil, nil, nil)
	testbed.Must(t, err)
	return b
}

// What needs Redis is connected by what any of the sentinels says, so that it goes on when most of them are away.
func TestAConnectionThatIsNeededProvesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, testbed.Redis(t))
	w := r.watch
	w.mu.Lock()
	w.heard = time.Now().Add(-time.Minute)
	w.mu.Unlock()
	testbed.Must(t, w.Look(t.Context(), r.server.Client()))
	if since, _ := w.Unheard(); since.IsZero() {
		t.Error("it is taken for proof that no other server has the place of Redis")
	}
	if len(w.take()) != 1 {
		t.Error("it is not compared")
	}
}
