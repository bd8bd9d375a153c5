package canal

import (
	"net"
	"strings"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// An address that leads to another program, as to Redis, is a mistake that no time repairs.
func TestAnAddressThatLeadsToNoDatabaseIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	defer func() { <-served }()
	defer l.Close()
	o, err := Options{Source: "shop", Address: l.Addr().String(), User: "u"}.withDefaults()
	testbed.Must(t, err)
	_, err = o.connectTo(t.Context(), l.Addr().String(), queryTimeout)
	if err == nil || !strings.Contains(err.Error(), "is source.addresses right?") {
		t.Error(err)
	}
}
