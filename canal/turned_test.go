package canal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// TestADumpThatIsBeingBegunIsNotEnded has looks find another server while a dump is begun there: for that tables and
// foreign keys are asked for, and on MariaDB a file of the binlog may be read, which takes longer than looks do.
func TestADumpThatIsBeingBegunIsNotEnded(t *testing.T) {
	const first, second = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
	set := func(text string) event.GTIDSet {
		s, err := event.ParseGTIDSet(event.MySQL, text)
		testbed.Must(t, err)
		return s
	}
	for _, x := range []struct {
		name string
		look func(w *watcher)
	}{
		{"the address leads elsewhere", func(w *watcher) {
			testbed.Must(t, w.turned.judge(t.Context(), first,
				&SourceInfo{Server: second, GTID: true, Executed: set(second + ":1-9")}))
		}},
		{"the server is left behind", func(w *watcher) {
			info := func(server, executed string) *SourceInfo {
				return &SourceInfo{
					Flavor: event.MySQL, Server: server, GTID: true, LogReplicaUpdates: true, Executed: set(executed),
				}
			}
			seen := []candidate{
				{address: first, info: info(first, first+":1-9"), readOnly: true},
				{address: second, info: info(second, first+":1-9,"+second+":1-9")},
			}
			w.leave(&seen[0], seen)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			w, _ := watching(t, first, second)
			w.turned.Canal = w.Canal
			cuts := 0
			cut := context.CancelFunc(func() { cuts++ })
			w.cut.Store(&cut)
			for range 9 {
				x.look(w)
			}
			if cuts != 0 {
				t.Errorf("the dump that is being begun was ended %d times", cuts)
			}
			w.n.connected.Store(true)
			for range 4 {
				x.look(w)
			}
			if cuts == 0 {
				t.Error("the former server is read on")
			}
		})
	}
}

// TestASlowServerThatAnAddressLeadsToIsRead has the other server answer so slowly that a dump is begun there in longer
// than two looks take.
func TestASlowServerThatAnAddressLeadsToIsRead(t *testing.T) {
	t.Parallel()
	p := newReplicas(t, testbed.MySQL, false, "--binlog-row-metadata=FULL")
	d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
	o := d.options()
	o.lookEach = 100 * time.Millisecond
	var e elsewhere
	o.Dial = e.dial
	r := reading(t, startAt(here(t, p.first)), o)
	d.exec("insert into DB.t values (1)")
	r.await(t, "the row and a mark over it", func() bool { return len(r.rows) == 1 && r.marked(r.rows[0].version) })
	p.replicate()
	p.hold()
	line := proxy.Start(t, p.second.Addr)
	line.Delay(100 * time.Millisecond)
	e.use(line.Addr())
	d.on(p.second).exec("insert into DB.t values (2)")
	r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)")
}

// TestMariaDBsNumbersDoNotHideThatAnAddressLeadsElsewhere promotes a server that lacks the last transactions, and so
// gives their numbers to others, while the one before still answers on the connections that there are.
func TestMariaDBsNumbersDoNotHideThatAnAddressLeadsElsewhere(t *testing.T) {
	t.Parallel()
	p := newReplicas(t, testbed.MariaDB, true, "--binlog-row-metadata=FULL")
	d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
	o := d.options()
	var e elsewhere
	o.Dial = e.dial
	r := reading(t, startAt(here(t, p.first)), o)
	p.replicate()
	p.hold()
	d.exec("insert into DB.t values (1)", "insert into DB.t values (2)", "insert into DB.t values (3)")
	r.await(t, "the rows and a mark over them", func() bool { return len(r.rows) == 3 && r.marked(r.rows[2].version) })
	d.on(p.second).exec("insert into DB.t values (4)")
	e.use(p.second.Addr)
	testbed.Eventually(t, patience, "what is written elsewhere is missed",
		func() bool { return r.canal.Stats().Apart != "" })
}

