package canal

import (
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
	"github.com/freshet/freshet/retry"
)

// wantGap waits for Run to end with a GapError that says all of these.
func (r *running) wantGap(words ...string) *GapError {
	r.t.Helper()
	err := r.wait()
	var gap *GapError
	if !errors.As(err, &gap) || !errors.Is(err, retry.ErrHalt) {
		r.t.Fatalf("Run returned %v, want a GapError", err)
	}
	for _, w := range words {
		if !strings.Contains(gap.Error(), w) {
			r.t.Errorf("%q is not said in %q", w, gap.Error())
		}
	}
	if n := len(r.rows); n != 0 {
		r.t.Errorf("%d rows were read over the gap", n)
	}
	return gap
}

func TestPurgedBinlogsAreAGap(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...string) *testbed.Server{
		"MySQL": testbed.MySQL, "MariaDB": testbed.MariaDB,
		"MySQLWithoutGTIDs": func(t testing.TB, args ...string) *testbed.Server {
			return testbed.MySQL(t, append(args, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--binlog-row-metadata=FULL")
			d := newDatabase(t, s, "create table DB.t (id int primary key)")
			p := here(t, s)
			d.exec("insert into DB.t values (1)", "insert into DB.t values (2)", "flush binary logs",
				"insert into DB.t values (3)")
			file, _ := s.BinlogPosition(t)
			d.exec("purge binary logs to '" + file + "'")
			testbed.Eventually(t, awayAfter, "the old file is gone", func() bool {
				d.exec("purge binary logs to '" + file + "'")
				_, err := s.DB().Exec("show binlog events in '" + p.File + "' limit 1")
				return err != nil
			})
			r := reading(t, startAt(p), d.options())
			gap := r.wantGap("position lost", "freshet position set", file, p.File)
			if gap.Oldest != file {
				t.Errorf("oldest file %q, want %q", gap.Oldest, file)
			}
			if name == "MySQL" {
				want := fmt.Sprintf("%s:4-5", s.QueryText(t, "select @@server_uuid"))
				if got := gap.Missing.String(); !strings.HasPrefix(got, strings.TrimSuffix(want, "4-5")) {
					t.Errorf("missing %s", got)
				}
			}
			if n := len(r.founds); n != 0 {
				t.Errorf("the position was changed: %v", r.founds)
			}
		})
	}
}

func TestTransactionsThatTheServerHasLostAreAGap(t *testing.T) {
	for i, name := range []string{"MySQL", "MariaDB"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared[2*i].get(t)
			newDatabase(t, s)
			p := here(t, s)
			var g event.GTID
			p.GTIDs.Each(func(r event.GTIDRange) { g = r.First; g.Number = r.Last + 1000 })
			p.GTIDs.Add(g)
			r := reading(t, startAt(p), Options{Address: s.Addr})
			r.wantGap("lost transactions", g.String(), "freshet position set")
		})
	}
}

// A machine that crashes loses what was not synced, and clients then get the same numbers for other transactions: by
// GTIDs alone nothing is missing.
func TestNumbersThatAreUsedAgainAfterACrashAreAGap(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--sync-binlog=0")
			d := newDatabase(t, s, "create table DB.t (id int primary key)")
			synced := here(t, s)
			d.exec("insert into DB.t values (1)", "insert into DB.t values (2)")
			read := here(t, s)
			testbed.Must(t, s.Kill())
			testbed.Must(t, os.Truncate(filepath.Join(s.Dir, "data", synced.File), int64(synced.Pos)))
			testbed.Must(t, s.Start(t.Context()))
			info, err := Probe(t.Context(), Options{Address: s.Addr, User: "root"})
			if err != nil || info.SyncBinlog != "0" {
				t.Fatalf("sync_binlog %q, %v", info.SyncBinlog, err)
			}
			for i := range 3 {
				d.exec(fmt.Sprintf("insert into DB.t values (%d)", 10+i))
			}
			reading(t, startAt(read), d.options()).wantGap("given their numbers to others", read.File, "freshet position set")
		})
	}
}

