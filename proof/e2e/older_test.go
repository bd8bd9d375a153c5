package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// doomed is how many rows are deleted for good between the snapshot and the restart, in each round.
const doomed = 100

// older is a load whose Redis comes back with data from before.
type older struct {
	*load
	rnd *rand.Rand
	way way
	// args are those of Redis.
	args []string
	// answers says that freshet does something about it.
	answers bool
	// wentBack is when Redis went back last.
	wentBack time.Time
	// seen is the process whose status says what is in doubt, and fleet all of them; nil: there are no others.
	seen  *rig
	fleet *fleet
}

// Redis goes back under load, again and again, in each way that there is: at times before freshet is through with the
// time before, and every other time while freshet is down. In the end no key is stale, not even those of rows that are
// gone.
//
// With Kafka there are two invalidators, one of which is killed each time after Redis went back: at times the one that
// does the changes again.
//
// A Redis that refuses INFO to freshet is what shows that the test can fail: then freshet does not notice it.
func TestARedisThatComesBackWithOlderDataLeavesNoKeyStale(t *testing.T) {
	t.Parallel()
	for name, build := range testbed.SomeOf(t, map[string]builder{"embedded": newOlder, "kafka": newOlderFleet}) {
		t.Run(name, func(t *testing.T) { leavesNoKeyStale(t, build) })
	}
}

// builder makes a load, and freshet.
type builder func(t *testing.T, source *testbed.Server, seed uint64, redis ...string) *older

// leavesNoKeyStale sends Redis back under load, with and without an answer to that.
func leavesNoKeyStale(t *testing.T, build builder) {
	oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		for _, w := range named(waysBack, testbed.Some(t, waysBack), func(w way) string { return w.name }) {
			t.Run(w.name, func(t *testing.T) {
				seed := testbed.Seeded(t).Uint64()
				withAndWithout(t, func(t *testing.T, answers bool) compared {
					may := map[bool]string{true: "+@all", false: "+@all -info"}[answers]
					args := strings.Fields(w.args + " --user freshet on >secret ~* &* " + may)
					o := build(t, start(t), seed, args...)
					o.answers, o.way, o.args = answers, w, args
					o.run(testbed.Cut(w.cut, w.soak))
					return o.settle()
				})
			})
		}
	})
}

// newOlder is a load, and freshet.
func newOlder(t *testing.T, source *testbed.Server, seed uint64, redis ...string) *older {
	t.Helper()
	r := newOlderRig(t, source, redis...)
	return &older{load: r.load(seed), rnd: rand.New(rand.NewPCG(seed, 2)), seen: r}
}

func newOlderRig(t *testing.T, source *testbed.Server, redis ...string) *rig {
	t.Helper()
	r := newRig(t, source, redis...)
	r.cfg.redis = ", username: freshet, password: secret"
	// An answer takes seconds, so that Redis can go back again meanwhile.
	r.cfg.extra = fmt.Sprintf("scope_rate: %d\n", testbed.Cut(500, 5000))
	return r
}

// newOlderFleet is newOlder around Kafka.
func newOlderFleet(t *testing.T, source *testbed.Server, seed uint64, redis ...string) *older {
	t.Helper()
	kafka := testbed.SharedKafka(t)
	r := newOlderRig(t, source, redis...)
	r.cfg.d = loadD
	crowded(r.source)
	r.source.Exec(t, schema...)
	f := newFleetOn(r, kafka, 1, 2)
	f.start()
	return &older{load: startLoad(r, seed), rnd: rand.New(rand.NewPCG(seed, 2)), seen: f.invalidators[0], fleet: f}
}

// finish waits until all that is committed now is finished.
func (o *older) finish() {
	o.r.t.Helper()
	if o.fleet != nil {
		o.fleet.finish(3 * time.Minute)
		return
	}
	o.r.finish(3 * time.Minute)
}

// run sends Redis back so many times.
func (o *older) run(rounds int) {
	o.r.t.Helper()
	o.doom(rounds)
	down := o.rnd.IntN(2) == 0
	for n := range rounds {
		o.finish()
		from := products + 1 + n*doomed
		o.cacheRows(from, doomed)
		goBack := o.way.keep(o)
		o.remove(from)
		o.finish() // so that nothing will delete their keys again
		<-time.After(time.Duration(o.rnd.IntN(1000)) * time.Millisecond)
		o.goBack(goBack, down)
		down = !down
		if n == rounds-1 {
			return
		}
		o.awaitDoubt()
		if o.fleet != nil {
			o.fleet.again(pick(o.rnd, o.fleet.invalidators))
		}
		o.finish()
		o.away.Store(false)
		if n > 0 && o.rnd.IntN(2) == 0 {
			o.awaitAnswer()
		}
	}
}

