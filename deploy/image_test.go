package deploy

import (
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instruction is one of a Dockerfile.
type instruction struct{ name, args string }

// stages returns a Dockerfile's instructions, by stage.
func stages(t *testing.T) (all [][]instruction) {
	t.Helper()
	text, err := os.ReadFile("../Dockerfile")
	testbed.Must(t, err)
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, args, _ := strings.Cut(line, " ")
		if name == "FROM" {
			all = append(all, nil)
		}
		if len(all) == 0 {
			t.Fatalf("before the first stage: %s", line)
		}
		last := &all[len(all)-1]
		*last = append(*last, instruction{name, args})
	}
	return all
}

// find returns the arguments of the instructions of a name.
func find(stage []instruction, name string) (args []string) {
	for _, i := range stage {
		if i.name == name {
			args = append(args, i.args)
		}
	}
	return args
}

func TestTheImageHoldsAStaticProgramAndNobodyIsRoot(t *testing.T) {
	all := stages(t)
	if len(all) != 2 {
		t.Fatalf("%d stages", len(all))
	}
	build, image := all[0], all[1]
	if from := build[0].args; !regexp.MustCompile(`^golang:1\.26\.\d+ AS build$`).MatchString(from) {
		t.Errorf("built from %s: want an exact version of Go", from)
	}
	want := map[string]string{"FROM": "scratch", "USER": "65532:65532", "ENTRYPOINT": `["/freshet"]`, "CMD": `["run"]`}
	for name, arg := range want {
		if got := find(image, name); len(got) != 1 || got[0] != arg {
			t.Errorf("%s %v, want %s", name, got, arg)
		}
	}
	copies := strings.Join(find(image, "COPY"), "\n")
	for _, file := range []string{
		"/etc/ssl/certs/ca-certificates.crt", " /freshet",
		"--chown=65532:65532 /out/data /var/lib/freshet",
	} {
		if !strings.Contains(copies, file) {
			t.Errorf("the image lacks %s", file)
		}
	}
	if len(find(image, "RUN")) > 0 {
		t.Error("an image from scratch has nothing to run commands with")
	}
}

// The commands of the build stage, on what .dockerignore lets through.
func TestTheImagesCommandsBuildTheProgram(t *testing.T) {
	src, out := filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "out")
	sendContext(t, src)
	for _, command := range find(stages(t)[0], "RUN") {
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", strings.ReplaceAll(command, "/out/", out+"/"))
		cmd.Dir, cmd.Env = src, append(os.Environ(), "VERSION=v9.8.7", "GOFLAGS=-mod=readonly", "GOWORK=off")
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, b)
		}
	}
	program := filepath.Join(out, "freshet")
	f, err := elf.Open(program)
	testbed.Must(t, err)
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Error("the program is not static")
	}
	version, err := exec.CommandContext(t.Context(), program, "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(version), "freshet v9.8.7 ") {
		t.Errorf("version: %s, %v", version, err)
	}
}

// sendContext copies what a builder is given: everything but what .dockerignore names.
func sendContext(t *testing.T, to string) {
	t.Helper()
	text, err := os.ReadFile("../.dockerignore")
	testbed.Must(t, err)
	var patterns []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, line)
		}
	}
	root := os.DirFS("..")
	testbed.Must(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return os.MkdirAll(to, 0o755)
		case ignored(t, patterns, name) && d.IsDir():
			return fs.SkipDir
		case ignored(t, patterns, name):
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		b, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), b, 0o644)
	}))
	if _, err := os.Stat(filepath.Join(to, "docs")); err == nil {
		t.Error(".dockerignore lets docs through")
	}
}

// ignored reports whether a name is excluded. It knows two of the forms that patterns can have: names at the top, and
// **/name anywhere.
func ignored(t *testing.T, patterns []string, name string) bool {
	t.Helper()
	for _, p := range patterns {
		base, anywhere := strings.CutPrefix(p, "**/")
		if strings.ContainsAny(base, "/!") || !anywhere && strings.Contains(base, "*") {
			t.Fatalf(".dockerignore: the pattern %s is of a form that this test does not know", p)
		}
		of := name
		if anywhere {
			of = path.Base(name)
		}
		if ok, err := path.Match(base, of); err != nil || ok {
			testbed.Must(t, err)
			return true
		}
	}
	return false
}
