package canal

import (
	"time"

	"github.com/freshet/freshet/event"
)

// maxRuns bounds the runs of GTIDs that are gathered before all that was read must be handed over.
const maxRuns = 4096

// pending is what was handed out and not yet handed over by the caller, as a requirement: the transactions from the
// first to the last one that had rows.
type pending struct {
	active bool
	runs   event.End
	// need is after the beginning of the last transaction that had rows, and committed when the first was committed.
	need      binlogPos
	committed time.Time
	end       [1]event.GTIDRange // the memory of [event.End].GTIDs
}

func (p *pending) clear() { p.active, p.runs.GTIDs = false, p.runs.GTIDs[:0] }

func (p *pending) add(g event.GTID) { p.runs.AddTx("", 0, g, p.runs.Committed) }

// note adds the present transaction to the pending requirement: before the caller gets anything of it, since it may
// be handed over at once.
func (l *loop) note() {
	l.tx.noted = true
	if !l.pend.active {
		l.pend.committed = l.tx.Committed
	}
	l.pend.active = true
	l.pend.add(l.tx.GTID)
	l.pend.need = l.tx.begin
	l.pend.need.pos++
}

// requirement takes the pending requirement. If there is none (the keys of one transaction fill several batches), the
// requirement is again that of the last transaction.
func (l *loop) requirement(last event.Version) requirement {
	if !l.pend.active {
		l.note()
	}
	if l.doubted.Compare(last) > 0 {
		last = l.doubted
	}
	l.doubted = event.Version{}
	p := &l.pend
	c := requirement{
		last: last, need: p.need, gtids: append([]event.GTIDRange(nil), p.runs.GTIDs...), committed: p.committed,
	}
	if l.tx.open {
		c.open = l.tx.GTID
	}
	p.clear()
	l.tx.noted = false
	return c
}

// handedOver is [Canal.HandedOver].
func (l *loop) handedOver() {
	if !l.doubted.IsZero() {
		l.vis.handover(l.requirement(l.doubted))
	}
	// What has not been handed over by now had no keys.
	l.pend.clear()
	l.tx.noted = false
	at := l.at
	if l.tx.open {
		at = l.tx.begin
	}
	l.vis.handed(at, l.epoch, l.runs.GTIDs)
	for _, r := range l.runs.GTIDs {
		l.gtids.AddRange(r)
	}
	l.runs.GTIDs = l.runs.GTIDs[:0]
	l.handed = true
	l.publish()
}

// position is how far everything has been handed out.
func (l *loop) position() event.Position {
	for _, r := range l.runs.GTIDs {
		l.gtids.AddRange(r)
	}
	return event.Position{
		Flavor: l.flavor, Server: l.server, Epoch: l.epoch, File: l.done.file, Pos: l.done.pos, GTIDs: l.gtids.Clone(),
	}
}
