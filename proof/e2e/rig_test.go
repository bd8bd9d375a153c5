package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testbed.WithKafka(m)) }

// rig is a database, a Redis, proxies in front of both, and freshet between the proxies.
type rig struct {
	t      *testing.T
	source *testbed.Server
	redis  *testbed.RedisServer
	binlog *proxy.Binlog
	resp   *proxy.RESP
	cfg    configuration
	file   string
	listen string
	client *admin.Client
	proc   *process
	role   string // of a process in a fleet
	fast   bool   // without the race detector: for what measures memory
	binary string // of freshet, built when it is first launched
}

// adminToken is what operators show to freshet.
const adminToken = "hush-hush-hush"

// configuration is what the tests vary.
type configuration struct {
	d        string // second_delete
	start    string // source.start
	dir      string // eventlog.dir
	redis    string // more of redis
	login    string // who freshet is at the source
	besides  string // more addresses of the source
	source   string // more of source
	extra    string // more top-level keys
	mappings string
}

// The tables of all suites. The mapping and the CONCATs of journal.go say the same, independently.
const mappings = `
mappings:
  - table: shop.product
    keys:
      - "product:{id}"
      - "category:{category_id}:products"
  - table: shop.note
    keys:
      - "note:{id}"
`

// crowded lets all clients of a load have a connection to a server each, and keep it.
func crowded(server *testbed.Server) {
	server.DB().SetMaxOpenConns(40)
	server.DB().SetMaxIdleConns(40)
}

// oneFlavor runs a test on MySQL and on MariaDB in a soak, side by side, and else on one of them, by chance.
func oneFlavor(t *testing.T, f func(t *testing.T, start func(testing.TB, ...string) *testbed.Server)) {
	t.Parallel()
	for name, start := range testbed.SomeOf(t, testbed.Databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, start)
		})
	}
}

func newRig(t *testing.T, source *testbed.Server, redisArgs ...string) *rig {
	t.Helper()
	r := &rig{t: t, source: source, redis: testbed.Redis(t, redisArgs...)}
	r.binlog = proxy.StartBinlog(t, source.Addr)
	r.resp = proxy.StartRESP(t, r.redis.Addr)
	r.listen = testbed.FreeAddress(t)
	r.client = admin.NewClient("http://"+r.listen, adminToken, nil)
	r.cfg = configuration{d: "600ms", start: "now", dir: filepath.Join(t.TempDir(), "data"), mappings: mappings}
	r.mayRead("shop.*")
	r.file = filepath.Join(t.TempDir(), "freshet.yaml")
	t.Cleanup(func() {
		if r.proc != nil {
			r.kill()
		}
	})
	return r
}

// mayRead has freshet log in as a user who has the rights that the documentation asks for, and may read these tables.
func (r *rig) mayRead(tables ...string) {
	r.t.Helper()
	user, password := r.source.MayRead(r.t, tables...)
	r.cfg.login = fmt.Sprintf("user: %s, password: %s", user, password)
}

// configure writes the configuration file.
func (r *rig) configure() {
	r.t.Helper()
	text := fmt.Sprintf(`source: {addresses: [%q%s], %s, start: %q, heartbeat: 200ms%s}
redis: {addresses: [%q]%s}
eventlog: {dir: %q}
invalidator: {second_delete: %s}
admin: {listen: %q, token: %q}
%s%s`, r.binlog.Addr(), r.cfg.besides, r.cfg.login, r.cfg.start, r.cfg.source, r.resp.Addr(), r.cfg.redis, r.cfg.dir, r.cfg.d, r.listen, adminToken, r.cfg.extra,
		r.cfg.mappings)
	testbed.Must(r.t, os.WriteFile(r.file, []byte(text), 0o600))
}