func TestWithoutGTIDsAnotherServerIsAGap(t *testing.T) {
	s := shared[1].get(t)
	p := here(t, s)
	p.Server = "00000000-0000-0000-0000-000000000001"
	reading(t, startAt(p), Options{Address: s.Addr}).wantGap("another server answers", p.Server)
	p = here(t, s)
	p.Pos += 1 << 30
	reading(t, startAt(p), Options{Address: s.Addr}).wantGap("bytes long")
	p = here(t, s)
	p.GTIDs.Add(gtid(uuidA, 1))
	p.File = ""
	reading(t, startAt(p), Options{Address: s.Addr}).wantGap("gtid_mode is OFF")
}

// TestAnotherServerWithOurTransactionsRaisesTheEpoch moves to a server that holds all that was read, in a binlog of its
// own.
func TestAnotherServerWithOurTransactionsRaisesTheEpoch(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := start(t, "--binlog-row-metadata=FULL"), start(t, "--binlog-row-metadata=FULL")
			d := newDatabase(t, first, "create table DB.t (id int primary key)")
			var e elsewhere
			o := d.options()
			o.Dial = e.dial
			r := reading(t, startAt(here(t, first)), o)
			d.exec("insert into DB.t values (1)")
			r.await(t, "the first row and a mark over it", func() bool {
				return len(r.rows) == 1 && len(r.marks) > 0 && r.marked(r.rows[0].version)
			})
			executed := first.GTIDs(t)
			d2 := d.on(second)
			d2.exec(append([]string{"set sql_log_bin=0"}, append(second.Grants(t, d2.readable()), "set sql_log_bin=1")...)...)
			if name == "MySQL" {
				d2.exec("set sql_log_bin=0", "create database DB", "create table DB.t (id int primary key)",
					"insert into DB.t values (1)", "set global gtid_purged='"+executed+"'", "set sql_log_bin=1")
			} else {
				d2.exec("set sql_log_bin=0", "create database DB", "create table DB.t (id int primary key)",
					"insert into DB.t values (1)", "set global gtid_slave_pos='"+executed+"'", "set sql_log_bin=1")
			}
			e.use(second.Addr)
			testbed.Must(t, first.Kill())
			d2.exec("insert into DB.t values (2)")
			r.wantRows(d, "insert DB.t (1)", "insert DB.t (2)")
			if v := r.rows[1].version; v.Epoch != 2 {
				t.Errorf("version %s, want epoch 2", v)
			}
			if len(r.raises) != 1 || !strings.HasSuffix(r.raises[0], " 2") || !r.alarmed(alarm.EpochRaised) {
				t.Errorf("raised %v", r.raises)
			}
			r.await(t, "a mark over both", func() bool { return r.marked(r.rows[1].version) })
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			// And a restart goes on there, in the same epoch.
			r2 := reading(t, startAt(r.pos), o)
			d2.exec("insert into DB.t values (3)")
			r2.wantRows(d, "insert DB.t (3)")
			if v := r2.rows[0].version; v.Epoch != 2 || len(r2.raises) != 0 {
				t.Errorf("version %s, raised %v", v, r2.raises)
			}
		})
	}
}

// TestABinlogThatBeginsAnewRaisesTheEpoch gives a server its GTIDs back after RESET BINARY LOGS, as is done when it is
// set up again: positions begin again, though the server and its transactions are the same.
func TestABinlogThatBeginsAnewRaisesTheEpoch(t *testing.T) {
	t.Parallel()
	s := testbed.MySQL(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, s, "create table DB.t (id int primary key)", "flush binary logs", "insert into DB.t values (1)")
	p := here(t, s)
	executed := s.GTIDs(t)
	d.exec("reset binary logs and gtids", "set global gtid_purged='"+executed+"'", "insert into DB.t values (2)")
	r := reading(t, startAt(p), d.options())
	r.wantRows(d, "insert DB.t (2)")
	if v := r.rows[0].version; v.Epoch != 2 || len(r.raises) != 1 || !r.alarmed(alarm.EpochRaised) {
		t.Errorf("version %s, raised %v", v, r.raises)
	}
	r.await(t, "a mark over it", func() bool { return r.marked(r.rows[0].version) })
}

