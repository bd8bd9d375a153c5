package main

import (
	"runtime/debug"
	"testing"
)

// setPercent sets the collector for the length of a test.
func setPercent(t *testing.T, percent int) {
	t.Helper()
	old := debug.SetGCPercent(percent)
	t.Cleanup(func() { debug.SetGCPercent(old) })
}

func percentNow() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestTheHeapGrowsByLittleUnlessTheEnvironmentSaysOtherwise(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	setPercent(t, 100)
	if keep := saveMemory(); len(keep) != ballast || percentNow() != gcPercent {
		t.Errorf("%d bytes of ballast and %d %%, want %d and %d", len(keep), percentNow(), ballast, gcPercent)
	}
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "200")
			setPercent(t, 70)
			if keep := saveMemory(); keep != nil || percentNow() != 70 {
				t.Errorf("%d bytes of ballast and %d %%, want none and 70", len(keep), percentNow())
			}
		})
	}
}