// TestAnAddressThatLeadsBackIsInDoubt has the address lead to another server for a moment, as a failover does that is
// taken back: what was cached from there may be stale.
func TestAnAddressThatLeadsBackIsInDoubt(t *testing.T) {
	const first, second = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
	set := func(text string) event.GTIDSet {
		s, err := event.ParseGTIDSet(event.MySQL, text)
		testbed.Must(t, err)
		return s
	}
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("what is written there is lost: %t", lost), func(t *testing.T) {
			w, doubts := watching(t, first, second)
			w.turned.Canal = w.Canal
			w.vis.before, w.vis.readEpoch = set(first+":1-9"), 1
			look := func(server string, executed string) {
				t.Helper()
				testbed.Must(t, w.turned.judge(t.Context(), "at", &SourceInfo{Server: server, GTID: true, Executed: set(executed)}))
			}
			look(second, first+":1-9,"+second+":1")
			w.vis.unread = &answer{gtids: set(first + ":1-10")} // what it has itself was not read
			for range 2 * turnedBack {
				look(first, first+":1-10")
			}
			if w.vis.writtenApart() == "" || len(doubts.List()) != 0 {
				t.Fatalf("while there is more to read: %q is apart, in doubt %+v", w.vis.writtenApart(), doubts.List())
			}
			w.vis.unread = nil
			for i := range turnedBack {
				look(first, first+":1-9")
				if last := i == turnedBack-1; (w.vis.writtenApart() != "") != !last || (len(doubts.List()) > 0) != last {
					t.Fatalf("look %d: %q is apart, in doubt %+v", i, w.vis.writtenApart(), doubts.List())
				}
				if !lost && i == 1 { // it has replicated it
					w.vis.before = set(first + ":1-9," + second + ":1")
					break
				}
			}
			look(first, first+":1-9")
			look(first, first+":1-9")
			if n := len(doubts.List()); w.vis.writtenApart() != "" || (n == 1) != lost {
				t.Errorf("%q is apart, %d doubts", w.vis.writtenApart(), n)
			}
			if n := doubts.List(); lost && n[0].Cause != alarm.SourceSplit {
				t.Errorf("in doubt %+v", n)
			}
		})
	}
}

// TestMissesGoesByWhoMadeATransaction compares what another MariaDB has with what was read.
func TestMissesGoesByWhoMadeATransaction(t *testing.T) {
	set := func(text string) event.GTIDSet {
		s, err := event.ParseGTIDSet(event.MariaDB, text)
		testbed.Must(t, err)
		return s
	}
	v := newVisibility(0, 0)
	v.before = set("0-1-100,5-1-7")
	has := func(other string) string {
		had := set(other)
		return fmt.Sprintf("%s: %t", other, v.misses(&had))
	}
	want := func(text string, misses bool) {
		t.Helper()
		if got := has(text); got != fmt.Sprintf("%s: %t", text, misses) {
			t.Error(got)
		}
	}
	want("0-2-98", false) // nobody has asked what the binlog has
	v.setLogged(map[origin]uint64{{0, 1}: 100, {0, 3}: 60, {5, 1}: 7})
	want("0-1-99,5-1-7", false)
	want("0-3-60", false)
	want("0-3-61", true)
	want("0-2-98", true)
	want("0-1-101", true)
	want("6-1-1", true)
	v.handed(binlogPos{}, 1, []event.GTIDRange{{First: event.GTID{Server: 2, Number: 101}, Last: 103}})
	want("0-2-103", false)
	want("0-2-104", true)
}

