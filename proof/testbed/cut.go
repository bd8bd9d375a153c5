package testbed

import (
	"math/rand/v2"
	"os"
	"strconv"
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

// Seeded returns a test's source of chance. Its seed is another one each time, unless FRESHET_SEED gives it, and is
// logged.
func Seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("FRESHET_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("FRESHET_SEED=%s: %v", s, err)
		}
	}
	t.Logf("seed %d (set FRESHET_SEED to repeat)", seed)
	return rand.New(rand.NewPCG(seed, 1))
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