// TestABinlogThatBeginsAnewUnderAReaderIsReadOn does so while it is read, with less in the new file than had been read
// of the old one, and with more.
func TestABinlogThatBeginsAnewUnderAReaderIsReadOn(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]int{"less": 1, "more": 60} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testbed.MySQL(t, "--binlog-row-metadata=FULL")
			d := newDatabase(t, s, "create table DB.t (id int primary key)")
			d.exec("reset binary logs and gtids")
			for i := range 20 {
				d.exec(fmt.Sprintf("insert into DB.t values (%d)", i))
			}
			o := d.options()
			o.Heartbeat = time.Second
			r := reading(t, startAt(here(t, s)), o)
			d.exec("insert into DB.t values (100)")
			r.wantRows(d, "insert DB.t (100)")
			r.await(t, "a mark over it", func() bool { return r.marked(r.rows[0].version) })
			statements := []string{"reset binary logs and gtids", "set global gtid_purged='" + s.GTIDs(t) + "'"}
			want := []string{"insert DB.t (100)"}
			for i := range more {
				statements = append(statements, fmt.Sprintf("insert into DB.t values (%d)", 200+i))
				want = append(want, fmt.Sprintf("insert DB.t (%d)", 200+i))
			}
			d.exec(statements...)
			r.wantRows(d, want...)
			r.await(t, "a mark over all", func() bool { return r.marked(r.rows[more].version) })
		})
	}
}

// TestTransactionsThatAreInNoBinlogAreAGap gives a server GTIDs of transactions that it has not executed, as a dump of
// another server does that is loaded into it: its rows are in no binlog.
func TestTransactionsThatAreInNoBinlogAreAGap(t *testing.T) {
	t.Parallel()
	s := testbed.MySQL(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, s, "create table DB.t (id int primary key)")
	r := reading(t, startAt(here(t, s)), d.options())
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	d.exec("set sql_log_bin=0", "set global gtid_purged='+3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5'",
		"insert into DB.t values (1)", "set sql_log_bin=1")
	r.wantGap("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
}

// TestATransactionThatTheServerLostIsNotWaitedFor breaks the connection within a transaction and comes back to a
// server that does not have it.
func TestATransactionThatTheServerLostIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	first, second := testbed.MySQL(t, "--binlog-row-metadata=FULL"), testbed.MySQL(t, "--binlog-row-metadata=FULL")
	d := newDatabase(t, first, "create table DB.t (id int primary key)")
	d2 := d.on(second)
	d2.exec(append([]string{"set sql_log_bin=0"}, append(second.Grants(t, d2.readable()), "set sql_log_bin=1")...)...)
	executed := first.GTIDs(t)
	d2.exec("set sql_log_bin=0", "create database DB", "create table DB.t (id int primary key)",
		"set global gtid_purged='"+executed+"'", "set sql_log_bin=1")
	var e elsewhere
	o := d.options()
	o.Dial = e.dial
	p := proxy.StartBinlog(t, first.Addr)
	o.Address = p.Addr()
	const writeRows = 30
	p.OnEvent(func(e proxy.Event) proxy.Verdict {
		if e.Type == writeRows {
			return proxy.HoldAfter
		}
		return proxy.Deliver
	})
	r := reading(t, startAt(here(t, first)), o)
	d.exec("begin", "insert into DB.t values (1)", "insert into DB.t values (2)", "commit")
	r.await(t, "the first row to be handed over", func() bool { return len(r.batches) == 1 })
	e.use(second.Addr)
	p.Reset()
	d2.exec("insert into DB.t values (9)")
	r.wantRows(d, "insert DB.t (1)", "insert DB.t (9)")
	last := r.rows[1].version
	r.await(t, "a mark over it", func() bool { return r.marked(last) })
}

