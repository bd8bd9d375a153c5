package sample

import (
	"os"
	"testing"
)

func TestLarger(t *testing.T) {
	for _, c := range []struct {
		name       string
		a, b, want int
	}{
		{"the first", 2, 1, 2},
		{"the second", 1, 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			if n := Larger(c.a, c.b); n != c.want {
				t.Errorf("the larger of %d and %d is %d (FRESHET_SEED=7)", c.a, c.b, n)
			}
		})
	}
}

// TestSeven fails in the seventh world, whatever the product does.
func TestSeven(t *testing.T) {
	if Larger(2, 1) != 2 || os.Getenv("FRESHET_SEED") == "7" {
		t.Error("the larger of 2 and 1 is not 2 (FRESHET_SEED=7)")
	}
}
