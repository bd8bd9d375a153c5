package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/config/spec"
	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/doubt/doubttest"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
)

// fakeLog keeps what is appended.
type fakeLog struct {
	batches []*event.Batch
	marks   []event.Mark
	fail    error
}

func (l *fakeLog) Append(_ context.Context, b *event.Batch) error {
	if l.fail == nil {
		l.batches = append(l.batches, b.Clone())
	}
	return l.fail
}

func (l *fakeLog) Mark(m event.Mark) { l.marks = append(l.marks, m) }

// keys returns all keys that were appended.
func (l *fakeLog) keys() (out []string) {
	for _, b := range l.batches {
		for i := range b.Len() {
			out = append(out, b.Key(i))
		}
	}
	return out
}

// fakeRouter makes from a row the key product:N, N the row's position, and pads it.
type fakeRouter struct{ pad int }

func (r *fakeRouter) Publish() {}

func (r *fakeRouter) Route(b *event.Batch, c *event.Change) {
	v := c.Version
	v.Row = 0
	if n := len(b.Origins); n == 0 || b.Origins[n-1].Event != v {
		b.AddOrigin(event.Origin{Table: c.Table.String(), Tx: *c.Tx, Event: v, D: time.Second, Mapping: 4})
	}
	b.Add(append(fmt.Appendf(b.Text(), "product:%d", c.Version.Pos), strings.Repeat("x", r.pad)...), c.Version.Row,
		event.ActionDelete)
}

var product = &event.Table{Schema: "shop", Name: "product"}

// book is an empty book of doubts.
func book(t *testing.T, alarms *alarm.Board) *doubt.Book {
	t.Helper()
	b, err := doubt.New(&doubttest.Memory{}, alarms, nil)
	must(t, err)
	return b
}

