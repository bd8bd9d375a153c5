package suites

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/admin"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// residentLimit is the most memory that freshet may have resident, in bytes, and perLargest how many times the largest
// event on top, for what is made from it. What is missing is 350 MB a second.
const (
	residentLimit = 250 << 20
	perLargest    = 5
)

// addressSpace is what freshet may reserve, in KiB: a leak is to hurt the test and not the machine.
const addressSpace = 6 << 20

// The tables of the suites, as they are when freshet starts. Each mapping has keys that need columns which many of
// their tables have, and a second one has values of all columns.
const columns = "a INT, b INT, c INT, d INT, i INT, f1 INT, id INT, pk INT PRIMARY KEY, col1 INT, c1 INT, c2 INT, c3 " +
	"INT"

const mappings = `
mappings:
  - table: test.t{1..4}
    keys: ["{table}:a:{a}", "{table}:b:{b}", "{table}:c:{c}", "{table}:d:{d}", "{table}:i:{i}", "{table}:f1:{f1}", "{table}:id:{id}",
      "{table}:pk:{pk}", "{table}:col1:{col1}", "{table}:c1:{c1}", "{table}:c2:{c2}", "{table}:c3:{c3}"]
  - table: test.t{1..4}
    columns: [c, b]
    keys: ["{table}:copies:{pk}:{0..2}", "{table}:default:{id|default:none}", "{table}:three:{a}:{b}:{c}"]
  - table: test.t{1..4}
    when: "(row.i ?? 0) != 5 || (old.a ?? 1) != 7"
    keys: ["{table}:hex:{f1|hex}", "{table}:md5:{d|md5}", "{table}:mod:{col1|crc32|mod:16}"]
  - table: test.t{1..2}
    keys: ["{table}:row:{a}"]
    rebuild: {from: row, as: hash}
  - table: suites.done
    keys: ["done:{id}"]
`

// freshet is the program between a database and a Redis.
type freshet struct {
	t      *testing.T
	log    string // which event log: embedded, kafka
	source *testbed.Server
	redis  *testbed.RedisServer
	resp   *proxy.RESP
	cmd    *exec.Cmd
	stderr syncBuffer
	exited chan struct{}
	err    error // how it ended; read after exited
	admin  *admin.Client
	of     map[string]outcome // by the test of a suite

	read        int      // bytes of the log that follow has looked at
	complaints  []string // lines of the log that tell of a fault of freshet's own, and not of what it met
	undecodable []string // lines that tell of rows that could not be read, since the last note
}

// outcome is what freshet did while a test ran.
type outcome struct {
	deleted map[string]bool // keys
	doubted bool            // whether rows could not be read
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

func (s *syncBuffer) String() string { return s.from(0) }

// from returns what was written after so many bytes.
func (s *syncBuffer) from(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.b.Bytes()[n:])
}

// prepare makes what the tests need, and the tables that freshet finds at its start.
func prepare(t *testing.T, source *testbed.Server) {
	t.Helper()
	source.Exec(t, "CREATE DATABASE IF NOT EXISTS test", "CREATE DATABASE mtr", "CREATE DATABASE suites",
		"CREATE TABLE suites.done (id INT PRIMARY KEY)")
	for n := range 4 {
		source.Exec(t, fmt.Sprintf("CREATE TABLE test.t%d (%s)", n+1, columns))
	}
}

