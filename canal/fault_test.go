package canal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
	"github.com/freshet/freshet/retry"
)

// connects returns how often the canal has begun to read.
func (r *running) connects() int {
	return int(testutil.ToFloat64(r.canal.m.connects.WithLabelValues("ok")))
}

// elsewhere dials another address once it is told one.
type elsewhere struct{ addr atomic.Pointer[string] }

func (e *elsewhere) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if a := e.addr.Load(); a != nil {
		address = *a
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

func (e *elsewhere) use(addr string) { e.addr.Store(&addr) }

func TestAHalfOpenConnectionIsNoticedAndMadeAnew(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		p := proxy.Start(t, s.Addr)
		o := d.options()
		o.Address = p.Addr()
		var e elsewhere
		o.Dial = e.dial
		r := reading(t, startAt(here(t, s)), o)
		d.exec("insert into DB.t values (1)")
		r.await(t, "the first row", func() bool { return len(r.rows) == 1 })
		p.Stall(proxy.Both)
		e.use(s.Addr)
		d.exec("insert into DB.t values (2)")
		began := time.Now()
		r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)")
		if took := time.Since(began); took < minSilence-200*time.Millisecond || took > 3*minSilence {
			t.Errorf("noticed after %s, want about %s", took, minSilence)
		}
		second := r.rows[1].version
		r.await(t, "a mark over it", func() bool { return r.marked(second) })
	})
}

func TestBackPressureIsNoReasonToReconnect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		rec := startAt(here(t, s))
		rec.before = func(n int) error {
			if n == 1 { // for longer than the source may be silent
				began := len(rec.marks)
				rec.await(t, "heartbeats", func() bool { return len(rec.marks) > began+int(minSilence/(200*time.Millisecond))+2 })
			}
			return nil
		}
		r := reading(t, rec, d.options())
		d.exec("insert into DB.t values (1),(2)", "insert into DB.t values (3)")
		r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)", "insert DB.t (3)")
		if n := r.connects(); n != 1 {
			t.Errorf("%d connections, want one", n)
		}
	})
}

// TestALargeTransactionMakesProgressThoughTheServerDropsUs has the sink stop twice in the middle of one transaction for
// longer than net_write_timeout, which is long enough for a busy machine not to drop us of itself.
func TestALargeTransactionMakesProgressThoughTheServerDropsUs(t *testing.T) {
	t.Parallel()
	rows := scale(60_000)
	for name, c := range map[string]struct {
		start func(testing.TB, ...string) *testbed.Server
		fill  string
	}{
		"MySQL": {testbed.MySQL, "insert into DB.t with recursive seq as (select 1 n union all select n+1 from seq where " +
			"n<%d) select n, repeat('x',400) from seq"},
		"MariaDB": {testbed.MariaDB, "insert into DB.t select seq, repeat('x',400) from seq_1_to_%d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.start(t, "--binlog-row-metadata=FULL", "--net-write-timeout=3", "--net-retry-count=1")
			d := newDatabase(t, s, "create table DB.t (id int primary key, v varchar(400))")
			rec := newRecorder()
			rec.per = 1 << 30
			sink := &stopper{recorder: rec, stops: []int{1000, rows / 2}, gone: func() { awaitNoDump(t, d) }}
			rec.pos = here(t, s)
			r := readingInto(t, rec, sink, d.options())
			fill := []string{"use DB", fmt.Sprintf(c.fill, rows)}
			if name == "MySQL" {
				fill = append([]string{"set cte_max_recursion_depth=10000000"}, fill...)
			}
			d.exec(fill...)
			r.await(t, "the transaction", func() bool { return rec.commits >= 1 })
			if sink.rows != rows || sink.bad != "" {
				t.Errorf("%d rows, want %d; %s", sink.rows, rows, sink.bad)
			}
			if n := r.connects(); n < 3 {
				t.Errorf("%d connections: the server has not dropped us", n)
			}
			if r.canal.n.replayed.Load() == 0 {
				t.Error("no row came again")
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// awaitNoDump waits until the server has ended its dump.
func awaitNoDump(t testing.TB, d *database) {
	testbed.Eventually(t, 2*time.Minute, "the server drops the reader", func() bool {
		var n int
		err := d.DB().QueryRow("select count(*) from information_schema.processlist where command like 'Binlog Dump%'").Scan(&n)
		return err == nil && n == 0
	})
}

// A table in memory is empty then, which the server says once somebody opens it. Nobody may: all read the cache.
func TestARestartOfTheServerIsOutlived(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--binlog-row-metadata=FULL")
			d := newDatabase(t, s, "create table DB.t (id int primary key)",
				"create table DB.m (id int primary key) engine=MEMORY", "insert into DB.m values (1)")
			r := reading(t, startAt(here(t, s)), d.options())
			d.exec("insert into DB.t values (1)")
			r.await(t, "the first row", func() bool { return len(r.rows) == 1 })
			testbed.Must(t, s.Kill())
			testbed.Must(t, s.Start(t.Context()))
			r.await(t, "what was in memory is in doubt", func() bool {
				all := r.doubts.List()
				return len(all) == 1 && slices.Equal(all[0].Tables, []string{d.name + ".m"})
			})
			d.exec("insert into DB.t values (2)")
			r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)")
			second := r.rows[1].version
			r.await(t, "a mark over it", func() bool { return r.marked(second) })
			if n := len(r.raises); n != 0 {
				t.Errorf("the epoch was raised: %v", r.raises)
			}
		})
	}
}

