package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Binary builds freshet from this checkout and returns the path of the program. It is cheap
// to call from every test: what has not changed is not built again.
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
	path, err := build(t.Context(), command, flags)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// build puts the program into the cache directory, under a name of its own for each checkout
// and flags: it must outlive this process's temporary directories, and none may be left.
func build(ctx context.Context, command string, flags []string) (string, error) {
	// Also from the modules within this one that replace it by its directory.
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/freshet/freshet").Output()
	if err != nil {
		return "", fmt.Errorf("testbed: go list -m github.com/freshet/freshet: %w", err)
	}
	root := strings.TrimSpace(string(dir))
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(root + "\n" + strings.Join(flags, " ")))
	target := filepath.Join(cache, "bin", hex.EncodeToString(sum[:6]))
	unlock, err := lockCache(ctx, "build")
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(target, filepath.Base(command))
	args := append([]string{"build", "-o", path + ".new"}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, command)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("testbed: go build %s: %w\n%s", command, err, out)
	}
	// The rename leaves a program that is running alone.
	return path, os.Rename(path+".new", path)
}
