package router

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/event"
)

// rowsOf routes inserts with these ids at these versions under a GTID, and returns what came of it.
func rowsOf(f *feed, tx event.Tx, v event.Version, ids ...int) string {
	needs, _ := f.r.Bind(f.table)
	for _, id := range ids {
		v.Row++
		f.r.Route(&f.batch, &event.Change{
			Table: f.table, Tx: &tx, Op: event.Insert, Version: v,
			After: row{"id": id, "category_id": 1}.image(f.table, needs),
		})
	}
	return f.items()
}

func gtid(n uint64) event.Tx {
	return event.Tx{GTID: event.GTID{UUID: [16]byte{1}, Number: n}}
}

func at(epoch, file uint32, pos uint64) event.Version {
	return event.Version{Epoch: epoch, File: file, Pos: pos}
}

func TestACounterIsIncrementedOnceATransaction(t *testing.T) {
	f := newFeed(t, mustNew(t, spectest.Counter("gen:{category_id}")), spectest.Product())
	const one = "incr forget gen:1\n"
	for _, s := range []struct {
		what string
		tx   event.Tx
		at   event.Version
		want string
	}{
		{"the first rows event", gtid(1), at(1, 1, 100), one},
		{"the next one", gtid(1), at(1, 1, 200), ""},
		{"the next transaction", gtid(2), at(1, 1, 300), one},
		{"which is read again from its beginning", gtid(2), at(1, 1, 300), one},
		{"from another server", gtid(2), at(2, 1, 300), one},
		{"from another file", gtid(2), at(2, 2, 400), one},
		{"no GTID: only a rows event is surely of one transaction", event.Tx{}, at(2, 2, 500), one},
		{"another rows event", event.Tx{}, at(2, 2, 600), one},
		{"a GTID again", gtid(3), at(2, 2, 700), one},
	} {
		if got := rowsOf(f, s.tx, s.at, 1, 2, 3); got != s.want {
			t.Errorf("%s: %q, want %q", s.what, got, s.want)
		}
	}
}

func TestTheLongerSecondDeleteOfACounterCounts(t *testing.T) {
	f := newFeed(t, mustNew(t, spectest.Counter("gen").D(time.Second), spectest.Counter("gen").D(5*time.Second),
		spectest.Counter("gen").D(2*time.Second)), spectest.Product())
	needs, _ := f.r.Bind(f.table)
	tx := gtid(1)
	f.r.Route(&f.batch, &event.Change{
		Table: f.table, Tx: &tx, Op: event.Insert, Version: at(1, 1, 4),
		After: row{}.image(f.table, needs),
	})
	var got []time.Duration
	for i := range f.batch.Len() {
		got = append(got, f.batch.Of(i).D)
	}
	if fmt.Sprint(got) != "[1s 5s]" {
		t.Errorf("second deletes %v, want 1s and then the longer 5s", got)
	}
}

// Past the bound a counter is incremented once more, which is harmless, and nothing more is remembered.
func TestWhatIsRememberedOfATransactionIsBounded(t *testing.T) {
	f := newFeed(t, mustNew(t, spectest.Counter("gen:{id}")), spectest.Product())
	var ids []int
	for i := range maxCounters + 10 {
		ids = append(ids, i)
	}
	rowsOf(f, gtid(1), at(1, 1, 100), ids...)
	if n := len(f.r.once.seen); n != maxCounters {
		t.Errorf("%d counters are remembered, want %d", n, maxCounters)
	}
	if got := rowsOf(f, gtid(1), at(1, 1, 200), 0, maxCounters+5); got != fmt.Sprintf("incr forget gen:%d\n", maxCounters+
		5) {
		t.Errorf("got %q", got)
	}
	long := newFeed(t, mustNew(t, spectest.Counter("{name}")), spectest.Product())
	needs, _ := long.r.Bind(long.table)
	tx := gtid(1)
	for i := range 100 {
		name := strings.Repeat("x", 60<<10) + fmt.Sprint(i)
		long.r.Route(&long.batch, &event.Change{
			Table: long.table, Tx: &tx, Op: event.Insert, Version: at(1, 1, uint64(i+1)),
			After: row{"name": name}.image(long.table, needs),
		})
	}
	if long.r.once.bytes > maxCounterBytes {
		t.Errorf("%d bytes of keys are remembered", long.r.once.bytes)
	}
}
