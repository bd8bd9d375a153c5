package testbed

import (
	"context"
	"fmt"
	"time"
)

// HoldCommits has every commit wait, for at most timeout, after its binlog events have been
// written and sent and before its rows can be seen by others: the event runs ahead of what a
// SELECT returns. It is semi-synchronous replication (AFTER_SYNC) with no replica that would
// acknowledge. The server gives up semi-sync for good with the first commit that waits out the
// timeout; calling HoldCommits again arms it again.
//
// ReleaseCommits lets the waiting commits finish.
func (s *Server) HoldCommits(ctx context.Context, timeout time.Duration) error {
	if err := s.installSemiSync(ctx); err != nil {
		return err
	}
	v := s.semiSyncPrefix()
	noReplica := v + "wait_no_replica"
	if s.Flavor == FlavorMariaDB {
		noReplica = v + "wait_no_slave"
	}
	return s.ExecContext(
		ctx,
		"set global "+v+"enabled = off",
		"set global "+v+"wait_point = after_sync",
		"set global "+noReplica+" = on",
		fmt.Sprintf("set global %stimeout = %d", v, timeout.Milliseconds()),
		"set global "+v+"enabled = on",
	)
}

// ReleaseCommits ends HoldCommits: waiting commits finish at once, and later ones do not wait.
func (s *Server) ReleaseCommits(ctx context.Context) error {
	return s.ExecContext(ctx, "set global "+s.semiSyncPrefix()+"enabled = off")
}

// semiSyncPrefix is how the flavor's variables start.
func (s *Server) semiSyncPrefix() string {
	if s.Flavor == FlavorMariaDB {
		return "rpl_semi_sync_master_"
	}
	return "rpl_semi_sync_source_"
}

// installSemiSync loads MySQL's plugin; MariaDB has it built in.
func (s *Server) installSemiSync(ctx context.Context) error {
	if s.Flavor == FlavorMariaDB {
		return nil
	}
	var n int
	err := s.db.QueryRowContext(ctx,
		"select count(*) from information_schema.plugins where plugin_name = 'rpl_semi_sync_source'").Scan(&n)
	if err != nil {
		return fmt.Errorf("testbed: semi-sync: %w", err)
	}
	if n > 0 {
		return nil
	}
	return s.ExecContext(ctx, "install plugin rpl_semi_sync_source soname 'semisync_source.so'")
}

// CommitsHeld returns how many sessions wait in a held commit.
func (s *Server) CommitsHeld(ctx context.Context) (int, error) {
	var name string
	var n int
	err := s.db.QueryRowContext(ctx, "show global status like '"+s.semiSyncPrefix()+"wait_sessions'").Scan(&name, &n)
	if err != nil {
		return 0, fmt.Errorf("testbed: semi-sync: %w", err)
	}
	return n, nil
}
