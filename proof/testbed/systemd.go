package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// SystemdAnalyze returns the path of systemd-analyze, with which units are checked.
func SystemdAnalyze(t testing.TB) string {
	t.Helper()
	const name = "systemd-analyze"
	in := &installer{log: os.Stderr}
	present := func() bool { _, err := exec.LookPath(name); return err == nil }
	Must(t, in.ensure(t.Context(), in.aptNeed("systemd's checker of units", "systemd", present, func(why error) error {
		return fmt.Errorf("testbed: %s is missing and cannot be installed (%w): put it on PATH", name, why)
	})))
	path, err := exec.LookPath(name)
	Must(t, err)
	return path
}
