package canal

import (
	"strings"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// outOfOrder is a MySQL server whose replica commits what does not depend on each other in any order, so that what it
// has executed has holes.
type outOfOrder struct {
	*database // on the first server
	replica   *database
}

func newOutOfOrder(t *testing.T) *outOfOrder {
	t.Helper()
	first := testbed.MySQL(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, first, "create table DB.t (id int primary key, n int)",
		"insert into DB.t values (1,0), (2,0), (3,0)")
	second := testbed.MySQL(t, "--binlog-row-metadata=FULL", "--replica-parallel-workers=4",
		"--replica-preserve-commit-order=OFF")
	replicate(t, second, first)
	return &outOfOrder{d, d.on(second)}
}

// skip has rows 1 and 2 change on the first server, one after the other, and the replica apply the second change, and
// not the first one until the function is called that is returned.
func (o *outOfOrder) skip() (apply func()) {
	o.t.Helper()
	c, err := o.replica.DB().Conn(o.t.Context())
	testbed.Must(o.t, err)
	o.t.Cleanup(func() { _ = c.Close() })
	do := func(statement string) {
		o.t.Helper()
		_, err := c.ExecContext(o.t.Context(), strings.ReplaceAll(statement, "DB", o.name))
		testbed.Must(o.t, err)
	}
	do("begin")
	do("update DB.t set n = 7 where id = 1")
	o.exec("update DB.t set n = n + 1 where id = 1", "update DB.t set n = n + 1 where id = 2")
	testbed.Eventually(o.t, patience, "the second change is applied", func() bool {
		return o.replica.QueryText(o.t, "select n from "+o.name+".t where id = 2") == "1"
	})
	if n := o.replica.QueryText(o.t, "select n from "+o.name+".t where id = 1"); n != "0" {
		o.t.Fatalf("row 1 is %s: the first change was applied, too", n)
	}
	if set := o.replica.GTIDs(o.t); strings.Count(set, ":") < 2 {
		o.t.Fatalf("%s has no hole", set)
	}
	return func() { do("rollback") }
}

// TestAReplicaThatCommitsInAnyOrderIsReadWithItsHoles reads a replica that has a later transaction and not yet an
// earlier one, also on another connection, and after a restart from a position that has the hole.
func TestAReplicaThatCommitsInAnyOrderIsReadWithItsHoles(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"the connection is lost", "a restart"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := newOutOfOrder(t)
			o := p.replica.options()
			r := reading(t, startAt(here(t, p.replica.Server)), o)
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			apply := p.skip()
			second := "update DB.t (2,0)->(2,1)"
			r.wantRows(p.database, second)
			r.await(t, "a mark over it", func() bool { return r.marked(r.rows[0].version) })
			want := []string{second, "update DB.t (1,0)->(1,1)"}
			if how == "a restart" {
				testbed.Must(t, r.stop())
				if set := r.pos.GTIDs.String(); strings.Count(set, ":") < 2 {
					t.Fatalf("the position %s has no hole", set)
				}
				r, want = reading(t, startAt(r.pos), o), want[1:]
				r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			} else {
				dropLine(t, p.replica, r)
			}
			apply()
			r.wantRows(p.database, want...)
			r.await(t, "a mark over all", func() bool { return r.marked(r.rows[len(want)-1].version) && r.readAll() })
			if doubts := r.doubts.List(); len(doubts) > 0 || len(r.raises) > 0 {
				t.Errorf("in doubt %+v, raised %v", doubts, r.raises)
			}
			testbed.Must(t, r.stop())
		})
	}
}

// TestAFillServerThatCommitsInAnyOrderLacksWhatItHasSkipped has readers fill from a replica that has a later
// transaction, and not yet an earlier one.
func TestAFillServerThatCommitsInAnyOrderLacksWhatItHasSkipped(t *testing.T) {
	t.Parallel()
	p := newOutOfOrder(t)
	o := p.options()
	o.FillFrom, o.FillTimeout = []string{p.replica.Addr}, patience
	r := reading(t, startAt(here(t, p.Server)), o)
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	apply := p.skip()
	r.wantRows(p.database, "update DB.t (1,0)->(1,1)", "update DB.t (2,0)->(2,1)")
	first := r.rows[0].version
	marks := 0
	r.await(t, "marks", func() bool { marks = len(r.marks); return r.canal.Stats().Unconfirmed > 0 })
	r.await(t, "more marks, or one over it", func() bool { return len(r.marks) > marks+5 || r.marked(first) })
	r.ask(func() bool {
		if r.marked(first) {
			t.Errorf("a mark covers a change that the fill server has skipped")
		}
		return true
	})
	apply()
	r.await(t, "a mark over both", func() bool { return r.marked(r.rows[1].version) })
	if doubts := r.doubts.List(); len(doubts) > 0 {
		t.Errorf("in doubt %+v", doubts)
	}
	testbed.Must(t, r.stop())
}
