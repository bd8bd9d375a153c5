package canal

import (
	"errors"
	"testing"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/proof/testbed"
)

// A transaction that is still open is handed on as far as it came, and the position stays before it.
func TestWhatWasReadOfAnOpenTransactionIsHandedOn(t *testing.T) {
	tape := transactions(t, 1, 1)
	p := play(t, tape, true)
	testbed.Must(t, p.event(tape.list[1])) // its GTID: it is open
	begin := p.tx.begin
	for i, ev := range tape.list[2:] {
		testbed.Must(t, p.handOn())
		if p.sink.flushes != i+1 || p.vis.read != begin || !p.tx.open {
			t.Fatalf("handed on %d times, up to %s; want %d times, up to %s", p.sink.flushes, p.vis.read, i+1, begin)
		}
		testbed.Must(t, p.event(ev))
	}
	testbed.Must(t, p.handOn())
	if p.tx.open || p.transactions != 1 || p.vis.read != p.at || p.sink.rows != 1 {
		t.Fatalf("%d transactions, %d rows, up to %s", p.transactions, p.sink.rows, p.vis.read)
	}
}

// Transactions whose numbers make no runs are not gathered without bound: the caller is asked to hand on.
func TestSoManyRunsOfGTIDsAskToBeHandedOn(t *testing.T) {
	l, _ := fed(t)
	l.byGTID, l.dump = true, &dump{}
	for n := range uint64(maxRuns) {
		if l.step.Kind = nothing; l.settle() != nil || l.step.Kind != nothing {
			t.Fatalf("%v after %d transactions", l.step.Kind, n)
		}
		l.begin, l.at = at(100+10*n), at(110+10*n)
		l.start()
		l.tx.GTID = gtid(uuidA, 2*n+1)
		testbed.Must(t, l.loop.finish(binlog.Header{}, Committed))
	}
	if l.step.Kind = nothing; l.settle() != nil || l.step.Kind != Idle {
		t.Fatalf("%v, want that all is handed on", l.step.Kind)
	}
	l.HandedOver()
	if l.step.Kind = nothing; l.settle() != nil || l.step.Kind != nothing || len(l.runs.GTIDs) != 0 {
		t.Fatalf("%v after everything was handed on", l.step.Kind)
	}
	if p := l.position(); !p.GTIDs.Contains(gtid(uuidA, 2*maxRuns-1)) || p.GTIDs.Contains(event.GTID{}) {
		t.Errorf("the position is %s", p.String())
	}
}

// The keys of the last rows do not wait for the definitions to be compared, which takes a while with many tables.
func TestAtTheEndAllIsHandedOnBeforeDefinitionsAreCompared(t *testing.T) {
	l, _ := fed(t)
	l.dump, l.o.UntilCaughtUp, l.target = &dump{}, true, target{at(100), l.epoch}
	l.at = at(200)
	for range 2 {
		if l.step.Kind = nothing; l.settle() != nil || l.step.Kind != Idle {
			t.Fatalf("%v, want that all is handed on", l.step.Kind)
		}
	}
	l.HandedOver()
	if l.step.Kind = nothing; !errors.Is(l.settle(), errCaughtUp) {
		t.Errorf("%v after everything was handed on", l.step.Kind)
	}
}