// process is a running freshet.
type process struct {
	cmd    *exec.Cmd
	stderr syncBuffer
	exited chan struct{}
	err    error
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// launch starts freshet without waiting for anything.
func (r *rig) launch(args ...string) {
	r.t.Helper()
	r.build()
	if len(args) == 0 {
		args = []string{"run"}
	}
	p := &process{cmd: exec.Command(r.binary, append(args, "-c", r.file)...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.stderr, &p.stderr
	p.cmd.SysProcAttr = diesWithTest()
	started := make(chan error)
	go func() {
		// The process dies with the thread that starts it: the thread is kept until the process has ended, and not
		// given back after that.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.exited)
		}
	}()
	testbed.Must(r.t, <-started)
	r.proc = p
}

// build builds freshet. One look at the source is enough for hundreds of launches.
func (r *rig) build() {
	r.t.Helper()
	switch {
	case r.binary != "":
	case r.fast:
		r.binary = testbed.Binary(r.t)
	default:
		r.binary = testbed.RaceBinary(r.t)
	}
}

// ask runs a command to its end, with the configuration of the process, and returns what it wrote and its exit code.
func (r *rig) ask(args ...string) (string, int) {
	r.t.Helper()
	other := *r
	other.launch(args...)
	<-other.proc.exited
	r.noRaces(other.proc)
	return other.proc.stderr.String(), other.proc.cmd.ProcessState.ExitCode()
}

// run starts freshet and waits until it streams.
func (r *rig) run() {
	r.t.Helper()
	r.launch()
	r.await("freshet streams", 3*time.Minute, func(s status) bool { return s.Source.Connected })
}

// kill kills freshet with SIGKILL. It fails the test when freshet had ended by itself, or when the race detector
// had something to say.
func (r *rig) kill() {
	r.t.Helper()
	p := r.proc
	r.proc = nil
	select {
	case <-p.exited:
		r.t.Fatalf("freshet ended by itself: %v\n%s", p.err, p.stderr.String())
	default:
	}
	testbed.Must(r.t, p.cmd.Process.Kill())
	<-p.exited
	r.noRaces(p)
}

// stop stops freshet as a supervisor does, and expects exit code 0. A process that was just launched has first said
// that it has started: a signal that comes before it is waited for ends any process.
func (r *rig) stop() {
	r.t.Helper()
	p := r.proc
	r.proc = nil
	for p.stderr.String() == "" {
		select {
		case <-p.exited:
			r.t.Fatalf("freshet ended by itself: %v", p.err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	testbed.Must(r.t, p.cmd.Process.Signal(os.Interrupt))
	<-p.exited
	if p.err != nil {
		r.t.Fatalf("freshet stopped with %v\n%s", p.err, p.stderr.String())
	}
	r.noRaces(p)
}

func (r *rig) noRaces(p *process) {
	r.t.Helper()
	if s := p.stderr.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic:") {
		r.t.Fatalf("freshet has a race or panicked:\n%s", s)
	}
}

type status struct {
	State     string    `json:"state"`
	Sentence  string    `json:"sentence"`
	FreshAsOf time.Time `json:"fresh_as_of"`
	Source    struct {
		Connected bool `json:"connected"`
	} `json:"source"`
	Checkpoint struct {
		Position string `json:"position"`
		Term     uint64 `json:"term"`
	} `json:"checkpoint"`
	Pending    int `json:"pending"`
	Partitions []struct {
		ID int `json:"id"`
	} `json:"partitions"`
	Parked      int `json:"parked"`
	DeadLetters int `json:"dead_letters"`
	Alarms      []struct {
		Kind    string    `json:"kind"`
		Message string    `json:"message"`
		Last    time.Time `json:"last"`
	} `json:"alarms"`
	Doubts []json.RawMessage `json:"doubts"`
}

// await waits until freshet's status satisfies cond. It is only used to know when to look, never as evidence.
func (r *rig) await(what string, d time.Duration, cond func(status) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	for asked := 0; ; asked++ {
		began := time.Now()
		raw, err := r.client.Status(ctx)
		var s status
		if err == nil && json.Unmarshal(raw, &s) == nil && cond(s) {
			return
		}
		select {
		case <-r.proc.exited:
			r.t.Fatalf("%s: freshet ended: %v\n%s", what, r.proc.err, r.proc.stderr.String())
		case <-ctx.Done():
			r.t.Fatalf("%s: not within %s; status %s\n%s", what, d, raw, r.proc.stderr.String())
		case <-time.After(testbed.Pause(asked, time.Since(began))):
		}
	}
}

// finish waits until freshet has finished everything that is committed now.
func (r *rig) finish(d time.Duration) {
	r.t.Helper()
	now := time.Now()
	// A key that was parked is deleted once more when its time comes, whatever was written to it meanwhile.
	r.await("finish everything", d, func(s status) bool { return s.FreshAsOf.After(now) && s.Parked == 0 })
}

// placeNow returns the source's current binlog position in the form of source.start.
func (r *rig) placeNow() string {
	file, pos := r.source.BinlogPosition(r.t)
	return fmt.Sprintf("%s:%d", file, pos)
}
