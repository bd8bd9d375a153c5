package canal

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) {
	// The tests wait for servers and heartbeats most of the time, not for processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := testbed.WithServers(m).Run()
	for _, s := range shared {
		if s.server != nil {
			s.server.Close()
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// flavor is one of the servers that tests share, each test in a database of its own.
type flavor struct {
	name   string
	start  func(context.Context, testbed.Options) (*testbed.Server, error)
	args   []string
	once   sync.Once
	server *testbed.Server
	err    error
}

var shared = []*flavor{
	{name: "MySQL", start: testbed.StartMySQL, args: []string{"--binlog-row-metadata=FULL"}},
	{name: "MySQLWithoutGTIDs", start: testbed.StartMySQL, args: []string{
		"--binlog-row-metadata=FULL", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF",
	}},
	{
		name: "MariaDB", start: testbed.StartMariaDB,
		args: []string{"--binlog-row-metadata=FULL", "--skip-ssl", "--max-allowed-packet=64M"},
	},
}

func (f *flavor) get(t testing.TB) *testbed.Server {
	t.Helper()
	f.once.Do(func() { f.server, f.err = f.start(context.Background(), testbed.Options{Args: f.args}) })
	if f.err != nil {
		t.Fatal(f.err)
	}
	return f.server
}

var databases atomic.Int32

// database is a test's own database on a shared server.
type database struct {
	*testbed.Server
	t              testing.TB
	name           string
	user, password string // who may read it, and has the documented rights
}

// newDatabase makes a database; "DB" in statements stands for its name.
func newDatabase(t testing.TB, s *testbed.Server, statements ...string) *database {
	t.Helper()
	d := &database{Server: s, t: t, name: fmt.Sprintf("d%d", databases.Add(1))}
	d.user, d.password = s.MayRead(t, d.readable())
	d.exec("create database DB")
	d.exec(statements...)
	return d
}

// readable are the tables that freshet may read: also those of databases that tests make next to it.
func (d *database) readable() string { return "`" + d.name + "%`.*" }

// allow gives freshet more rights than the documented ones that it needs, such as those on what statements call.
func (d *database) allow(rights, on string) {
	d.exec("grant " + rights + " on " + on + " to " + d.user + "@'%'")
}

// on is the database of that name on another server, with the same users.
func (d *database) on(s *testbed.Server) *database {
	return &database{Server: s, t: d.t, name: d.name, user: d.user, password: d.password}
}

func (d *database) exec(statements ...string) {
	d.t.Helper()
	all := make([]string, len(statements))
	for i, s := range statements {
		all[i] = strings.ReplaceAll(s, "DB", d.name)
	}
	d.Exec(d.t, all...)
}

// options read the database's server, and this database only.
func (d *database) options() Options {
	return Options{
		Address: d.Addr, User: d.user, Password: credential.Text(d.password),
		Wanted: func(schema, _ string) bool { return schema == d.name },
	}
}

// onEach runs a test on each kind of server.
func onEach(t *testing.T, f func(t *testing.T, s *testbed.Server)) { on(t, shared, f) }

// onOne runs a test on each kind of server in a soak, and else on one of them: what it tries at every event is long.
func onOne(t *testing.T, f func(t *testing.T, s *testbed.Server)) { on(t, testbed.Some(t, shared), f) }

func on(t *testing.T, kinds []*flavor, f func(t *testing.T, s *testbed.Server)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel() // each has a server of its own
			f(t, k.get(t))
		})
	}
}

// wantRows waits for the rows, in this order; "DB" stands for the database's name.
func (r *running) wantRows(d *database, want ...string) {
	r.t.Helper()
	want = slices.Clone(want)
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "DB", d.name)
	}
	r.await(r.t, fmt.Sprintf("%d rows", len(want)), func() bool { return len(r.rows) >= len(want) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.texts(); !slices.Equal(got, want) {
		r.t.Fatalf("rows\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// scale is n, or many times that if FRESHET_SOAK is set: the whole of what otherwise a cut is run of.
func scale(n int) int {
	if os.Getenv("FRESHET_SOAK") != "" {
		return 20 * n
	}
	return n
}

func quietLogger(t testing.TB) *slog.Logger {
	if os.Getenv("FRESHET_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

func newBoard(t testing.TB, log *slog.Logger) *alarm.Board {
	t.Helper()
	b, err := alarm.New(log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return b
}
