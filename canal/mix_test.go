package canal

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
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
			"xa start " + x, fmt.Sprintf("insert into DB.t values (%d,'xa')", id), "xa end " + x, "xa prepare " + x, "xa " +
				end + " " + x,
		}, fmt.Sprintf("insert DB.t (%d,xa)", id))
		name := fmt.Sprintf("X'%x',X'',1", fmt.Sprintf("%s-%d", d.name, i))
		m.prepared = append(m.prepared, name)
		m.resolved = append(m.resolved, fmt.Sprintf("%s %v", name, end == "commit"))
	}
	x := "'" + d.name + "-one'"
	add([]string{"xa start " + x, "insert into DB.t values (12,'one')", "xa end " + x, "xa commit " + x + " one phase"},
		"insert DB.t (12,one)")
	file := "'" + d.QueryText(d.t, "select @@datadir") + d.name + "/rows.txt'"
	add([]string{
		"select 20,'l' union select 21,'m' into outfile " + file, "load data infile " + file + " into table DB.t",
	}, "insert DB.t (20,l)", "insert DB.t (21,m)")
	if d.Flavor == testbed.FlavorMySQL {
		add([]string{
			"set session binlog_transaction_compression=ON", "begin", "insert into DB.t values (30,'p'),(31,'q')",
			"update DB.t set v='pp' where id=30", "delete from DB.t where id=31", "commit",
			"set session binlog_transaction_compression=OFF",
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
		r.await(t, "the position reaches the end of the binlog",
			func() bool { return r.pos.File == end.File && r.pos.Pos == end.Pos })
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

// recorded is a mix in the binlog of a server: where it begins and ends, and its rows with their versions.
type recorded struct {
	*mix
	d          *database
	begin, end event.Position
	rows       []change
}

func recordMix(t *testing.T, s *testbed.Server) *recorded {
	t.Helper()
	d := newDatabase(t, s, mixTables...)
	m := &recorded{mix: newMix(d), d: d, begin: here(t, s)}
	d.exec(m.statements...)
	m.end = here(t, s)
	r := reading(t, startAt(m.begin), d.options())
	r.await(t, "everything", func() bool { return m.reached(r.recorder) })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	m.rows = r.rows
	if got := r.texts(); !slices.Equal(got, m.mix.rows) {
		t.Fatalf("rows\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(m.mix.rows, "\n  "))
	}
	return m
}

// reached needs the recorder's lock.
func (m *recorded) reached(r *recorder) bool {
	return r.pos.File == m.end.File && r.pos.Pos == m.end.Pos
}

// eachBoundary calls f with the stream held after its n-th event, for n from 0 up to all. It returns their number.
func (m *recorded) eachBoundary(t *testing.T, f func(n int, r *running, p *proxy.Binlog)) int {
	t.Helper()
	p := proxy.StartBinlog(t, m.d.Addr)
	o := m.d.options()
	o.Address = p.Addr()
	for n := 0; ; n++ {
		p.HoldAfter(n)
		r := reading(t, startAt(m.begin), o)
		stop := make(chan struct{})
		end := r.when(stop, func() bool { return m.reached(r.recorder) })
		last := false
		select {
		case <-p.Held():
		case <-end:
			last = true
		}
		f(n, r, p)
		close(stop)
		<-end
		p.Release()
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if last {
			if n < 60 {
				t.Errorf("only %d events were seen", n)
			}
			return n
		}
	}
}

func TestAfterACutBehindAnyEventNothingIsMissingAndNothingComesTwice(t *testing.T) {
	onOne(t, func(t *testing.T, s *testbed.Server) {
		m := recordMix(t, s)
		n := m.eachBoundary(t, func(n int, r *running, p *proxy.Binlog) {
			p.Reset()
			p.Release()
			r.await(t, "everything", func() bool { return m.reached(r.recorder) })
			if !slices.Equal(r.rows, m.rows) {
				t.Fatalf("cut behind event %d: rows\n  %v\nwant\n  %v", n, r.rows, m.rows)
			}
			if !slices.Equal(r.resolves, m.resolved) {
				t.Fatalf("cut behind event %d: XA outcomes %q, want %q", n, r.resolves, m.resolved)
			}
		})
		t.Logf("cut behind each of %d events", n)
	})
}

func TestAfterAKillBehindAnyEventNothingIsMissingAndVersionsAreTheSame(t *testing.T) {
	onOne(t, func(t *testing.T, s *testbed.Server) {
		m := recordMix(t, s)
		n := m.eachBoundary(t, func(n int, r *running, p *proxy.Binlog) {
			r.mu.Lock()
			r.frozen = true // what has been handed on by now is all that is durable
			saved := r.pos
			saved.GTIDs = r.pos.GTIDs.Clone()
			before := slices.Clone(r.rows)
			r.mu.Unlock()
			r2 := reading(t, startAt(saved), m.d.options())
			r2.await(t, "everything", func() bool { return m.reached(r2.recorder) })
			if err := r2.stop(); err != nil {
				t.Fatal(err)
			}
			from := len(m.rows) - len(r2.rows)
			if from < 0 || !slices.Equal(r2.rows, m.rows[from:]) {
				t.Fatalf("killed behind event %d: rows\n  %v\nare no end of\n  %v", n, r2.rows, m.rows)
			}
			if from > len(before) {
				t.Fatalf("killed behind event %d: %d rows were handed over before, and the last %d again: some are missing",
					n, len(before), len(r2.rows))
			}
		})
		t.Logf("killed behind each of %d events", n)
	})
}
