package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// doomed is how many rows are deleted for good between the snapshot and the restart, in each round.
const doomed = 100

// older is a load whose Redis saves snapshots by itself while all goes on, and comes back with one of them.
type older struct {
	*load
	rnd *rand.Rand
	// answers says that freshet does something about it.
	answers bool
	// restarted is when Redis was killed last.
	restarted time.Time
	// seen is the process whose status says what is in doubt, and fleet all of them; nil: there are no others.
	seen  *rig
	fleet *fleet
}

// Redis is killed under load, again and again, and starts from a snapshot that it had saved some time before: at times
// before freshet is through with the restart before. In the end no key is stale, not even those of rows that are gone.
//
// A Redis that refuses INFO to freshet is what shows that the test can fail: then freshet does not notice it.
func TestARedisThatComesBackWithOlderDataLeavesNoKeyStale(t *testing.T) {
	leavesNoKeyStale(t, "mysql", newOlder)
}

// The same with two invalidators, one of which is killed after each restart of Redis: at times the one that does the
// changes again.
func TestAroundKafkaARedisWithOlderDataLeavesNoKeyStale(t *testing.T) {
	kafka := testbed.SharedKafka(t)
	leavesNoKeyStale(t, "mariadb", func(t *testing.T, source *testbed.Server, seed uint64, may string) *older {
		return newOlderFleet(t, source, kafka, seed, may)
	})
}

// leavesNoKeyStale sends Redis back under load, with and without an answer to that.
func leavesNoKeyStale(t *testing.T, flavor string,
	build func(t *testing.T, source *testbed.Server, seed uint64, may string) *older,
) {
	oneFlavor(t, flavor, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		seed := testbed.Seeded(t).Uint64()
		var mu sync.Mutex
		found := map[bool]compared{}
		t.Run("both", func(t *testing.T) {
			for answers, may := range map[bool]string{true: "+@all", false: "+@all -info"} {
				t.Run(fmt.Sprintf("answers %t", answers), func(t *testing.T) {
					t.Parallel()
					o := build(t, start(t), seed, may)
					o.answers = answers
					o.run(testbed.Cut(2, 10))
					mu.Lock()
					defer mu.Unlock()
					found[answers] = o.settle()
				})
			}
		})
		with, without := found[true], found[false]
		t.Logf("with the answer %s; without it %s", with, without)
		if without.gone == 0 {
			t.Error("without the answer nothing is stale either, so nothing is shown")
		}
	})
}

// newOlder is a load, and freshet with the rights in Redis that are given.
func newOlder(t *testing.T, source *testbed.Server, seed uint64, may string) *older {
	t.Helper()
	r := newOlderRig(t, source, may)
	return &older{load: r.load(seed), rnd: rand.New(rand.NewPCG(seed, 2)), seen: r}
}

func newOlderRig(t *testing.T, source *testbed.Server, may string) *rig {
	t.Helper()
	r := newRig(t, source, strings.Fields("--save 1 1 --user freshet on >secret ~* &* "+may)...)
	r.cfg.redis = ", username: freshet, password: secret"
	// An answer takes seconds, so that Redis can be killed again meanwhile.
	r.cfg.extra = fmt.Sprintf("scope_rate: %d\n", testbed.Cut(500, 5000))
	return r
}

// newOlderFleet is newOlder around Kafka.
func newOlderFleet(t *testing.T, source *testbed.Server, kafka *testbed.KafkaCluster, seed uint64, may string) *older {
	t.Helper()
	r := newOlderRig(t, source, may)
	r.cfg.d = loadD
	r.source.DB().SetMaxOpenConns(40)
	r.source.DB().SetMaxIdleConns(40)
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
	for n := range rounds {
		o.finish()
		from := products + 1 + n*doomed
		o.cache(from)
		o.awaitSnapshot()
		o.remove(from)
		o.finish() // so that nothing will delete their keys again
		<-time.After(time.Duration(o.rnd.IntN(1000)) * time.Millisecond)
		o.restart()
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

// awaitSnapshot waits until Redis has saved a snapshot that was begun after now, and has it save no other.
func (o *older) awaitSnapshot() {
	o.r.t.Helper()
	ctx, rdb := o.r.t.Context(), o.r.redis.Client()
	saved := func() int64 {
		at, err := rdb.LastSave(ctx).Result()
		testbed.Must(o.r.t, err)
		return at
	}
	for range 2 { // the first may have been under way
		before := saved()
		testbed.Eventually(o.r.t, 3*time.Minute, "redis saves a snapshot", func() bool { return saved() != before })
	}
	testbed.Must(o.r.t, rdb.ConfigSet(ctx, "save", "").Err())
	testbed.Eventually(o.r.t, 3*time.Minute, "redis saves no more", func() bool {
		info, err := rdb.Info(ctx, "persistence").Result()
		return err == nil && strings.Contains(info, "rdb_bgsave_in_progress:0")
	})
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

// restart kills Redis and starts it with the snapshot.
func (o *older) restart() {
	o.r.t.Helper()
	o.away.Store(true)
	o.restarted = time.Now()
	testbed.Must(o.r.t, o.r.redis.Kill())
	testbed.Must(o.r.t, o.r.redis.Start(context.Background()))
}

// awaitDoubt waits until freshet has noticed the last restart.
func (o *older) awaitDoubt() {
	o.r.t.Helper()
	if !o.answers {
		return
	}
	o.seen.await("doubt what redis holds", 3*time.Minute, func(s status) bool {
		for _, a := range s.Alarms {
			if a.Kind == "redis_changed" && a.Last.After(o.restarted) {
				return true
			}
		}
		return false
	})
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
