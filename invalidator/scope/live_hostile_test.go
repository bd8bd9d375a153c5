package scope

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/proof/testbed"
)

// What only looks like cache stays as it is, byte for byte.
func TestWhatIsNoCacheIsUntouched(t *testing.T) {
	t.Parallel()
	n := 25_000
	if os.Getenv("FRESHET_SOAK") != "" {
		n = 250_000
	}
	l := newLive(t, setting{prefix: "app:"})
	patient := l.server.NewClient(&redis.Options{ReadTimeout: time.Minute})
	defer patient.Close()
	do := func(words ...any) any {
		t.Helper()
		v, err := patient.Do(t.Context(), words...).Result()
		testbed.Must(t, err)
		return v
	}
	families := []string{"app:product:1:reviews", "app:product:x", "other:product", "app:freshet:v:{app:product"}
	for _, family := range families {
		do("debug", "populate", n, family, 8)
	}
	l.set("product:1", "app:product:", "app:product:01", "app:product:-1", "app:product:1 ", "app:products:1",
		"xapp:product:1",
		"app:freshet:v:{app:product:1}", "app:f:1")
	do("hset", "app:product:x", "1", "a")
	do("hset", "app:h:1", "x", "a", "01", "b")
	do("sadd", "app:product:1:x", "1")
	do("hset", "stats", "1", "a")
	before, size := do("debug", "digest"), do("dbsize")

	fields := spectest.Mapping{Table: spectest.Text("shop.product", 1)}
	fields.Hash = &spec.Hash{Key: spectest.Text("h:{id}", 30), Field: spectest.Text("{id}", 31)}
	others := spectest.Mapping{Table: spectest.Text("shop.product", 1)}
	others.Hash = &spec.Hash{Key: spectest.Text("f:{id}", 30), Field: spectest.Text("{id}", 31)}
	l.set("app:product:1", "app:product:18446744073709551615")
	do("hset", "app:product:2", "a", "b") // whatever it is: it is the template's
	do("hset", "app:h:1", "7", "c")
	l.mark(10)
	task := &Task{
		Keys:   keysOf(t, "app:", spectest.Keys("product:{id}").D(liveD), fields.D(liveD), others.D(liveD)),
		Source: "s", At: place(10), Newest: l.newest,
	}
	l.ended(l.start(task, Options{Prefix: "app:", Rate: 1_000_000}))
	if found := task.Progress.Found.Load(); found != 4 {
		t.Errorf("%d keys were found, want 4", found)
	}
	if after := do("debug", "digest"); after != before {
		t.Errorf("what is no cache has changed: %v keys were there, %v are", size, do("dbsize"))
	}
}

// A scope that may not run SCAN says so, and waits until it may.
func TestAScopeWaitsForTheRightToScan(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{user: "some", password: "secret"})
	l.server.Do(t, "acl", "setuser", "some", "-scan")
	l.set("product:1")
	l.mark(10)
	task := &Task{Keys: product(t, ""), Source: "s", At: place(10), Progress: &Progress{}}
	done := l.start(task, Options{})
	testbed.Eventually(t, time.Minute, "there is trouble", func() bool { return task.Progress.Trouble.Load() != nil })
	why := (*task.Progress.Trouble.Load()).Error()
	if !strings.Contains(why, "NOPERM") || !strings.Contains(why, "scan") {
		t.Errorf("the trouble is %s", why)
	}
	if !l.there("product:1") {
		t.Error("it was found without SCAN")
	}
	l.server.Do(t, "acl", "setuser", "some", "+scan")
	l.ended(done)
	if l.there("product:1") || task.Progress.Trouble.Load() != nil {
		t.Errorf("it is there, or the trouble is still %v", task.Progress.Trouble.Load())
	}
}

