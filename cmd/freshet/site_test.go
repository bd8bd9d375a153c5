package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/app"
	"github.com/freshet/freshet/proof/testbed"
)

// patience is how long a test waits for what should happen at once. It is no measure of speed: the machine is busy.
const patience = 2 * time.Minute

// database is a kind of server that keeps positions in a way of its own, or has other SQL.
type database struct {
	name  string
	start func(t *testing.T) *testbed.Server
}

var databases = []database{
	{"mysql", func(t *testing.T) *testbed.Server { return testbed.MySQL(t) }},
	{"mariadb", func(t *testing.T) *testbed.Server { return testbed.MariaDB(t, "--binlog-row-metadata=FULL") }},
}

// both runs a test on MySQL and on MariaDB: what it shows has to do with what kind of server that is.
func both(t *testing.T, f func(t *testing.T, source *testbed.Server)) { onEach(t, databases, f) }

// either runs a test on both in a soak, and else on one of them: what it shows has little to do with the server.
func either(t *testing.T, f func(t *testing.T, source *testbed.Server)) {
	onEach(t, testbed.Some(t, databases), f)
}

// eitherLog runs a test with both event logs in a soak, and else with one of them.
func eitherLog(t *testing.T, embedded, kafka func(t *testing.T)) {
	t.Parallel()
	for name, f := range testbed.SomeOf(t, map[string]func(*testing.T){"embedded": embedded, "kafka": kafka}) {
		t.Run(name, f)
	}
}

// onEach runs a test on each kind of server, and returns once all have ended. They mostly wait, so they run at a time.
func onEach(t *testing.T, of []database, f func(t *testing.T, source *testbed.Server)) {
	t.Run("on", func(t *testing.T) {
		for _, d := range of {
			t.Run(d.name, func(t *testing.T) {
				t.Parallel()
				f(t, d.start(t))
			})
		}
	})
}

// site is where freshet works: a database with a table, a Redis, and a configuration for both.
type site struct {
	t      *testing.T
	source *testbed.Server
	redis  *testbed.RedisServer
	dir    string // eventlog.dir
	listen string // admin.listen
	// The rest of the configuration.
	user, password string
	token          string // admin.token; "": none
	keys           []string
	sourceAt       string   // source.addresses; "": where source is
	sourceMore     string   // in source
	redisAt        []string // redis.addresses; nil: where redis is
	redisMore      string   // in redis
	mappings       string   // as the configuration has them; "": shop.product with the keys
	extra          string
	env            []string
	noRedis        bool
	// With Kafka: what eventlog.kafka says, and the command whose process this is (run, reader, invalidator).
	kafka, role  string
	topic, group string // as kafka says
	readsRows    bool   // an invalidator that has the source, too
}

func newSite(t *testing.T, source *testbed.Server) *site {
	t.Helper()
	source.Exec(t, "CREATE DATABASE shop", "CREATE TABLE shop.product (id INT PRIMARY KEY, price INT NOT NULL)")
	user, password := source.MayRead(t, "shop.*")
	return &site{
		t: t, source: source, redis: testbed.Redis(t), dir: filepath.Join(t.TempDir(), "data"),
		listen: testbed.FreeAddress(t), user: user, password: password, token: "hush-hush-hush",
		keys: []string{"product:{id}"},
	}
}

func (s *site) config() string {
	var b strings.Builder
	if s.role != "invalidator" || s.readsRows {
		fmt.Fprintf(&b, "source: {addresses: [%q], user: %q, password: %q, heartbeat: 200ms%s}\n",
			cmp.Or(s.sourceAt, s.source.Addr), s.user, s.password, s.sourceMore)
	}
	if s.role != "invalidator" {
		if s.mappings == "" {
			fmt.Fprintf(&b, "mappings:\n  - table: shop.product\n    keys: [\"%s\"]\n", strings.Join(s.keys, `", "`))
		} else {
			fmt.Fprintf(&b, "mappings: %s\n", s.mappings)
		}
	}
	if s.role != "reader" && !s.noRedis {
		at := s.redisAt
		if at == nil {
			at = []string{s.redis.Addr}
		}
		fmt.Fprintf(&b, "redis: {addresses: [%s]%s}\n", strings.Join(at, ", "), s.redisMore)
	}
	if s.kafka == "" {
		fmt.Fprintf(&b, "eventlog: {dir: %q}\n", s.dir)
	} else {
		fmt.Fprintf(&b, "eventlog: {kind: kafka, kafka: {%s}}\n", s.kafka)
	}
	fmt.Fprintf(&b, "invalidator: {second_delete: 800ms}\nadmin: {listen: %q, token: %q}\n%s", s.listen, s.token, s.extra)
	return b.String()
}

