package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestGoals(t *testing.T) {
	for _, c := range []struct {
		goal  string
		value float64
		want  string
	}{
		{"≥ 0.9", 0.9, "yes"},
		{"≥ 0.9", 0.8999, "no"},
		{"≤ 100", 100, "yes"},
		{"≤ 100", 100.1, "no"},
		{"", 5, ""},
		{"≥ 0.9", math.NaN(), "no"},
	} {
		if got, err := judge(c.goal, c.value); got != c.want || err != nil {
			t.Errorf("%q of %g: %q, %v, want %q", c.goal, c.value, got, err, c.want)
		}
	}
	for _, bad := range []string{"0.9", "> 0.9", "≥ fast"} {
		if _, err := judge(bad, 1); err == nil {
			t.Errorf("%q is taken for a goal", bad)
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		1234567.8: "1,234,568", 1000: "1,000", 999.4: "999", 12.34: "12.3", 1.234: "1.23", 0.1: "0.10", 0.0123: "0.012",
		0: "0.00", -12345: "-12,345", -0.5: "-0.50",
	} {
		if got := number(v); got != want {
			t.Errorf("%g is written %s, want %s", v, got, want)
		}
	}
	if got := number(math.NaN()); got != "–" {
		t.Errorf("not a number is written %s", got)
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{9, 1, 3}); m != 3 {
		t.Error(m)
	}
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Error(m)
	}
}

func twoContenders(goal string) *result {
	return &result{
		section: &section{
			name: "catch-up", title: "catching up",
			contenders: []*contender{{name: "bare probe"}, {name: "freshet"}},
		},
		servers: []string{"mysql 9.7.4"}, took: 90 * time.Second,
		samples: []sample{
			{"bare probe", 1, []measure{{name: "rows/s", value: 1e6}}},
			{"freshet", 1, []measure{{name: "rows/s", value: 95e4, of: "bare probe", goal: goal}, {name: "p50 ms", value: 0.2}}},
		},
	}
}

func TestTheTableOfATerminal(t *testing.T) {
	var out strings.Builder
	if err := printTable(&out, []*result{twoContenders("≥ 0.9")}); err != nil {
		t.Fatal(err)
	}
	want := `
catch-up: catching up
contender   measure  min        median     max        ratio              goal   met
bare probe  rows/s   1,000,000  1,000,000  1,000,000                            
freshet     rows/s   950,000    950,000    950,000    0.95 ÷ bare probe  ≥ 0.9  yes
freshet     p50 ms   0.20       0.20       0.20                                 
`
	if out.String() != want {
		t.Errorf("got\n%q\nwant\n%q", out.String(), want)
	}
	if err := printTable(&out, []*result{twoContenders("quick")}); err == nil ||
		!strings.Contains(err.Error(), "section catch-up, freshet, rows/s") {
		t.Errorf("a goal that is none: %v", err)
	}
}
