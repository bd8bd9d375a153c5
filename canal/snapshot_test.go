package canal

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// MariaDB sets its snapshot place past commits that a semi-synchronous replica holds up when it begins a file, and when
// it writes a BINLOG_CHECKPOINT; and once such a commit ends, its position stands next to the name of the new file. No
// mark covers a commit that nobody sees for that, and a start at "now" reads it.
func TestMariaDBsSnapshotPlaceIsNotTakenForAVisibleCommit(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"AFileBegins": nil,
		// Commits of the file before are not on the disk until that is asked for, so the checkpoint waits for it.
		"ACheckpointIsWritten": {"--innodb-flush-log-at-trx-commit=0", "--innodb-flush-log-at-timeout=2700"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testbed.MariaDB(t, append(args, "--binlog-row-metadata=FULL")...)
			d := newDatabase(t, s, "create table DB.t (id int primary key)", "insert into DB.t values (-1)")
			testSnapshotPlace(t, d, args != nil)
		})
	}
}

func testSnapshotPlace(t *testing.T, d *database, checkpoint bool) {
	rec := startAt(here(t, d.Server))
	r := reading(t, rec, d.options())
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	// The rows are of one size: in the second round, what was a position in one file is the end of a row in the next.
	rounds := 3
	if checkpoint {
		rounds = 1
		d.exec("flush binary logs")
	}
	for round := 1; round <= rounds; round++ {
		before := snapshotNow(t, d)
		testbed.Must(t, d.HoldCommits(t.Context(), time.Minute))
		committed := make(chan error, 2)
		insert := fmt.Sprintf("insert into %s.t values (%d)", d.name, round)
		go func() { committed <- d.ExecContext(context.WithoutCancel(t.Context()), insert) }()
		r.await(t, "the event of the held commit", func() bool { return len(r.rows) == round })
		r.mu.Lock()
		held, marks := r.rows[round-1].version, len(r.marks)
		r.mu.Unlock()
		r.await(t, "marks of several heartbeats", func() bool { return len(r.marks) >= marks+3 })
		strikes := 1
		if checkpoint {
			d.exec("flush no_write_to_binlog engine logs")
		} else {
			strikes++
			go func() { committed <- d.ExecContext(context.WithoutCancel(t.Context()), "flush binary logs") }()
		}
		testbed.Eventually(t, time.Minute, "the snapshot place moves past it", func() bool {
			return snapshotNow(t, d).compare(before) > 0
		})
		r.mu.Lock()
		marks = len(r.marks)
		r.mu.Unlock()
		t.Logf("round %d: %s, then %s", round, before, snapshotNow(t, d))
		r.await(t, "marks of several heartbeats", func() bool { return len(r.marks) >= marks+5 })
		r.mu.Lock()
		for _, m := range r.marks {
			if m.Version.Compare(held) >= 0 {
				t.Errorf("round %d: mark %s covers %s, which nobody can read", round, m.Version, held)
			}
		}
		r.mu.Unlock()
		var late *running
		if checkpoint { // FLUSH BINARY LOGS lets nobody ask where the binlog ends
			o := d.options()
			now, err := Locate(t.Context(), o, "now")
			testbed.Must(t, err)
			late = reading(t, startAt(now), d.options())
		}
		testbed.Must(t, d.ReleaseCommits(t.Context()))
		for range strikes {
			testbed.Must(t, <-committed)
		}
		if late != nil {
			late.await(t, "the held row, after a start at now", func() bool {
				texts := late.texts()
				return len(texts) > 0 && strings.HasSuffix(texts[len(texts)-1], fmt.Sprintf("(%d)", round))
			})
			testbed.Must(t, late.stop())
		}
		r.await(t, "a mark over the row", func() bool { return r.marked(held) })
	}
	if n := r.connects(); n != 1 {
		t.Errorf("%d connections", n)
	}
	testbed.Must(t, r.stop())
}

// snapshotNow asks without freshet.
func snapshotNow(t *testing.T, d *database) binlogPos {
	t.Helper()
	var name, file string
	var pos uint64
	testbed.Must(t, d.DB().QueryRow("show status like 'binlog_snapshot_file'").Scan(&name, &file))
	testbed.Must(t, d.DB().QueryRow("show status like 'binlog_snapshot_position'").Scan(&name, &pos))
	at, err := binlogPosOf(file, pos)
	testbed.Must(t, err)
	return at
}

