package testbed

import (
	"fmt"
	"testing"
)

// Follow has a server replicate from another one, by GTIDs. It asks again each second while that one is away.
func (s *Server) Follow(t testing.TB, source *Server) {
	t.Helper()
	if s.Flavor == FlavorMariaDB {
		s.Exec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', "+
			"MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1", source.Port), "START SLAVE")
		return
	}
	s.Exec(t, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='root', "+
		"SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1", source.Port), "START REPLICA")
}

// AwaitAllOf waits until a replica has all that its source has by now.
func (s *Server) AwaitAllOf(t testing.TB, source *Server) {
	t.Helper()
	wait := "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 120)"
	if s.Flavor == FlavorMariaDB {
		wait = "SELECT MASTER_GTID_WAIT(?, 120)"
	}
	if left := s.QueryText(t, wait, source.GTIDs(t)); left != "0" {
		t.Fatalf("the replica does not follow: %s", left)
	}
}