// attach starts freshet, with an event log of the given kind, between a database and a new Redis whose commands are
// logged.
func attach(t *testing.T, source *testbed.Server, log string) *freshet {
	t.Helper()
	f := &freshet{
		t: t, log: log, source: source, redis: testbed.Redis(t), exited: make(chan struct{}),
		of: map[string]outcome{},
	}
	f.resp = proxy.StartRESP(t, f.redis.Addr)
	dir := t.TempDir()
	listen := testbed.FreeAddress(t)
	f.admin = admin.NewClient("http://"+listen, "", nil)
	file := filepath.Join(dir, "freshet.yaml")
	eventlog := fmt.Sprintf("{dir: %q}", filepath.Join(dir, "data"))
	if log == "kafka" {
		broker := testbed.SharedKafka(t)
		eventlog = fmt.Sprintf("{kind: kafka, kafka: {brokers: [%s], topic: %q, partitions: 4, replication_factor: 1}}",
			strings.Join(broker.Brokers(), ", "), broker.NewTopicName(t))
	}
	user, password := source.MayRead(t, "test.t1", "test.t2", "test.t3", "test.t4", "suites.done")
	binlog, pos := source.BinlogPosition(t)
	testbed.Must(t, os.WriteFile(file, fmt.Appendf(nil, `source: {addresses: [%q], user: %q, password: %q, start: "%s:%d", heartbeat: 200ms}
redis: {addresses: [%q], timeout: 10s} # a soak may get little of the machine
eventlog: %s
invalidator: {second_delete: none} # no reader is slow, so a key is deleted again as soon as its change is visible
admin: {listen: %q}
%s`, source.Addr, user, password, binlog, pos, f.resp.Addr(), eventlog, listen, mappings), 0o600))
	f.start("sh", "-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, addressSpace), testbed.Binary(t), "run", "-c", file)
	return f
}

func (f *freshet) start(argv ...string) {
	f.t.Helper()
	f.cmd = exec.Command(argv[0], argv[1:]...)
	f.cmd.Stdout, f.cmd.Stderr = &f.stderr, &f.stderr
	f.cmd.SysProcAttr = diesWithTest()
	started := make(chan error)
	go func() {
		// The process dies with the thread that starts it: the thread is kept until the process has ended.
		runtime.LockOSThread()
		err := f.cmd.Start()
		started <- err
		if err == nil {
			f.err = f.cmd.Wait()
			close(f.exited)
		}
	}()
	testbed.Must(f.t, <-started)
	f.t.Cleanup(func() {
		_ = f.cmd.Process.Kill()
		<-f.exited
		if f.t.Failed() {
			s := f.stderr.String()
			f.t.Logf("end of the log of freshet with the %s log:\n%s", f.log, s[max(0, len(s)-4<<10):])
		}
	})
}

// complaining is what lines say that tell of a fault of freshet's own.
var complaining = []string{"panic", "please report it", "fatal error", "the event log failed"}

// follow looks at the lines that have come since it did last: a log of a whole suite is long, and so is the time that
// it takes to look at all of it after each test.
func (f *freshet) follow() {
	text := f.stderr.from(f.read)
	text = text[:strings.LastIndexByte(text, '\n')+1]
	f.read += len(text)
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(complaining, func(what string) bool { return strings.Contains(line, what) }) {
			f.complaints = append(f.complaints, line)
		}
		if strings.Contains(line, `"event_undecodable"`) {
			f.undecodable = append(f.undecodable, line)
		}
	}
}

// survived fails the test unless freshet reads on to row n of suites.done, does not complain, and has not grown, with
// the largest event so far, in bytes.
func (f *freshet) survived(what string, n, largest int) {
	f.t.Helper()
	ended := false
	testbed.Eventually(f.t, patience, "freshet with the "+f.log+" log reads what follows "+what, func() bool {
		select {
		case <-f.exited:
			ended = true
		default:
		}
		return ended || len(f.resp.Acks(fmt.Sprintf("done:%d", n))) > 0
	})
	if ended {
		f.t.Fatalf("%s: freshet ended: %v", what, f.err)
	}
	if f.follow(); len(f.complaints) > 0 {
		f.t.Fatalf("%s: freshet complains:\n%s", what, strings.Join(f.complaints[:min(len(f.complaints), 5)], ""))
	}
	if n, limit := f.resident(), residentLimit+perLargest*largest; n > limit {
		f.t.Fatalf("%s: %d MiB were resident, more than %d, with an event of %d", what, n>>20, limit>>20, largest>>20)
	}
}

// finish waits until freshet has finished all that is committed now.
func (f *freshet) finish(what string) {
	f.t.Helper()
	now := time.Now()
	testbed.Eventually(f.t, patience, "freshet finishes "+what, func() bool {
		var s struct {
			FreshAsOf time.Time `json:"fresh_as_of"`
		}
		raw, err := f.admin.Status(f.t.Context())
		return err == nil && json.Unmarshal(raw, &s) == nil && s.FreshAsOf.After(now)
	})
}

// note remembers what freshet did during a test.
func (f *freshet) note(test string) {
	f.follow()
	f.of[test] = outcome{deleted: f.deleted(), doubted: len(f.undecodable) > 0}
	for _, line := range f.undecodable {
		f.t.Logf("%s, %s log: %s", test, f.log, strings.TrimSpace(line))
	}
	f.undecodable = nil
}

// alarms counts what freshet has raised in its log, by kind.
func (f *freshet) alarms() map[string]int {
	all := map[string]int{}
	for _, m := range regexp.MustCompile(`kind"?[=:]"?(\w+)`).FindAllStringSubmatch(f.stderr.String(), -1) {
		all[m[1]]++
	}
	return all
}

// resident returns the high-water mark of freshet's resident memory.
func (f *freshet) resident() int {
	f.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.cmd.Process.Pid))
	testbed.Must(f.t, err)
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	words := strings.Fields(after)
	if len(words) == 0 {
		return 0 // it has ended
	}
	kib, err := strconv.Atoi(words[0])
	testbed.Must(f.t, err)
	return kib << 10
}
