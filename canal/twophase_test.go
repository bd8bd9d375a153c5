package canal

import (
	"testing"

	"github.com/freshet/freshet/proof/testbed"
)

// MariaDB with binlog_alter_two_phase has each ALTER TABLE twice: when it begins, and when it is done or has failed.
// Rows between are of the definition before.
func TestAnAlterInTwoPhasesCountsOnceItIsDone(t *testing.T) {
	onMariaDB(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key, a varchar(9), b varchar(9))")
		rec := startAt(here(t, s))
		rec.named = true
		o := d.options()
		o.Doubts = newBook(t)
		r := reading(t, rec, o)
		d.exec("insert into DB.t values (1,'a','b'),(2,'a','b')")
		r.await(t, "the first rows", func() bool { return len(r.rows) == 2 })
		d.exec("set session binlog_alter_two_phase=ON",
			"alter table DB.t add y int not null default 3 first", "insert into DB.t values (4,3,'a','b')")
		if err := s.ExecContext(t.Context(), "set session binlog_alter_two_phase=ON",
			"alter table "+d.name+".t add z int not null default 3 first, add unique (z)"); err == nil {
			t.Fatal("it did not fail")
		}
		d.exec("insert into DB.t values (4,4,'a','b')", "alter table DB.t modify b varchar(9) first",
			"insert into DB.t values ('b',4,5,'a')", "set session binlog_alter_two_phase=OFF")
		r.wantRows(d, "insert DB.t (id=1,a=a,b=b)", "insert DB.t (id=2,a=a,b=b)", "insert DB.t (y=4,id=3,a=a,b=b)",
			"insert DB.t (y=4,id=4,a=a,b=b)", "insert DB.t (b=b,y=4,id=5,a=a)")
		if all := o.Doubts.List(); len(all) > 0 {
			t.Errorf("in doubt: %+v", all)
		}
	})
}
