package canal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

func TestAFirstStartIsFoundedBeforeAnythingIsRead(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)", "insert into DB.t values (1)", "flush binary logs")
		mid := here(t, s)
		d.exec("insert into DB.t values (2)", "flush binary logs", "insert into DB.t values (3)", "flush binary logs")
		for _, c := range []struct {
			start string
			want  []string
		}{
			{"now", nil},
			{"", nil},
			{"earliest", []string{"insert DB.t (1)", "insert DB.t (2)", "insert DB.t (3)"}},
			{fmt.Sprintf("%s:%d", mid.File, mid.Pos), []string{"insert DB.t (2)", "insert DB.t (3)"}},
			{"gtid:" + mid.GTIDs.String(), []string{"insert DB.t (2)", "insert DB.t (3)"}},
		} {
			if strings.HasPrefix(c.start, "gtid:") && d.noGTIDs() {
				continue
			}
			o := d.options()
			o.Start, o.UntilCaughtUp = c.start, true
			before := uint32(time.Now().Unix())
			asked := ""
			o.FirstStart = func(_ context.Context, position string) error {
				asked = position
				return nil
			}
			r := reading(t, newRecorder(), o)
			if err := r.wait(); err != nil {
				t.Fatalf("start %q: %v", c.start, err)
			}
			r.wantRows(d, c.want...)
			// An epoch that no earlier life can have used.
			if len(r.founds) != 1 || r.founds[0].Epoch < before || r.founds[0].Server == "" || r.founds[0].IsZero() {
				t.Errorf("start %q: founded %v", c.start, r.founds)
			}
			if asked != r.founds[0].String() {
				t.Errorf("start %q: nobody was asked about %s: %q", c.start, r.founds[0].String(), asked)
			}
			if r.alarmed(alarm.FirstStart) {
				t.Errorf("start %q: a first start is no trouble by itself", c.start)
			}
			if last := r.pos; len(c.want) > 0 && last.File == r.founds[0].File && last.Pos == r.founds[0].Pos {
				t.Errorf("start %q: the position did not move from %s", c.start, last.String())
			}
		}
	})
}

func TestAStartThatMakesNoSenseIsAnError(t *testing.T) {
	for _, start := range []string{
		"yesterday", "gtid:", "gtid:x", "binlog.000001", "binlog.000001:1", "binlog.000001:x",
		"log:4", "a'b.000001:4",
	} {
		_, err := New(Options{Address: "x", User: "u", Start: start}, binding(newRecorder()), newRecorder())
		if err == nil || !strings.Contains(err.Error(), start) {
			t.Errorf("start %q: %v", start, err)
		}
	}
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)", "insert into DB.t values (1)")
		p := here(t, s)
		for start, word := range map[string]string{
			fmt.Sprintf("%s:%d", p.File, p.Pos-31): "is not the end of a transaction", // its XID event
			p.File + ":99999999":                   "bytes long",
			"binlog.999999:4":                      "no binlog file",
		} {
			if d.noGTIDs() && strings.Contains(word, "not the end") {
				continue // cannot be known without reading from there
			}
			o := d.options()
			o.Start = start
			r := reading(t, newRecorder(), o)
			if err := r.wait(); err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("start %s: %v, want %q", start, err, word)
			}
		}
		if d.noGTIDs() {
			o := d.options()
			o.Start = "gtid:3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
			if err := reading(t, newRecorder(), o).wait(); err == nil || !strings.Contains(err.Error(), "gtid_mode") {
				t.Errorf("by GTID without GTIDs: %v", err)
			}
		}
	})
}

