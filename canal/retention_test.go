package canal

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

func TestRetentionIsWhatIsSeenWhereThatIsLess(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		name string
		r    Retention
		want time.Duration
	}{
		{"nothing purges", Retention{}, 0},
		{"a setting, and nothing was purged yet", Retention{Kept: time.Hour}, time.Hour},
		{"a setting that is kept to", Retention{Kept: time.Hour, Oldest: now.Add(-90 * time.Minute)}, time.Hour},
		{"something purges sooner", Retention{Kept: time.Hour, Oldest: now.Add(-time.Minute)}, time.Minute},
		{"somebody purges by hand", Retention{Oldest: now.Add(-time.Minute)}, time.Minute},
		{"a source whose clock is ahead", Retention{Kept: time.Hour, Oldest: now.Add(time.Minute)}, time.Second},
	} {
		if got := c.r.For(now); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTheHeadroomIsNotShownBeforeItIsKnown(t *testing.T) {
	var c counters
	now := time.Now()
	if h := c.headroom(now, time.Second); !math.IsNaN(h) {
		t.Errorf("%v before anything is known", h)
	}
	c.retention.Store(&Retention{})
	if h := c.headroom(now, time.Second); !math.IsInf(h, 1) {
		t.Errorf("%v where everything is kept", h)
	}
	c.retention.Store(&Retention{Kept: 30 * 24 * time.Hour, Oldest: now.Add(-time.Minute)})
	if h := c.headroom(now, time.Second); h != 60 {
		t.Errorf("%v where what is older than a minute is gone", h)
	}
}

func TestASourceThatPurgesSoonerThanItsSettingIsSeen(t *testing.T) {
	t.Parallel()
	for name, start := range testbed.Databases {
		t.Run(name, func(t *testing.T) {
			s := start(t, "--binlog-expire-logs-seconds=864000")
			d := newDatabase(t, s, "create table DB.t (id int primary key)")
			if r, err := ask(t, s); err != nil || !r.Oldest.IsZero() || r.Kept != 240*time.Hour {
				t.Errorf("nothing was purged yet: %+v, %v", r, err)
			}
			d.exec("flush binary logs", "insert into DB.t values (1)")
			file, _ := s.BinlogPosition(t)
			// MariaDB keeps a file until its own checkpoint has left it.
			for first := ""; first != file; {
				d.exec("purge binary logs to '" + file + "'")
				info, err := Probe(t.Context(), Options{Address: s.Addr, User: "root"})
				if err != nil {
					t.Fatal(err)
				}
				first = info.Files[0].Name
			}
			r, err := ask(t, s)
			if err != nil || time.Since(r.Oldest) > time.Hour || r.For(time.Now()) > time.Hour {
				t.Errorf("all but the last file is gone: %+v, %v", r, err)
			}
		})
	}
}

func ask(t *testing.T, s *testbed.Server) (Retention, error) {
	t.Helper()
	o, err := Options{Address: s.Addr, User: "root"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return o.retention(t.Context())
}

// The table is what Amazon's servers have; the server is not theirs.
func TestTheSettingOfRDSDecidesThere(t *testing.T) {
	t.Parallel()
	s := testbed.MySQL(t)
	o, err := Options{Address: s.Addr, User: "root"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.connect(t.Context(), queryTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	var r Retention
	if r.fromRDS(c); !r.Unknown || r.Kept != 0 {
		t.Errorf("a table that cannot be read: %+v", r)
	}
	s.Exec(t, "create table mysql.rds_configuration (name varchar(100), value varchar(100), description varchar(300))")
	s.Exec(t, "insert into mysql.rds_configuration values ('binlog retention hours', NULL, ''), ('source delay', '0', '')")
	if r.fromRDS(c); !r.Soon || r.Unknown {
		t.Errorf("not set: %+v", r)
	}
	s.Exec(t, "update mysql.rds_configuration set value = '24' where name = 'binlog retention hours'")
	if r.fromRDS(c); r.Kept != 24*time.Hour || r.Soon || r.Unknown {
		t.Errorf("a day: %+v", r)
	}
	// Where the service purges as soon as it can, the age of the first file counts, too.
	if at, err := o.oldestBinlog(t.Context(), c, &SourceInfo{Flavor: "mysql"}, true); err != nil || at.IsZero() {
		t.Errorf("the first file: %v, %v", at, err)
	}
}

// A file is purged for real while nobody reads, and the headroom said when: it is over with a tenth of the retention to
// spare, before or after. The server is asked to purge at each look, so what is compared does not depend on how long a
// look takes.
func TestTheHeadroomIsThatOfARealPurge(t *testing.T) {
	t.Parallel()
	const kept = 30
	for name, start := range testbed.SomeOf(t, testbed.Databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, fmt.Sprintf("--binlog-expire-logs-seconds=%d", kept), "--max-binlog-size=4096")
			d := newDatabase(t, s, "create table DB.t (id int primary key)", "flush binary logs", "insert into DB.t values (1)")
			var c counters
			c.committed.Store(time.Now().UnixNano()) // what is read last; nothing is from here on
			r, err := ask(t, s)
			testbed.Must(t, err)
			c.retention.Store(&r)
			file, pos := s.BinlogPosition(t)
			d.exec("flush binary logs")
			last := math.NaN()
			for there := true; there; {
				last = c.headroom(time.Now(), time.Second)
				d.exec("flush binary logs")
				info, err := Probe(t.Context(), Options{Address: s.Addr, User: "root"})
				testbed.Must(t, err)
				there = slices.ContainsFunc(info.Files, func(f BinlogFile) bool { return f.Name == file })
				if there && last < -kept*0.1 {
					t.Fatalf("%s is there still, and the headroom was %.1f s of %d s", file, last, kept)
				}
				testbed.Must(t, retry.Sleep(t.Context(), 250*time.Millisecond))
			}
			left := c.headroom(time.Now(), time.Second)
			t.Logf("%s:%d was purged between a headroom of %.1f and %.1f s, of %d s", file, pos, last, left, kept)
			if left > kept*0.1 {
				t.Errorf("%s is purged, and the headroom is %.1f s of %d s", file, left, kept)
			}
		})
	}
}
