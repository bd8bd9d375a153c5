package canal

import (
	"testing"

	"github.com/freshet/freshet/testbed"
)

func TestRowsArriveInCommitOrder(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key, v varchar(20))")
		d.exec("insert into DB.t values (1,'before')")
		d.exec("flush binary logs") // without GTIDs, now is the beginning of the file
		r := reading(t, newRecorder(), d.options())
		r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
		d.exec("insert into DB.t values (2,'a'),(3,'b')", "update DB.t set v='c' where id>1", "delete from DB.t where id=2")
		r.wantRows(d, "insert DB.t (2,a)", "insert DB.t (3,b)", "update DB.t (2,a)->(2,c)", "update DB.t (3,b)->(3,c)", "delete DB.t (2,c)")
		last := r.rows[len(r.rows)-1].version
		r.await(t, "a mark over all of them", func() bool { return r.marked(last) })
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}
