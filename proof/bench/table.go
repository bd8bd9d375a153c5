package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// line is one line of the table: a measure of a contender over all rounds.
type line struct {
	contender, measure string
	min, median, max   float64
	of                 string  // empty: there is no ratio
	ratio              float64 // the median of the ratios within a round; NaN if no round has one
	goal, met          string  // met is yes, no, or empty without a goal
}

// lines sums the samples up, in the order of the contenders and of their measures.
func (r *result) lines() ([]line, error) {
	var lines []line
	for _, c := range r.section.contenders {
		for _, m := range r.measuresOf(c.name) {
			l := line{contender: c.name, measure: m.name, of: m.of, goal: m.goal}
			values := r.values(c.name, m.name)
			all := make([]float64, 0, len(values))
			var ratios []float64
			base := r.values(m.of, m.name)
			for round, v := range values {
				all = append(all, v)
				if d := base[round]; d > 0 { // a latency can be negative
					ratios = append(ratios, v/d)
				}
			}
			l.min, l.median, l.max, l.ratio = slices.Min(all), median(all), slices.Max(all), median(ratios)
			judged := l.median
			if m.of != "" {
				judged = l.ratio
			}
			var err error
			if l.met, err = judge(m.goal, judged); err != nil {
				return nil, fmt.Errorf("section %s, %s, %s: %w", r.section.name, c.name, m.name, err)
			}
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// measuresOf returns each measure of a contender once for each other that it is divided by, as it was first seen.
func (r *result) measuresOf(contender string) (found []measure) {
	for _, s := range r.samples {
		for _, m := range s.measures {
			known := slices.ContainsFunc(found, func(f measure) bool { return f.name == m.name && f.of == m.of })
			if s.contender == contender && !known {
				found = append(found, m)
			}
		}
	}
	return found
}

// values returns a measure of a contender by round.
func (r *result) values(contender, measure string) map[int]float64 {
	values := map[int]float64{}
	for _, s := range r.samples {
		for _, m := range s.measures {
			if s.contender == contender && m.name == measure {
				values[s.round] = m.value
			}
		}
	}
	return values
}

// judge says if v meets the goal.
func judge(goal string, v float64) (string, error) {
	if goal == "" {
		return "", nil
	}
	op, text, _ := strings.Cut(goal, " ")
	bound, err := strconv.ParseFloat(text, 64)
	if err != nil || op != "≥" && op != "≤" {
		return "", fmt.Errorf("the goal %q is not ≥ or ≤ with a number", goal)
	}
	if op == "≥" && v >= bound || op == "≤" && v <= bound {
		return "yes", nil
	}
	return "no", nil
}

// median of nothing is not a number.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// number writes three digits or all before the point, in groups of three.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case a >= 1000:
		s := strconv.FormatFloat(a, 'f', 0, 64)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		if v < 0 {
			return "-" + s
		}
		return s
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.1 || a == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// columns are those of the table, in each of its shapes.
func columns() []string {
	return []string{"contender", "measure", "min", "median", "max", "ratio", "goal", "met"}
}

// cells are a line's columns.
func (l *line) cells() []string {
	ratio := ""
	if l.of != "" {
		ratio = fmt.Sprintf("%s ÷ %s", number(l.ratio), l.of)
	}
	return []string{l.contender, l.measure, number(l.min), number(l.median), number(l.max), ratio, l.goal, l.met}
}

// printTable prints all sections for a terminal.
func printTable(w io.Writer, results []*result) error {
	for _, r := range results {
		lines, err := r.lines()
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%s: %s\n", r.section.name, r.section.title)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, strings.Join(columns(), "\t"))
		for _, l := range lines {
			fmt.Fprintln(t, strings.Join(l.cells(), "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}
