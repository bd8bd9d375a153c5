package canal

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/proof/testbed"
)

func TestRowsArriveInCommitOrder(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key, v varchar(20))")
		d.exec("insert into DB.t values (1,'before')")
		d.exec("flush binary logs") // without GTIDs, now is the beginning of the file
		r := reading(t, newRecorder(), d.options())
		r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
		d.exec("insert into DB.t values (2,'a'),(3,'b')", "update DB.t set v='c' where id>1", "delete from DB.t where id=2")
		r.wantRows(d, "insert DB.t (2,a)", "insert DB.t (3,b)", "update DB.t (2,a)->(2,c)", "update DB.t (3,b)->(3,c)",
			"delete DB.t (2,c)")
		last := r.rows[len(r.rows)-1].version
		r.await(t, "a mark over all of them", func() bool { return r.marked(last) })
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTheRightsThatTheDocumentationAsksForAreEnough reads as a user with a password and no more rights than needed.
func TestTheRightsThatTheDocumentationAsksForAreEnough(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		rights := "replication slave, replication client"
		if s.Flavor == testbed.FlavorMariaDB {
			rights += ", binlog monitor"
		}
		d.exec("create user u_DB identified by 'pass word'", "grant "+rights+" on *.* to u_DB",
			"grant select on DB.* to u_DB")
		o := d.options()
		o.User, o.Password = "u_"+d.name, credential.Text("pass word")
		p := here(t, s)
		d.exec("insert into DB.t values (1)")
		for _, start := range []string{"now", fmt.Sprintf("%s:%d", p.File, p.Pos)} {
			o.Start, o.UntilCaughtUp = start, true
			if err := reading(t, newRecorder(), o).wait(); err != nil {
				t.Errorf("start %s: %v", start, err)
			}
		}
		info, err := Probe(t.Context(), o)
		if err != nil || len(info.Files) == 0 || len(info.Grants) == 0 {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// A user may lose rights while freshet runs. What is said then must name the right, whichever of the statements that
// servers know by different names was tried last.
func TestARightThatIsMissingIsNamed(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		client := "replication client"
		if s.Flavor == testbed.FlavorMariaDB {
			client = "binlog monitor"
		}
		d.exec("create user u_DB identified by 'pass word'", "grant select on DB.* to u_DB")
		o := d.options()
		o.User, o.Password = "u_"+d.name, credential.Text("pass word")
		for right, want := range map[string]string{
			"replication slave": "Access denied; you need (at least one of) the",
			client:              "register as a replica, which takes the right REPLICATION SLAVE: ",
		} {
			d.exec("grant " + right + " on *.* to u_DB")
			if err := reading(t, newRecorder(), o).wait(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("with %s alone: %v", right, err)
			}
			d.exec("revoke " + right + " on *.* from u_DB")
		}
	})
}

func TestARowOfManyMegabytesArrivesWhole(t *testing.T) {
	t.Parallel()
	const size = 17_000_000 // more than one packet
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key, b longblob)")
		r := reading(t, startAt(here(t, s)), d.options())
		d.exec("insert into DB.t values (1, repeat('x', "+strconv.Itoa(size)+"))", "insert into DB.t values (2, 'y')")
		r.wantRows(d, "insert DB.t (1,"+strings.Repeat("x", size)+")", "insert DB.t (2,y)")
	})
}
