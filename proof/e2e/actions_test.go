package e2e

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// bazaarRig is a rig with an application that uses every action, and with freshet running.
func bazaarRig(t *testing.T, source *testbed.Server, seed uint64) *bazaar {
	t.Helper()
	r := newRig(t, source, "--appendonly", "yes", "--appendfsync", "no")
	crowded(source)
	r.cfg.d, r.cfg.mappings = actionsD, actionMappings
	r.source.Exec(t, actionSchema...)
	b := newBazaar(r, seed)
	r.configure()
	r.run()
	b.open(seed)
	return b
}

// actionsD is the second delete of these suites. A quarter of it is how late Redis may answer without being asked
// again, and Redis has more to do here than to delete keys.
const actionsD = "1s"

// settle ends the load, waits until freshet is done, and verifies what was done and what is cached. hurt says that
// Redis was hurt, so that messages were lost.
func (b *bazaar) settle(finish func(), hurt bool) {
	b.r.t.Helper()
	testbed.Must(b.r.t, b.writers.stop())
	finish() // what readers fill until here may be deleted again
	<-time.After(time.Second)
	testbed.Must(b.r.t, b.readers.stop())
	b.r.t.Logf("%d transactions, %d fills", b.load.writes.Load(), b.load.fills.Load())
	finish()
	b.verifyAll(hurt)
	b.verifyWritten(finish)
	b.verifyShapes(b.verifyAll(hurt))
	testbed.Must(b.r.t, b.listener.stop())
	b.verifyCounter()
}

// verifyAll verifies what was done so far, and what is cached. It returns how many values of each shape are cached.
func (b *bazaar) verifyAll(hurt bool) map[string]int {
	b.r.t.Helper()
	in, err := time.ParseDuration(expireIn)
	testbed.Must(b.r.t, err)
	<-time.After(in) // until then an old setting may be served
	b.load.journal.verify(b.r, time.Time{})
	counts := b.verifyValues()
	b.verifyStream()
	if !hurt {
		b.verifyMessages()
	}
	return counts
}

// verifyShapes expects that every shape is cached, since what is absent shows nothing. It can say so only once every
// value was written again: the load itself may end just after a set was forgotten, and its companion with it.
func (b *bazaar) verifyShapes(counts map[string]int) {
	b.r.t.Helper()
	for _, shape := range []string{
		"item:*", "item:*:hash", "item:*:text", "kind:*:stats", "kind:*:list", "kind:*:top", "tag:*", "board:*",
		"freshet:v", "freshet:f", "freshet:m",
	} {
		if counts[shape] == 0 {
			b.r.t.Errorf("there is no %s, so nothing is shown", shape)
		}
	}
}

func (b *bazaar) finish() { b.r.t.Helper(); b.r.finish(3 * time.Minute) }

// After its position was set back, freshet does everything since again, and every value is in the end as its rows are.
func TestAfterARewindEveryValueIsRight(t *testing.T) {
	oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		rnd := testbed.Seeded(t)
		b := bazaarRig(t, start(t), rnd.Uint64())
		places := []string{b.r.placeNow()}
		for range testbed.Cut(2, 20) {
			b.r.rewind(rnd, &places)
		}
		b.settle(b.finish, false)
		b.r.stop()
	})
}

// rewind lets freshet go on for a while, and sends it back to a place where it has been.
func (r *rig) rewind(rnd *rand.Rand, places *[]string) {
	r.t.Helper()
	<-time.After(time.Duration(500+rnd.IntN(1500)) * time.Millisecond)
	*places = append(*places, r.placeNow())
	r.finish(3 * time.Minute)
	r.stop()
	place := pick(rnd, *places)
	if out, code := r.ask("position", "set", place); code != 0 {
		r.t.Fatalf("position set %s: exit code %d\n%s", place, code, out)
	}
	r.launch()
}

// aFleetDoesEveryAction kills and stops two readers and two invalidators around Kafka in turn, so that leaders change
// and partitions move, and every value is in the end as its rows are.
func aFleetDoesEveryAction(t *testing.T) {
	t.Helper()
	rnd := testbed.Seeded(t)
	f := newFleetFor(t, actionsD, actionMappings, testbed.MySQL(t), testbed.SharedKafka(t), 2, 2)
	crowded(f.source)
	f.source.Exec(t, actionSchema...)
	b := newBazaar(f.rig, rnd.Uint64())
	f.start()
	b.open(rnd.Uint64())
	strikes := []hurt{
		{"the leading reader is killed", func(f *fleet, _ *rand.Rand) { f.again(f.leading()) }},
		{
			"the leading reader hangs, and comes back behind another one",
			func(f *fleet, _ *rand.Rand) { f.freeze(f.leading(), 12*time.Second) },
		},
		{"the leading reader hands over", func(f *fleet, _ *rand.Rand) { m := f.leading(); m.stop(); m.launch(m.role) }},
		{"an invalidator is killed", func(f *fleet, rnd *rand.Rand) { f.again(pick(rnd, f.invalidators)) }},
		{
			"an invalidator hangs until others have its partitions",
			func(f *fleet, rnd *rand.Rand) { f.freeze(pick(rnd, f.invalidators), 12*time.Second) },
		},
		{
			"an invalidator hands over",
			func(f *fleet, rnd *rand.Rand) { m := pick(rnd, f.invalidators); m.stop(); m.launch(m.role) },
		},
		{"the line to redis is reset", func(f *fleet, _ *rand.Rand) { f.resp.Reset() }},
	}
	order := rnd.Perm(len(strikes))
	for n := range testbed.Cut(4, 60) {
		h := strikes[order[n%len(strikes)]]
		t.Logf("%d: %s", n+1, h.name)
		h.do(f, rnd)
		<-time.After(time.Duration(500+rnd.IntN(2000)) * time.Millisecond)
		f.finish(3 * time.Minute)
	}
	b.settle(func() { f.finish(3 * time.Minute) }, false)
	f.stop()
}

