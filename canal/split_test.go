package canal

import (
	"errors"
	"testing"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// TestASplitIsSeenBeforeAnythingIsRead has two servers take writes while nobody reads them. It is in doubt before a
// mark says that all was read, also for a reader that ends by itself before it looks at the servers again.
func TestASplitIsSeenBeforeAnythingIsRead(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		p.replicate()
		p.takeOver()
		o, d2 := p.both(d)
		begin := here(t, p.first)
		d.exec("insert into DB.t values (1)")
		d2.exec("insert into DB.t values (100)")
		o.UntilCaughtUp = true
		doubts, err := doubt.New(nil, newBoard(t, quietLogger(t)), nil)
		testbed.Must(t, err)
		o.Doubts = doubts
		rec := startAt(begin)
		rec.before = func(int) error {
			if len(doubts.List()) == 0 {
				return errors.New("a row is handed out, and nothing is in doubt")
			}
			return nil
		}
		r := reading(t, rec, o)
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		if all := doubts.List(); len(all) != 1 || all[0].Cause != alarm.SourceSplit || all[0].Subject != p.second.Addr {
			t.Errorf("doubts %+v", all)
		}
		for _, m := range r.marks {
			if m.Read {
				t.Errorf("a mark says that all was read: %+v", m)
			}
		}
	})
}

// TestASplitIsInDoubtOnceMoreWhenItEnds has an operator end the doubt while two servers take writes: what is cached from
// the other one until it gives its transactions up is in doubt all the same.
func TestASplitIsInDoubtOnceMoreWhenItEnds(t *testing.T) {
	const a = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
	const b = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
	board := newBoard(t, quietLogger(t))
	doubts, err := doubt.New(nil, board, nil)
	testbed.Must(t, err)
	o := Options{Alarms: board, Doubts: doubts, Servers: NewServers(a, b), Logger: quietLogger(t)}
	c := &Canal{o: o, vis: newVisibility(0, 0)}
	c.vis.begin(a, 1)
	w := &watcher{Canal: c, promoted: map[string]bool{}}
	away := func(c *candidate) { c.err = errors.New("it is away") }
	replica := func(c *candidate) { c.replicates, c.readOnly = true, true }
	for i, x := range []struct {
		second    func(*candidate)
		doubts    int
		apart     string
		dismissed bool
	}{
		{second: nil, doubts: 1, apart: b, dismissed: true},
		{second: nil, doubts: 1, apart: b, dismissed: true},
		{second: away, doubts: 0, apart: b},
		{second: replica, doubts: 1, apart: b, dismissed: true}, // it has not said what it has twice in a row
		{second: replica, doubts: 0, apart: ""},
	} {
		other := mysqlCandidate(t, b, a+":1-5,"+b+":1", x.second)
		testbed.Must(t, w.judge(t.Context(), []candidate{mysqlCandidate(t, a, a+":1-9", nil), other}))
		all := doubts.List()
		if len(all) != x.doubts || c.vis.apart != x.apart {
			t.Errorf("look %d: doubts %+v, want %d; apart %q, want %q", i, all, x.doubts, c.vis.apart, x.apart)
		}
		if x.dismissed && len(all) > 0 {
			testbed.Must(t, doubts.Dismiss(t.Context(), all[0].ID, all[0].Last))
		}
	}
}
