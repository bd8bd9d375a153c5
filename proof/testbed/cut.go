package testbed

import (
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Soak reports whether random and long tests run whole (FRESHET_SOAK). Otherwise they run the cut that make test runs.
func Soak() bool { return os.Getenv("FRESHET_SOAK") != "" }

// Cut returns whole in a soak, and else short.
func Cut[T any](short, whole T) T {
	if Soak() {
		return whole
	}
	return short
}

// seeds is the seed of this process, and how often each test has asked for it.
var seeds = struct {
	sync.Mutex
	seed  uint64
	asked map[string]uint64
}{seed: uint64(time.Now().UnixNano()), asked: map[string]uint64{}}

// Seeded returns a test's source of chance: another one for each test, and for each time that it asks. The seed of all
// of them is another one each time, unless FRESHET_SEED gives it, and is logged.
func Seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seeds.Lock()
	defer seeds.Unlock()
	if s := os.Getenv("FRESHET_SEED"); s != "" {
		var err error
		if seeds.seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("FRESHET_SEED=%s: %v", s, err)
		}
	}
	t.Logf("seed %d (set FRESHET_SEED to repeat)", seeds.seed)
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	nth := seeds.asked[t.Name()]
	seeds.asked[t.Name()]++
	return rand.New(rand.NewPCG(seeds.seed, h.Sum64()+nth))
}

// Some returns all in a soak, and else one, by chance: FRESHET_SEED repeats it.
func Some[T any](t testing.TB, all []T) []T {
	t.Helper()
	if Soak() {
		return all
	}
	n := Seeded(t).IntN(len(all))
	return all[n : n+1]
}

// SomeOf is Some for cases with names.
func SomeOf[T any](t testing.TB, all map[string]T) map[string]T {
	t.Helper()
	some := map[string]T{}
	for _, name := range Some(t, slices.Sorted(maps.Keys(all))) {
		some[name] = all[name]
	}
	return some
}
