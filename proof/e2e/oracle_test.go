package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/e2e/oracle"
	"github.com/freshet/freshet/proof/testbed"
)

// knownSeed is where the cut begins: what is new is looked for in a soak.
const knownSeed = 1795374597688043065

// What is deleted is what triggers, and an evaluator that shares nothing with freshet, say must be deleted: whatever
// the columns, the mappings and the statements.
func TestTriggersSayWhatIsDeleted(t *testing.T) {
	r := rand.New(rand.NewPCG(knownSeed, 1))
	if testbed.Soak() || os.Getenv("FRESHET_SEED") != "" {
		r = testbed.Seeded(t)
	}
	seeds := map[testbed.Flavor]uint64{testbed.FlavorMySQL: r.Uint64(), testbed.FlavorMariaDB: r.Uint64()}
	oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		source := start(t, "--log-bin-trust-function-creators=1")
		leavesOut := leavesGeneratedOut(t, source)
		r := rand.New(rand.NewPCG(seeds[source.Flavor], 2))
		for n := range testbed.Cut(2, 60) {
			metadata := []string{"FULL", "MINIMAL"}[n%2]
			source.Exec(t, "SET GLOBAL binlog_row_metadata = "+metadata)
			world := oracle.New(r, source.Flavor == testbed.FlavorMariaDB, n)
			if leavesOut {
				world.LeaveOut()
			}
			t.Run(fmt.Sprintf("%d %s", n, metadata), func(t *testing.T) {
				around := embedded
				if n%5 == 4 {
					around = throughKafka
				}
				tr := around(t, source, world)
				tr.unnamed = metadata == "MINIMAL"
				tr.run(testbed.Cut(2, 6))
			})
		}
	})
}

// trial is one configuration, and what is done under it.
type trial struct {
	*rig            // which the servers and the proxies are of
	freshets []*rig // the processes
	world    *oracle.World
	before   map[string]*oracle.Key
	keys     int
	unnamed  bool // the binlog does not name columns
}

// begin makes the world's tables.
func (tr *trial) begin() *trial {
	tr.t.Helper()
	tr.t.Cleanup(func() {
		if tr.t.Failed() {
			tr.t.Logf("configuration:\n%s\nstatements:\n%s", tr.world.YAML(), tr.world.Statements())
		}
	})
	testbed.Must(tr.t, tr.world.Make(tr.t.Context(), tr.source.DB()))
	return tr
}

func embedded(t *testing.T, source *testbed.Server, w *oracle.World) *trial {
	t.Helper()
	r := newRig(t, source)
	r.mayRead("*.*")
	r.cfg.mappings = w.YAML()
	r.configure()
	return (&trial{rig: r, freshets: []*rig{r}, world: w}).begin()
}

func throughKafka(t *testing.T, source *testbed.Server, w *oracle.World) *trial {
	t.Helper()
	f := newFleetFor(t, "600ms", w.YAML(), source, testbed.SharedKafka(t), 1, 1)
	f.mayRead("*.*")
	return (&trial{rig: f.rig, freshets: []*rig{f.readers[0], f.invalidators[0]}, world: w}).begin()
}

func (tr *trial) start() {
	tr.t.Helper()
	for _, f := range tr.freshets {
		f.launch(strings.Fields(f.role)...)
		f.finish(3 * time.Minute) // it reads from here, or from where it was
	}
}

func (tr *trial) stop() {
	tr.t.Helper()
	for _, f := range tr.freshets {
		f.stop()
	}
}

// run does everything in steps, one of them while freshet is away.
func (tr *trial) run(steps int) {
	tr.t.Helper()
	tr.start()
	for n := range steps {
		tr.resp.Forget()
		begun := time.Now()
		if n == 1 {
			tr.stop()
		}
		tr.world.KeepTables(n == 1 && tr.unnamed)
		testbed.Must(tr.t, tr.world.Step(tr.t.Context(), 25))
		if n == 1 {
			tr.start()
		}
		for _, f := range tr.freshets {
			f.finish(3 * time.Minute)
		}
		tr.look(fmt.Sprintf("step %d", n), begun)
	}
	testbed.Must(tr.t, tr.world.Close(tr.t.Context()))
	tr.stop()
	tr.t.Logf("%d keys", tr.keys)
}

