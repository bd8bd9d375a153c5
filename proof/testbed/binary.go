package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Binary builds freshet from this checkout as it is shipped, and returns the path of the program. It is cheap
// to call from every test: it is built once in a process, and what has not changed is not linked
// again by the next.
func Binary(t testing.TB) string {
	t.Helper()
	return Build(t, "./cmd/freshet")
}

// RaceBinary is Binary with the race detector built in.
func RaceBinary(t testing.TB) string {
	t.Helper()
	return Build(t, "./cmd/freshet", "-race")
}

// Build builds a command of this module, named by its directory, and returns the path of the
// program.
func Build(t testing.TB, command string, flags ...string) string {
	t.Helper()
	path, err := once(t.Context(), command, flags)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// built has the programs that this process has built.
var built struct {
	sync.Mutex
	paths map[string]string
}

// once builds a program for the first test of this process that wants it: linking takes seconds.
func once(ctx context.Context, command string, flags []string) (path string, err error) {
	built.Lock()
	defer built.Unlock()
	name := strings.Join(append([]string{command}, flags...), " ")
	if path := built.paths[name]; path != "" {
		return path, nil
	}
	if path, err = build(ctx, command, flags); err != nil {
		return "", err
	}
	if built.paths == nil {
		built.paths = map[string]string{}
	}
	built.paths[name] = path
	return path, nil
}

// moduleRoot returns this module's directory, also to the modules within it, which replace it by its directory. It asks
// the go command once for a process.
var moduleRoot = sync.OnceValues(func() (string, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/freshet/freshet").Output()
	if err != nil {
		return "", fmt.Errorf("testbed: go list -m github.com/freshet/freshet: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
})

// build puts the program into the cache directory, under a name of its own for each checkout
// and flags: it must outlive this process's temporary directories, and none may be left.
func build(ctx context.Context, command string, flags []string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(root + "\n" + strings.Join(flags, " ")))
	target := filepath.Join(cache, "bin", hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(target, 0o755); err != nil {
		return "", fmt.Errorf("testbed: %w", err)
	}
	unlock, err := lockCache(ctx, "build")
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(target, filepath.Base(command))
	// The go command links a program again unless it finds what it linked last, so that stays where it was put. It
	// works next to it: then it moves the program there at once, and never leaves half a copy.
	linked := path + ".linked"
	// -s -w: linking what a debugger needs takes a third of the time. GOGC: collecting garbage often, a quarter.
	args := append([]string{"build", "-o", linked, "-ldflags=-s -w"}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, command)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOTMPDIR="+target, "GOGC=400")
	if slices.Contains(flags, "-race") {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1") // which it needs, whatever these tests were built with
	} else {
		// As the Makefile and the Dockerfile build it, and the Makefile all else without the race detector: then each
		// package is compiled once.
		cmd.Args, cmd.Env = slices.Insert(cmd.Args, 2, "-trimpath"), append(cmd.Env, "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("testbed: go build %s: %w\n%s", command, err, out)
	}
	return path, replaceBy(path, linked)
}

// replaceBy makes path another name of a file, at once, so that it names a whole program at every moment. One that is
// running is left alone.
func replaceBy(path, file string) error {
	if is, err := os.Stat(file); err != nil {
		return err
	} else if was, err := os.Stat(path); err == nil && os.SameFile(is, was) {
		return nil
	}
	if err := os.Remove(path + ".new"); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Link(file, path+".new"); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
