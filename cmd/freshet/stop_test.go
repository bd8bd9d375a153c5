package main

import (
	"net"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// What is in doubt since the mappings have changed is written when the source was asked for its tables: a process that
// is stopped meanwhile has not failed, and the next one records it.
func TestWhoIsStoppedWhileTheMappingsAreComparedHasNotFailed(t *testing.T) {
	t.Parallel()
	kafka := testbed.SharedKafka(t)
	embedded := newSite(t, testbed.MySQL(t))
	around := *embedded
	for name, part := range map[string]*site{"embedded": embedded, "kafka": around.around(t, kafka).part("reader")} {
		t.Run(name, func(t *testing.T) {
			command := "run"
			if part.role != "" {
				command = part.role
			}
			r := part.start(command)
			r.WaitOutput(t, patience, `"reading the source"`)
			if code := r.Stop(t, patience); code != exitDone {
				t.Fatalf("exit code %d", code)
			}
			hung, err := net.Listen("tcp", "127.0.0.1:0")
			testbed.Must(t, err)
			defer hung.Close()
			source := *part.source
			source.Addr = hung.Addr().String()
			changed := *part
			changed.source, changed.keys = &source, []string{"other:{id}"}
			r = changed.start(command)
			conn, err := hung.Accept() // embedded: to be asked for the tables; by a reader of several, perhaps for who it is
			testbed.Must(t, err)
			defer conn.Close()
			if part.role != "" {
				r.WaitOutput(t, patience, `"leading the source"`)
			}
			if code := r.Stop(t, patience); code != exitDone {
				t.Errorf("exit code %d", code)
			}
		})
	}
}
