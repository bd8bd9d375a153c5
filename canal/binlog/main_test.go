package binlog

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// random returns a source of random numbers whose seed is logged, and can be set by FRESHET_SEED.
func random(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	if s := os.Getenv("FRESHET_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("FRESHET_SEED: %v", err)
		}
	}
	t.Logf("FRESHET_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// rounds returns n, or ten times that if FRESHET_SOAK is set.
func rounds(n int) int {
	if os.Getenv("FRESHET_SOAK") != "" {
		return 10 * n
	}
	return n
}
