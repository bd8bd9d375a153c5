package float

import (
	"math"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// That these are the servers' texts is tested in canal/binlog, with random values and real servers.
func TestAppend(t *testing.T) {
	double, single := Format{Decimals: NoDecimals, Width: 24}, Format{Single: true, Decimals: NoDecimals, Width: 12}
	wide := Format{Decimals: NoDecimals, Width: Unlimited}
	for _, c := range []struct {
		f    Format
		v    float64
		want string
	}{
		{double, 0, "0"},
		{double, math.Copysign(0, -1), "-0"},
		{double, 0.1, "0.1"},
		{double, -1.5, "-1.5"},
		{double, 1e14, "100000000000000"},
		{double, 1e15, "1e15"},
		{double, 1e-5, "0.00001"},
		{double, 1e-15, "0.000000000000001"},
		{double, 1e-16, "1e-16"},
		{double, math.MaxFloat64, "1.7976931348623157e308"},
		{double, -1.2345678901234567e-6, "-1.2345678901234567e-6"},
		{wide, -1.2345678901234567e-6, "-0.0000012345678901234567"},
		{single, 16777216, "16777200"},
		{single, float64(float32(0.1)), "0.1"},
		{single, 1e12, "1e12"},
		{Format{Decimals: 3}, 1.5, "1.500"},
		{Format{Decimals: 2}, 1.005, "1.00"},
		{Format{Decimals: 0}, 2, "2"},
		{Format{Decimals: NoDecimals, Width: 24, Zerofill: 6}, 1.5, "0001.5"},
	} {
		if got := string(c.f.Append([]byte("x"), c.v)); got != "x"+c.want {
			t.Errorf("%+v %g: %s, want %s", c.f, c.v, got[1:], c.want)
		}
	}
}

func TestWidth(t *testing.T) {
	if Width(true, false) != 12 || Width(false, false) != 24 || Width(true, true) != Unlimited ||
		Width(false, true) != Unlimited {
		t.Error("the widths are not those that were measured")
	}
}

// A DOUBLE's text gives the number back.
func FuzzDoublesAreReadBack(f *testing.F) {
	for _, v := range []float64{0, 1, -1.5, 1e300, 4.9e-324, 0.1, 123456789.123} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
		for _, width := range []uint16{12, 24, Unlimited} {
			text := string(Format{Decimals: NoDecimals, Width: width}.Append(nil, v))
			if back, err := strconv.ParseFloat(text, 64); err != nil || back != v {
				t.Errorf("%g became %s", v, text)
			}
		}
	})
}