// look compares what was deleted since begun with what must be.
func (tr *trial) look(what string, begun time.Time) {
	tr.t.Helper()
	want, err := tr.world.Expect(tr.t.Context(), tr.source.DB())
	testbed.Must(tr.t, err)
	for _, k := range want {
		if k.Must {
			tr.keys++
		}
	}
	wrong := oracle.Compare(want, tr.before, tr.deletes())
	tr.before = want
	for _, line := range wrong[:min(len(wrong), 15)] {
		tr.t.Errorf("%s: %s", what, line)
	}
	for _, table := range tr.world.Owed() {
		tr.doubted(what, table, begun)
	}
	for _, f := range tr.freshets {
		tr.healthy(what, f)
	}
	if tr.t.Failed() {
		tr.t.FailNow()
	}
}

// healthy fails the test for doubts that are not documented, and for faults in the log.
func (tr *trial) healthy(what string, f *rig) {
	tr.t.Helper()
	doubts, err := f.client.ListDoubts(tr.t.Context())
	testbed.Must(tr.t, err)
	for _, d := range doubts {
		// xa_keys_unknown: what was in doubt when it was prepared is so again when it is committed.
		if (d.Cause == "key_column_absent" || d.Cause == "xa_keys_unknown") && len(d.Tables) > 0 &&
			!slices.ContainsFunc(d.Tables, func(name string) bool { return !tr.world.MayLack(name) }) {
			continue
		}
		if d.Cause != "table_truncated" && d.Cause != "statement_logged" ||
			slices.ContainsFunc(d.Tables, func(name string) bool { return !tr.world.Doubted(name) }) {
			tr.t.Errorf("%s: a doubt: %s of %q: %s", what, d.Cause, d.Tables, d.Message)
		}
	}
	if lines := complaints.FindAllString(f.proc.stderr.String(), 5); len(lines) > 0 {
		tr.t.Errorf("%s: freshet complains: %s", what, strings.Join(lines, "\n"))
	}
}

// doubted fails the test if no freshet has told since begun of a key of a table that cannot be named. The doubt itself
// may have been answered: that is of its own accord.
func (tr *trial) doubted(what, table string, begun time.Time) {
	tr.t.Helper()
	for _, f := range tr.freshets {
		told := false
		f.await("say which alarms there were", time.Minute, func(s status) bool {
			for _, a := range s.Alarms {
				told = told || a.Kind == "key_column_absent" && !a.Last.Before(begun) &&
					strings.Contains(a.Message, "a row image of "+table+" lacks column ")
			}
			return true
		})
		if told {
			return
		}
	}
	tr.t.Errorf("%s: keys of %s could not be named, and no doubt told of it", what, table)
}

// leavesGeneratedOut reports whether a server leaves the columns that it makes out of the rows of a DELETE.
func leavesGeneratedOut(t *testing.T, source *testbed.Server) bool {
	t.Helper()
	source.Exec(t, "CREATE DATABASE leaves", "CREATE TABLE leaves.t (a INT PRIMARY KEY, long_text VARCHAR(3000) "+
		"CHARACTER SET latin1 GENERATED ALWAYS AS (REPEAT('x', 2000 + a)) STORED)", "INSERT INTO leaves.t (a) VALUES (1)")
	_, from := source.BinlogPosition(t)
	source.Exec(t, "DELETE FROM leaves.t")
	_, to := source.BinlogPosition(t)
	source.Exec(t, "DROP DATABASE leaves")
	return to-from < 2000
}

// complaints are lines of the log that tell of a fault of freshet's own.
var complaints = regexp.MustCompile(`(?m)^.*(panic|please report it|fatal error|DATA RACE).*$`)

// deletes returns when the last acknowledged delete of each key was sent.
func (r *rig) deletes() map[string]time.Time {
	all := map[string]time.Time{}
	for _, k := range r.resp.Keys() {
		if strings.Contains(k, "freshet:probe") || strings.Contains(k, stamp) {
			continue // an answer to a doubt, or the age of Redis' data: no key of a row
		}
		for _, a := range r.resp.Acks(k) {
			if slices.Contains(acting, a.Command) && a.Err == "" && !a.Acked.IsZero() && a.Sent.After(all[k]) {
				all[k] = a.Sent
			}
		}
	}
	return all
}
