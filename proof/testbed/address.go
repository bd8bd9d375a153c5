package testbed

import (
	"testing"

	"github.com/freshet/freshet/proof/testbed/internal/port"
)

// FreeAddress returns a loopback address, host:port, on which nothing listens. No other server of the testbed, and no
// outgoing connection, gets it until the test ends.
func FreeAddress(t testing.TB) string {
	t.Helper()
	held, err := port.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	return held.Addr
}
