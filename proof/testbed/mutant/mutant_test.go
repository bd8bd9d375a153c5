package mutant

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const head = "Larger looks at both numbers.\n\nTest: TestLarger/the first\nSays: the larger of 2 and 1 is\n\n"

const second = `--- sample.go
 func Larger(a, b int) int {
-	if a > b {
-		return a
-	}
 	return b
`

func parsed(t *testing.T, text string) change {
	t.Helper()
	c, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAMutantIsCaughtByItsTestAloneAndForItsReason(t *testing.T) {
	dir, err := filepath.Abs(filepath.Join("testdata", "sample"))
	if err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "sample.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o="+whole, ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	compiler, err := newCompiler(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := bench{dir: dir, whole: whole, compiler: compiler}
	for _, c := range []struct{ name, text, want string }{
		{"caught", head + second, ""},
		{
			"not caught", strings.Replace(head, "the first", "the second", 1) + second,
			"it is not caught: TestLarger/the second passes",
		},
		{"another message", strings.Replace(head, "2 and 1", "1 and 2", 1) + second, "fails for another reason"},
		{
			"a panic", head + strings.Replace(second, " \treturn b", "+\tpanic(\"the larger of 2 and 1 is lost\")", 1),
			"fails for another reason",
		},
		{
			"no such test", strings.Replace(head, "the first", "the third", 1) + second,
			"there is no test TestLarger/the third",
		},
		{"no Go", head + strings.Replace(second, "+", "+(", 1) + "+(\n", "it is not Go"},
		{"no such name", head + second + "+	return c\n", "it does not compile"},
		{
			"a name without use", head + "--- sample.go\n func Larger(a, b int) int {\n+	c := 0\n",
			"declared and not used: c",
		},
		{"not there", head + strings.Replace(second, "return a", "return c", 1), "0 times in sample.go"},
		{"there twice", head + "--- sample.go\n-	if a > b {\n+	if a < b {\n", "2 times in sample.go"},
		{
			"a test that fails by itself", "Larger.\nTest: TestSeven\nSays: the larger of 2 and 1 is not 2\n" + second,
			"fails without the mutant as well",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := parsed(t, c.text)
			said, err := b.try(t, &m)
			switch {
			case c.want == "" && (err != nil || !strings.HasSuffix(said, ": the larger of 2 and 1 is 1 (FRESHET_SEED=7)")):
				t.Errorf("%q, %v", said, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestAMutantSaysWhyWhichTestAndWhat(t *testing.T) {
	for lacks, text := range map[string]string{
		"a reason":      strings.Replace(head, "Larger looks at both numbers.", "", 1) + second,
		"a line Test:":  strings.Replace(head, "Test:", "-", 1) + second,
		"a line Says:":  strings.Replace(head, "Says:", "-", 1) + second,
		"a line --- FI": head,
		"begins with":   head + second + "return\n",
		"a difference":  head + "--- sample.go\n 	return b\n",
		"text to find":  head + "--- sample.go\n+	return b\n",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), lacks) {
			t.Errorf("%v, want %s in it", err, lacks)
		}
	}
}

func TestAMutantChangesWholeLinesOfSeveralPlacesAndFiles(t *testing.T) {
	c := parsed(t, head+"Flags: -a -b\n--- sample.go\n-func Larger(a, b int) int {\n+func Larger(b, a int) int {\n@@\n"+
		"-// Smaller returns the smaller number.\n\n"+"--- sample_test.go\n-package sample\n+package other\n")
	changed, err := c.apply(filepath.Join("testdata", "sample"))
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range changed {
		ok := filepath.Base(path) == "sample.go" && strings.Contains(text, "Larger(b, a int)") &&
			!strings.Contains(text, "the smaller")
		if !ok && !strings.HasPrefix(text, "package other\n") {
			t.Errorf("%s:\n%s", path, text)
		}
	}
	if len(changed) != 2 || len(c.flags) != 2 || c.pattern() != "^TestLarger$/^the_first$" {
		t.Errorf("%d files, flags %q, %s", len(changed), c.flags, c.pattern())
	}
}
