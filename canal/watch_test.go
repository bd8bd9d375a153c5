package canal

import (
	"errors"
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

// both returns options that read the first server and then the second one, and the database on the second one.
func (p *replicas) both(d *database) (Options, *database) {
	if d.Flavor == testbed.FlavorMariaDB {
		d.allow("slave monitor", "*.*")
	}
	o := d.options()
	o.Address, o.Servers = "", NewServers(p.first.Addr, p.second.Addr)
	return o, d.on(p.second)
}

// notAll reports whether marks say for a while that what was read is not all. It needs the lock.
func (r *running) notAll() bool {
	last := tail(r.marks, 10)
	return len(last) == 10 && !slices.ContainsFunc(last, func(m event.Mark) bool { return m.Read })
}

// readAll reports whether the last mark says that all was read. It needs the lock.
func (r *running) readAll() bool { return len(r.marks) > 0 && r.marks[len(r.marks)-1].Read }

// TestAPrimaryThatIsReadOnlyAndHasATransactionOfItsOwn fences a primary too late: it has, and was read to have, a
// transaction that the new primary lacks. Its keys are done, and the new primary's are not: that is said. Where the
// transaction was not read, the new primary is.
func TestAPrimaryThatIsReadOnlyAndHasATransactionOfItsOwn(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		p.replicate()
		begin := here(t, p.first)
		o, d2 := p.both(d)
		r := reading(t, startAt(begin), o)
		d.exec("insert into DB.t values (1)")
		p.replicate()
		p.takeOver()
		d.exec("insert into DB.t values (100)")
		r.await(t, "the row that nobody else has", func() bool { return len(r.rows) == 2 && r.readAll() })
		p.first.Exec(t, "set global read_only=1")
		d2.exec("insert into DB.t values (2)")
		r.await(t, "that is not all", r.notAll)
		testbed.Eventually(t, patience, "an alarm", func() bool { return r.alarmed(alarm.SourceSplit) })
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		o.Servers = NewServers(p.first.Addr, p.second.Addr)
		again := reading(t, startAt(begin), o)
		again.wantRows(d, "insert DB.t (1)", "insert DB.t (2)")
	})
}

// TestTheReplicaThatIsNamedFirstIsRead spares the primary, and says so while the replica lacks what the primary has.
func TestTheReplicaThatIsNamedFirstIsRead(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		p.replicate()
		p.second.Exec(t, "set global read_only=1")
		o, _ := p.both(d)
		o.Servers = NewServers(p.second.Addr, p.first.Addr)
		r := reading(t, startAt(here(t, p.second)), o)
		d.exec("insert into DB.t values (1)")
		r.await(t, "the row and a mark over it", func() bool { return len(r.rows) == 1 && r.marked(r.rows[0].version) })
		p.hold()
		d.exec("insert into DB.t values (2)")
		r.await(t, "that is not all", r.notAll)
		p.replicate()
		r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)")
		r.await(t, "all is read again", func() bool { return r.marked(r.rows[1].version) && r.readAll() })
		info, err := Probe(t.Context(), Options{User: "root", Address: p.second.Addr})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if at := o.Servers.Current(); at != p.second.Addr || len(r.raises) > 0 {
			t.Errorf("questions go to %s, raised %v", at, r.raises)
		}
		if i := slices.IndexFunc(r.marks, func(m event.Mark) bool { return m.Server != info.Server }); i >= 0 {
			t.Errorf("a mark of another server: %+v", r.marks[i])
		}
	})
}

