package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
)

// TestMain lets the scripts, and the tests that start freshet as a process of its own, run this very test binary
// under the name freshet.
func TestMain(m *testing.M) {
	testscript.Main(leakTested{testbed.WithKafka(testbed.WithServers(m))}, map[string]func(){"freshet": main})
}

// leakTested are tests that must leave no goroutine behind.
type leakTested struct{ m testscript.TestingM }

// Run implements testscript.TestingM.
func (l leakTested) Run() int {
	code := l.m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