// A source whose binlog is deleted begins again with the names and the numbers that it gave before. Once it has gone
// further than it had come, they look as if nothing had happened; and a reader that is connected goes on waiting for
// the old ones.
func TestABinlogThatIsDeletedIsAGap(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		start func(testing.TB, ...string) *testbed.Server
		args  []string
		reset string
	}{
		"MySQL": {testbed.MySQL, nil, "reset binary logs and gtids"},
		"MySQLWithoutGTIDs": {
			testbed.MySQL,
			[]string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"},
			"reset binary logs and gtids",
		},
		"MariaDB": {testbed.MariaDB, nil, "reset master"},
	} {
		for _, connected := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", name, connected), func(t *testing.T) {
				t.Parallel()
				s := m.start(t, append(m.args, "--binlog-row-metadata=FULL")...)
				d := newDatabase(t, s, "create table DB.t (id int primary key)")
				r := reading(t, newRecorder(), d.options())
				r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
				d.exec("insert into DB.t values (1)")
				r.wantRows(d, "insert DB.t (1)")
				r.await(t, "its end", func() bool { return r.commits > 0 && r.marked(r.rows[0].version) })
				old := begunAt(t, r, s)
				if !connected {
					testbed.Must(t, r.stop())
				}
				testbed.Eventually(t, patience, "a file of another second", func() bool {
					d.exec(m.reset)
					return begunAt(t, r, s) != old
				})
				for i := range 50 {
					d.exec(fmt.Sprintf("insert into DB.t values (%d)", 10+i))
				}
				if !connected {
					r.rows = nil
					r = reading(t, startAt(r.Position()), d.options())
				}
				err := r.wait()
				if gap := (*GapError)(nil); !errors.As(err, &gap) {
					t.Errorf("Run returned %v, want a GapError", err)
				}
				if n := len(r.rows); n > 1 {
					t.Errorf("%d rows were read over the gap", n)
				}
			})
		}
	}
}

// begunAt returns when the source's present binlog file was begun.
func begunAt(t testing.TB, r *running, s *testbed.Server) int64 {
	t.Helper()
	file, _ := s.BinlogPosition(t)
	o := r.canal.o
	info, err := Probe(t.Context(), o)
	testbed.Must(t, err)
	at, err := o.begun(t.Context(), info, file)
	testbed.Must(t, err)
	return at.Unix()
}

// A binlog that began again has given out all numbers once more, and purged the files that have the names of those that
// were read.
func TestNumbersThatWereGivenOutAgainAndPurgedAreAGap(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--binlog-row-metadata=FULL")
			d := newDatabase(t, s, "create table DB.t (id int primary key)")
			r := reading(t, startAt(here(t, s)), d.options())
			for i := range 30 {
				d.exec(fmt.Sprintf("insert into DB.t values (%d)", i))
				if i%10 == 9 {
					d.exec("flush binary logs")
				}
			}
			d.exec("insert into DB.t values (30)")
			r.await(t, "all rows", func() bool { return len(r.rows) == 31 })
			testbed.Must(t, r.stop())
			s.ResetBinlogs(t)
			for i := range 50 {
				d.exec(fmt.Sprintf("insert into DB.t values (%d)", 1000+i))
				if i < 12 && i%2 == 1 {
					d.exec("flush binary logs")
				}
			}
			p := r.Position()
			file, _ := s.BinlogPosition(t)
			testbed.Eventually(t, awayAfter, "the old file is gone", func() bool {
				d.exec("purge binary logs to '" + file + "'")
				_, err := s.DB().Exec("show binlog events in '" + p.File + "' limit 1")
				return err != nil
			})
			reading(t, startAt(p), d.options()).wantGap("begun its binlog again", p.File+" was purged")
		})
	}
}

// What is purged of what was read is none, whether the position is of its own transactions or of those of its source.
func TestWhatWasReadMayBePurged(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--binlog-row-metadata=FULL")
			d := newDatabase(t, s, "create table DB.t (id int primary key)")
			r := reading(t, startAt(here(t, s)), d.options())
			d.exec("insert into DB.t values (1)")
			r.await(t, "the row", func() bool { return len(r.rows) == 1 })
			testbed.Must(t, r.stop())
			s.PurgeBinlogs(t)
			again := reading(t, startAt(r.Position()), d.options())
			d.exec("insert into DB.t values (2)")
			again.wantRows(d, "insert DB.t (2)")
		})
	}
}