// Two groups of commits may be written that are not visible: one that waits for a replica, and one after it.
func TestWhatMariaDBSaidIsVisibleTwoGroupsLater(t *testing.T) {
	h := &heart{o: &Options{Heartbeat: time.Hour}}
	ask := func(pos, groups uint64) uint64 {
		t.Helper()
		a := answer{made: time.Now(), end: at(pos)}
		h.askEarlier(&a, snapshot{groups: groups, waiting: 1})
		return a.place.pos
	}
	for _, c := range []struct{ pos, groups, want uint64 }{
		{100, 10, 0},
		{200, 11, 0},
		{300, 12, 100},
		{300, 12, 0},
		{400, 13, 200},
		{900, 14, 300}, // a position in the file before
		{500, 16, 400},
		{950, 18, 500},
	} {
		if got := ask(c.pos, c.groups); got != c.want {
			t.Errorf("at %d, %d groups: %d is visible, want %d", c.pos, c.groups, got, c.want)
		}
	}
}

// A group of commits is written while the one before waits for a replica. Between the two nobody waits, and neither did
// when it was not yet known that they would.
func TestMariaDBsCommitsAreNotVisibleBetweenTwoWaits(t *testing.T) {
	h := &heart{o: &Options{Heartbeat: time.Second}}
	began := time.Now()
	for _, c := range []struct {
		tenths       int
		waiting, pos uint64
		want         uint64
	}{
		{0, 0, 200, 0}, // both are written
		{2, 1, 100, 0}, // the first one waits, as a place before it says
		{12, 0, 200, 0},
		{13, 1, 150, 0}, // the second one does
		{30, 0, 200, 0},
		{39, 0, 200, 0},
		{40, 0, 200, 200},
	} {
		a := answer{made: began.Add(time.Duration(c.tenths) * 100 * time.Millisecond), end: at(c.pos)}
		v := snapshot{groups: 7, waiting: c.waiting}
		h.hear(v)
		if c.waiting > 0 { // the place is the end of a transaction
			continue
		}
		h.askEarlier(&a, v)
		if a.place.pos != c.want {
			t.Errorf("after %d tenths of a second: %d is visible, want %d", c.tenths, a.place.pos, c.want)
		}
	}
}

// TestMariaDBsBinlogIsBegunAgainBetweenTwoQuestions has nothing but the end of the binlog be known when that is
// deleted, as on a server on which nothing is written, and a commit come before the next question. Its place in the new
// file is one that the stream has passed in the old one.
func TestMariaDBsBinlogIsBegunAgainBetweenTwoQuestions(t *testing.T) {
	t.Parallel()
	server := testbed.MariaDB(t)
	d := newDatabase(t, server, "create table DB.t (id int primary key)")
	for id := range 9 {
		d.exec(fmt.Sprintf("insert into DB.t values (%d)", id))
	}
	h, s, cuts := asking(t, server, event.MariaDB)
	ask := func() error { return h.askSnapshot(t.Context(), s, &answer{made: time.Now()}) }
	for range 2 { // the first end of a transaction that is heard of does not count
		testbed.Must(t, ask())
	}
	d.exec("reset master", "insert into DB.t values (11)")
	if err := ask(); err == nil || *cuts != 1 {
		t.Errorf("it answers %v, and the stream is cut %d times", err, *cuts)
	}
}

// asking returns a heart that has read all of a server's binlog, with a connection, and how often it has ended the
// dump.
func asking(t *testing.T, server *testbed.Server, f event.Flavor) (h *heart, s *session, cuts *int) {
	t.Helper()
	o := Options{Address: server.Addr, User: "root", Heartbeat: time.Second}
	o, err := o.withDefaults()
	testbed.Must(t, err)
	s, err = o.connect(t.Context(), time.Minute)
	testbed.Must(t, err)
	t.Cleanup(s.close)
	cuts = new(int)
	h = &heart{o: &o, vis: newVisibility(0, 0), cut: func() { *cuts++ }, flavor: f}
	h.vis.read, err = s.end(f)
	testbed.Must(t, err)
	return h, s, cuts
}
