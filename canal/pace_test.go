package canal

import (
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// The source always has more, and none of it is mapped: what came before is handed on all the same, and the position
// with it.
func TestWhatWasReadIsHandedOnThoughTheSourceHasMore(t *testing.T) {
	const events, each = 100_000, 20 * time.Microsecond
	p := play(t, transactions(t, events/5, 1), false)
	read := time.Duration(0)
	p.pace.now = func() time.Time { return time.Unix(0, 0).Add(read) }
	p.pace.handedOn()
	p.done = p.at
	before := p.sink.flushes
	for n, ev := range p.list[1 : 1+events] {
		read = time.Duration(n) * each
		testbed.Must(t, p.event(ev))
	}
	if got, want := p.sink.flushes-before, int(events*each/handOnAfter); got < want*9/10 || got > want {
		t.Fatalf("handed on %d times in %s, want about %d", got, read, want)
	}
	if left, most := p.at.pos-p.vis.read.pos, p.at.pos/events*uint64(handOnAfter/each+2*lookEvents); left > most {
		t.Errorf("%d bytes before %d are not handed on, want %d at most", left, p.at.pos, most)
	}
}

// A transaction that is still open is handed on as far as it came, and the position stays before it.
func TestWhatWasReadOfAnOpenTransactionIsHandedOn(t *testing.T) {
	tape := transactions(t, 1, 1)
	p := play(t, tape, true)
	testbed.Must(t, p.event(tape.list[1])) // its GTID: it is open
	begin := p.tx.begin
	p.pace.now = func() time.Time { return time.Unix(1, 0) }
	p.pace.events = lookEvents
	testbed.Must(t, p.event(tape.list[2]))
	if p.sink.flushes != 1 || p.vis.read != begin {
		t.Fatalf("handed on %d times, up to %s; want once, up to %s", p.sink.flushes, p.vis.read, begin)
	}
	for _, ev := range tape.list[3:] {
		testbed.Must(t, p.event(ev))
	}
	if p.tx.open || p.transactions != 1 {
		t.Fatalf("%d transactions", p.transactions)
	}
}

// Large events are few, and take as long.
func TestTheClockIsLookedAtAfterSoManyBytes(t *testing.T) {
	now := time.Unix(0, 0)
	p := pace{now: func() time.Time { return now }}
	p.handedOn()
	now = now.Add(handOnAfter)
	for range 3 {
		if p.read(lookBytes / 4) {
			t.Fatal("too early")
		}
	}
	if !p.read(lookBytes / 4) {
		t.Fatal("not handed on")
	}
	p.handedOn()
	if p.read(lookBytes) {
		t.Fatal("handed on at once again")
	}
}
