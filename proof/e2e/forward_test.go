package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// watched is how many items a watch looks at.
const watched = 40

// watch looks at values that nobody but freshet writes, all the time: their versions must only rise.
type watch struct {
	b        *bazaar
	mu       sync.Mutex
	versions map[string]int64
	back     []string
	seen     int // how many risen versions were seen
	writers  flock
	watchers flock
}

// startWatch begins to write items, each change of one with the next version as the database counts it, and to look at
// their values.
func startWatch(b *bazaar, seed uint64) *watch {
	w := &watch{b: b, versions: map[string]int64{}}
	w.writers.start(3, func(ctx context.Context, i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		return b.load.loop(ctx, func() error {
			err := b.transact(func(x *tx) error {
				where := fmt.Sprintf("id = %d", 1+rnd.IntN(watched))
				b.load.writes.Add(1)
				return x.change("shop.item", where, "UPDATE shop.item SET version = version + 1 WHERE "+where)
			})
			if deadlock(err) {
				return nil
			}
			return err
		})
	})
	w.watchers.start(2, func(ctx context.Context, _ int) error { return w.look(ctx) })
	b.r.t.Cleanup(func() { _, _ = w.writers.stop(), w.watchers.stop() })
	return w
}

func (w *watch) look(ctx context.Context) error {
	var keys []string
	for id := 1; id <= watched; id++ {
		keys = append(keys, fmt.Sprintf("item:%d", id))
	}
	for ctx.Err() == nil {
		began := w.known()
		all, err := w.b.r.redis.Client().MGet(ctx, keys...).Result()
		if err != nil && ctx.Err() == nil {
			return err
		}
		for i, v := range all {
			text, ok := v.(string)
			if !ok {
				continue
			}
			var doc struct{ Version int64 }
			if err := json.Unmarshal([]byte(text), &doc); err != nil {
				return fmt.Errorf("%s: %w", keys[i], err)
			}
			w.note(keys[i], doc.Version, began[keys[i]])
		}
		select {
		case <-ctx.Done():
		case <-time.After(pace() / 4):
		}
	}
	return nil
}

// known returns the versions that have been seen so far.
func (w *watch) known() map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]int64{}
	for k, v := range w.versions {
		out[k] = v
	}
	return out
}

// note notes a version that was read after before had been seen.
func (w *watch) note(key string, version, before int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if version < before {
		w.back = append(w.back, fmt.Sprintf("%s went from version %d back to %d", key, before, version))
	}
	if version > w.versions[key] {
		w.versions[key] = version
		w.seen++
	}
}

// end ends the load and the watch, and fails the test if a version went back.
func (w *watch) end(finish func()) {
	t := w.b.r.t
	t.Helper()
	err := w.writers.stop()
	finish()
	testbed.Must(t, errors.Join(err, w.watchers.stop()))
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d transactions, %d newer values seen", w.b.load.writes.Load(), w.seen)
	if w.seen < watched {
		t.Errorf("only %d newer values were seen, so nothing is shown", w.seen)
	}
	if n := len(w.back); n > 0 {
		t.Errorf("%d times an older value replaced a newer one:\n%s", n, strings.Join(w.back[:min(n, 10)], "\n"))
	}
	w.b.verifyValues()
}

// quietBazaar prepares a bazaar without readers.
func quietBazaar(r *rig, seed uint64) *bazaar {
	r.t.Helper()
	crowded(r.source)
	r.source.Exec(r.t, actionSchema...)
	return newBazaar(r, seed)
}

// Killed and replaying again and again, freshet never writes an older value over a newer one.
func TestNoReplayReplacesANewerValue(t *testing.T) {
	oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		rnd := testbed.Seeded(t)
		r := newRig(t, start(t))
		r.cfg.d, r.cfg.mappings = actionsD, actionMappings
		b := quietBazaar(r, 1)
		r.configure()
		r.run()
		b.seed()
		w := startWatch(b, rnd.Uint64())
		for range testbed.Cut(6, 100) {
			<-time.After(time.Duration(200+rnd.IntN(1500)) * time.Millisecond)
			r.kill()
			r.launch()
		}
		w.end(b.finish)
		r.stop()
	})
}

// Set back to an earlier position, freshet deletes what it knows nothing of any more; older values do not come back.
func TestNoRewindReplacesANewerValue(t *testing.T) {
	oneFlavor(t, func(t *testing.T, start func(testing.TB, ...string) *testbed.Server) {
		rnd := testbed.Seeded(t)
		r := newRig(t, start(t))
		r.cfg.d, r.cfg.mappings = actionsD, actionMappings
		b := quietBazaar(r, 1)
		r.configure()
		r.run()
		b.seed()
		b.finish()
		w := startWatch(b, rnd.Uint64())
		places := []string{r.placeNow()}
		for range testbed.Cut(2, 20) {
			r.rewind(rnd, &places)
		}
		w.end(b.finish)
		r.stop()
	})
}

// A leader that was stopped, succeeded and goes on with what it still has does not write an older value over a newer
// one, and nor does an invalidator that has lost its partitions.
func TestNoOldLeaderOrInvalidatorReplacesANewerValue(t *testing.T) {
	t.Parallel()
	rnd := testbed.Seeded(t)
	f := newFleetFor(t, actionsD, actionMappings, testbed.MySQL(t), testbed.SharedKafka(t), 2, 2)
	b := quietBazaar(f.rig, 1)
	f.start()
	b.seed()
	w := startWatch(b, rnd.Uint64())
	for range testbed.Cut(1, 8) {
		f.freeze(f.leading(), 12*time.Second)
		f.freeze(pick(rnd, f.invalidators), 12*time.Second)
		f.again(f.leading())
		f.finish(3 * time.Minute)
	}
	w.end(func() { f.finish(3 * time.Minute) })
	f.stop()
}
