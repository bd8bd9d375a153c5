package canal

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// mysqlCandidate is a server of MySQL that has executed a set.
func mysqlCandidate(t *testing.T, address, executed string, change func(c *candidate)) candidate {
	t.Helper()
	set, err := event.ParseGTIDSet(event.MySQL, executed)
	if err != nil {
		t.Fatal(err)
	}
	c := candidate{address: address, info: &SourceInfo{
		Flavor: event.MySQL, Server: address, GTID: true, Executed: set, LogReplicaUpdates: true,
	}}
	if change != nil {
		change(&c)
	}
	return c
}

func TestWhichServerIsChosen(t *testing.T) {
	const a = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
	const b = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
	replica := func(c *candidate) { c.replicates, c.readOnly = true, true }
	for _, x := range []struct {
		name     string
		position event.Position
		passed   string
		servers  []candidate
		want     string
		wait     bool
	}{
		{
			name: "the first that has all", passed: a + ":1-10", want: "one two",
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-12", nil), mysqlCandidate(t, "two", a+":1-11", replica),
			},
		},
		{
			name: "a replica that lags is passed over, and may yet have it", passed: a + ":1-10", want: "two", wait: true,
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-9", replica), mysqlCandidate(t, "two", a+":1-10", nil),
			},
		},
		{
			name: "an old primary with transactions of its own is not followed", passed: a + ":1-10," + b + ":1-3", want: "two",
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-12", nil), mysqlCandidate(t, "two", a+":1-10,"+b+":1-4", nil),
			},
		},
		{
			name: "one that has purged what comes next is the last resort", passed: a + ":1-10", want: "two one",
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-20", func(c *candidate) { c.purged = true }),
				mysqlCandidate(t, "two", a+":1-20", replica),
			},
		},
		{
			name: "one that does not answer is passed over", passed: a + ":1-10", want: "two",
			servers: []candidate{
				{address: "one", err: errors.New("connection refused")}, mysqlCandidate(t, "two", a+":1-10", nil),
			},
		},
		{
			name: "the server of the position is asked last if it has lost something", passed: a + ":1-10", want: "two one",
			position: event.Position{Server: "one"},
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-9", nil), mysqlCandidate(t, "two", a+":1-10", replica),
			},
		},
		{
			name: "a primary that is none any more, and no replica, is left behind", passed: a + ":1-10", want: "two",
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-10", nil), mysqlCandidate(t, "two", a+":1-10,"+b+":1", nil),
			},
		},
		{
			name:   "a primary that is read only is left behind by one that only stopped its replication",
			passed: a + ":1-10", want: "two",
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-10", func(c *candidate) { c.readOnly = true }),
				mysqlCandidate(t, "two", a+":1-10,"+b+":1", func(c *candidate) {
					c.replicates, c.info.LogReplicaUpdates = true, true
				}),
			},
		},
		{
			name:   "a primary that is read only is left behind though it has transactions of its own",
			passed: a + ":1-10", want: "two",
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-11", func(c *candidate) { c.readOnly = true }),
				mysqlCandidate(t, "two", a+":1-10,"+b+":1", nil),
			},
		},
		{
			name: "but not if those were read", passed: a + ":1-11", want: "one",
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-11", func(c *candidate) { c.readOnly = true }),
				mysqlCandidate(t, "two", a+":1-10,"+b+":1", nil),
			},
		},
		{
			name: "a replica whose binlog has not what it replicates is left behind", passed: a + ":1-10", want: "two",
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-10", func(c *candidate) {
					replica(c)
					c.info.LogReplicaUpdates = false
				}),
				mysqlCandidate(t, "two", a+":1-10", nil),
			},
		},
		{
			name: "a position by file is one of its own server only", want: "two",
			position: event.Position{Server: "two", File: "binlog.000001", Pos: 4},
			servers: []candidate{
				mysqlCandidate(t, "one", a+":1-10", nil), mysqlCandidate(t, "two", a+":1-10", nil),
			},
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			p := x.position
			var err error
			if p.GTIDs, err = event.ParseGTIDSet(event.MySQL, x.passed); err != nil {
				t.Fatal(err)
			}
			for i := range x.servers {
				if c := &x.servers[i]; c.err == nil {
					c.lacks = p.GTIDs.Subtract(&c.info.Executed)
				}
			}
			order, wait := choice(x.servers, &p)
			var got []string
			for _, c := range order {
				got = append(got, c.address)
			}
			if strings.Join(got, " ") != x.want || wait != x.wait {
				t.Errorf("chosen %q, wait %v; want %q, wait %v", got, wait, x.want, x.wait)
			}
		})
	}
}

