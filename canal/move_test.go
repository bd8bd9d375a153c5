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

// errLost is a gap that an earlier canal has found.
var errLost = &GapError{Reason: "a test says so"}

// onGaps runs a test on servers that keep positions in each way.
func onGaps(t *testing.T, f func(t *testing.T, s *testbed.Server, reset string)) {
	t.Parallel()
	const reset = "reset binary logs and gtids"
	for name, start := range map[string]func(t *testing.T) (*testbed.Server, string){
		"MySQL": func(t *testing.T) (*testbed.Server, string) { return testbed.MySQL(t), reset },
		"MySQLWithoutGTIDs": func(t *testing.T) (*testbed.Server, string) {
			return testbed.MySQL(t, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"), reset
		},
		"MariaDB": func(t *testing.T) (*testbed.Server, string) { return testbed.MariaDB(t), "reset master" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, reset := start(t)
			f(t, s, reset)
		})
	}
}

// The binlog begins again and gives its numbers out once more. What is read then is newer than all that was read
// before, and the doubt about what was not read is there before the position is, and answerable on an idle source.
func TestReadingGoesOnAfterAGap(t *testing.T) {
	onGaps(t, func(t *testing.T, s *testbed.Server, reset string) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		before := here(t, s)
		before.Epoch = 7
		d.exec("insert into DB.t values (1)", reset)
		for i := range 20 {
			d.exec(fmt.Sprintf("insert into DB.t values (%d)", 10+i))
		}
		d.exec("flush binary logs") // without GTIDs a file is read from its beginning
		o := d.options()
		o.Gap, o.Doubts = errLost, newBook(t)
		rec := startAt(before)
		rec.onMove = func(event.Position) error {
			if l := o.Doubts.List(); len(l) != 1 || l[0].Cause != alarm.BinlogGap {
				t.Errorf("the position moved before anything was in doubt: %+v", l)
			}
			return nil
		}
		r := reading(t, rec, o)
		r.await(t, "the place where reading goes on", func() bool { return len(r.ends) > 0 })
		l := o.Doubts.List()
		if len(l) != 1 || l[0].At.Epoch != 8 || !l[0].EveryTable() || !strings.Contains(l[0].Message, errLost.Reason) {
			t.Fatalf("in doubt: %+v", l)
		}
		to := r.moves[0]
		if e := r.ends[0]; !e.Moved || e.Epoch != 8 || e.File != to.File || e.Pos != to.Pos || e.State == nil {
			t.Errorf("it goes on at %+v, and the position is %+v", e, to)
		}
		r.await(t, "a mark over the place, though nothing is committed", func() bool { return r.marked(l[0].At) })
		d.exec("insert into DB.t values (2)")
		r.wantRows(d, "insert DB.t (2)")
		v := r.rows[0].version
		if v.Epoch != 8 || len(r.moves) != 1 {
			t.Errorf("version %s, moved to %v", v, r.moves)
		}
		r.await(t, "a mark over the row", func() bool { return r.marked(v) })
		testbed.Must(t, r.stop())
		// And a restart goes on there.
		again := reading(t, startAt(r.Position()), d.options())
		d.exec("insert into DB.t values (3)")
		again.wantRows(d, "insert DB.t (3)")
	})
}

// The source names what is prepared when reading goes on. Its commit is a doubt then: it names no row.
func TestWhatIsPreparedAtAGapIsADoubtOnceItIsCommitted(t *testing.T) {
	onGaps(t, func(t *testing.T, s *testbed.Server, _ string) {
		d := newDatabase(t, s, "create table DB.t (id int primary key)")
		before := here(t, s)
		inXA(t, d, "'a'", "insert into DB.t values (1)")
		d.exec("flush binary logs") // without GTIDs a file is read from its beginning
		o := d.options()
		o.Gap = errLost
		r := reading(t, startAt(before), o)
		r.await(t, "the place where reading goes on", func() bool { return len(r.ends) > 0 })
		d.exec("xa commit 'a'")
		r.await(t, "the commit", func() bool { return len(r.notRead) == 1 })
	})
}

// A position that cannot be kept is not gone on from. What comes next finds the gap once more, and the same doubt.
func TestNothingIsReadAfterAGapUnlessThePositionIsKept(t *testing.T) {
	s := shared[0].get(t)
	d := newDatabase(t, s, "create table DB.t (id int primary key)")
	failed := errors.New("no room")
	rec := startAt(here(t, s))
	rec.onMove = func(event.Position) error { return failed }
	o := d.options()
	o.Gap, o.Doubts = errLost, newBook(t)
	r := reading(t, rec, o)
	if err := r.wait(); !errors.Is(err, failed) || len(r.ends) > 0 {
		t.Errorf("it ended with %v and %d ends", err, len(r.ends))
	}
	again := reading(t, startAt(r.Position()), o)
	again.await(t, "the place where reading goes on", func() bool { return len(again.ends) > 0 })
	if l := o.Doubts.List(); len(l) != 1 || l[0].Count != 2 || l[0].At.Epoch != 2 {
		t.Errorf("in doubt: %+v", l)
	}
}

func TestWhatIsAGap(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errLost, true},
		{fmt.Errorf("dump: %w", &EventError{File: "binlog.000001", Pos: 4, Err: errNonsense}), true},
		{errNonsense, true},
		{&ForeignError{}, false},
		{errModeChanged, false},
		{nil, false},
	} {
		if IsGap(c.err) != c.want {
			t.Errorf("%v: %v", c.err, !c.want)
		}
	}
}

// MariaDB instead of MySQL is another database. Gaps are passed where that is asked for; this is not.
func TestAnotherKindOfServerIsNoGap(t *testing.T) {
	t.Parallel()
	p := here(t, shared[0].get(t))
	for _, gap := range []error{nil, errLost} {
		o := Options{Address: shared[2].get(t).Addr, Doubts: newBook(t), Gap: gap}
		err := reading(t, startAt(p), o).wait()
		if foreign := (*ForeignError)(nil); !errors.As(err, &foreign) || IsGap(err) {
			t.Errorf("it ended with %v", err)
		}
		if l := o.Doubts.List(); len(l) != 1 || l[0].Cause != alarm.SourceShared {
			t.Errorf("in doubt: %+v", l)
		}
	}
}