// goBack has Redis go back, if need be while those are down that delete keys.
func (o *older) goBack(goBack func(), down bool) {
	o.r.t.Helper()
	o.r.t.Logf("redis goes back, and freshet is down: %t", down)
	if down {
		for _, m := range o.deleting() {
			m.kill()
		}
	}
	o.away.Store(true)
	o.wentBack = time.Now()
	goBack()
	if down {
		for _, m := range o.deleting() {
			m.launchAgain()
		}
	}
}

// doom makes the rows that are doomed in so many rounds.
func (l *load) doom(rounds int) {
	l.r.t.Helper()
	var rows []string
	for i := range rounds * doomed {
		rows = append(rows, fmt.Sprintf("(%d, -1, 'doomed')", products+1+i))
	}
	l.r.source.Exec(l.r.t, "INSERT INTO shop.product (id, category_id, name) VALUES "+strings.Join(rows, ","))
}

// cache fills the cache with rows that are doomed, as readers do.
func (l *load) cache(from int) {
	l.r.t.Helper()
	l.cacheRows(from, doomed)
}

// cacheRows fills the cache with so many rows.
func (l *load) cacheRows(from, n int) {
	l.r.t.Helper()
	ctx := l.r.t.Context()
	for id := from; id < from+n; id++ {
		key := fmt.Sprintf("product:%d", id)
		value, err := rowOf(ctx, l.r.source.DB(), key)
		testbed.Must(l.r.t, err)
		testbed.Must(l.r.t, l.r.redis.Client().Set(ctx, key, value, 0).Err())
	}
}

// remove deletes the rows that are doomed.
func (l *load) remove(from int) {
	l.r.t.Helper()
	ctx := l.r.t.Context()
	where := fmt.Sprintf("id BETWEEN %d AND %d", from, from+doomed-1)
	testbed.Must(l.r.t, l.journal.transact(ctx, l.r.source.DB(), begin, commit, func(x *tx) error {
		return x.change("shop.product", where, "DELETE FROM shop.product WHERE "+where)
	}))
}

// awaitDoubt waits until freshet has noticed that Redis went back last. If it was down, one of its processes does.
func (o *older) awaitDoubt() {
	o.r.t.Helper()
	if !o.answers {
		return
	}
	testbed.Eventually(o.r.t, 3*time.Minute, "freshet doubts what redis holds", func() bool {
		return slices.ContainsFunc(o.deleting(), func(m *rig) bool { return m.hasSaid("redis_changed", o.wentBack) })
	})
}

// deleting are the processes that delete keys.
func (o *older) deleting() []*rig {
	if o.fleet != nil {
		return o.fleet.invalidators
	}
	return []*rig{o.r}
}

// awaitAnswer waits until freshet has nothing in doubt any more.
func (o *older) awaitAnswer() {
	o.r.t.Helper()
	if !o.answers {
		return
	}
	o.seen.await("answer what is in doubt", 3*time.Minute, func(s status) bool { return len(s.Doubts) == 0 })
}

// processes are those of freshet.
func (o *older) processes() []*rig {
	if o.fleet != nil {
		return o.fleet.members()
	}
	return []*rig{o.r}
}

// settle ends the load, waits until freshet is done, and returns what is stale.
func (o *older) settle() compared {
	r := o.r
	r.t.Helper()
	testbed.Must(r.t, o.writers.stop())
	o.awaitDoubt()
	o.finish()
	o.awaitAnswer()
	o.stop()
	o.forgetOthers()
	found := r.compareCache()
	if o.answers {
		o.journal.verify(r, time.Time{})
		found.verify(r.t)
		for _, m := range o.processes() {
			if said := m.proc.stderr.String(); strings.Contains(said, "cannot be done again") {
				r.t.Errorf("all keys were forgotten, and not only those that changed:\n%s", said)
			}
		}
	}
	for _, m := range o.processes() {
		m.stop()
	}
	return found
}
