package testbed_test

import (
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

func TestProgramReportsOutputAndExitCode(t *testing.T) {
	r := testbed.Program{Path: testbed.Build(t, "./proof/testbed/cmd/testbed")}.Start(t)
	r.WaitOutput(t, 10*time.Second, "usage:")
	if code := r.Wait(t, 10*time.Second); code != 2 || r.Stdout() != "" || !strings.HasPrefix(r.Stderr(), "usage:") {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, r.Stdout(), r.Stderr())
	}
	r.Kill9() // of what has ended
	if code := r.Wait(t, 10*time.Second); code != 2 {
		t.Fatalf("exit code %d", code)
	}
}

func TestConfigIsPassedAsAFile(t *testing.T) {
	r := testbed.Program{
		Path: "/bin/sh", Args: []string{"-c", `cat "$2"; echo "$WORD" >&2; exit 3`, "sh"},
		Config: "a: 1\n", Env: []string{"WORD=hello"},
	}.Start(t)
	if code := r.Wait(t, 10*time.Second); code != 3 || r.Stdout() != "a: 1\n" || r.Stderr() != "hello\n" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, r.Stdout(), r.Stderr())
	}
}

func TestServersDieWithTheProcessThatOwnsThem(t *testing.T) {
	tmp, err := os.MkdirTemp("", "tb") // t.TempDir is too long for a socket
	testbed.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(tmp) })
	path := testbed.Build(t, "./proof/testbed/cmd/testbed")
	up := func() (r *testbed.Running, addrs []string) {
		r = testbed.Program{Path: path, Args: []string{"up"}, Env: []string{"TMPDIR=" + tmp}}.Start(t)
		r.WaitOutput(t, 2*time.Minute, "Ctrl-C")
		return r, regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(r.Stdout(), -1)
	}
	r, addrs := up()
	if len(addrs) != 4 {
		t.Fatalf("%d addresses in %q", len(addrs), r.Stdout())
	}
	r.Kill9()
	for _, addr := range addrs {
		testbed.Eventually(t, 2*time.Minute, addr+" is gone", func() bool {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				c.Close()
			}
			return err != nil
		})
	}
	r, _ = up() // removes what the killed one left
	if n := instances(t, tmp); n != 4 {
		t.Fatalf("%d instance directories, want 4", n)
	}
	if code := r.Stop(t, 30*time.Second); code != 0 {
		t.Fatalf("exit code %d after SIGTERM", code)
	}
	if n := instances(t, tmp); n != 0 {
		t.Fatalf("%d instance directories are left", n)
	}
}

// instances counts the directories of servers.
func instances(t *testing.T, tmp string) (n int) {
	t.Helper()
	entries, err := os.ReadDir(tmp)
	testbed.Must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "freshet-") && !strings.HasPrefix(e.Name(), "freshet-testbed-ports") {
			n++
		}
	}
	return n
}