// TestAReplicaOfAFailedPrimaryLacksWhatThePromotedOneWrites reads a replica that has got more of a primary than the one
// that is promoted when that fails. MariaDB gives the numbers of these transactions to others.
func TestAReplicaOfAFailedPrimaryLacksWhatThePromotedOneWrites(t *testing.T) {
	t.Parallel()
	failed := testbed.MariaDB(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, failed, "create table DB.t (id int primary key)")
	d.allow("slave monitor", "*.*")
	replica := testbed.MariaDB(t, "--binlog-row-metadata=FULL", "--log-slave-updates")
	promoted := testbed.MariaDB(t, "--binlog-row-metadata=FULL", "--log-slave-updates")
	replicate(t, replica, failed)
	replicate(t, promoted, failed)
	replica.Exec(t, "set global read_only=1")
	promoted.Exec(t, "stop slave", "reset slave all")
	d.exec("insert into DB.t values (1)", "insert into DB.t values (2)", "insert into DB.t values (3)")
	if left := replica.QueryText(t, "select master_gtid_wait(?, 30)", failed.GTIDs(t)); left != "0" {
		t.Fatal("the replica does not follow")
	}
	o := d.options()
	o.Address, o.Servers = "", NewServers(replica.Addr, promoted.Addr)
	r := reading(t, startAt(here(t, replica)), o)
	r.await(t, "all is read", r.readAll)
	testbed.Must(t, failed.Kill())
	d.on(promoted).exec("insert into DB.t values (4)")
	r.await(t, "that is not all", r.notAll)
	if at := o.Servers.Current(); at != replica.Addr {
		t.Errorf("%s is read, which lacks what was read", at)
	}
}

// TestAPrimaryThatBeganAgainIsNotTakenForItsReplica has the primary forget its binlog and give its GTIDs out again. Its
// replica has all that was read, and gets nothing more.
func TestAPrimaryThatBeganAgainIsNotTakenForItsReplica(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		for id := range 9 {
			d.exec(fmt.Sprintf("insert into DB.t values (%d)", id))
		}
		p.replicate()
		p.second.Exec(t, "set global read_only=1")
		o, _ := p.both(d)
		r := reading(t, startAt(here(t, p.first)), o)
		r.await(t, "it is read", r.readAll)
		p.first.ResetBinlogs(t)
		d.exec("insert into DB.t values (10)")
		r.await(t, "the replica is read, and is not all", func() bool {
			return len(r.raises) == 1 && r.notAll()
		})
		testbed.Eventually(t, patience, "an alarm", func() bool { return r.alarmed(alarm.SourceSplit) })
	})
}

// TestAPromotedServerWithAReplicasSettings takes writes next to a primary that does so, too.
func TestAPromotedServerWithAReplicasSettings(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		p.replicate()
		p.second.Exec(t, "set global read_only=0")
		o, d2 := p.both(d)
		r := reading(t, startAt(here(t, p.first)), o)
		d.exec("insert into DB.t values (1)")
		r.await(t, "the row", func() bool { return len(r.rows) == 1 && r.readAll() })
		p.replicate()
		p.hold()
		id := 1
		testbed.Eventually(t, patience, "an alarm", func() bool { // applications go on to write
			id++
			d2.exec(fmt.Sprintf("insert into DB.t values (%d)", id))
			return r.alarmed(alarm.SourceSplit)
		})
		// One of them will give its transactions up, and what was cached from it stays.
		if all := r.doubts.List(); len(all) != 1 || all[0].Cause != alarm.SourceSplit || all[0].Subject != p.second.Addr ||
			!all[0].EveryTable() {
			t.Errorf("doubts %+v", all)
		}
		r.await(t, "that is not all", r.notAll)
	})
}

// TestAServerThatRefusesIsPassedOver gives an old MariaDB primary with transactions of its own the settings of a
// replica, which can go on from none of the servers. It refuses to send what comes after the new primary's.
func TestAServerThatRefusesIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"demoted", "set by hand"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := newReplicas(t, testbed.MariaDB, true, "--binlog-row-metadata=FULL")
			d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
			p.replicate()
			o, d2 := p.both(d)
			p.takeOver()
			d2.exec("insert into DB.t values (1)")
			begin := here(t, p.second)
			d.exec("insert into DB.t values (100)", "insert into DB.t values (101)")
			p.first.Exec(t, "set global read_only=1")
			own := p.first.GTIDs(t)
			if how == "set by hand" { // as if another server had made them
				p.first.ResetBinlogs(t)
				d.exec("insert into DB.t values (102)")
				own = "0-99-50"
			}
			p.first.Exec(t, "set global gtid_slave_pos='"+own+"'", fmt.Sprintf("change master to "+
				"master_host='127.0.0.1', master_port=%d, master_user='root', master_use_gtid=slave_pos, "+
				"master_connect_retry=1", p.second.Port), "start slave")
			r := reading(t, startAt(begin), o)
			d2.exec("insert into DB.t values (2)")
			testbed.Eventually(t, patience, "the row, or the end", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return len(r.rows) == 1 || len(r.done) > 0
			})
			if len(r.done) > 0 {
				t.Fatalf("it ends, though another server can be read: %v", r.wait())
			}
			if at := o.Servers.Current(); at != p.second.Addr {
				t.Errorf("questions go to %s", at)
			}
		})
	}
}