// TestNowIsWhatEverybodySees starts while a commit is held whose event is in the binlog already: it must be read.
func TestNowIsWhatEverybodySees(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--binlog-row-metadata=FULL")
			d := newDatabase(t, s, "create table DB.t (id int primary key)", "insert into DB.t values (1)")
			testbed.Must(t, s.HoldCommits(t.Context(), time.Minute))
			committed := make(chan error, 1)
			go func() { committed <- s.ExecContext(context.Background(), "insert into "+d.name+".t values (2)") }()
			testbed.Eventually(t, 2*time.Minute, "the commit is held", func() bool {
				n, err := s.CommitsHeld(t.Context())
				return err == nil && n == 1
			})
			r := reading(t, newRecorder(), d.options())
			want := []string{"insert DB.t (2)"}
			if s.Flavor == testbed.FlavorMariaDB { // nobody knows what it is while one waits: it begins with the file before
				want = []string{"insert DB.t (1)", "insert DB.t (2)"}
			}
			r.wantRows(d, want...)
			testbed.Must(t, s.ReleaseCommits(t.Context()))
			testbed.Must(t, <-committed)
			r.await(t, "a mark over it", func() bool { return r.marked(r.rows[len(want)-1].version) })
		})
	}
}

// TestAFirstStartOnABusyServerFindsAPlace starts again and again while four clients insert: the place where it begins
// is always newer than what the server said of itself a moment before.
func TestAFirstStartOnABusyServerFindsAPlace(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key auto_increment)")
		ctx, stop := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		var inserted atomic.Int64
		defer clients.Wait()
		defer stop()
		for range 4 {
			clients.Go(func() {
				for ctx.Err() == nil {
					if s.ExecContext(ctx, "insert into "+d.name+".t values ()") == nil {
						inserted.Add(1)
					}
				}
			})
		}
		for i := range 8 {
			before := inserted.Load()
			testbed.Eventually(t, 2*time.Minute, "the clients insert", func() bool { return inserted.Load() >= before+8 })
			r := reading(t, newRecorder(), d.options())
			select {
			case <-r.when(t.Context().Done(), func() bool { return len(r.rows) > 0 }):
			case err := <-r.done:
				r.done <- err
				t.Fatalf("start %d: %v", i, err)
			}
			if err := r.stop(); err != nil {
				t.Fatalf("start %d: %v", i, err)
			}
		}
	})
}

func TestAnEmptyServerIsAPlaceToStart(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--binlog-row-metadata=FULL")
			r := reading(t, newRecorder(),
				Options{Address: s.Addr, Wanted: func(schema, _ string) bool { return schema == "e" }})
			r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			if r.pos.IsZero() {
				t.Fatal("the position is not told from none")
			}
			s.Exec(t, "create database e", "create table e.t (id int primary key)", "insert into e.t values (1)")
			r2 := reading(t, startAt(r.pos),
				Options{Address: s.Addr, Wanted: func(schema, _ string) bool { return schema == "e" }})
			r2.await(t, "the row", func() bool { return len(r2.rows) == 1 })
			if len(r2.founds) != 0 {
				t.Errorf("a restart took itself for a first start: %v", r2.founds)
			}
		})
	}
}

// TestAPositionByFileBecomesOneByGTID goes on with GTIDs where a position was kept without them, and the other way.
func TestAPositionByFileBecomesOneByGTID(t *testing.T) {
	t.Parallel()
	s := shared[0].get(t)
	d := newDatabase(t, s, "create table DB.t (id int primary key)", "insert into DB.t values (1)")
	p := here(t, s)
	d.exec("insert into DB.t values (2)")
	want := p.GTIDs.String()
	p.GTIDs = event.GTIDSet{}
	r := reading(t, startAt(p), d.options())
	r.wantRows(d, "insert DB.t (2)")
	if len(r.founds) != 1 || r.founds[0].GTIDs.String() != want {
		t.Errorf("founded %v, want %s", r.founds, want)
	}
	s = shared[1].get(t)
	d = newDatabase(t, s, "create table DB.t (id int primary key)", "insert into DB.t values (1)")
	p = here(t, s)
	d.exec("insert into DB.t values (2)")
	p.GTIDs.Add(gtid(uuidA, 1))
	r = reading(t, startAt(p), d.options())
	r.wantRows(d, "insert DB.t (2)")
	if len(r.founds) != 1 || !r.founds[0].GTIDs.IsEmpty() {
		t.Errorf("founded %v, want one without GTIDs", r.founds)
	}
}

