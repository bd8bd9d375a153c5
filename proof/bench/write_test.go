package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASectionIsReplacedAndTheOthersStay(t *testing.T) {
	doc := "# Title\n" + tableBegin +
		"<!-- section a -->\nold a\n<!-- section gone -->\nold gone\n<!-- section c -->\nold c\n" + tableEnd + "the method\n"
	got, err := replaceSections(doc, []string{"a", "b", "c", "d"}, map[string]string{"c": "new c", "b": "new b"})
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n" + tableBegin +
		"<!-- section a -->\nold a\n<!-- section b -->\n\nnew b\n<!-- section c -->\n\nnew c\n" + tableEnd + "the method\n"
	if got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	again, err := replaceSections(got, []string{"a", "b", "c", "d"}, map[string]string{"c": "new c"})
	if err != nil || again != got {
		t.Fatalf("the same once more: %v\n%s", err, again)
	}
	for _, bad := range []string{"# Title\n", tableBegin, tableEnd + tableBegin} {
		if _, err := replaceSections(bad, nil, nil); err == nil {
			t.Errorf("there is no place for the table in %q", bad)
		}
	}
}

func TestTheDocumentHasAPlaceForTheTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	b := &benchmark{scale: 0.05, workload: fullWorkload, where: machine(t.Context())}
	if err := b.write(file, []*result{twoContenders("≥ 0.9")}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n### catch-up: catching up\n\n| contender | measure | min | median | max | ratio | goal | met |\n|---|---|---|---|---|---|---|---|\n",
		"| freshet | rows/s | 950,000 | 950,000 | 950,000 | 0.95 ÷ bare probe | ≥ 0.9 | yes |\n",
		"rounds: 1, which took 1m30s; mysql 9.7.4; **scale 0.05**.\n", " cores",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}