// TestAServerWithTwoNamesIsNotLeftBehindByItself compares two answers of one server that goes on meanwhile.
func TestAServerWithTwoNamesIsNotLeftBehindByItself(t *testing.T) {
	const a = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
	one := mysqlCandidate(t, "one", a+":1-10", nil)
	two := mysqlCandidate(t, "one", a+":1-11", nil)
	two.address = "two"
	if one.isLeftBehind(&two) {
		t.Error("it is left behind")
	}
}

// watching returns what looks at two servers, of which a is read.
func watching(t *testing.T, a, b string) (*watcher, *doubt.Book) {
	t.Helper()
	board := newBoard(t, quietLogger(t))
	doubts, err := doubt.New(nil, board, nil)
	testbed.Must(t, err)
	o := Options{Alarms: board, Doubts: doubts, Servers: NewServers(a, b), Logger: quietLogger(t)}
	c := &Canal{o: o, vis: newVisibility(0, 0)}
	c.vis.begin(a, 1)
	return &watcher{Canal: c, promoted: map[string]bool{}}, doubts
}

// TestWhatIsApart has looks follow one another.
func TestWhatIsApart(t *testing.T) {
	const a = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
	const b = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
	replica := func(c *candidate) { c.replicates, c.readOnly = true, true }
	writable := func(c *candidate) { c.replicates = true }
	stopped := func(c *candidate) { c.replicates, c.stopped = true, true }
	fenced := func(c *candidate) { c.readOnly = true }
	type look struct{ first, second string }
	for _, x := range []struct {
		name          string
		first, second func(*candidate)
		looks         []look
		want          string // of each look, whether what is read is not all
		alarm         alarm.Kind
	}{
		{
			name: "a replica that has a little later what the primary had is no other", first: replica,
			looks: []look{{a + ":1-5", a + ":1-9"}, {a + ":1-9", a + ":1-12"}, {a + ":1-12", a + ":1-20"}}, want: "---",
		},
		{
			name: "a replica that lags", first: replica,
			looks: []look{{a + ":1-5", a + ":1-9"}, {a + ":1-7", a + ":1-12"}, {a + ":1-12", a + ":1-20"}}, want: "-+-",
		},
		{
			name: "a replica's old transactions of its own are nobody's changes", second: stopped,
			looks: []look{{a + ":1-5", a + ":1-5," + b + ":1"}, {a + ":1-9", a + ":1-5," + b + ":1"}}, want: "--",
		},
		{
			name: "a replica that replicates, and has transactions of its own", second: writable,
			looks: []look{{a + ":1-5", a + ":1-5," + b + ":1"}, {a + ":1-5", a + ":1-5," + b + ":1-2"}}, want: "--",
		},
		{
			name: "one whose replication is stopped makes transactions, and goes on", second: stopped,
			looks: []look{
				{a + ":1-5", a + ":1-5"},
				{a + ":1-9", a + ":1-5," + b + ":1"},
				{a + ":1-9", a + ":1-5," + b + ":1"},
				{a + ":1-9", a + ":1-5," + b + ":1"},
			}, want: "--++", alarm: alarm.SourceSplit,
		},
		{
			name: "a fenced primary with a transaction of its own", first: fenced,
			looks: []look{
				{a + ":1-9", a + ":1-5," + b + ":1"},
				{a + ":1-9", a + ":1-5," + b + ":1"},
				{a + ":1-9", a + ":1-5," + b + ":1"},
			}, want: "-++", alarm: alarm.SourceSplit,
		},
		{
			name: "a member that its group has expelled", first: func(c *candidate) { replica(c); c.member = true },
			second: func(c *candidate) { c.replicates, c.member = true, true },
			looks:  []look{{a + ":1-5", a + ":1-7"}, {a + ":1-5", a + ":1-9"}, {a + ":1-9", a + ":1-9"}}, want: "-+-",
		},
		{
			name: "a primary that has lost what it made", first: replica,
			looks: []look{{b + ":1-9", b + ":1-9"}, {b + ":1-9", b + ":1-2"}, {b + ":1-9", b + ":1-2"}}, want: "-++",
			alarm: alarm.SourceSplit,
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			w, _ := watching(t, a, b)
			got := ""
			for _, l := range x.looks {
				seen := []candidate{mysqlCandidate(t, a, l.first, x.first), mysqlCandidate(t, b, l.second, x.second)}
				testbed.Must(t, w.judge(t.Context(), seen))
				out, ok := w.vis.take(answer{server: a, epoch: 1, named: true, whole: true})
				if !ok || out.read != (w.vis.apart == "") {
					t.Errorf("a mark says %v of all that was read, and apart is %q", out.read, w.vis.apart)
				}
				got += map[bool]string{true: "-", false: "+"}[out.read]
			}
			var kinds []string
			for _, r := range w.o.Alarms.Records() {
				kinds = append(kinds, string(r.Kind))
			}
			if got != x.want || strings.Join(kinds, " ") != string(x.alarm) {
				t.Errorf("apart %s, want %s; alarms %v, want %v", got, x.want, kinds, x.alarm)
			}
		})
	}
}

