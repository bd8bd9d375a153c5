package canal

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// replicas is a server and its replica, which keeps a binlog of its own.
type replicas struct {
	first, second *testbed.Server
	t             testing.TB
	mariadb       bool
}

// onPairs runs a test on a pair of each kind that has GTIDs.
func onPairs(t *testing.T, f func(t *testing.T, p *replicas)) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newReplicas(t, start, name == "MariaDB", "--binlog-row-metadata=FULL"))
		})
	}
}

func newReplicas(t testing.TB, start func(testing.TB, ...string) *testbed.Server, mariadb bool,
	args ...string,
) *replicas {
	t.Helper()
	if mariadb {
		args = append(args, "--log-slave-updates")
	}
	p := &replicas{start(t, args...), start(t, args...), t, mariadb}
	p.second.Follow(t, p.first)
	p.second.AwaitAllOf(t, p.first)
	return p
}

// replicate has the second server follow the first again, and hold no less than it.
func (p *replicas) replicate() {
	p.t.Helper()
	start := "start replica"
	if p.mariadb {
		start = "start slave"
	}
	p.second.Exec(p.t, start)
	p.second.AwaitAllOf(p.t, p.first)
}

// hold has the second server stay where it is.
func (p *replicas) hold() {
	p.t.Helper()
	if p.mariadb {
		p.second.Exec(p.t, "stop slave")
		return
	}
	p.second.Exec(p.t, "stop replica")
}

// TestAServerThatIsBehindIsWaitedFor cuts the line to a server whose replica then answers, without the last
// transaction: its readers see what was before it, whose key has been deleted for good.
func TestAServerThatIsBehindIsWaitedFor(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)", "insert into DB.t values (1)")
		begin := here(t, p.first)
		p.replicate()
		p.hold()
		line := proxy.Start(t, p.first.Addr)
		o := d.options()
		o.Address = line.Addr()
		var e elsewhere
		o.Dial = e.dial
		r := reading(t, startAt(begin), o)
		d.exec("insert into DB.t values (2)")
		r.await(t, "the row and a mark over it", func() bool { return len(r.rows) == 1 && r.marked(r.rows[0].version) })
		lacking := r.rows[0].tx.String()

		e.use(p.second.Addr)
		line.Cut()
		for range 2 { // and a restart changes nothing
			attempts := func() float64 { return testutil.ToFloat64(r.canal.m.connects.WithLabelValues("error")) }
			testbed.Eventually(t, awayAfter, "several attempts", func() bool { return attempts() >= 4 || len(r.done) > 0 })
			if !r.alarmed(alarm.SourceBehind) || len(r.done) > 0 {
				t.Fatalf("alarmed %v", r.board.Records())
			}
			testbed.Must(t, r.canal.answerBehind(t.Context()))
			if d := r.doubts.List(); len(d) != 1 || d[0].Asked {
				t.Fatalf("while its readers see what was before: %+v", d)
			}
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			o.Alarms, o.Doubts = r.board, r.doubts
			r = reading(t, startAt(r.pos), o)
		}
		p.replicate()
		d2 := d.on(p.second)
		d2.exec("insert into DB.t values (3)")
		r.wantRows(d, "insert DB.t (3)")
		if v := r.rows[0].version; v.Epoch != 2 {
			t.Errorf("version %s, want epoch 2", v)
		}
		r.await(t, "a mark over it", func() bool { return r.marked(r.rows[0].version) })
		doubts := r.doubts.List()
		if len(doubts) != 1 || doubts[0].Cause != alarm.ServerBehind || len(doubts[0].Tables) != 0 {
			t.Fatalf("doubts %+v", doubts)
		}
		if !strings.Contains(doubts[0].Message, lacking) {
			t.Errorf("%q does not name %s", doubts[0].Message, lacking)
		}
		testbed.Eventually(t, patience, "it is answered", func() bool { return r.doubts.List()[0].Asked })
	})
}

// TestAServerThatIsBehindAgainIsInDoubtAgain has the address lead to a replica twice, which lacks something each time.
// The second time the first doubt is still being answered, which is too early for what readers cache now.
func TestAServerThatIsBehindAgainIsInDoubtAgain(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		line := proxy.Start(t, p.first.Addr)
		o := d.options()
		o.Address = line.Addr()
		r := reading(t, startAt(here(t, p.first)), o)
		for n := 1; n <= 2; n++ {
			p.replicate()
			p.hold()
			d.exec(fmt.Sprintf("insert into DB.t values (%d)", n))
			r.await(t, "the row", func() bool { return len(r.rows) == n })
			line.Aim(p.second.Addr)
			line.Reset()
			testbed.Eventually(t, patience, "a doubt", func() bool { return len(r.doubts.List()) == n })
			testbed.Must(t, r.canal.answerBehind(t.Context()))
			for i, is := range r.doubts.List() {
				if last := i == n-1; is.Cause != alarm.ServerBehind || is.Asked == last {
					t.Fatalf("time %d: doubt %d of %+v", n, i, r.doubts.List())
				}
			}
			// The server before is back, so that nothing lacks any more.
			line.Aim(p.first.Addr)
			testbed.Eventually(t, patience, "it is answered", func() bool { return r.doubts.List()[n-1].Asked })
		}
	})
}