// leading returns the reader that leads.
func (f *fleet) leading() (leader *rig) {
	f.t.Helper()
	f.awaitAll("a reader leads", 3*time.Minute, func(readers, _ []status) bool {
		for i, s := range readers {
			if s.Source.Connected {
				leader = f.readers[i]
			}
		}
		return leader != nil
	})
	return leader
}

// bazaarMix runs transactions of every kind, several times over: first those that make rows.
func (b *bazaar) bazaarMix(rnd *rand.Rand, n int) {
	b.r.t.Helper()
	for range n {
		for _, kind := range append([]int{3, 5, 10, 11}, rnd.Perm(changes)...) {
			testbed.Must(b.r.t, b.transact(func(x *tx) error { return b.change(x, rnd, kind) }))
		}
	}
}

// changed returns the keys that the journal knows, each once.
func (b *bazaar) changed() map[string]bool {
	b.load.journal.mu.Lock()
	defer b.load.journal.mu.Unlock()
	all := map[string]bool{}
	for _, e := range b.load.journal.entries {
		all[e.key] = true
	}
	return all
}

// poison puts into the keys that were changed what an application read before, or leaves them, or evicts them. Whatever
// it is, freshet knows that all of them have changed since. What a set held before is known by its rows: a member that
// has changed since may be missing or too much.
func (b *bazaar) poison(keys map[string]bool, rnd *rand.Rand) {
	b.r.t.Helper()
	ctx, rdb := context.Background(), b.r.redis.Client()
	for key := range keys {
		v, known, err := b.rowValue(ctx, b.r.source.DB(), key)
		testbed.Must(b.r.t, err)
		if !known {
			continue
		}
		switch rnd.IntN(4) {
		case 0:
			testbed.Must(b.r.t, rdb.Unlink(ctx, key).Err())
		case 1:
			testbed.Must(b.r.t, rdb.Unlink(ctx, key, b.companion(key)).Err())
		case 2: // as it is
		case 3:
			switch shapeOf(key) {
			case "item:*:hash", "kind:*:stats":
				testbed.Must(b.r.t, rdb.HSet(ctx, key, "version", -1, "old", 1).Err())
			case "tag:*", "board:*": // whatever it is that the rows say
				testbed.Must(b.r.t, rdb.Unlink(ctx, key).Err())
				testbed.Must(b.r.t, put(ctx, rdb, key, v))
			case "user:*":
				testbed.Must(b.r.t, rdb.HSet(ctx, key, neighbour, neighbourString, "profile", "old", "name", "old").Err())
			default:
				testbed.Must(b.r.t, rdb.Set(ctx, key, "old", 0).Err())
			}
		}
		if shapeOf(key) == "user:*" {
			testbed.Must(b.r.t, rdb.HSet(ctx, key, neighbour, neighbourString).Err())
		}
	}
}

// companion returns the name of the key that has a key's version.
func (b *bazaar) companion(key string) string {
	kind := "v"
	switch shapeOf(key) {
	case "tag:*", "board:*":
		kind = "m"
	case "user:*":
		kind = "f"
	}
	return "freshet:" + kind + ":{" + key + "}"
}

// verifyChanged compares the keys with their rows, and expects that what is written whether it was there or not is
// there.
func (b *bazaar) verifyChanged(keys map[string]bool) {
	b.r.t.Helper()
	ctx := context.Background()
	in, err := time.ParseDuration(expireIn)
	testbed.Must(b.r.t, err)
	<-time.After(in)
	written := 0
	for key := range keys {
		problem, err := b.compare(ctx, key)
		testbed.Must(b.r.t, err)
		if problem != "" {
			b.r.t.Errorf("%s: %s", key, problem)
		}
		n, err := b.r.redis.Client().Exists(ctx, key).Result()
		testbed.Must(b.r.t, err)
		if shape := shapeOf(key); n == 1 && (shape[:4] == "item" || shape[:4] == "kind") {
			written++
		}
	}
	if written == 0 {
		b.r.t.Errorf("of %d keys no value is there, so nothing is shown", len(keys))
	}
}