func TestAPositionGivenByHandGetsAServerAndAnEpoch(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		p := here(t, s)
		p.Server, p.Epoch = "", 0
		d.exec("insert into DB.t values (1)")
		before := uint32(time.Now().Unix())
		r := reading(t, startAt(p), d.options())
		r.wantRows(d, "insert DB.t (1)")
		if r.pos.Server == "" || r.pos.Epoch < before || r.rows[0].version.Epoch != r.pos.Epoch {
			t.Errorf("server %q, epoch %d, version %s", r.pos.Server, r.pos.Epoch, r.rows[0].version)
		}
	})
}

func TestAPositionIsFoundByTime(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		at := func(unix int64, id int) {
			d.exec(fmt.Sprintf("set timestamp=%d", unix), fmt.Sprintf("insert into DB.t values (%d)", id),
				"set timestamp=default")
		}
		base := time.Now().Unix() + 1000
		at(base, 1)
		at(base+10, 2)
		d.exec(fmt.Sprintf("set timestamp=%d", base+15), "flush binary logs", "set timestamp=default")
		at(base+20, 3)
		end := here(t, s)
		at(base+30, 4)
		o := Options{Address: s.Addr, User: "root"}
		p, err := Locate(t.Context(), o, time.Unix(base+25, 0).UTC().Format(time.RFC3339))
		if err != nil {
			t.Fatal(err)
		}
		// MariaDB may have written since, by itself, how far its engines have come: an event of no transaction.
		if p.File != end.File || p.Pos < end.Pos || p.GTIDs.String() != end.GTIDs.String() || p.Server != end.Server {
			t.Errorf("%s (%s:%d), want %s (%s:%d)", p.String(), p.File, p.Pos, end.String(), end.File, end.Pos)
		}
		p.Epoch = 1
		reading(t, startAt(p), d.options()).wantRows(d, "insert DB.t (4)")
		p, err = Locate(t.Context(), o, time.Unix(base+5, 0).In(time.FixedZone("", 3600)).Format(time.RFC3339))
		if err != nil {
			t.Fatal(err)
		}
		p.Epoch = 1
		r := reading(t, startAt(p), d.options())
		r.wantRows(d, "insert DB.t (2)", "insert DB.t (3)", "insert DB.t (4)")
		if _, err := Locate(t.Context(), o, "2001-01-01T00:00:00Z"); err == nil ||
			!strings.Contains(err.Error(), "oldest binlog file") {
			t.Errorf("a time before all binlogs: %v", err)
		}
	})
}

func TestLocateRefusesAPositionThatIsGone(t *testing.T) {
	t.Parallel()
	s := shared[0].get(t)
	newDatabase(t, s)
	var gap *GapError
	_, err := Locate(t.Context(), Options{Address: s.Addr, User: "root"}, "gtid:"+s.QueryText(t, "select @@server_uuid")+
		":1-999999")
	if !errors.As(err, &gap) {
		t.Errorf("%v, want a gap", err)
	}
}

