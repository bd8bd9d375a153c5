package canal

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// TestNoMarkCoversACommitThatNobodySees holds a commit as semi-synchronous replication does: its event arrives seconds
// before a SELECT sees the row.
func TestNoMarkCoversACommitThatNobodySees(t *testing.T) {
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
			d := newDatabase(t, s, "create table DB.t (id int primary key)", "flush binary logs")
			testNoMark(t, d)
		})
	}
}

func testNoMark(t *testing.T, d *database) {
	rec := newRecorder()
	var seen func() int
	early := make(chan event.Mark, 1)
	rec.onMark = func(m event.Mark) {
		// A mark that covers the row must find it visible to everybody.
		rec.mu.Lock()
		covers := len(rec.rows) > 1 && rec.rows[1].version.Compare(m.Version) <= 0
		rec.mu.Unlock()
		if covers && seen() == 0 {
			select {
			case early <- m:
			default:
			}
		}
	}
	count, err := d.DB().Prepare("select count(*) from " + d.name + ".t where id=2")
	if err != nil {
		t.Fatal(err)
	}
	defer count.Close()
	seen = func() int { return scanInt(count.QueryRow()) }
	r := reading(t, rec, d.options())
	r.await(t, "a first mark", func() bool { return len(r.marks) > 0 })
	d.exec("insert into DB.t values (1)")
	r.await(t, "a mark over the first row", func() bool {
		return len(r.rows) == 1 && len(r.marks) > 0 && r.marked(r.rows[0].version)
	})
	testbed.Must(t, d.HoldCommits(t.Context(), time.Minute))
	committed := make(chan error, 1)
	go func() {
		_, err := d.DB().Exec("insert into " + d.name + ".t values (2)")
		committed <- err
	}()
	r.await(t, "the event of the held commit", func() bool { return len(r.rows) == 2 })
	if n := seen(); n != 0 {
		t.Fatalf("the row is visible: the commit is not held")
	}
	r.mu.Lock()
	marks := len(r.marks)
	r.mu.Unlock()
	r.await(t, "marks of several heartbeats", func() bool { return len(r.marks) >= marks+5 })
	r.mu.Lock()
	second := r.rows[1].version
	for _, m := range r.marks {
		if m.Version.Compare(second) >= 0 {
			t.Errorf("mark %s covers %s, which nobody can read", m.Version, second)
		}
	}
	if b := r.batches[len(r.batches)-1]; b.age != event.Unknown {
		t.Errorf("age %s of a batch that nobody can read", b.age)
	}
	r.mu.Unlock()
	// A restart, whose position has the held commit after it.
	again := reading(t, startAt(r.Position()), d.options())
	again.await(t, "marks of several heartbeats", func() bool { return len(again.marks) >= 3 })
	again.mu.Lock()
	if again.marked(second) {
		t.Errorf("after a restart, a mark covers %s, which nobody can read", second)
	}
	again.mu.Unlock()
	testbed.Must(t, d.ReleaseCommits(t.Context()))
	testbed.Must(t, <-committed)
	again.await(t, "a mark over the second row, after a restart", func() bool { return again.marked(second) })
	r.await(t, "a mark over the second row", func() bool { return r.marked(second) })
	select {
	case m := <-early:
		t.Errorf("mark %s covered the row before a SELECT saw it", m.Version)
	default:
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
}

func scanInt(r *sql.Row) int {
	var n int
	if err := r.Scan(&n); err != nil {
		return -1
	}
	return n
}

// TestEverythingThatAMarkCoversCanBeRead has many writers commit at once, and asks for each row that a mark covers, as
// soon as the mark is sent.
func TestEverythingThatAMarkCoversCanBeRead(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		const writers = 8
		each := scale(60)
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		rec := startAt(here(t, s))
		checked := 0
		rec.onMark = func(m event.Mark) {
			rec.mu.Lock()
			var ids []string
			for _, c := range rec.rows[checked:] {
				if c.version.Compare(m.Version) > 0 {
					break
				}
				ids = append(ids, c.text[strings.LastIndexByte(c.text, '(')+1:len(c.text)-1])
			}
			rec.mu.Unlock()
			if len(ids) == 0 {
				return
			}
			checked += len(ids)
			if n := scanInt(d.DB().QueryRow("select count(*) from " + d.name + ".t where id in (" + strings.Join(ids, ",") +
				")")); n != len(ids) {
				t.Errorf("mark %s covers %d new rows, and %d of them can be read", m.Version, len(ids), n)
			}
		}
		o := d.options()
		o.Heartbeat = 20 * time.Millisecond
		r := reading(t, rec, o)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					if _, err := d.DB().Exec(fmt.Sprintf("insert into %s.t values (%d)", d.name, w*each+i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		r.await(t, "a mark over all rows", func() bool {
			return len(r.rows) == writers*each && r.marked(r.rows[len(r.rows)-1].version)
		})
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if checked != writers*each {
			t.Errorf("%d rows were looked for", checked)
		}
	})
}

func TestABacklogIsKnownToBeOld(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		p := here(t, s)
		d.exec("insert into DB.t values (1)", "insert into DB.t values (2)")
		rec := startAt(p)
		rec.per = 1
		const late = 3
		var answered time.Time
		rec.before = func(n int) error {
			if n == 1 { // the second row is handed over some heartbeats after all were known to see both
				rec.await(t, "a mark over the first row", func() bool { return rec.marked(rec.rows[0].version) })
				answered = time.Now()
				marks := 0
				rec.await(t, "heartbeats", func() bool {
					if marks == 0 {
						marks = len(rec.marks)
					}
					return len(rec.marks) >= marks+late
				})
			}
			return nil
		}
		r := reading(t, rec, d.options())
		r.await(t, "both rows", func() bool { return len(r.batches) == 2 })
		r.mu.Lock()
		defer r.mu.Unlock()
		// One answer may take the place of another that came less than a heartbeat before it.
		if age, least := r.batches[1].age, r.batches[1].at.Sub(answered)-r.canal.o.Heartbeat; age < least || least <= 0 {
			t.Errorf("age %s, want at least %s, since the source has answered that everybody sees it", age, least)
		}
	})
}

func TestAnIdleSourceKeepsSendingMarksThatEverythingIsRead(t *testing.T) {
	onEach(t, func(t *testing.T, s *testbed.Server) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		r := reading(t, startAt(here(t, s)), d.options())
		d.exec("insert into DB.t values (1)")
		r.await(t, "marks", func() bool {
			n := 0
			for _, m := range r.marks {
				if m.Read && len(r.rows) > 0 && m.Version.Compare(r.rows[0].version) >= 0 {
					n++
				}
			}
			return n >= 4
		})
		if lag := r.canal.Stats().Lag; lag != 0 {
			t.Errorf("lag %s of an idle source", lag)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if m := r.marks[len(r.marks)-1]; m.Source != "default" {
			t.Errorf("mark of source %q", m.Source)
		}
	})
}
