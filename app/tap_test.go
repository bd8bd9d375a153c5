package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet/freshet/event"
)

// batchOf returns a batch as the reader hands it over.
func batchOf(keys ...string) *event.Batch {
	var b event.Batch
	b.AddOrigin(event.Origin{
		Table: "shop.product", Tx: event.Tx{Committed: noon, GTID: event.GTID{Domain: 0, Server: 2, Number: 57}},
		Event: version(1, 112, 4096, 0),
	})
	for i, k := range keys {
		b.Add(append(b.Text(), k...), uint32(i+1), event.ActionDelete)
	}
	return b.Clone()
}

func TestATapShowsWhatPassesWhileSomebodyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tp tap
		tp.show(batchOf("before"))
		ctx, stop := context.WithCancel(t.Context())
		var seen [2][]string
		ended := make(chan error, 2)
		for i := range seen {
			go func() {
				ended <- tp.watch(ctx, func(b *event.Batch, missed int64) error {
					for j := range b.Len() {
						seen[i] = append(seen[i], b.Key(j))
					}
					return nil
				})
			}()
		}
		synctest.Wait()
		tp.show(batchOf("product:1", "product:2"))
		tp.show(batchOf())
		tp.show(batchOf("product:3"))
		synctest.Wait()
		stop()
		for range seen {
			must(t, <-ended)
		}
		tp.show(batchOf("after"))
		for i := range seen {
			if len(seen[i]) != 3 || seen[i][0] != "product:1" || seen[i][2] != "product:3" {
				t.Errorf("watcher %d saw %q", i, seen[i])
			}
		}
		if tp.watched.Load() != 0 || len(tp.watchers) != 0 {
			t.Error("the watchers are still there")
		}
		var none *tap
		none.show(batchOf("x"))
	})
}

func TestASlowWatcherIsToldWhatItMissedAndHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tp tap
		enough := errors.New("enough")
		shown, missedAll := 0, int64(0)
		ended := make(chan error, 1)
		go func() {
			ended <- tp.watch(t.Context(), func(b *event.Batch, missed int64) error {
				<-time.After(time.Second) // of the bubble: this is what slow means
				shown++
				missedAll += missed
				if b.Key(0) == "last" {
					return enough
				}
				return nil
			})
		}()
		synctest.Wait()
		const n = 10 * tapBuffer
		for range n {
			tp.show(batchOf("product:1")) // never waits: no time passes in the bubble
		}
		<-time.After(time.Hour)
		tp.show(batchOf("last"))
		if err := <-ended; !errors.Is(err, enough) {
			t.Fatalf("got %v", err)
		}
		if shown != tapBuffer+2 && shown != tapBuffer+1 || int(missedAll)+shown != n+1 {
			t.Errorf("shown %d, missed %d of %d", shown, missedAll, n+1)
		}
	})
}

func TestAnEventOfTheTailIsALine(t *testing.T) {
	var got []TailEvent
	must(t, tailEvents(batchOf("product:1", "product:2"), 3, func(e any) error {
		got = append(got, e.(TailEvent))
		return nil
	}))
	if len(got) != 2 || got[0].Missed != 3 || got[1].Missed != 0 {
		t.Fatalf("got %+v", got)
	}
	want := `2026-01-31T12:00:00.000000  delete  shop.product  "product:2"  1/112/4096/2  0-2-57`
	e := got[1]
	e.Committed = time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local)
	if e.String() != want {
		t.Errorf("%s\nwant\n%s", e, want)
	}
	e.Missed, e.GTID = 3, ""
	if want := "(missed 3 batches)\n" + want[:len(want)-len("  0-2-57")]; e.String() != want {
		t.Errorf("%s\nwant\n%s", e, want)
	}
}
