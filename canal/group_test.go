package canal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
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

// readingGroup reads a group of three servers, the first of which is the primary and has a row.
func readingGroup(t *testing.T) ([]*testbed.Server, *database, *running) {
	t.Helper()
	all := newGroup(t, 3)
	d := newDatabase(t, all[0], "create table DB.t (id int primary key)")
	o := d.options()
	o.Address, o.Servers = "", NewServers(all[0].Addr, all[1].Addr, all[2].Addr)
	r := reading(t, startAt(here(t, all[0])), o)
	d.exec("insert into DB.t values (1)")
	return all, d, r
}

// TestAMemberThatHasLeftItsGroup reads the primary of a group, which leaves the group and keeps its connections.
// Another member takes writes: what was read is not all until the former primary is gone, and another member is read.
func TestAMemberThatHasLeftItsGroup(t *testing.T) {
	if !testbed.Soak() {
		return // the rule is shown by TestWhatIsApart, and three servers are much
	}
	all, d, r := readingGroup(t)
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

// TestAMemberThatTakesOverBeforeItHasAppliedAllIsInDoubt kills the primary of a group whose other members have received
// its last transaction, and have not applied it. With group_replication_consistency=EVENTUAL the next primary lets
// readers see what was before that, whose key has been deleted for good.
func TestAMemberThatTakesOverBeforeItHasAppliedAllIsInDoubt(t *testing.T) {
	if !testbed.Soak() {
		return // the rule is shown by TestAPrimaryOfAGroupThatLagsIsInDoubt, and three servers are much
	}
	all, d, r := readingGroup(t)
	var unlock []func()
	for _, s := range all {
		s.Exec(t, "set global group_replication_consistency='EVENTUAL'")
		s.DB().SetMaxIdleConns(0) // sessions of before have what was set before, and would wait
		if s != all[0] {
			there := d.on(s)
			testbed.Eventually(t, patience, "the member has the row", func() bool {
				return s.QueryText(t, "select count(*) from information_schema.tables where table_schema='"+d.name+"'") == "1" &&
					s.QueryText(t, "select count(*) from "+d.name+".t") == "1"
			})
			unlock = append(unlock, keepOut(t, there))
		}
	}
	d.exec("insert into DB.t values (2)")
	r.await(t, "the row, and a mark over it", func() bool { return len(r.rows) == 2 && r.marked(r.rows[1].version) })
	testbed.Must(t, all[0].Kill())
	isBehind := func(is doubt.Doubt) bool { return is.Cause == alarm.ServerBehind }
	var primary *testbed.Server
	testbed.Eventually(t, patience, "another primary", func() bool {
		for _, s := range all[1:] {
			role := s.QueryText(t, "select member_role from performance_schema.replication_group_members "+
				"where member_id=@@server_uuid")
			if role == "PRIMARY" {
				primary = s
			}
		}
		return primary != nil
	})
	if n := primary.QueryText(t, "select count(*) from "+d.name+".t"); n != "1" {
		t.Fatalf("readers of the next primary see %s rows", n)
	}
	testbed.Eventually(t, patience, "a doubt", func() bool { return slices.ContainsFunc(r.doubts.List(), isBehind) })
	for _, release := range unlock {
		release()
	}
	testbed.Eventually(t, patience, "it takes writes", func() bool {
		return primary.QueryText(t, "select @@read_only") == "0"
	})
	d.on(primary).exec("insert into DB.t values (3)")
	r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)", "insert DB.t (3)")
	r.await(t, "all is read", func() bool { return r.marked(r.rows[2].version) && r.readAll() })
	testbed.Eventually(t, patience, "it is answered", func() bool {
		return slices.ContainsFunc(r.doubts.List(), func(is doubt.Doubt) bool { return isBehind(is) && is.Asked })
	})
}

// keepOut has a session keep others from inserting rows until the function is called that it returns.
func keepOut(t *testing.T, d *database) (release func()) {
	t.Helper()
	c, err := d.DB().Conn(t.Context())
	testbed.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	do := func(statement string) {
		t.Helper()
		_, err := c.ExecContext(t.Context(), strings.ReplaceAll(statement, "DB", d.name))
		testbed.Must(t, err)
	}
	do("lock tables DB.t read") // a row's lock would be taken away by what a group applies
	return func() { do("unlock tables") }
}

func TestAPrimaryOfAGroupThatLagsIsInDoubt(t *testing.T) {
	const a = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
	p := event.Position{Flavor: event.MySQL, Server: "one"}
	var err error
	p.GTIDs, err = event.ParseGTIDSet(event.MySQL, a+":1-10")
	testbed.Must(t, err)
	for _, x := range []struct {
		name             string
		member, eventual bool
		doubts           int
	}{
		{"a replica", false, false, 0},
		{"a member whose readers wait once it is the primary", true, false, 0},
		{"a member", true, true, 1},
	} {
		logger := quietLogger(t)
		book, err := doubt.New(nil, newBoard(t, logger), nil)
		testbed.Must(t, err)
		o := Options{Source: "shop", Doubts: book, Alarms: newBoard(t, logger), Logger: logger}
		l := &loop{Canal: &Canal{o: o}, ctx: t.Context(), reconnect: &reconnect{since: time.Now()}}
		seen := []candidate{mysqlCandidate(t, "two", a+":1-9", func(c *candidate) {
			c.standing, c.readOnly = standing{replicates: true, member: x.member, eventual: x.eventual}, true
			c.lacks = p.GTIDs.Subtract(&c.info.Executed)
		})}
		if err := l.behind(seen, &p); err == nil {
			t.Errorf("%s is not waited for", x.name)
		}
		if n := len(book.List()); n != x.doubts {
			t.Errorf("%s: %d doubts, want %d", x.name, n, x.doubts)
		}
	}
}
