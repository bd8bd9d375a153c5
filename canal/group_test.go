package canal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// newGroup starts a group of MySQL's with a single primary, the first server. It returns the servers.
func newGroup(t *testing.T, members int) (all []*testbed.Server) {
	t.Helper()
	var seeds []string
	for range members {
		s := testbed.MySQL(t, "--binlog-row-metadata=FULL", "--report-host=127.0.0.1")
		all, seeds = append(all, s), append(seeds, fmt.Sprintf("127.0.0.1:%d", s.Port+1))
	}
	for i, s := range all {
		s.Exec(t, "install plugin group_replication soname 'group_replication.so'",
			"set global group_replication_group_name='aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee'",
			"set global group_replication_local_address='"+seeds[i]+"'",
			"set global group_replication_group_seeds='"+strings.Join(seeds, ",")+"'",
			"set global group_replication_recovery_get_public_key=on",
			fmt.Sprintf("set global group_replication_bootstrap_group=%v", i == 0),
			"change replication source to source_user='root' for channel 'group_replication_recovery'",
			"start group_replication", "set global group_replication_bootstrap_group=off")
	}
	const online = "select count(*) from performance_schema.replication_group_members where member_state='ONLINE'"
	for _, s := range all {
		testbed.Eventually(t, patience, "all members are there", func() bool {
			return s.QueryText(t, online) == fmt.Sprint(members)
		})
	}
	return all
}

// TestAMemberThatHasLeftItsGroup reads the primary of a group, which leaves the group and keeps its connections.
// Another member takes writes: what was read is not all until the former primary is gone, and another member is read.
func TestAMemberThatHasLeftItsGroup(t *testing.T) {
	if !testbed.Soak() {
		return // the rule is shown by TestWhatIsApart, and three servers are much
	}
	all := newGroup(t, 3)
	d := newDatabase(t, all[0], "create table DB.t (id int primary key)")
	o := d.options()
	o.Address, o.Servers = "", NewServers(all[0].Addr, all[1].Addr, all[2].Addr)
	r := reading(t, startAt(here(t, all[0])), o)
	d.exec("insert into DB.t values (1)")
	r.await(t, "the row", func() bool { return len(r.rows) == 1 && r.marked(r.rows[0].version) && r.readAll() })
	all[0].Exec(t, "stop group_replication")
	testbed.Eventually(t, patience, "another primary", func() bool {
		for _, s := range all[1:] {
			if s.QueryText(t, "select @@super_read_only") == "0" {
				d.on(s).exec("insert into DB.t values (2)")
				return true
			}
		}
		return false
	})
	r.await(t, "that is not all", r.notAll)
	testbed.Must(t, all[0].Kill())
	r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)")
	r.await(t, "all is read", func() bool { return r.marked(r.rows[1].version) && r.readAll() })
}
