package app

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/router/routertest"
)

// replay routes what a router has made of rows, row by row.
type replay struct {
	fakeRouter
	from *event.Batch
	next int
}

// rows returns the changes to call Route with, one for each row.
func (r *replay) rows(xid string) (all []*event.Change) {
	for i := range r.from.Invalidations {
		if v := r.from.Version(i); i == 0 || v != r.from.Version(i-1) {
			all = append(all, &event.Change{Table: product, Tx: &event.Tx{XID: xid}, Version: v})
		}
	}
	return all
}

func (r *replay) Route(b *event.Batch, c *event.Change) {
	for ; r.next < r.from.Len() && r.from.Version(r.next) == c.Version; r.next++ {
		o := r.from.Origin(int(r.from.Invalidations[r.next].Origin))
		o.Tx = *c.Tx
		at := b.FindOrigin(&o, len(b.Origins))
		if at < 0 {
			at = len(b.Origins)
			b.AddOrigin(o)
		}
		inv, key := r.from.Invalidations[r.next], r.from.Key(r.next)
		b.AddItem(event.Item{
			Text: append(append(b.Text(), key...), r.from.Fields(r.next)...), Key: len(key), Row: inv.Row,
			Action: inv.Action, Intent: inv.Intent, Effect: r.from.EffectOf(r.next),
		})
		b.Invalidations[b.Len()-1].Origin = uint32(at)
	}
}

// What the router makes from the rows of a prepared transaction is what its commit hands on, in the same order, under
// the same mappings, tables and second deletes; and at XA PREPARE nothing of it is written.
func TestWhatTheRouterMakesOfAPreparedTransactionComesBackAtItsCommit(t *testing.T) {
	s := openStore(t, t.TempDir())
	defer s.Close()
	used := 0
	rapid.Check(t, func(rt *rapid.T) {
		for _, b := range routertest.Batches(rt) {
			used++
			xid := fmt.Sprint("X'", used, "'")
			r, l := xaReader(t, s)
			routed := &replay{from: b}
			r.router = routed
			for _, c := range routed.rows(xid) {
				must(t, r.Row(c))
			}
			must(t, r.Prepare(&event.Tx{XID: xid}, end(1<<40)))
			must(t, r.Flush())
			want := routertest.Items(b)
			prepared := routertest.Items(l.batches...)
			for i := range want {
				if p := prepared[i]; p.Key != want[i].Key || p.Intent == event.IntentPut || p.Version != want[i].Version {
					rt.Fatalf("at XA PREPARE: %+v of %+v", p, want[i])
				}
			}
			l.batches = nil
			commit := version(9, 1, 500, 0) // after all rows
			must(t, r.Resolve(true, &event.Tx{XID: xid}, commit, end(1<<41)))
			must(t, r.Flush())
			got := routertest.Items(l.batches...)
			for i := range want {
				want[i].Origin.Tx, want[i].Origin.Event, want[i].Version = event.Tx{}, commit, commit
			}
			for i := range got {
				if i > 0 && got[i].Version.Compare(got[i-1].Version) < 0 {
					rt.Fatalf("version %s after %s", got[i].Version, got[i-1].Version)
				}
				got[i].Origin.Tx, got[i].Version.Row = event.Tx{}, 0
			}
			if d := cmp.Diff(want, got); d != "" {
				rt.Fatal(d)
			}
			for _, b := range l.batches {
				if len(b.Origins) > len(routed.from.Commons) {
					rt.Fatalf("%d origins for %d mappings and tables", len(b.Origins), len(routed.from.Commons))
				}
			}
		}
	})
}
