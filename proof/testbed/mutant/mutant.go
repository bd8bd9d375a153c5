package mutant

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// share is how many mutants there are for each one that a short run tries: of all packages' mutants together it tries
// about seven.
const share = 16

// With shared and CGO_ENABLED, what a mutant imports is what testbed.Binary has had compiled. GOGC: collecting garbage
// often would take a quarter of the time.
const shared = "-trimpath"

var sharedEnv = []string{"CGO_ENABLED=0", "GOGC=400"}

// Caught tries the mutants of the package under test, and fails for each that no longer applies, does not compile or is
// not caught by the test that it names. env are further variables ("NAME=value") for that test. It is run with the same
// seed every time (FRESHET_SEED=1) and never whole (without FRESHET_SOAK).
//
// That every mutant applies and compiles is looked at every time. Building and running takes seconds, so only some are
// run, chosen by FRESHET_SEED or at random; with FRESHET_SOAK all are.
func Caught(t *testing.T, env ...string) {
	t.Helper()
	t.Parallel() // with tests that wait
	all, err := load(filepath.Join("testdata", "mutants"))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := bench{dir: ".", whole: whole, env: env}
	if b.compiler, err = newCompiler(b.dir); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if _, err := b.changed(&all[i]); err != nil {
			t.Errorf("mutant %s: %v", all[i].name, err)
		}
	}
	if t.Failed() {
		return
	}
	for _, c := range some(t, all) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			said, err := b.try(t, &c)
			if err != nil {
				t.Fatalf("mutant %s: %v\n\nIt must be caught, for: %s", c.name, err, c.why)
			}
			t.Logf("%s: %s", c.test, said)
		})
	}
}

// some returns the mutants of this run.
func some(t *testing.T, all []change) []change {
	if os.Getenv("FRESHET_SOAK") != "" {
		return all
	}
	seed := rand.Uint64() >> 1
	if text := os.Getenv("FRESHET_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FRESHET_SEED %q: want a number", text)
		}
	}
	rnd := rand.New(rand.NewPCG(seed, 1))
	tried := slices.DeleteFunc(slices.Clone(all), func(change) bool { return rnd.IntN(share) > 0 })
	t.Logf("%d of %d mutants, by FRESHET_SEED=%d (all with FRESHET_SOAK=1)", len(tried), len(all), seed)
	return tried
}

// bench is where mutants are tried.
type bench struct {
	dir      string   // of the package
	whole    string   // the test binary of the package as it is
	env      []string // for its tests
	compiler *compiler
}

// changed returns the files that a mutant changes, by absolute path. They compile.
func (b *bench) changed(c *change) (map[string]string, error) {
	changed, err := c.apply(b.dir)
	if err != nil {
		return nil, err
	}
	return changed, b.compiler.check(changed)
}

// try builds a mutant, runs its test with it, and then without. It returns how the test failed with it.
func (b *bench) try(t *testing.T, c *change) (said string, err error) {
	changed, err := b.changed(c)
	if err != nil {
		return "", err
	}
	binary, err := b.build(t, changed)
	if err != nil {
		return "", err
	}
	args := append([]string{"-test.run=" + c.pattern(), "-test.timeout=5m"}, c.flags...)
	out, err := b.run(t, binary, args)
	switch {
	case strings.Contains(out, "no tests to run"):
		return "", fmt.Errorf("there is no test %s", c.test)
	case err == nil:
		return "", fmt.Errorf("it is not caught: %s passes with it:\n%s", c.test, out)
	case !strings.Contains(out, "--- FAIL: ") || !strings.Contains(out, c.says) || strings.Contains(out, "panic: "):
		return "", fmt.Errorf("%s fails for another reason than %q: %v\n%s", c.test, c.says, err, out)
	}
	// The product passes what the mutant fails.
	if again, err := b.run(t, b.whole, args, repeat.FindAllString(out, -1)...); err != nil {
		return "", fmt.Errorf("%s fails without the mutant as well: %w\n%s", c.test, err, again)
	}
	return line(out, c.says), nil
}

// repeat finds what a failure says about how to come to it again.
var repeat = regexp.MustCompile(`\bFRESHET_[A-Z]+=\S+\b`)

// line is the line of a text that says something.
func line(text, says string) string {
	at := strings.Index(text, says)
	from := strings.LastIndexByte(text[:at], '\n') + 1
	rest, _, _ := strings.Cut(text[from:], "\n")
	return strings.TrimSpace(rest)
}

// build makes the test binary of the package with the changed files. It leaves out what only makes programs fast or
// debuggable, for it is run once.
func (b *bench) build(t *testing.T, changed map[string]string) (binary string, err error) {
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range changed {
		to := filepath.Join(dir, strconv.Itoa(len(overlay.Replace))+filepath.Ext(path))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[path] = to
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "mutant.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", shared, "-vet=off", "-gcflags=-N -l", "-ldflags=-s -w",
		"-overlay="+file, "-o="+binary, ".")
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), sharedEnv...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	return binary, nil
}

// run runs a test binary.
func (b *bench) run(t *testing.T, binary string, args []string, env ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = b.dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "FRESHET_SOAK=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(append(append(cmd.Env, "FRESHET_SEED=1"), b.env...), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
