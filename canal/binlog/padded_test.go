package binlog

import (
	"fmt"
	"math"
	"testing"
)

func TestNumbersArePaddedToAnyWidth(t *testing.T) {
	for _, v := range []uint64{0, 7, 10, 12345, math.MaxUint64} {
		for width := range 256 {
			want := fmt.Sprintf("%0*d", width, v)
			if v == 0 && width == 0 {
				want = ""
			}
			if got := string(appendPadded([]byte("x"), v, width)); got != "x"+want {
				t.Fatalf("%d in %d digits: %q, want %q", v, width, got, "x"+want)
			}
		}
	}
}