// A reader that has read a row before the server had all may still put it into the cache for a while.
func TestADoubtAboutAServerThatWasBehindWaitsForItsReaders(t *testing.T) {
	logger := quietLogger(t)
	book, err := doubt.New(nil, newBoard(t, logger), nil)
	testbed.Must(t, err)
	testbed.Must(t, book.Record(t.Context(), doubt.Doubt{Cause: alarm.ServerBehind, Source: "shop", Subject: "b"}))
	c := &Canal{o: Options{Source: "shop", Doubts: book, FillSettles: time.Hour, Logger: logger}}
	asked := func() bool {
		testbed.Must(t, c.answerBehind(t.Context()))
		return book.List()[0].Asked
	}
	if asked() {
		t.Error("it is answered though nothing is read")
	}
	just, long := time.Now(), time.Now().Add(-2*time.Hour)
	if c.lag.whole.Store(&just); asked() {
		t.Error("it is answered as soon as a server that lacks nothing is read")
	}
	if c.lag.whole.Store(&long); !asked() {
		t.Error("it is not answered")
	}
}

// An operator asks for the answer too early, or has dismissed the doubt.
func TestAnAnswerBeforeTheServerHasAllIsNotTheLast(t *testing.T) {
	logger := quietLogger(t)
	book, err := doubt.New(nil, newBoard(t, logger), nil)
	testbed.Must(t, err)
	d := doubt.Doubt{Cause: alarm.ServerBehind, Source: "shop", Subject: "b"}.Named()
	record := func(c *Canal) {
		testbed.Must(t, book.Record(t.Context(), d))
		c.lag.doubts.add(d)
	}
	c := &Canal{o: Options{Source: "shop", Doubts: book, FillSettles: time.Hour, Logger: logger}}
	record(c)
	testbed.Must(t, book.Ask(t.Context(), d.ID))
	testbed.Must(t, book.Answered(t.Context(), d.ID, time.Time{}, "forgotten"))
	testbed.Must(t, c.answerBehind(t.Context()))
	if l := book.List(); len(l) != 1 || l[0].Asked {
		t.Fatalf("it was answered while the server lags: %+v", l)
	}
	testbed.Must(t, book.Ask(t.Context(), d.ID))
	long := time.Now().Add(-2 * time.Hour)
	c.lag.whole.Store(&long)
	testbed.Must(t, c.answerBehind(t.Context()))
	is := book.List()[0]
	if is.Count != 2 || !is.AskedAt.After(is.Last) {
		t.Errorf("it does not begin again: %+v", is)
	}
	testbed.Must(t, c.answerBehind(t.Context()))
	if again := book.List()[0]; again.Count != 2 || !again.AskedAt.Equal(is.AskedAt) {
		t.Errorf("it begins once more: %+v", again)
	}
	testbed.Must(t, book.Answered(t.Context(), d.ID, is.Last, "forgotten"))
	testbed.Must(t, c.answerBehind(t.Context()))
	if l := book.List(); len(l) != 0 {
		t.Errorf("it was answered, and is there again: %+v", l)
	}
	record(c)
	testbed.Must(t, book.Dismiss(t.Context(), d.ID, time.Time{}))
	testbed.Must(t, c.answerBehind(t.Context()))
	if l := book.List(); len(l) != 0 {
		t.Errorf("it was dismissed, and is there again: %+v", l)
	}
}

// TestAServerThatHoldsAllIsNoDoubt fails over to a replica that lacks nothing.
func TestAServerThatHoldsAllIsNoDoubt(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)", "insert into DB.t values (1)")
		line := proxy.Start(t, p.first.Addr)
		o := d.options()
		o.Address = line.Addr()
		var e elsewhere
		o.Dial = e.dial
		r := reading(t, startAt(here(t, p.first)), o)
		d.exec("insert into DB.t values (2)")
		r.await(t, "the row", func() bool { return len(r.rows) == 1 })
		p.replicate()
		e.use(p.second.Addr)
		line.Cut()
		d2 := d.on(p.second)
		d2.exec("insert into DB.t values (3)")
		r.wantRows(d, "insert DB.t (2)", "insert DB.t (3)")
		r.await(t, "a mark over both", func() bool { return r.marked(r.rows[1].version) })
		if doubts := r.doubts.List(); len(doubts) != 0 || r.alarmed(alarm.SourceBehind) {
			t.Errorf("doubts %+v, alarms %+v", doubts, r.board.Records())
		}
	})
}

