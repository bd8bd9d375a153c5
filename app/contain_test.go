package app

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

// failing is a router that fails over the rows of one table once it has made some of their keys.
type failing struct{ fakeRouter }

func (f *failing) Route(b *event.Batch, c *event.Change) {
	f.fakeRouter.Route(b, c)
	if c.Table.Name == "bad" {
		var none []int
		b.Add(fmt.Appendf(b.Text(), "half:%d", none[c.Version.Row]), 1, event.ActionDelete)
	}
}

func badRow(pos uint64, xid string) *event.Change {
	c := row(pos, xid)
	c.Table = &event.Table{Schema: "shop", Name: "bad"}
	return c
}

// panicked calls f and reports whether it panicked, as canal's recovery does.
func panicked(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// A row that was routed by half leaves a batch that is whole: keys that were made stay, which does no harm, and those
// of other rows come after them. Of a row of an XA transaction nothing stays: it might write what is never committed.
func TestAPanicInTheRouterLeavesAWholeBatch(t *testing.T) {
	for _, xid := range []string{"", xid} {
		s := openStore(t, t.TempDir())
		r, l := xaReader(t, s)
		r.router = &failing{}
		must(t, r.Row(row(100, xid)))
		if !panicked(func() { _ = r.Row(badRow(200, xid)) }) {
			t.Fatal("no panic")
		}
		must(t, r.Row(row(300, xid)))
		must(t, r.Commit(&event.Tx{XID: xid}, end(350)))
		must(t, r.Flush())
		want := []string{"product:100", "product:200", "product:300"}
		if xid != "" {
			want = []string{"product:100", "product:300"}
		}
		if got := l.keys(); !slices.Equal(got, want) || l.batches[0].End.Pos != 350 {
			t.Errorf("xid %q: keys %q, want %q", xid, got, want)
		}
		for i := range l.batches[0].Len() {
			if v, pos := l.batches[0].Version(i), l.batches[0].Key(i); fmt.Sprintf("product:%d", v.Pos) != pos {
				t.Errorf("xid %q: %s has version %s", xid, pos, v)
			}
		}
		must(t, s.Close())
	}
}

// fragile is a log that fails over batches with a key.
type fragile struct{ fakeLog }

func (l *fragile) Append(ctx context.Context, b *event.Batch) error {
	if b.Len() == 1 {
		panic("over " + b.Key(0))
	}
	return l.fakeLog.Append(ctx, b)
}

// A batch that the log fails over would come again at each start. Its tables are in doubt, and the position moves on.
func TestAPanicInTheLogIsADoubtOfTheBatchsTables(t *testing.T) {
	r, _ := newReader(t)
	l := &fragile{}
	book, err := doubt.New(nil, r.troubles.alarms, nil)
	must(t, err)
	r.log, r.doubts = l, book
	must(t, r.Row(row(100, "")))
	must(t, r.Commit(&event.Tx{}, end(150)))
	must(t, r.Flush())
	must(t, r.Row(row(200, "")))
	must(t, r.Row(row(300, "")))
	must(t, r.Commit(&event.Tx{}, end(350)))
	must(t, r.Flush())
	if len(l.batches) != 2 || l.batches[0].Len() != 0 || l.batches[0].End.Pos != 150 || l.batches[1].Len() != 2 ||
		l.batches[1].End.Pos != 350 {
		t.Errorf("%d batches", len(l.batches))
	}
	all := book.List()
	if len(all) != 1 || all[0].Cause != alarm.EventUndecodable || !slices.Equal(all[0].Tables, []string{"shop.product"}) ||
		time.Since(all[0].Since) < 0 {
		t.Errorf("doubts %+v", all)
	}
}

// What a batch goes through on its way to the log may fail over it as well. All of its tables are in doubt, not only
// that of the row that made it full, which canal knows of.
func TestAPanicBeforeTheLogIsADoubtOfTheBatchsTables(t *testing.T) {
	r, l := newReader(t)
	r.doubts = book(t, r.troubles.alarms)
	s := &fakeSource{}
	r.source = s
	must(t, r.Row(badRow(50, "")))
	must(t, r.Commit(&event.Tx{}, end(75)))
	stages := r.latency
	r.latency = nil // over which it fails
	for pos := range uint64(batchKeys - 1) {
		if panicked(func() { must(t, r.Row(row(100+pos, ""))) }) {
			t.Fatal("the row's table alone would be in doubt")
		}
	}
	r.latency = stages
	must(t, r.Row(row(9000, "")))
	must(t, r.Flush())
	if len(l.batches) != 2 || l.batches[0].Len() != 0 || l.batches[0].End.Pos != 75 || l.batches[1].Len() != 1 {
		t.Errorf("%d batches", len(l.batches))
	}
	all := r.doubts.List()
	if len(all) != 1 || all[0].Cause != alarm.EventUndecodable ||
		!slices.Equal(all[0].Tables, []string{"shop.bad", "shop.product"}) {
		t.Errorf("doubts %+v", all)
	}
}
