package main

import (
	"slices"
	"strings"
	"testing"
)

func TestOneKeyInAHundredIsARows(t *testing.T) {
	c := cached{all: 2000, mapped: 20}
	count := map[string]int{}
	seen := map[string]bool{}
	for i := range c.all {
		key := c.key(i)
		if seen[key] {
			t.Fatalf("%q comes twice", key)
		}
		seen[key] = true
		kind, _, _ := strings.Cut(key, ":")
		if strings.HasSuffix(key, ":reviews") {
			kind = "reviews"
		}
		count[kind]++
	}
	if count["product"] != 20 || count["reviews"] != 990 || count["session"] != 990 {
		t.Fatal(count)
	}
	for i := range c.all - c.mapped {
		if key := c.stranger((c.mapped + i) | 1); !seen[key] {
			t.Fatalf("%q is read, and was not made", key)
		}
	}
}

func TestReadsAreMeasuredInTheirOrder(t *testing.T) {
	var ms reads
	for i := range 100 {
		ms = append(ms, float64(100-i))
	}
	want := []measure{
		{name: "GET p50 ms", value: 51, of: "quiet"},
		{name: "GET p90 ms", value: 91, of: "quiet"},
		{name: "GET p99 ms", value: 100, of: "quiet", goal: "≤ 1.5"},
	}
	if got := ms.measures("quiet", "≤ 1.5"); !slices.Equal(got, want) {
		t.Fatalf("%+v", got)
	}
	if got := reads(nil).measures("", ""); got != nil {
		t.Fatalf("of no reads: %+v", got)
	}
}
