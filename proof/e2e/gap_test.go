package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// gappy is a load whose source loses binlogs that freshet has not read.
type gappy struct {
	*load
	rnd *rand.Rand
	// answers says that freshet passes over gaps. Else it ends, and somebody sets the position and forgets the cache.
	answers bool
	lost    time.Time // when the last binlogs were lost
}

// The source loses its binlog under load, again and again, while freshet is cut off from it: what is left of it begins
// later, or begins again with the same names and numbers. At times freshet is not through with the gap before. In the
// end no key is stale, not even those of rows that are gone.
//
// What shows that the test can fail is a freshet that halts, and an operator who goes on without clearing the cache.
func TestABinlogThatIsLostUnderLoadLeavesNoKeyStale(t *testing.T) {
	oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		seed := testbed.Seeded(t).Uint64()
		withAndWithout(t, func(t *testing.T, answers bool) compared {
			g := newGappy(t, start(t), seed, answers)
			g.run(testbed.Cut(3, 12))
			return g.settle()
		})
	})
}

// withAndWithout has the same happen with an answer of freshet to it and without one. Without it keys must be stale. A
// cut leaves out the second two times of three.
func withAndWithout(t *testing.T, run func(t *testing.T, answers bool) compared) {
	t.Helper()
	var mu sync.Mutex
	found := map[bool]compared{}
	both := testbed.Soak() || testbed.Seeded(t).IntN(3) == 0
	t.Run("both", func(t *testing.T) {
		for _, answers := range []bool{true, false} {
			if !answers && !both {
				continue
			}
			t.Run(fmt.Sprintf("answers %t", answers), func(t *testing.T) {
				t.Parallel()
				is := run(t, answers)
				mu.Lock()
				defer mu.Unlock()
				found[answers] = is
			})
		}
	})
	with, without := found[true], found[false]
	t.Logf("with the answer %s; without it %s", with, without)
	if both && without.gone == 0 {
		t.Error("without the answer nothing is stale either, so nothing is shown")
	}
}

func newGappy(t *testing.T, source *testbed.Server, seed uint64, answers bool) *gappy {
	t.Helper()
	r := newRig(t, source)
	if answers {
		// An answer takes seconds, so that the next gap can come meanwhile.
		r.cfg.extra = fmt.Sprintf("on_gap: invalidate\nscope_rate: %d\n", testbed.Cut(1000, 5000))
	}
	return &gappy{load: r.load(seed), rnd: rand.New(rand.NewPCG(seed, 2)), answers: answers}
}

// run has the source lose its binlog so many times.
func (g *gappy) run(rounds int) {
	r := g.r
	r.t.Helper()
	g.doom(rounds)
	for n := range rounds {
		r.finish(3 * time.Minute)
		from := products + 1 + n*doomed
		g.cache(from)
		r.binlog.Cut()
		g.remove(from)
		<-time.After(time.Duration(g.rnd.IntN(1000)) * time.Millisecond)
		g.lose(n%2 == 0)
		testbed.Must(r.t, r.binlog.Resume())
		g.goOn()
		if g.rnd.IntN(2) == 0 {
			g.awaitAnswer()
		}
	}
}

// lose has the source lose what freshet has not read: the files before the last one, or all.
func (g *gappy) lose(all bool) {
	g.r.t.Helper()
	if all {
		g.r.source.ResetBinlogs(g.r.t)
	} else {
		g.r.source.PurgeBinlogs(g.r.t)
	}
	g.lost = time.Now()
}

// goOn waits until freshet reads on.
func (g *gappy) goOn() {
	r := g.r
	r.t.Helper()
	if g.answers {
		r.awaitAlarm("binlog_gap", g.lost)
		return
	}
	<-r.proc.exited
	if code := r.proc.cmd.ProcessState.ExitCode(); code != 3 {
		r.t.Fatalf("freshet ended with exit code %d\n%s", code, r.proc.stderr.String())
	}
	if said, code := r.ask("position", "set", "now", "--skip"); code != 0 {
		r.t.Fatalf("the position is not set: %s", said)
	}
	r.run()
}

// awaitAnswer waits until freshet has nothing in doubt any more.
func (g *gappy) awaitAnswer() {
	g.r.t.Helper()
	if g.answers {
		g.r.await("answer what is in doubt", 3*time.Minute, func(s status) bool { return len(s.Doubts) == 0 })
	}
}

// settle ends the load, waits until freshet is done, and returns what is stale.
func (g *gappy) settle() compared {
	r := g.r
	r.t.Helper()
	testbed.Must(r.t, g.writers.stop())
	r.finish(3 * time.Minute)
	g.awaitAnswer()
	g.stop()
	found := r.compareCache()
	if g.answers {
		found.verify(r.t)
	}
	r.stop()
	return found
}
