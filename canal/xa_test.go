package canal

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// inXA runs statements in an XA transaction on a session of its own and prepares it. The session has ended when it
// returns: a prepared transaction outlives it, and no other session may end the transaction before (MariaDB: "Unknown
// XID").
func inXA(t *testing.T, d *database, xid string, statements ...string) {
	t.Helper()
	c, err := d.DB().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var session int
	if err := c.QueryRowContext(t.Context(), "select connection_id()").Scan(&session); err != nil {
		t.Fatal(err)
	}
	for _, q := range append(append([]string{"xa start " + xid}, statements...), "xa end "+xid, "xa prepare "+xid) {
		if _, err := c.ExecContext(t.Context(), strings.ReplaceAll(q, "DB.", d.name+".")); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	if err := c.Raw(func(any) error { return driver.ErrBadConn }); err == nil {
		t.Fatal("the session goes on")
	}
	left := fmt.Sprintf("select count(*) from information_schema.processlist where id = %d", session)
	for d.QueryText(t, left) != "0" {
		<-time.After(time.Millisecond)
	}
}

// unread returns how many XA transactions were committed whose rows nobody has read.
func (r *running) unread() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.notRead)
}

// begin is a first start, or where that reads the present file from its beginning, a position that was set by hand.
func begin(t *testing.T, s *testbed.Server) *recorder {
	if s.Flavor == testbed.FlavorMySQL && s.QueryText(t, "select @@gtid_mode") == "OFF" {
		return startAt(here(t, s))
	}
	return newRecorder()
}

func TestAnXATransactionPreparedBeforeTheFirstStartIsADoubtOnceItIsCommitted(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)", "create table DB.other (id int primary key)")
		own := func(n string) string { return "X'00" + n + "',X'ff'" } // bytes that are no text
		inXA(t, d, own("01"), "insert into DB.t values (1)")
		inXA(t, d, own("02"), "insert into DB.t values (2)")
		o := d.options()
		o.Wanted = func(schema, table string) bool { return schema == d.name && table != "other" }
		r := reading(t, begin(t, s), o)
		r.await(t, "the start", func() bool { return r.canal.Stats().Connected })
		// What is prepared from now on is known, with rows or without.
		inXA(t, d, own("03"), "insert into DB.t values (3)")
		inXA(t, d, own("04"), "insert into DB.other values (4)")
		d.exec("xa commit "+own("03"), "xa commit "+own("04"), "xa rollback "+own("02"), "insert into DB.t values (5)")
		r.await(t, "the last row", func() bool { return len(r.rows) == 2 })
		if n := r.unread(); n != 0 {
			t.Fatalf("%d doubts about what was read", n)
		}
		d.exec("xa commit "+own("01"), "insert into DB.t values (6)")
		r.await(t, "the row behind the commit", func() bool { return len(r.rows) == 3 })
		if n := r.unread(); n != 1 {
			t.Errorf("%d doubts, want one about the transaction that was prepared before", n)
		}
	})
}

func TestWhatWasPreparedBeforeTheStartIsKnownAfterARestart(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		inXA(t, d, "'"+d.name+"early'", "insert into DB.t values (1)")
		first := reading(t, begin(t, s), d.options())
		first.await(t, "the start", func() bool { return first.canal.Stats().Connected })
		d.exec("insert into DB.t values (2)")
		first.await(t, "a row", func() bool { return len(first.rows) == 1 && first.gathered == 0 })
		if err := first.stop(); err != nil {
			t.Fatal(err)
		}
		d.exec("xa commit '"+d.name+"early'", "insert into DB.t values (3)")
		again := reading(t, startAt(first.pos), d.options())
		again.await(t, "the next row", func() bool { return len(again.rows) == 1 })
		if n := again.unread(); n != 1 {
			t.Errorf("%d doubts after a restart", n)
		}
	})
}

// From a place in the past, what was prepared before it and committed before the source was asked is not listed.
func TestWhatWasPreparedBeforeAPlaceInThePastIsADoubt(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)", "create table DB.other (id int primary key)")
		early, late := "'"+d.name+"early'", "'"+d.name+"late'"
		inXA(t, d, early, "insert into DB.t values (1)")
		past := here(t, s)
		inXA(t, d, late, "insert into DB.other values (1)")
		d.exec("xa commit "+late, "insert into DB.t values (2)")
		o := d.options()
		o.Wanted = func(schema, table string) bool { return schema == d.name && table != "other" }
		read := reading(t, startAt(past), o)
		read.await(t, "the row", func() bool { return len(read.rows) == 1 })
		if n := read.unread(); n != 0 {
			t.Fatalf("%d doubts about what was read", n)
		}
		if err := read.stop(); err != nil {
			t.Fatal(err)
		}
		d.exec("xa commit "+early, "insert into DB.t values (3)")
		read = reading(t, startAt(past), o)
		read.await(t, "the rows", func() bool { return len(read.rows) == 2 })
		if n := read.unread(); n != 1 {
			t.Errorf("%d doubts, want one", n)
		}
	})
}

func TestTheStateOfXASurvives(t *testing.T) {
	x := &xaStart{Listed: []string{"X'61',X'',1"}, Executed: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"}
	b, err := x.joinState([]byte(`{"v":1}`))
	if err != nil {
		t.Fatal(err)
	}
	y, definitions, err := splitState(b, "mysql")
	if err != nil || string(definitions) != `{"v":1}` || len(y.Listed) != 1 || y.Executed != x.Executed {
		t.Errorf("%+v, %s, %v", y, definitions, err)
	}
	if y, definitions, err = splitState([]byte(`{"v":1}`), "mysql"); err != nil || !y.All ||
		string(definitions) != `{"v":1}` {
		t.Errorf("a state of before: %+v, %s, %v", y, definitions, err)
	}
	if _, _, err = splitState([]byte("xa {"), "mysql"); err == nil {
		t.Error("a damaged state is taken")
	}
}

// A statement that is logged as one in an XA transaction changes rows that nobody sees before XA COMMIT, which names no
// table: what is in doubt comes with XA PREPARE, so that it is so again then.
func TestAStatementInAnXATransactionIsInDoubtWhenItIsCommitted(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--binlog-format=STATEMENT")
			d := newDatabase(t, s, "create table DB.t (id int primary key)", "create table DB.u (id int primary key)")
			r := reading(t, startAt(here(t, s)), d.options())
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			inXA(t, d, "'s'", "insert into DB.t values (1)", "insert into DB.u values (1)", "insert into DB.t values (2)")
			r.await(t, "XA PREPARE", func() bool { return len(r.prepares) == 1 })
			d.exec("xa commit 's'")
			r.await(t, "XA COMMIT", func() bool { return len(r.resolves) == 1 })
			want := []string{d.name + ".t", d.name + ".u"}
			if !slices.Equal(r.doubted, want) {
				t.Errorf("with XA PREPARE %q are in doubt, want %q", r.doubted, want)
			}
		})
	}
}