// start starts a command of freshet.
func (s *site) start(args ...string) *testbed.Running {
	s.t.Helper()
	path, err := exec.LookPath("freshet") // this test binary, see TestMain
	testbed.Must(s.t, err)
	return testbed.Program{
		Path: path, Args: args, Config: s.config(),
		Env: append(s.env[:len(s.env):len(s.env)], quickExit()),
	}.Start(s.t)
}

// run starts `freshet run` and waits until it keeps the cache fresh.
func (s *site) run() *testbed.Running {
	s.t.Helper()
	r := s.start("run")
	s.await("freshet is fresh", func(st *app.Status) bool { return st.State == app.Fresh })
	return r
}

// ask runs a command to its end, which must be a good one, and returns its stdout. Nothing may be on its stderr.
func (s *site) ask(args ...string) string {
	s.t.Helper()
	r := s.start(args...)
	if code := r.Wait(s.t, patience); code != exitDone {
		s.t.Fatalf("freshet %s: exit code %d", strings.Join(args, " "), code)
	}
	return r.Stdout()
}

// refused runs a command that must end with the code, with nothing on stdout and all of the words on stderr.
func (s *site) refused(code int, words []string, args ...string) {
	s.t.Helper()
	ends(s.t, s.start(args...), code, words...)
}

// ends waits for the end of a command that must end with the code, with nothing on stdout and all of the words on
// stderr.
func ends(t *testing.T, r *testbed.Running, code int, words ...string) {
	t.Helper()
	if got := r.Wait(t, patience); got != code {
		t.Fatalf("exit code %d, want %d", got, code)
	}
	if r.Stdout() != "" {
		t.Errorf("on stdout: %s", r.Stdout())
	}
	for _, w := range words {
		if !strings.Contains(r.Stderr(), w) {
			t.Errorf("stderr lacks %q:\n%s", w, r.Stderr())
		}
	}
}

// status returns what GET /status says; nil while nothing answers.
func (s *site) status() *app.Status {
	code, body := s.get("/status")
	if code != http.StatusOK {
		return nil
	}
	var st app.Status
	testbed.Must(s.t, json.Unmarshal([]byte(body), &st))
	return &st
}

// await waits until the status is as cond wants it.
func (s *site) await(what string, cond func(*app.Status) bool) {
	s.t.Helper()
	testbed.Eventually(s.t, patience, what, func() bool {
		st := s.status()
		return st != nil && cond(st)
	})
}

// get returns the answer of the admin listener; 0 while nothing answers.
func (s *site) get(path string) (int, string) {
	s.t.Helper()
	return get(s.t, "http://"+s.listen+path)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(url)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	testbed.Must(t, err)
	return res.StatusCode, string(body)
}

// cache puts a value under a key.
func (s *site) cache(key string) {
	s.t.Helper()
	testbed.Must(s.t, s.redis.Client().Set(s.t.Context(), key, "old", 0).Err())
}

func (s *site) cached(key string) bool {
	s.t.Helper()
	n, err := s.redis.Client().Exists(s.t.Context(), key).Result()
	testbed.Must(s.t, err)
	return n == 1
}

// allCached returns all keys but freshet's own.
func (s *site) allCached() []string {
	s.t.Helper()
	keys, err := s.redis.Client().Keys(s.t.Context(), "*").Result()
	testbed.Must(s.t, err)
	return slices.DeleteFunc(keys, func(k string) bool { return strings.HasPrefix(k, "freshet:") })
}

// gone waits until a key is no longer cached.
func (s *site) gone(key string) {
	s.t.Helper()
	testbed.Eventually(s.t, patience, key+" is deleted", func() bool { return !s.cached(key) })
}

// write inserts a product, or gives it another price.
func (s *site) write(id int) {
	s.t.Helper()
	s.source.Exec(s.t, fmt.Sprintf("INSERT INTO shop.product (id, price) VALUES (%d, 1) ON DUPLICATE KEY UPDATE price = price + 1",
		id))
}

// quickExit is the environment in which a process with the race detector does not wait for a second when it ends,
// in case that another thread is about to report a race.
func quickExit() string { return "GORACE=" + os.Getenv("GORACE") + " atexit_sleep_ms=0" }
