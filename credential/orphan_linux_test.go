package credential

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// prSetChildSubreaper makes a process the parent of its descendants' orphans, as the first process of a container is.
// Source: prctl(2), PR_SET_CHILD_SUBREAPER.
const prSetChildSubreaper = 36

func adopt(t *testing.T, on uintptr) {
	t.Helper()
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, on, 0); errno != 0 {
		t.Fatal(errno)
	}
}

// children returns the processes whose parent is this one, with those that have ended and nobody has waited for.
func children(t *testing.T) (pids []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		_, after, _ := strings.Cut(string(stat), ") ") // state, parent
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, filepath.Base(filepath.Dir(path))+" "+fields[0])
		}
	}
	return pids
}

func TestWhatACommandLeavesIsNoZombieOfTheFirstProcess(t *testing.T) {
	adopt(t, 1)
	t.Cleanup(func() { adopt(t, 0) })
	before := len(children(t))
	for _, script := range []string{
		"sleep 300 >/dev/null 2>&1 & echo fine",
		"sleep 300 | sleep 300 >/dev/null 2>&1 & (sleep 300 & sleep 300) >/dev/null 2>&1 & echo fine",
		"sleep 300 | sleep 300 & exit 1",
	} {
		_, _ = shell(script).Read(t.Context())
		if left := children(t); len(left) > before {
			t.Errorf("%s: left %q", script, left)
		}
	}
}
