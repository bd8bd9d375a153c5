package testbed_test

import (
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

func TestHeldCommitIsInTheBinlogAndNotInSelect(t *testing.T) {
	for _, d := range databases {
		t.Run(string(d.flavor), func(t *testing.T) {
			s := d.start(t)
			s.Exec(t, "create database a", "create table a.t (id int primary key, v int)", "insert into a.t values (1, 1)")
			for round := range 2 {
				testbed.Must(t, s.HoldCommits(t.Context(), time.Hour))
				before := s.QueryText(t, "select v from a.t where id = 1")
				gtids := s.GTIDs(t)
				done := make(chan error, 1)
				go func() { done <- s.ExecContext(t.Context(), "update a.t set v = v + 1 where id = 1") }()
				testbed.Eventually(t, 2*time.Minute, "the commit is held", func() bool {
					n, err := s.CommitsHeld(t.Context())
					testbed.Must(t, err)
					return n == 1
				})
				if got := s.QueryText(t, "select v from a.t where id = 1"); got != before {
					t.Fatalf("round %d: row is %s while its commit is held, want %s", round, got, before)
				}
				if ahead := s.GTIDs(t) != gtids; ahead != (d.flavor == testbed.FlavorMariaDB) {
					t.Fatalf("round %d: the held commit is in the server's GTIDs: %v", round, ahead)
				}
				if !updateInBinlog(t, s) {
					t.Fatalf("round %d: the held update is not in the binlog", round)
				}
				testbed.Must(t, s.ReleaseCommits(t.Context()))
				testbed.Must(t, <-done)
				if got := s.QueryText(t, "select v from a.t where id = 1"); got == before {
					t.Fatalf("round %d: row is still %s after the release", round, got)
				}
				s.Exec(t, "flush binary logs")
			}
		})
	}
}

// updateInBinlog says if the newest binlog file has an update.
func updateInBinlog(t *testing.T, s *testbed.Server) bool {
	t.Helper()
	file, _ := s.BinlogPosition(t)
	rows, err := s.DB().QueryContext(t.Context(), "show binlog events in '"+file+"'")
	testbed.Must(t, err)
	defer rows.Close()
	for rows.Next() {
		var log, pos, kind, server, end, info string
		testbed.Must(t, rows.Scan(&log, &pos, &kind, &server, &end, &info))
		if strings.HasPrefix(kind, "Update_rows") {
			return true
		}
	}
	testbed.Must(t, rows.Err())
	return false
}
