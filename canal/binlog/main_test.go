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

// rounds returns n, or what FRESHET_SOAK says if that is more.
func rounds(t testing.TB, n int) int {
	s := os.Getenv("FRESHET_SOAK")
	if s == "" {
		return n
	}
	more, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("FRESHET_SOAK: %v", err)
	}
	return max(n, n*more)
}
