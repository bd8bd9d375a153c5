package e2e

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/e2e/oracle"
	"github.com/freshet/freshet/testbed"
)

// What is deleted is what triggers, and an evaluator that shares nothing with freshet, say must be deleted: whatever the
// columns, the mappings and the statements.
func TestTriggersAgreeWithWhatIsDeleted(t *testing.T) {
	r := seeded(t)
	seeds := map[testbed.Flavor]uint64{testbed.FlavorMySQL: r.Uint64(), testbed.FlavorMariaDB: r.Uint64()}
	flavors(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		source := start(t, "--log-bin-trust-function-creators=1")
		r := rand.New(rand.NewPCG(seeds[source.Flavor], 2))
		for n := range cut(2, 60) {
			metadata := []string{"FULL", "MINIMAL"}[n%2]
			source.Exec(t, "SET GLOBAL binlog_row_metadata = "+metadata)
			t.Run(fmt.Sprintf("%d with %s metadata", n, metadata), func(t *testing.T) {
				newTrial(t, source, oracle.New(r, source.Flavor == testbed.FlavorMariaDB, n)).run(cut(3, 6))
			})
		}
	})
}

// trial is one configuration, and what is done under it.
type trial struct {
	*rig
	world  *oracle.World
	before map[string]*oracle.Key
	keys   int
}

func newTrial(t *testing.T, source *testbed.Server, w *oracle.World) *trial {
	t.Helper()
	tr := &trial{rig: newRig(t, source), world: w}
	tr.cfg.mappings = w.YAML()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("configuration:\n%s\nstatements:\n%s", w.YAML(), w.Statements())
		}
	})
	testbed.Must(t, w.Make(t.Context(), source.DB()))
	tr.configure()
	return tr
}

func (tr *trial) run(steps int) {
	tr.t.Helper()
	tr.rig.run()
	for n := range steps {
		tr.resp.Forget()
		testbed.Must(tr.t, tr.world.Step(tr.t.Context(), 25))
		tr.finish(2 * time.Minute)
		tr.look(fmt.Sprintf("step %d", n))
	}
	testbed.Must(tr.t, tr.world.Close(tr.t.Context()))
	tr.stop()
	tr.t.Logf("%d keys", tr.keys)
}

// look compares what was deleted with what must be.
func (tr *trial) look(what string) {
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
	doubts, err := tr.client.ListDoubts(tr.t.Context())
	testbed.Must(tr.t, err)
	for _, d := range doubts {
		if d.Cause != "table_truncated" || slices.ContainsFunc(d.Tables, func(name string) bool { return !tr.world.Doubted(name) }) {
			tr.t.Errorf("%s: a doubt: %s of %q: %s", what, d.Cause, d.Tables, d.Message)
		}
	}
	if lines := complaints.FindAllString(tr.proc.stderr.String(), 5); len(lines) > 0 {
		tr.t.Errorf("%s: freshet complains: %s", what, strings.Join(lines, "\n"))
	}
	if tr.t.Failed() {
		tr.t.FailNow()
	}
}

// complaints are lines of the log that tell of a fault of freshet's own.
var complaints = regexp.MustCompile(`(?m)^.*(panic|please report it|fatal error|DATA RACE).*$`)

// deletes returns when the last acknowledged delete of each key was sent.
func (r *rig) deletes() map[string]time.Time {
	all := map[string]time.Time{}
	for _, k := range r.resp.Keys() {
		for _, a := range r.resp.Acks(k) {
			if slices.Contains(acting, a.Command) && a.Err == "" && !a.Acked.IsZero() && a.Sent.After(all[k]) {
				all[k] = a.Sent
			}
		}
	}
	return all
}
