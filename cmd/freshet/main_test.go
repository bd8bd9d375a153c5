package main

import (
	"fmt"
	"os"
	"testing"
	"time"

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
	if code != 0 {
		return code
	}
	// A pool of go-redis whose server is away looks for it once a second, and only then sees that it was closed
	// (pool.tryDial).
	err := goleak.Find()
	for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); err = goleak.Find() {
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
