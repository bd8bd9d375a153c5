package canal

import (
	"errors"
	"testing"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/proof/testbed"
)

// TestASplitIsSeenBeforeAnythingIsRead has two servers take writes while nobody reads them. It is in doubt when the
// first step is handed out, and all that is read is not all, before anybody has looked at the servers again.
func TestASplitIsSeenBeforeAnythingIsRead(t *testing.T) {
	onPairs(t, func(t *testing.T, p *replicas) {
		d := newDatabase(t, p.first, "create table DB.t (id int primary key)")
		p.replicate()
		p.takeOver()
		o, d2 := p.both(d)
		begin := here(t, p.first)
		d.exec("insert into DB.t values (1)")
		d2.exec("insert into DB.t values (100)")
		o.Logger, o.Alarms = quietLogger(t), newBoard(t, quietLogger(t))
		var err error
		o.Doubts, err = doubt.New(nil, o.Alarms, nil)
		testbed.Must(t, err)
		rec := startAt(begin)
		c, err := New(o, binding(rec), rec)
		testbed.Must(t, err)
		defer c.Close()
		_, err = c.Next(t.Context())
		testbed.Must(t, err)
		if all := o.Doubts.List(); len(all) != 1 || all[0].Cause != alarm.SourceSplit || all[0].Subject != p.second.Addr {
			t.Errorf("doubts %+v", all)
		}
		if apart := c.Stats().Apart; apart != p.second.Addr {
			t.Errorf("apart %q", apart)
		}
	})
}

// TestASplitIsInDoubtOnceMoreWhenItEnds has an operator end the doubt while two servers take writes: what is cached
// from the other one until it gives its transactions up is in doubt all the same.
func TestASplitIsInDoubtOnceMoreWhenItEnds(t *testing.T) {
	const a = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
	const b = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb"
	w, doubts := watching(t, a, b)
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
		if len(all) != x.doubts || w.vis.apart != x.apart {
			t.Errorf("look %d: doubts %+v, want %d; apart %q, want %q", i, all, x.doubts, w.vis.apart, x.apart)
		}
		if x.dismissed && len(all) > 0 {
			testbed.Must(t, doubts.Dismiss(t.Context(), all[0].ID, all[0].Last))
		}
	}
}