// What is for display, and which server answers, is not worth waiting for where Redis does not tell.
func TestAScopeDoesWithoutWhatRedisDoesNotTell(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(t *testing.T) setting{
		"no right": func(t *testing.T) setting {
			s := testbed.Redis(t)
			s.Do(t, "acl", "setuser", "some", "-info", "-dbsize")
			return setting{server: s, user: "some", password: "secret"}
		},
		"no command": func(t *testing.T) setting {
			return setting{server: testbed.Redis(t, "--rename-command", "INFO", "", "--rename-command", "DBSIZE", "")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := refuse(t)
			l := newLive(t, o)
			if o.user != "" {
				l.server.Do(t, "acl", "setuser", "some", "-info", "-dbsize")
			}
			l.set("product:1")
			l.mark(10)
			l.ended(l.start(&Task{Keys: product(t, ""), Source: "s", At: place(10)}, Options{}))
			if l.there("product:1") {
				t.Error("it is still there")
			}
		})
	}
}

// Redis refuses the probe's key, and all others: they are parked, as all keys in trouble, and D is waited for all the
// same.
func TestKeysThatRedisRefusesAreParked(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{user: "some", password: "secret"})
	l.set("product:1")
	l.server.Do(t, "acl", "setuser", "some", "resetkeys", "~other:*")
	var from, second time.Time
	l.began = func(n int) {
		switch n {
		case 1:
			from = time.Now()
			l.mark(10)
		case 2:
			second = time.Now()
		}
	}
	l.ended(l.start(&Task{Keys: product(t, ""), Source: "s", At: place(10)}, Options{}))
	if waited := second.Sub(from); waited < liveD {
		t.Errorf("the second pass begins after %s, want %s", waited, liveD)
	}
	if keys := l.store.all(); len(keys) != 3 {
		t.Errorf("%q are parked, want the key of each pass, and the probe's", keys)
	}
}

// Redis is started again between two pages of each pass, and what comes back is as stale as before.
func TestARedisThatWasStartedAgainIsLookedAtAsAWhole(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{server: testbed.Redis(t, "--appendonly", "yes", "--appendfsync", "always")})
	l.server.Do(t, "debug", "populate", 5000, "product", 3)
	l.server.Do(t, "bgrewriteaof")
	testbed.Eventually(t, time.Minute, "what was populated is in the file", func() bool {
		info := l.scopes.Info(t.Context(), "persistence").Val()
		return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0")
	})
	l.mark(10)
	r := &restarting{Single: Single{Client: l.scopes}, at: map[int]func(){}}
	for _, page := range []int{3, 20} {
		r.at[page] = func() {
			testbed.Must(t, l.server.Kill())
			testbed.Must(t, l.server.Start(t.Context()))
			l.set("product:7", "product:4999")
		}
	}
	s, err := New(Deps{Redis: r, Serve: l.serve, Log: silent}, Options{Rate: 1_000_000})
	testbed.Must(t, err)
	testbed.Must(t, s.Run(t.Context(), Task{
		Keys: product(t, ""), Source: "s", At: place(10), Progress: &Progress{},
	}))
	if n := l.scopes.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if l.n < 4 {
		t.Errorf("%d partitions: no pass was done again", l.n)
	}
}

// restarting has something done before a page.
type restarting struct {
	Single
	at map[int]func()
	n  int
}

func (r *restarting) Scan(ctx context.Context, cursor uint64, glob string, count int64) ([]string, uint64, error) {
	if do := r.at[r.n]; do != nil {
		do()
	}
	r.n++
	return r.Single.Scan(ctx, cursor, glob, count)
}

func TestAScopeIsOfItsDatabase(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{db: 3})
	l.set("product:1")
	l.server.Do(t, "set", "product:1", "of database 0")
	l.mark(10)
	l.ended(l.start(&Task{Keys: product(t, ""), Source: "s", At: place(10)}, Options{}))
	if l.there("product:1") {
		t.Error("it is still there")
	}
	if v := l.server.Do(t, "get", "product:1"); v != "of database 0" {
		t.Errorf("database 0 has %v", v)
	}
}