// TestAnErrorIsTheSameWithoutOurPort has several servers answer nothing: an alarm that comes again is known by its
// words.
func TestAnErrorIsTheSameWithoutOurPort(t *testing.T) {
	lines := func(port string) error {
		return errors.Join(errors.New("source db-1:3306: read tcp 10.0.0.5:"+port+"->10.0.0.7:3306: i/o timeout"),
			errors.New("source db-2:3306: dial tcp 10.0.0.8:3306: connect: connection refused"))
	}
	const want = "source db-1:3306: read tcp 10.0.0.7:3306: i/o timeout " +
		"source db-2:3306: dial tcp 10.0.0.8:3306: connect: connection refused"
	if one, two := words(lines("51808")), words(lines("51826")); one != want || two != want {
		t.Errorf("%s\n%s", one, two)
	}
}

// TestMySQLsBinlogIsBegunAgainWithItsGTIDs has the binlog be deleted, and what had been executed be put back, between
// two questions. The dump goes on to wait at the end of a file that is no more.
func TestMySQLsBinlogIsBegunAgainWithItsGTIDs(t *testing.T) {
	t.Parallel()
	server := testbed.MySQL(t)
	d := newDatabase(t, server, "create table DB.t (id int primary key)")
	h, s, cuts := asking(t, server, event.MySQL)
	h.byGTID = true
	var err error
	h.base, err = event.ParseGTIDSet(event.MySQL, server.GTIDs(t))
	testbed.Must(t, err)
	ask := func() error {
		h.still.since = time.Now().Add(-h.o.silence()) // nothing has been read for so long
		a := answer{made: time.Now()}
		err := h.askGTIDs(s, &a)
		h.vis.take(a)
		return err
	}
	d.exec("insert into DB.t values (1)")
	for range 3 { // the stream reads nothing of it, and there is more
		testbed.Must(t, ask())
	}
	d.exec("reset binary logs and gtids", "set global gtid_purged='"+server.GTIDs(t)+"'")
	h.vis.isQuiet() // which may have been on its way
	testbed.Must(t, ask())
	h.vis.isQuiet()
	if err := ask(); err == nil || *cuts != 1 {
		t.Errorf("the binlog was begun again: %v, the dump was ended %d times", err, *cuts)
	}
}