// TestAnAddressThatLeadsNowhereIsNotKnownToLeadToTheServerThatIsRead has no new connection come about, while those that
// there are still answer.
func TestAnAddressThatLeadsNowhereIsNotKnownToLeadToTheServerThatIsRead(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, shared[0].get(t), "create table DB.t (id int primary key)")
	nobody := proxy.Start(t, d.Addr)
	nobody.Cut()
	o := d.options()
	var e elsewhere
	o.Dial = e.dial
	r := reading(t, startAt(here(t, d.Server)), o)
	insert := func(row string) {
		r.mu.Lock()
		n := len(r.rows)
		r.mu.Unlock()
		d.exec("insert into DB.t values (" + row + ")")
		r.await(t, "the row and a mark over it", func() bool { return len(r.rows) > n && r.marked(r.rows[n].version) })
	}
	isRead := func() (is bool) {
		r.ask(func() bool { is = r.marks[len(r.marks)-1].Read; return true })
		return is
	}
	insert("1")
	testbed.Eventually(t, patience, "all is read", isRead)
	e.use(nobody.Addr())
	testbed.Eventually(t, patience, "it is known that no new connection comes about",
		func() bool { return r.canal.Stats().Unheard != "" })
	insert("2")
	if isRead() {
		t.Error("nobody knows where the address leads, and all is read")
	}
	e.use(d.Addr)
	testbed.Eventually(t, patience, "all is read again", func() bool { return r.canal.Stats().Unheard == "" && isRead() })
	if n := r.connects(); n != 1 {
		t.Errorf("%d connections, want the one that it began with", n)
	}
}

// TestALookThatFailsSaysNothing has looks fail now and then.
func TestALookThatFailsSaysNothing(t *testing.T) {
	w, _ := watching(t, "at", "other")
	w.turned.Canal = w.Canal
	failed := errors.New("refused")
	for i, look := range []struct {
		err     error
		unheard string
	}{
		{failed, ""},
		{failed, ""},
		{nil, ""},
		{failed, ""},
		{failed, ""},
		{failed, "refused"},
		{failed, "refused"},
		{nil, ""},
	} {
		testbed.Must(t, w.turned.found(t.Context(), "at", &SourceInfo{Server: "at", GTID: true}, look.err))
		if got := w.vis.unheard; got != look.unheard {
			t.Errorf("look %d: %q, want %q", i, got, look.unheard)
		}
	}
}

// TestACopyWithTheIdentityOfTheServerIsFollowed has the address lead to a server that was set up from a copy of the one
// before, with its auto.cnf, while that one still answers on the connections that there are.
func TestACopyWithTheIdentityOfTheServerIsFollowed(t *testing.T) {
	t.Parallel()
	first, second := testbed.MySQL(t, "--binlog-row-metadata=FULL"), testbed.MySQL(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, first, "create table DB.t (id int primary key)")
	copied := filepath.Join(second.QueryText(t, "select @@datadir"), "auto.cnf")
	identity, err := os.ReadFile(filepath.Join(first.QueryText(t, "select @@datadir"), "auto.cnf"))
	testbed.Must(t, err)
	testbed.Must(t, second.Stop())
	testbed.Must(t, os.WriteFile(copied, identity, 0o600))
	testbed.Must(t, second.Start(t.Context()))
	if got, want := second.QueryText(t, "select @@server_uuid"), first.QueryText(t, "select @@server_uuid"); got != want {
		t.Fatalf("the server is %s, want %s", got, want)
	}
	o := d.options()
	o.lookEach = 100 * time.Millisecond
	var e elsewhere
	o.Dial = e.dial
	r := reading(t, startAt(here(t, first)), o)
	d.exec("insert into DB.t values (1)")
	r.await(t, "the row and a mark over it", func() bool { return len(r.rows) == 1 && r.marked(r.rows[0].version) })
	copyOf := d.on(second)
	copyOf.exec("reset binary logs and gtids", "set global gtid_purged='"+strings.ReplaceAll(first.GTIDs(t), "\n", "")+"'",
		"set sql_log_bin=0", "create database DB", "create table DB.t (id int primary key)", "set sql_log_bin=1")
	second.Exec(t, second.Grants(t, d.readable())...)
	e.use(second.Addr)
	copyOf.exec("insert into DB.t values (2)")
	r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)")
}