// An engine that ends in the middle of a scope has not done it.
func TestAnEngineThatEndsHasNotDoneTheScope(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int{"before the first pass": 0, "before the probe": 1, "before the second pass": 2} {
		t.Run(name, func(t *testing.T) {
			l := newLive(t, setting{})
			l.set("product:1")
			l.mark(10)
			l.began = func(n int) {
				if n == at {
					l.stopEngine()
				}
			}
			done := l.start(&Task{Keys: product(t, ""), Source: "s", At: place(10)}, Options{})
			if err := <-done; !errors.Is(err, ErrStopped) {
				t.Errorf("it ends with %v", err)
			}
		})
	}
}

// A large hash is asked for page by page of a real server.
func TestTheFieldsOfALargeHashAreForgotten(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{})
	const n = 3000
	pairs := make([]any, 0, 4*n)
	for i := range n {
		pairs = append(pairs, i, "old", "x"+string(rune('a'+i%26))+strings.Repeat("y", i/26), "kept")
	}
	testbed.Must(t, l.scopes.HSet(t.Context(), "h:1", pairs...).Err())
	l.set("h:2")
	m := spectest.Mapping{Table: spectest.Text("shop.product", 1)}
	m.Hash = &spec.Hash{Key: spectest.Text("h:{id}", 30), Field: spectest.Text("{id}", 31)}
	l.mark(10)
	l.ended(l.start(&Task{Keys: keysOf(t, "", m.D(liveD)), Source: "s", At: place(10)}, Options{Rate: 1_000_000}))
	left := l.scopes.HGetAll(t.Context(), "h:1").Val()
	if len(left) != n {
		t.Errorf("%d fields are left, want %d", len(left), n)
	}
	for f, v := range left {
		if v != "kept" {
			t.Fatalf("the field %s is left", f)
		}
	}
	if !l.there("h:2") {
		t.Error("a key that is no hash is gone")
	}
}

// A counter is raised, and the probe does not begin it again: a generation must not come twice.
func TestACounterIsRaised(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{})
	// It is past Redis' time, so each pass raises it by one.
	testbed.Must(t, l.scopes.Set(t.Context(), "g:1", 9_000_000_000_005, 0).Err())
	l.mark(10)
	k := keysOf(t, "", spectest.Counter("g:{id}").D(liveD))
	l.ended(l.start(&Task{Keys: k, Source: "s", At: place(10)}, Options{}))
	if v := l.scopes.Get(t.Context(), "g:1").Val(); v != "9000000000007" {
		t.Errorf("the counter is %q, want 9000000000007: raised by each pass", v)
	}
}

// The data of a server may become another's while it runs: it was made a replica, and a master again. What came with it
// lies before the cursor as well as after it.
func TestAServerThatTookAnothersDataIsLookedAtAsAWhole(t *testing.T) {
	t.Parallel()
	l := newLive(t, setting{})
	other := testbed.Redis(t, "--repl-diskless-sync-delay", "0")
	l.server.Do(t, "debug", "populate", 10_000, "other", 3)
	other.Do(t, "debug", "populate", 5000, "product", 3)
	l.mark(10)
	r := &restarting{Single: Single{Client: l.scopes}, at: map[int]func(){}}
	replaced := false
	l.began = func(n int) {
		if n != 2 {
			return
		}
		r.at[r.n+5] = func() {
			l.server.Do(t, "replicaof", "127.0.0.1", other.Port)
			testbed.Eventually(t, time.Minute, "the data is another's", func() bool {
				return strings.Contains(l.scopes.Info(t.Context(), "replication").Val(), "master_link_status:up")
			})
			l.server.Do(t, "replicaof", "no", "one")
			replaced = true
		}
	}
	s, err := New(Deps{Redis: r, Serve: l.serve, Log: silent}, Options{Rate: 1_000_000})
	testbed.Must(t, err)
	testbed.Must(t, s.Run(t.Context(), Task{Keys: product(t, ""), Source: "s", At: place(10), Progress: &Progress{}}))
	if n := l.scopes.DBSize(t.Context()).Val(); n != 0 || !replaced {
		t.Errorf("stale: %d keys are left", n)
	}
}