func TestMariaDBsNumbersDoNotSayWhoseTheyAre(t *testing.T) {
	maria := func(server uint32, replicated string, last ...uint64) *candidate {
		info := &SourceInfo{Flavor: event.MariaDB, Server: fmt.Sprint(server), ServerID: server}
		c := &candidate{info: info, logged: map[origin]uint64{}}
		for i, n := range last {
			c.logged[origin{0, uint32(i + 1)}] = n
		}
		var err error
		if c.info.Replicated, err = event.ParseGTIDSet(event.MariaDB, replicated); err != nil {
			t.Fatal(err)
		}
		return c
	}
	old, promoted := maria(1, "", 105), maria(2, "0-1-100", 100, 103)
	if old.has(promoted) || promoted.has(old) {
		t.Error("the old primary has 0-1-105 of its own, and the promoted replica 0-2-103")
	}
	if _, _, is := split([]candidate{*old, *promoted}); !is {
		t.Error("they are not found to be split")
	}
	if left := maria(1, "", 100); promoted.has(left) != true || !left.isLeftBehind(promoted) {
		t.Error("a primary whose transactions the promoted replica all has is not left behind")
	}
	if demoted := maria(1, "0-1-107", 107); demoted.hasMade(event.GTID{Domain: 0, Server: 2, Number: 105}, nil) {
		t.Error("a primary that was made a replica has what another one made, by the number of its own transaction")
	}
	if restored := maria(1, "0-1-107"); !restored.hasMade(event.GTID{Domain: 0, Server: 2, Number: 105}, nil) {
		t.Error("a server that was restored from a backup of its replica lacks what is in it")
	}
	if plain := maria(3, "0-1-104"); !plain.has(maria(1, "", 104)) { // it does not log what it replicates
		t.Error("a replica does not have what it has replicated")
	}
	if replica := maria(3, "0-1-105", 105); replica.has(promoted) {
		t.Error("a replica of the old primary has 0-2-103, by the number of a transaction that the promoted one lacks")
	}
	for _, replicated := range []string{"0-1-104", "0-1-105"} { // since then there may be one more
		if plain := maria(3, replicated); !plain.has(maria(1, "", 104, 101)) {
			t.Errorf("a replica that has replicated %s lacks 0-1-104 or 0-2-101", replicated)
		}
	}
}

func TestSeveralServersNeedGTIDs(t *testing.T) {
	s := shared[1].get(t)
	_, port, _ := strings.Cut(s.Addr, ":")
	r := reading(t, newRecorder(), Options{Servers: NewServers(s.Addr, "localhost:"+port)})
	if err := r.wait(); !errors.Is(err, errNoGTIDs) {
		t.Errorf("error %v", err)
	}
}