// TestAnAddressThatLeadsToAnotherServerIsFollowed has the one address lead to another server, as a name does after a
// failover, while the one before still answers on the connections that there are.
func TestAnAddressThatLeadsToAnotherServerIsFollowed(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		o := d.options()
		var e elsewhere
		o.Dial = e.dial
		r := reading(t, startAt(here(t, p.first)), o)
		d.exec("insert into DB.t values (1)")
		r.await(t, "the row and a mark over it", func() bool { return len(r.rows) == 1 && r.marked(r.rows[0].version) })
		p.replicate()
		p.hold()
		e.use(p.second.Addr)
		d2 := d.on(p.second)
		d2.exec("insert into DB.t values (2)")
		r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)")
		r.await(t, "a mark over both", func() bool { return r.marked(r.rows[1].version) })
		if n := len(r.raises); n != 1 || len(r.doubts.List()) != 0 {
			t.Errorf("raised %v, in doubt %+v", r.raises, r.doubts.List())
		}
	})
}

// TestAServerThatLacksNothingIsReadOnWhereverTheAddressLeads has the address lead to a replica, as that of a balancer
// does, and then to a server that makes transactions of its own.
func TestAServerThatLacksNothingIsReadOnWhereverTheAddressLeads(t *testing.T) {
	set := func(text string) event.GTIDSet {
		s, err := event.ParseGTIDSet(event.MySQL, text)
		testbed.Must(t, err)
		return s
	}
	const uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:"
	cuts := 0
	cut := context.CancelFunc(func() { cuts++ })
	c := &Canal{o: Options{Logger: quietLogger(t)}, vis: newVisibility(0, 0)}
	c.cut.Store(&cut)
	c.n.connected.Store(true)
	c.vis.server = "first"
	w := &turned{Canal: c}
	for i, look := range []struct {
		server, has, read, apart string
		cuts                     int
	}{
		{"second", "1-9", "1-9", "", 0},
		{"second", "1-10", "1-9", "", 0}, // it may be on its way
		{"first", "1-10", "1-10", "", 0},
		{"second", "1-11", "1-10", "", 0},
		{"second", "1-12", "1-11", "", 0}, // a little more each time, as of a replica that lags
		{"second", "1-12", "1-11", "at", 0},
		{"first", "1-12", "1-12", "", 0},
		{"second", "1-13", "1-12", "", 0},
		{"first", "1-14", "1-12", "at", 0}, // while the name moves, it leads to either by turns
		{"second", "1-14", "1-12", "at", 0},
		{"first", "1-14", "1-12", "at", 0},
		{"second", "1-15", "1-12", "at", 1},
		{"second", "1-15", "1-12", "at", 1},
		{"third", "1-15", "1-12", "at", 2}, // it could not be read then
		{"third", "1-15", "1-15", "", 2},
	} {
		c.vis.before = set(uuid + look.read)
		info := &SourceInfo{Server: look.server, GTID: true, Executed: set(uuid + look.has)}
		testbed.Must(t, w.judge(t.Context(), "at", info))
		if got := c.vis.writtenApart(); got != look.apart || cuts != look.cuts {
			t.Errorf("look %d: %q is apart, want %q; the dump was ended %d times", i, got, look.apart, cuts)
		}
	}
}

// TestARestartRightAfterAFailoverKnowsWhereItIs ends the run when another server, whose binlog has a lower number, has
// taken over and nothing of it has been read: what is saved must be no place in the binlog of the server before.
func TestARestartRightAfterAFailoverKnowsWhereItIs(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		for range 5 {
			d.exec("flush binary logs")
		}
		line := proxy.Start(t, p.first.Addr)
		o := d.options()
		o.Address = line.Addr()
		var e elsewhere
		o.Dial = e.dial
		r := reading(t, startAt(here(t, p.first)), o)
		d.exec("insert into DB.t values (1)")
		r.await(t, "the row and a mark over it", func() bool { return len(r.rows) == 1 && r.marked(r.rows[0].version) })
		p.replicate()
		e.use(p.second.Addr)
		line.Cut()
		r.await(t, "the other server is taken", func() bool { return len(r.raises) == 1 })
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		again := o
		again.UntilCaughtUp = true
		r2 := reading(t, startAt(r.pos), again)
		if err := r2.wait(); err != nil {
			t.Fatal(err)
		}
		if v := r2.marks[len(r2.marks)-1].Version; v.Compare(r.rows[0].version) < 0 || len(r2.rows) != 0 {
			t.Errorf("the last mark is %s, before %s; rows %v", v, r.rows[0].version, r2.texts())
		}
		// And it goes on there in the same epoch.
		r3 := reading(t, startAt(r2.pos), o)
		d2 := d.on(p.second)
		d2.exec("insert into DB.t values (2)")
		r3.wantRows(d, "insert DB.t (2)")
		r3.await(t, "a mark over it", func() bool { return r3.marked(r3.rows[0].version) })
		if v := r3.rows[0].version; v.Epoch != 2 || len(r3.raises) != 0 || r3.pos.File == "" {
			t.Errorf("version %s, raised %v, position %+v", v, r3.raises, r3.pos)
		}
	})
}
