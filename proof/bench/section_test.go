package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rates is a contender that has these rates, one a run, from the uncounted run on.
func rates(name, of, goal string, values ...float64) *contender {
	return &contender{name: name, run: func(context.Context, *benchmark) ([]measure, error) {
		v := values[0]
		values = values[1:]
		if v < 0 {
			return []measure{{name: "rows/s", value: -v}}, fmt.Errorf("%w: keys are left", errInvalid)
		}
		return []measure{{name: "rows/s", value: v, of: of, goal: goal}}, nil
	}}
}

func TestTheRatioIsTheMedianOfTheRatiosWithinARound(t *testing.T) {
	s := &section{name: "x", contenders: []*contender{
		rates("bare", "", "", 7, 100, 1000, 200),
		// 0.9, 0.5, 0.8: their median is not the ratio of the medians, 160 / 200.
		rates("freshet", "bare", "≥ 0.8", 1, 90, 500, 160),
		rates("slow", "bare", "≥ 0.6", 1, 50, 500, 100),
	}}
	r, err := (&benchmark{rounds: 3}).runSection(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := r.lines()
	if err != nil {
		t.Fatal(err)
	}
	want := []line{
		{contender: "bare", measure: "rows/s", min: 100, median: 200, max: 1000},
		{
			contender: "freshet", measure: "rows/s", min: 90, median: 160, max: 500, of: "bare", ratio: 0.8, goal: "≥ 0.8",
			met: "yes",
		},
		{
			contender: "slow", measure: "rows/s", min: 50, median: 100, max: 500, of: "bare", ratio: 0.5, goal: "≥ 0.6",
			met: "no",
		},
	}
	lines[0].ratio = 0 // there is none: not a number, which equals nothing
	if !slices.Equal(lines, want) {
		t.Fatalf("got  %+v\nwant %+v", lines, want)
	}
}

func TestAMeasureCanBeDividedByTwoContendersButNotByWhatIsNotAboveZero(t *testing.T) {
	late := func(name string, of []reference, ms float64) *contender {
		return &contender{name: name, run: func(context.Context, *benchmark) ([]measure, error) {
			return percentiles([]float64{ms}, of...), nil
		}}
	}
	s := &section{name: "x", contenders: []*contender{
		late("bare", nil, 2), late("early", nil, -0.1), late("freshet", []reference{{"bare", "≤ 4"}, {of: "early"}}, 6),
	}}
	r, err := (&benchmark{rounds: 1}).runSection(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := r.lines()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines[len(lines)-5:] {
		got = append(got, strings.Join(l.cells(), " "))
	}
	want := []string{
		"freshet p50 ms 6.00 6.00 6.00 3.00 ÷ bare ≤ 4 yes",
		"freshet p99 ms 6.00 6.00 6.00 3.00 ÷ bare ≤ 4 yes",
		"freshet p50 ms 6.00 6.00 6.00 – ÷ early  ",
		"freshet p99 ms 6.00 6.00 6.00 – ÷ early  ",
		"freshet max ms 6.00 6.00 6.00   ",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

func TestAnInvalidRunIsNotCountedAndTheSectionFails(t *testing.T) {
	s := &section{name: "x", contenders: []*contender{
		rates("bare", "", "", 1, 100, 200),
		rates("freshet", "bare", "", 1, -1000, 100),
	}}
	r, err := (&benchmark{rounds: 2}).runSection(t.Context(), s)
	if !errors.Is(err, errInvalid) || !strings.Contains(err.Error(), "freshet, round 1") || !r.failed {
		t.Fatalf("error %v, failed %t", err, r.failed)
	}
	lines, err := r.lines()
	if err != nil {
		t.Fatal(err)
	}
	if l := lines[1]; l.max != 100 || l.ratio != 0.5 {
		t.Fatalf("%+v", l)
	}
}

func TestAnErrorEndsTheSectionButNotTheOthers(t *testing.T) {
	runs := 0
	broken := &section{
		name: "broken",
		contenders: []*contender{{name: "c", run: func(context.Context, *benchmark) ([]measure, error) {
			runs++
			return nil, errors.New("no server")
		}}},
	}
	b := &benchmark{rounds: 3, freshet: "given"}
	err := b.runAll(t.Context(),
		[]*section{broken, {name: "sound", contenders: []*contender{rates("bare", "", "", 1, 2, 3, 4)}}}, "")
	if err == nil || err.Error() != "section broken: c, round 0: no server" || runs != 1 {
		t.Fatalf("%v after %d runs", err, runs)
	}
}

func TestASectionsRoundsAreAtMostThoseAskedFor(t *testing.T) {
	for _, c := range []struct {
		section section
		want    int
	}{
		{section{}, 1 + 4},
		{section{rounds: 2}, 1 + 2},
		{section{rounds: 9}, 1 + 4},
		{section{rounds: 1, noWarmUp: true}, 1},
	} {
		runs := 0
		c.section.contenders = []*contender{{name: "c", run: func(context.Context, *benchmark) ([]measure, error) {
			runs++
			return nil, nil
		}}}
		if _, err := (&benchmark{rounds: 4}).runSection(t.Context(), &c.section); err != nil || runs != c.want {
			t.Errorf("%d runs, want %d; error %v", runs, c.want, err)
		}
	}
}

func TestEverySectionHasAGoodName(t *testing.T) {
	b := &benchmark{rounds: 1, scale: 1, workload: fullWorkload}
	seen := map[string]bool{}
	for _, s := range b.sections() {
		if seen[s.name] || s.title == "" || strings.ContainsAny(s.name, " \n") || len(s.contenders) == 0 {
			t.Errorf("section %q, %q", s.name, s.title)
		}
		seen[s.name] = true
	}
}