// A node of a Galera cluster numbers what comes from others by itself, unless wsrep_gtid_mode is ON: by its numbers,
// another node has transactions that it lacks.
func TestNumbersOfAGaleraNodeSayNothingOfAnother(t *testing.T) {
	t.Parallel()
	one, two := testbed.MariaDB(t, "--wsrep-on=ON"), testbed.MariaDB(t, "--wsrep-on=ON", "--server-id=77")
	for _, s := range []*testbed.Server{one, two} {
		for range 5 {
			s.Exec(t, "create database if not exists other")
		}
	}
	info, err := Probe(t.Context(), Options{Address: one.Addr, User: "root"})
	testbed.Must(t, err)
	if is, _ := info.HasGTIDsOfAll(); is {
		t.Fatal("its numbers count as those of all nodes")
	}
	several := reading(t, newRecorder(), Options{Servers: NewServers(one.Addr, two.Addr)})
	if err := several.wait(); !errors.Is(err, errNoGTIDs) || !strings.Contains(err.Error(), "wsrep_gtid_mode is OFF") {
		t.Errorf("several addresses: %v", err)
	}
	r := reading(t, startAt(here(t, one)), Options{Address: two.Addr})
	r.wantGap("another server answers", "wsrep_gtid_mode is OFF")
	fills, err := ProbeFills(t.Context(), Options{Address: one.Addr, User: "root", FillFrom: []string{two.Addr}}, info)
	testbed.Must(t, err)
	if len(fills) != 1 || fills[0].Err == nil || !strings.Contains(fills[0].Err.Error(), "wsrep_gtid_mode=ON") {
		t.Errorf("a fill server: %+v", fills)
	}
	for _, s := range []*testbed.Server{one, two} {
		s.Exec(t, "set global wsrep_gtid_mode = ON")
	}
	if info, err := Probe(t.Context(), Options{Address: one.Addr, User: "root"}); err != nil || info.OwnGTIDs {
		t.Errorf("with wsrep_gtid_mode: %v", err)
	}
}

func TestServersOfOneSourceAreOfOneFamily(t *testing.T) {
	one, two := shared[0].get(t), shared[2].get(t)
	r := reading(t, newRecorder(), Options{Servers: NewServers(two.Addr, one.Addr)})
	if err := r.wait(); err == nil || !strings.Contains(err.Error(), "replicate from one another") {
		t.Errorf("error %v", err)
	}
}

// takeOver has the second server take writes, and replicate from nobody.
func (p *replicas) takeOver() {
	p.t.Helper()
	p.promote()
	p.second.Exec(p.t, "set global read_only=0")
}

// TestTheStreamFollowsAFailover kills the primary: its replica is read once it has all, and the primary no more when it
// comes back with a transaction of its own.
func TestTheStreamFollowsAFailover(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		d2 := d.on(p.second)
		p.replicate()
		p.second.Exec(t, "set global read_only=1")
		o := d.options()
		o.Address, o.Servers = "", NewServers(p.first.Addr, p.second.Addr)
		r := reading(t, startAt(here(t, p.first)), o)
		d.exec("insert into DB.t values (1)")
		r.await(t, "the row", func() bool { return len(r.rows) == 1 })
		p.hold()
		d.exec("insert into DB.t values (2)")
		r.await(t, "the row that the replica lacks", func() bool { return len(r.rows) == 2 })
		testbed.Must(t, p.first.Kill())
		testbed.Eventually(t, patience, "several attempts", func() bool { return r.alarmed(alarm.SourceBehind) })
		if doubts := r.doubts.List(); len(doubts) != 0 || len(r.done) > 0 {
			t.Fatalf("a replica that lags is waited for: doubts %+v", doubts)
		}
		testbed.Must(t, p.first.Start(t.Context()))
		p.replicate()
		d.exec("insert into DB.t values (3)")
		r.await(t, "the row", func() bool { return len(r.rows) == 3 })
		p.replicate()
		testbed.Must(t, p.first.Kill())
		p.takeOver()
		d2.exec("insert into DB.t values (4)")
		r.await(t, "the row of the promoted replica, and a mark over it", func() bool {
			return len(r.rows) == 4 && r.marked(r.rows[3].version)
		})
		if at := o.Servers.Current(); at != p.second.Addr {
			t.Errorf("questions go to %s", at)
		}
		info, err := Probe(t.Context(), o)
		var marked string
		r.ask(func() bool { marked = r.marks[len(r.marks)-1].Server; return true })
		if err != nil || marked != info.Server {
			t.Errorf("the marks are of %s, the questions answered by %+v, %v", marked, info, err)
		}

		testbed.Must(t, p.first.Start(t.Context()))
		d.exec("insert into DB.t values (100)") // nobody else has it
		(*r.canal.cut.Load())()                 // as a line that breaks
		d2.exec("insert into DB.t values (5)")
		r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)", "insert DB.t (3)", "insert DB.t (4)", "insert DB.t (5)")
		r.await(t, "both take writes", func() bool { return r.alarmed(alarm.SourceSplit) })
		if at := o.Servers.Current(); at != p.second.Addr {
			t.Errorf("questions go to %s", at)
		}
		if doubts := r.doubts.List(); len(doubts) != 1 || doubts[0].Cause != alarm.SourceSplit {
			t.Errorf("doubts %+v", doubts)
		}
	})
}