func TestProbeTellsWhatDecidesTheContentOfTheBinlog(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		newDatabase(t, s)
		info, err := Probe(t.Context(), Options{Address: s.Addr, User: "root"})
		if err != nil {
			t.Fatal(err)
		}
		file, pos := s.BinlogPosition(t)
		switch {
		case string(info.Flavor) != string(s.Flavor), !strings.HasPrefix(info.Version, s.Version), info.Server == "",
			int(info.ServerID) != s.Port:
			t.Errorf("identity: %+v", info)
		case !info.LogBin, info.BinlogFormat != "ROW", info.RowImage != "FULL", info.RowMetadata != "FULL",
			info.Checksum != "CRC32" && s.Flavor == testbed.FlavorMySQL:
			t.Errorf("settings: %+v", info)
		case info.File != file, info.Pos != pos, len(info.Files) == 0, info.Files[len(info.Files)-1].Name != file:
			t.Errorf("position: %+v", info)
		case len(info.Grants) == 0 || !strings.Contains(info.Grants[0], "GRANT"), info.NetWriteTimeout != time.Minute,
			info.SemiSync:
			t.Errorf("rest: %+v", info)
		case s.Flavor == testbed.FlavorMySQL && info.Retention.Kept != 30*24*time.Hour:
			t.Errorf("retention %+v", info.Retention)
		}
		_, err = Probe(t.Context(), Options{Address: s.Addr, User: "root", Flavor: map[testbed.Flavor]event.Flavor{
			testbed.FlavorMySQL: event.MariaDB, testbed.FlavorMariaDB: event.MySQL,
		}[s.Flavor]})
		if err == nil || !strings.Contains(err.Error(), "source.flavor") {
			t.Errorf("the wrong flavor: %v", err)
		}
	})
}

func TestCatchingUpEndsWhenEverythingIsReadAndVisible(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		p := here(t, s)
		for i := range 20 {
			d.exec(fmt.Sprintf("insert into DB.t values (%d)", i))
		}
		o := d.options()
		o.UntilCaughtUp = true
		r := reading(t, startAt(p), o)
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		st := r.canal.Stats()
		if len(r.rows) != 20 || st.Rows != 20 || st.Transactions < 20 || st.Bytes == 0 || st.Events == 0 ||
			st.FirstByte.IsZero() {
			t.Errorf("%d rows, %+v", len(r.rows), st)
		}
		if m := r.marks[len(r.marks)-1]; m.Version.Compare(r.rows[19].version) < 0 {
			t.Errorf("the last mark is %s, before the last row %s", m.Version, r.rows[19].version)
		}
		if r.gathered != 0 {
			t.Errorf("%d rows were not handed on", r.gathered)
		}
		// And where there is nothing to catch up with.
		again := reading(t, startAt(r.pos), o)
		if err := again.wait(); err != nil || len(again.rows) != 0 {
			t.Errorf("again: %d rows, %v", len(again.rows), err)
		}
	})
}

// From the earliest place on, a table that the stream makes is known by what the stream says: the binlog is read once.
// One that was made before is asked for when its first rows come.
func TestTheEarliestStartReadsTheBinlogOnceWhereItMakesTheTables(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d := newDatabase(t, s, "create table DB.t (id int primary key, name varchar(20))",
				"insert into DB.t values (1, 'a')")
			read := func(want ...string) (rowsEvents int32) {
				t.Helper()
				p := proxy.StartBinlog(t, s.Addr)
				var n atomic.Int32
				p.OnEvent(func(e proxy.Event) proxy.Verdict {
					if t := binlog.Type(e.Type); t == binlog.TypeWriteRowsV1 || t == binlog.TypeWriteRowsV2 {
						n.Add(1)
					}
					return proxy.Deliver
				})
				o := d.options()
				o.Start, o.UntilCaughtUp, o.Address = "earliest", true, p.Addr()
				r := reading(t, newRecorder(), o)
				if err := r.wait(); err != nil {
					t.Fatal(err)
				}
				r.wantRows(d, want...)
				return n.Load()
			}
			if n := read("insert DB.t (1,a)"); n != 1 {
				t.Errorf("one rows event was read %d times", n)
			}
			old := here(t, s).File
			d.exec("flush binary logs", "insert into DB.t values (2, 'b')")
			testbed.Eventually(t, awayAfter, "the old file is gone", func() bool {
				d.exec("purge binary logs to '" + here(t, s).File + "'")
				_, err := s.DB().Exec("show binlog events in '" + old + "' limit 1")
				return err != nil
			})
			if n := read("insert DB.t (2,b)"); n != 2 {
				t.Errorf("the table was made before, but its rows were read %d times", n)
			}
		})
	}
}
