package canal

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/testbed"
	"github.com/freshet/freshet/testbed/proxy"
)

// mix is transactions of every shape, with the rows that they leave in the binlog.
type mix struct {
	statements []string
	rows       []string
	// prepared and resolved are what is told of XA transactions.
	prepared, resolved []string
}

var mixTables = []string{
	"create table DB.t (id int primary key, v varchar(400))",
	"create table DB.m (id int primary key, v varchar(20)) engine=MyISAM",
}

// newMix returns the mix for a server.
func newMix(d *database) *mix {
	m := &mix{}
	add := func(statements []string, rows ...string) {
		m.statements = append(m.statements, statements...)
		m.rows = append(m.rows, rows...)
	}
	one := func(s string, rows ...string) { add([]string{s}, rows...) }
	one("insert into DB.t values (1,'a'),(2,'b')", "insert DB.t (1,a)", "insert DB.t (2,b)")
	add([]string{
		"begin", "insert into DB.t values (3,'c')", "savepoint s", "insert into DB.t values (4,'d')",
		"rollback to s", "update DB.t set v='cc' where id=3", "commit",
	}, "insert DB.t (3,c)", "update DB.t (3,c)->(3,cc)")
	one("insert into DB.m values (1,'x'),(2,'y')", "insert DB.m (1,x)", "insert DB.m (2,y)")
	// Rows that cannot be rolled back, so that the transaction ends with ROLLBACK or on its own.
	if d.noGTIDs() || d.Flavor == testbed.FlavorMariaDB {
		add([]string{"begin", "insert into DB.t values (5,'e')", "update DB.m set v='z' where id=2", "rollback"},
			"update DB.m (2,y)->(2,z)")
	}
	one("create table DB.c select id, v from DB.t where id<3", "insert DB.c (1,a)", "insert DB.c (2,b)")
	one("replace into DB.t values (1,'r')", "update DB.t (1,a)->(1,r)")
	for i, end := range []string{"commit", "rollback"} {
		x := fmt.Sprintf("'%s-%d'", d.name, i)
		id := 10 + i
		add([]string{
			"xa start " + x, fmt.Sprintf("insert into DB.t values (%d,'xa')", id), "xa end " + x, "xa prepare " + x, "xa " + end + " " + x,
		}, fmt.Sprintf("insert DB.t (%d,xa)", id))
		name := fmt.Sprintf("X'%x',X'',1", fmt.Sprintf("%s-%d", d.name, i))
		m.prepared = append(m.prepared, name)
		m.resolved = append(m.resolved, fmt.Sprintf("%s %v", name, end == "commit"))
	}
	x := "'" + d.name + "-one'"
	add([]string{"xa start " + x, "insert into DB.t values (12,'one')", "xa end " + x, "xa commit " + x + " one phase"}, "insert DB.t (12,one)")
	file := "'" + d.QueryText(d.t, "select @@datadir") + d.name + "/rows.txt'"
	add([]string{
		"select 20,'l' union select 21,'m' into outfile " + file, "load data infile " + file + " into table DB.t",
	}, "insert DB.t (20,l)", "insert DB.t (21,m)")
	if d.Flavor == testbed.FlavorMySQL {
		add([]string{
			"set session binlog_transaction_compression=ON", "begin", "insert into DB.t values (30,'p'),(31,'q')",
			"update DB.t set v='pp' where id=30", "delete from DB.t where id=31", "commit", "set session binlog_transaction_compression=OFF",
		}, "insert DB.t (30,p)", "insert DB.t (31,q)", "update DB.t (30,p)->(30,pp)", "delete DB.t (31,q)")
	}
	one("create table DB.other (id int)")
	one("delete from DB.t where id=2", "delete DB.t (2,b)")
	for i := range m.rows {
		m.rows[i] = strings.ReplaceAll(m.rows[i], "DB", d.name)
	}
	return m
}

func (d *database) noGTIDs() bool {
	return d.Flavor == testbed.FlavorMySQL && d.QueryText(d.t, "select @@gtid_mode") != "ON"
}

// here is the present end of the server's binlog as a position.
func here(t testing.TB, s *testbed.Server) event.Position {
	t.Helper()
	file, pos := s.BinlogPosition(t)
	p, err := Locate(t.Context(), Options{Address: s.Addr, User: "root"}, fmt.Sprintf("%s:%d", file, pos))
	if err != nil {
		t.Fatal(err)
	}
	p.Epoch = 1
	return p
}

// startAt returns a recorder whose checkpoint is p.
func startAt(p event.Position) *recorder {
	r := newRecorder()
	r.pos = p
	r.pos.GTIDs = p.GTIDs.Clone()
	return r
}

func TestTransactionsOfEveryShapeArriveWhole(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, mixTables...)
		m := newMix(d)
		r := reading(t, startAt(here(t, s)), d.options())
		r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
		d.exec(m.statements...)
		r.wantRows(d, m.rows...)
		r.await(t, "the outcome of XA transactions", func() bool { return len(r.resolves) == len(m.resolved) })
		end := here(t, s)
		r.await(t, "the position reaches the end of the binlog", func() bool { return r.pos.File == end.File && r.pos.Pos == end.Pos })
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.prepares, m.prepared) || !slices.Equal(r.resolves, m.resolved) {
			t.Errorf("XA: prepared %q, resolved %q; want %q, %q", r.prepares, r.resolves, m.prepared, m.resolved)
		}
		for i := 1; i < len(r.rows); i++ {
			if r.rows[i-1].version.Compare(r.rows[i].version) >= 0 {
				t.Errorf("version %s of %s is not above %s", r.rows[i].version, r.rows[i].text, r.rows[i-1].version)
			}
		}
		if got, want := r.pos.GTIDs.String(), end.GTIDs.String(); got != want {
			t.Errorf("GTIDs %s, the server has %s", got, want)
		}
	})
}

func TestAfterACutBehindAnyEventNothingIsMissingAndNothingComesTwice(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, mixTables...)
		m := newMix(d)
		begin := here(t, s)
		d.exec(m.statements...)
		end := here(t, s)
		p := proxy.StartBinlog(t, s.Addr)
		o := d.options()
		o.Address = p.Addr()
		n := 0
		for more := true; more; n++ {
			r := startAt(begin)
			p.Restart()
			p.HoldAfter(n)
			c := reading(t, r, o)
			select {
			case <-p.Held():
			case <-reached(r, end):
				more = false
			}
			p.Reset()
			p.Release()
			c.await(t, "everything", func() bool { return r.pos.File == end.File && r.pos.Pos == end.Pos })
			if err := c.stop(); err != nil {
				t.Fatal(err)
			}
			if got := r.texts(); !slices.Equal(got, m.rows) {
				t.Fatalf("cut behind event %d: rows\n  %s\nwant\n  %s", n, strings.Join(got, "\n  "), strings.Join(m.rows, "\n  "))
			}
			if !slices.Equal(r.resolves, m.resolved) {
				t.Fatalf("cut behind event %d: XA outcomes %q, want %q", n, r.resolves, m.resolved)
			}
		}
		t.Logf("cut behind each of %d events", n-1)
		if n < 60 {
			t.Errorf("only %d events were seen", n)
		}
	})
}

// reached is closed when the recorder's position is at end.
func reached(r *recorder, end event.Position) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		for {
			r.mu.Lock()
			ok, changed := r.pos.File == end.File && r.pos.Pos == end.Pos, r.changed
			r.mu.Unlock()
			if ok {
				close(done)
				return
			}
			<-changed
		}
	}()
	return done
}