// TestAServerThatIsLeftBehindIsLeft has another server promoted while the one that is read goes on, replicates from
// nobody and breaks no connection.
func TestAServerThatIsLeftBehindIsLeft(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		p.replicate()
		o := d.options()
		o.Address, o.Servers = "", NewServers(p.first.Addr, p.second.Addr)
		r := reading(t, startAt(here(t, p.first)), o)
		d.exec("insert into DB.t values (1)")
		r.await(t, "the row", func() bool { return len(r.rows) == 1 })
		p.replicate()
		p.first.Exec(t, "set global read_only=1")
		p.takeOver()
		d2 := d.on(p.second)
		d2.exec("insert into DB.t values (2)")
		r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)")
		r.await(t, "a mark over both", func() bool { return r.marked(r.rows[1].version) })
		if r.alarmed(alarm.SourceSplit) || o.Servers.Current() != p.second.Addr {
			t.Errorf("alarms %+v, questions go to %s", r.board.Records(), o.Servers.Current())
		}
	})
}

// TestQuestionsGoWhereTheMarksAreOf asks in a process that does not read: the marks of another one name the server.
func TestQuestionsGoWhereTheMarksAreOf(t *testing.T) {
	one, two := shared[0].get(t), shared[2].get(t)
	o := Options{User: "root", Servers: NewServers(one.Addr, two.Addr)}
	for _, s := range []*testbed.Server{two, one, two} {
		info, err := Probe(t.Context(), Options{User: "root", Address: s.Addr})
		if err != nil {
			t.Fatal(err)
		}
		o.Servers.Follow(info.Server)
		_, server, closes, err := Session(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		closes()
		if server != info.Server || o.Servers.Current() != s.Addr {
			t.Errorf("%s answers at %s, and the marks are of %s at %s", server, o.Servers.Current(), info.Server, s.Addr)
		}
	}
	o.Servers.lead(one.Addr, "")
	o.Servers.Follow("another")
	if at, err := Address(t.Context(), o); err != nil || at != one.Addr {
		t.Errorf("where a canal leads, marks change nothing: %s, %v", at, err)
	}
}

// TestAGapIsWhatNoServerHas purges what comes next on the first server, and then on the second one, too.
func TestAGapIsWhatNoServerHas(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		p.replicate()
		begin := here(t, p.first)
		d.exec("insert into DB.t values (1)")
		p.replicate()
		p.first.PurgeBinlogs(t)
		o := d.options()
		o.Address, o.Servers = "", NewServers(p.first.Addr, p.second.Addr)
		r := reading(t, startAt(begin), o)
		r.wantRows(d, "insert DB.t (1)")
		if at := o.Servers.Current(); at != p.second.Addr {
			t.Errorf("questions go to %s", at)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		p.second.PurgeBinlogs(t)
		o.Servers = NewServers(p.first.Addr, p.second.Addr)
		err := reading(t, startAt(begin), o).wait()
		if gap := (*GapError)(nil); !errors.As(err, &gap) {
			t.Errorf("error %v, want a gap", err)
		}
	})
}