func TestAServerThatIsDownAtTheStartIsWaitedFor(t *testing.T) {
	d := newDatabase(t, shared[0].get(t), "create table DB.t (id int primary key)")
	p := proxy.Start(t, d.Addr)
	p.Cut()
	o := d.options()
	o.Address = p.Addr()
	r := reading(t, startAt(here(t, d.Server)), o)
	testbed.Eventually(t, 2*time.Minute, "three attempts", func() bool {
		return testutil.ToFloat64(r.canal.m.connects.WithLabelValues("error")) >= 3
	})
	testbed.Must(t, p.Resume())
	d.exec("insert into DB.t values (1)")
	r.wantRows(d, "insert DB.t (1)")
}

func TestAPasswordThatIsRefusedAtTheStartIsAnError(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		r := reading(t, newRecorder(), Options{Address: s.Addr, User: "nobody", Password: credential.Text("wrong")})
		err := r.wait()
		if err == nil || !strings.Contains(err.Error(), "refuses user \"nobody\"") || errors.Is(err, retry.ErrHalt) {
			t.Fatalf("%v", err)
		}
		if strings.Contains(err.Error(), "wrong") {
			t.Errorf("the password is shown: %v", err)
		}
	})
}

func TestTheSinksErrorEndsTheRun(t *testing.T) {
	d := newDatabase(t, shared[0].get(t), "create table DB.t (id int primary key)")
	full := errors.New("full")
	rec := startAt(here(t, d.Server))
	rec.before = func(n int) error {
		if n == 1 {
			return full
		}
		return nil
	}
	r := reading(t, rec, d.options())
	d.exec("insert into DB.t values (1),(2)")
	if err := r.wait(); err != full {
		t.Fatalf("%v, want the sink's own error", err)
	}
}

func TestASourceThatStaysAwayIsAnAlarm(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shared[0].get(t))
	p := proxy.Start(t, d.Addr)
	o := d.options()
	o.Address = p.Addr()
	r := reading(t, startAt(here(t, d.Server)), o)
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	p.Cut()
	testbed.Eventually(t, awayAfter+10*time.Second, "an alarm", func() bool { return r.alarmed(alarm.SourceAway) })
	if r.canal.Stats().Connected {
		t.Error("connected")
	}
}

func TestTwoReadersOfOneNameDoNotStarveOneAnother(t *testing.T) {
	s := shared[0].get(t)
	d := newDatabase(t, s, "create table DB.t (id int primary key)")
	begin := here(t, s)
	var rs []*running
	for range 2 {
		rs = append(rs, reading(t, startAt(begin), d.options()))
	}
	for i := range 5 {
		d.exec(fmt.Sprintf("insert into DB.t values (%d)", i))
	}
	for _, r := range rs {
		r.await(t, "five rows", func() bool { return len(r.rows) == 5 })
	}
	info := &SourceInfo{ServerID: 5}
	o := Options{Source: "x", drawn: 1 << 30}
	first := o.freeServerID(info, nil)
	if again := o.freeServerID(info, []uint32{first}); first != o.drawn || again == first || again == 0 {
		t.Errorf("a name that is taken, %d, was chosen again", again)
	}
	o.ServerID = 7
	if id := o.freeServerID(info, []uint32{7}); id != 7 {
		t.Errorf("the configured name was not used: %d", id)
	}
	if replicaUUID(first, "x") == replicaUUID(first, "y") {
		t.Error("two sources have one UUID")
	}
}
