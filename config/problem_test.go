package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "rewrite the expected problems in testdata/problems")

// Each file of testdata/problems holds a configuration, maybe variables, and the problems that they have; none: it
// loads. Everywhere in them "hunter2" is a secret.
func TestProblems(t *testing.T) {
	files, err := filepath.Glob("testdata/problems/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := problemsOf(t, archive)
			if strings.Contains(got, "hunter2") {
				t.Errorf("a secret is shown:\n%s", got)
			}
			want := &archive.Files[len(archive.Files)-1]
			if want.Name != "want" {
				t.Fatal("the last part must be want")
			}
			if *update {
				want.Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(string(want.Data), got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

func problemsOf(t *testing.T, archive *txtar.Archive) string {
	var text []byte
	for _, f := range archive.Files {
		switch f.Name {
		case "env":
			for line := range strings.Lines(string(f.Data)) {
				name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
				t.Setenv(name, value)
			}
		case "freshet.yaml":
			text = f.Data
		}
	}
	c, err := Parse("freshet.yaml", text)
	if err == nil {
		return ""
	}
	if c != nil {
		t.Error("a configuration comes with its problems")
	}
	return err.Error() + "\n"
}
