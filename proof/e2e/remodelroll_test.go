package e2e

import (
	"fmt"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// A change that no binlog has rolls through the servers of a database: the replica gets it first, takes over, and the
// former primary gets it as a replica, and takes over again. The rows that freshet reads have the columns of the server
// that it reads from, which is another one behind the same address.
func TestASchemaChangeThatRollsThroughReplicasLeavesNoKeyStale(t *testing.T) {
	t.Parallel()
	for _, s := range testbed.Some(t, modelSettings) {
		t.Run(s.flavor+" "+s.metadata, func(t *testing.T) {
			args := []string{"--binlog-row-metadata=" + s.metadata}
			if s.flavor == "mariadb" {
				args = append(args, "--log-slave-updates")
			}
			first, second := s.start(t, args...), s.start(t, args...)
			follow(t, second, first)
			r := newRemodel(t, first, rolled())
			r.names = s.metadata == "FULL"
			r.roll(second)
			r.roll(first)
			r.stop()
			t.Logf("%d writes, %d refused; %d fills", r.written.Load(), r.refused.Load(), r.fills.Load())
		})
	}
}

// rolled are changes under which rows of the one definition can be replicated to a table of the other.
func rolled() []*change {
	return []*change{
		{name: "rolled column", doubts: unseen, do: []string{"ALTER TABLE TABLE1 ADD y VARCHAR(20) NOT NULL DEFAULT 'y1'"}},
		{name: "rolled columns", doubts: unseen, do: []string{
			"ALTER TABLE TABLE1 ADD y INT NOT NULL DEFAULT 3, ADD z VARCHAR(20) NOT NULL DEFAULT 'z1'", "ALTER TABLE TABLE1 ADD INDEX (z)",
		}},
		{name: "rolled index", doubts: unseen, do: []string{"ALTER TABLE TABLE1 ADD INDEX (n), COMMENT 'indexed'"}},
		{name: "calm"},
	}
}

// follow has a server replicate from another one, of which it has a part.
func follow(t *testing.T, replica, from *testbed.Server) {
	t.Helper()
	if replica.Flavor == testbed.FlavorMariaDB {
		replica.Exec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', "+
			"MASTER_USE_GTID=current_pos, MASTER_CONNECT_RETRY=1", from.Port), "START SLAVE")
		return
	}
	replica.Follow(t, from)
}

// promote ends that a server is a replica, once it has all that another one has, which follows it from then on.
func promote(t *testing.T, next, former *testbed.Server) {
	t.Helper()
	end := []string{"STOP REPLICA", "RESET REPLICA ALL"}
	if next.Flavor == testbed.FlavorMariaDB {
		end = []string{"STOP SLAVE", "RESET SLAVE ALL"}
	}
	next.AwaitAllOf(t, former)
	next.Exec(t, end...)
	follow(t, former, next)
}

// roll has the changes come to a replica under load, and the replica take over.
func (r *remodel) roll(next *testbed.Server) {
	r.t.Helper()
	r.load(r.tables)
	for _, m := range r.tables {
		a := &alteration{remodel: r, table: m}
		a.touch()
		for _, s := range m.do {
			next.Exec(r.t, "SET SESSION sql_log_bin = 0", m.in(s), "SET SESSION sql_log_bin = 1")
			a.touch()
		}
	}
	testbed.Must(r.t, r.writers.stop())
	testbed.Must(r.t, r.readers.stop())
	promote(r.t, next, r.source)
	r.source = next
	crowded(next)
	r.binlog.Aim(next.Addr)
	r.binlog.Reset()
	r.load(r.tables)
	for _, m := range r.tables {
		(&alteration{remodel: r, table: m}).touch()
	}
	r.isRight(r.tables)
}