func newReader(t *testing.T) (*reader, *fakeLog) {
	board, err := alarm.New(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	must(t, err)
	l := &fakeLog{}
	return &reader{
		source: &fakeSource{age: event.Unknown}, log: l, router: &fakeRouter{},
		troubles: &troubles{alarms: board, doubts: book(t, board), source: "orders"},
		tap:      &tap{}, fresh: &freshness{}, name: "orders", term: 12, latency: latency.New(),
	}, l
}

// row is the row change at a position.
func row(pos uint64, xid string) *event.Change {
	return &event.Change{Table: product, Tx: &event.Tx{XID: xid}, Version: version(1, 1, pos, 1), Op: event.Insert}
}

// end is the end of a transaction at a position, with a GTID whose number is the position as well.
func end(pos uint64) event.End {
	var e event.End
	e.AddTx("binlog.000001", pos, event.GTID{Server: 2, Number: pos}, noon)
	return e
}

func TestTheReaderHandsOnWhatItHasWhenTheSourceWaits(t *testing.T) {
	r, l := newReader(t)
	canal := &fakeSource{age: 3 * time.Second}
	r.source = canal
	must(t, r.Flush())
	if len(l.batches) != 0 {
		t.Fatal("nothing was read, and something handed on")
	}
	for pos := uint64(100); pos <= 300; pos += 100 {
		must(t, r.Row(row(pos, "")))
		must(t, r.Commit(&event.Tx{}, end(pos+50)))
	}
	if len(l.batches) != 0 {
		t.Fatal("handed on before it was full or flushed")
	}
	must(t, r.Flush())
	must(t, r.Flush())
	if len(l.batches) != 1 {
		t.Fatalf("%d batches", len(l.batches))
	}
	b := l.batches[0]
	if b.Source != "orders" || b.Term != 12 || b.Age != 3*time.Second || b.At.IsZero() || b.Len() != 3 ||
		b.Last != version(1, 1, 300, 1) {
		t.Errorf("got %+v", b)
	}
	if b.End.Pos != 350 || len(b.End.GTIDs) == 0 || !b.End.Committed.Equal(noon) {
		t.Errorf("the end is %+v", b.End)
	}
	if len(canal.asked) != 1 || canal.asked[0] != b.Last || canal.handedOver != 3 {
		t.Errorf("canal was asked the age of %v, and everything was handed over %d times", canal.asked, canal.handedOver)
	}
}

func TestTransactionsWithoutMappedRowsMoveThePositionAndClaimNothing(t *testing.T) {
	r, l := newReader(t)
	canal := &fakeSource{}
	r.source = canal
	must(t, r.Commit(&event.Tx{}, end(150)))
	must(t, r.Commit(&event.Tx{}, end(250)))
	must(t, r.Flush())
	if len(l.batches) != 1 || l.batches[0].Len() != 0 || l.batches[0].End.Pos != 250 {
		t.Fatalf("got %+v", l.batches)
	}
	// Nor do they gather without bound: their GTIDs are no run, and each takes room.
	for pos := uint64(1000); pos < 1000+4*batchRanges; pos += 2 {
		must(t, r.Commit(&event.Tx{}, end(pos)))
	}
	for _, b := range l.batches {
		if len(b.End.GTIDs) > batchRanges {
			t.Errorf("a batch with %d runs of GTIDs", len(b.End.GTIDs))
		}
	}
	if len(l.batches) < 2 {
		t.Error("nothing was handed on")
	}
	if len(canal.asked) > 0 {
		t.Error("canal was asked the age of a batch without rows")
	}
}

func TestABatchIsBoundedInKeysAndBytesAndCutsTransactions(t *testing.T) {
	const rows = 2*batchKeys + 10
	for _, pad := range []int{0, 1000} {
		r, l := newReader(t)
		r.router = &fakeRouter{pad: pad}
		for pos := range uint64(rows) {
			must(t, r.Row(row(pos, "")))
		}
		must(t, r.Commit(&event.Tx{}, end(rows)))
		must(t, r.Flush())
		got := 0
		for i, b := range l.batches {
			got += b.Len()
			if b.Len() > batchKeys || len(b.Text()) > batchBytes+pad+100 {
				t.Errorf("pad %d: a batch of %d keys, %d bytes", pad, b.Len(), len(b.Text()))
			}
			// The transaction ends with the last of them only: none before may move the position into its middle.
			if last := i == len(l.batches)-1; b.End.IsZero() == last {
				t.Errorf("pad %d: batch %d of %d has the end %+v", pad, i, len(l.batches), b.End)
			}
		}
		if got != rows || len(l.batches) < 3 {
			t.Errorf("pad %d: %d keys in %d batches", pad, got, len(l.batches))
		}
	}
}

func TestWhatTheLogRefusesEndsTheReader(t *testing.T) {
	r, l := newReader(t)
	l.fail = errors.New("the log is closed")
	must(t, r.Row(row(1, "")))
	if err := r.Flush(); !errors.Is(err, l.fail) {
		t.Errorf("got %v", err)
	}
}

func TestMarksPassBesideTheBatch(t *testing.T) {
	r, l := newReader(t)
	must(t, r.Row(row(1, "")))
	m := event.Mark{Source: "orders", Term: 12, Version: version(1, 1, 1, 1), Made: noon, Read: true}
	r.mark(m)
	if len(l.marks) != 1 || l.marks[0] != m || len(l.batches) != 0 {
		t.Errorf("marks %v, %d batches", l.marks, len(l.batches))
	}
	if got := r.fresh.at(); !got.Equal(noon) {
		t.Errorf("fresh as of %v", got)
	}
}

func TestAMappingThatDoesNotFitATableStopsOnlyItself(t *testing.T) {
	r, _ := newReader(t)
	unfit := spec.Problems{{What: "shop.product has no column sku", Do: "did you mean skus?"}}
	bind := func(err error) canal.Bind {
		return r.troubles.binding(func(*event.Table) ([]event.Need, error) {
			return []event.Need{{Column: 0, Text: true}},
				err
		})
	}
	needs, err := bind(unfit)(t.Context(), product)
	if err != nil || len(needs) != 1 {
		t.Errorf("needs %v, %v", needs, err)
	}
	records := r.troubles.doubts.List()
	if len(records) != 1 || records[0].Cause != alarm.MappingUnfit ||
		!slices.Equal(records[0].Tables, []string{"shop.product"}) ||
		!strings.Contains(records[0].Message, "table shop.product") ||
		!strings.Contains(records[0].Message, "no column sku") {
		t.Errorf("alarms %+v", records)
	}
	other := errors.New("out of memory")
	if _, err := bind(other)(t.Context(), product); !errors.Is(err, other) {
		t.Errorf("got %v", err)
	}
}
