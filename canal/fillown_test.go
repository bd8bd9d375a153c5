package canal

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// What a replica has written into its own binlog has numbers of MariaDB's as what it has yet to replicate: an ANALYZE
// TABLE there is enough. It has the source's changes no sooner for that.
func TestWhatAReplicaHasWrittenItselfIsNotWhatItHasReplicated(t *testing.T) {
	t.Parallel()
	for _, logs := range []bool{false, true} {
		t.Run(fmt.Sprint("it logs what it replicates ", logs), func(t *testing.T) {
			t.Parallel()
			source := testbed.MariaDB(t, "--binlog-row-metadata=FULL")
			d := newDatabase(t, source, "create table DB.t (id int primary key)")
			replica := testbed.MariaDB(t, fmt.Sprintf("--log-slave-updates=%t", logs))
			replicate(t, replica, source)
			o := d.options()
			o.FillFrom, o.FillTimeout, o.Heartbeat = []string{replica.Addr}, patience, d.options().Heartbeat
			p := &followed{reading(t, newRecorder(), o), d, replica}
			p.whole(t)
			replica.Exec(t, "stop slave")
			for range 20 {
				replica.Exec(t, "analyze table "+d.name+".t")
			}
			d.exec("insert into DB.t values (1)")
			p.wantRows(d, "insert DB.t (1)")
			row := p.rows[0].version
			marks := 0
			p.await(t, "marks", func() bool {
				marks = len(p.marks)
				return marks > 0 && p.canal.Stats().Unconfirmed > 0
			})
			p.await(t, "more marks", func() bool { return len(p.marks) > marks+3 })
			p.mu.Lock()
			covered := p.marked(row)
			p.mu.Unlock()
			if covered {
				t.Errorf("a mark covers a row that the replica lacks: %+v", p.fill())
			}
			replica.Exec(t, "start slave")
			p.await(t, "a mark over it", func() bool { return p.marked(row) })
			testbed.Must(t, p.stop())
		})
	}
}

// A replica has transactions of a server that has failed, which the one that was promoted has not: that one has given
// their numbers to others, which the replica lacks.
func TestAReplicaOfTheServerBeforeDoesNotHaveWhatThePromotedOneWrites(t *testing.T) {
	t.Parallel()
	failed := testbed.MariaDB(t)
	d := newDatabase(t, failed, "create table DB.t (id int primary key)")
	source, replica := testbed.MariaDB(t, "--binlog-row-metadata=FULL", "--log-slave-updates"), testbed.MariaDB(t)
	replicate(t, source, failed)
	replicate(t, replica, failed)
	source.Exec(t, "stop slave", "reset slave all")
	d.exec("insert into DB.t values (1)", "insert into DB.t values (2)", "insert into DB.t values (3)")
	testbed.Eventually(t, patience, "the replica has all", func() bool {
		return replica.QueryText(t, "select @@gtid_slave_pos") == failed.GTIDs(t)
	})
	promoted := d.on(source)
	o := promoted.options()
	o.FillFrom, o.FillTimeout = []string{replica.Addr}, time.Second
	p := &followed{reading(t, newRecorder(), o), promoted, replica}
	p.await(t, "a first mark, or none", func() bool { return p.canal.Stats().Connected })
	promoted.exec("insert into DB.t values (4)")
	p.await(t, "its row", func() bool { return len(p.rows) > 0 })
	row := p.rows[0].version
	p.await(t, "a mark over it", func() bool { return p.marked(row) })
	if l := p.doubts.List(); len(l) != 1 || l[0].Cause != alarm.FillServerLeftOut {
		t.Errorf("a mark covers a row that the replica lacks: %+v, %+v", p.fill(), l)
	}
	testbed.Must(t, p.stop())
}

// What a replica has said counts once that has come down the stream, also if it is always ahead of it.
func TestWhatAFillServerSaidCountsOnceTheSourceHasIt(t *testing.T) {
	v := begun()
	var c claims
	said := func(text string) string {
		t.Helper()
		set, err := event.ParseGTIDSet(event.MariaDB, text)
		testbed.Must(t, err)
		counts, err := c.of(v, &set)
		if err != nil {
			return err.Error()
		}
		return counts.String()
	}
	reads := func(server uint32, number uint64) {
		g := event.GTID{Server: server, Number: number}
		v.handed(binlogPos{}, 1, []event.GTIDRange{{First: g, Last: number}})
	}
	var replicated event.GTIDSet
	replicated.Add(event.GTID{Server: 1, Number: 50})
	for i, c := range []struct {
		read         uint64 // of server 2
		said, counts string
	}{
		{0, "0-2-100", errNotBegun.Error()},
		{100, "0-1-51", ""}, // the source had up to the one before, and nobody has logged that
		{100, "0-1-50", "0-1-50"},
		{100, "0-2-99", "0-2-99"},
		{100, "0-2-103", "0-2-99"},
		{102, "0-2-105", "0-2-99"},
		{104, "0-2-107", "0-2-103"},
		{107, "0-2-109", "0-2-107"},
		{107, "0-2-106", "0-2-106"}, // it was restored
		{107, "0-3-108,7-9-1", "0-2-106"},
		{107, "0-3-110", "0-2-106"},
		{200, "0-3-111", "0-2-106"},
	} {
		if i == 1 {
			v.setLogged(map[origin]uint64{{0, 2}: 100}, &replicated)
		}
		if i > 1 {
			reads(2, c.read)
		}
		if got := said(c.said); got != c.counts {
			t.Errorf("the source has 0-2-%d, and the fill server says %s: %q counts, want %q", c.read, c.said, got, c.counts)
		}
	}
	reads(3, 109)
	if got := said("0-3-112"); got != "0-3-108" {
		t.Errorf("another server writes: %q counts", got)
	}
	v.begin("s2", 2)
	v.setLogged(map[origin]uint64{{0, 4}: 300})
	if got := said("0-3-112"); got != "" {
		t.Errorf("the stream is that of a server that has nothing of it: %q counts", got)
	}
}
