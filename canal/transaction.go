package canal

import (
	"errors"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
)

// transaction is the one that is being read.
type transaction struct {
	event.Tx
	// open: its end has not been read.
	open bool
	// begin is where it begins.
	begin place
	// began: BEGIN or XA START has been read, so a statement does not end it.
	began bool
	// announced: a GTID event has begun it. standalone: that said that one statement follows and is all.
	announced, standalone bool
	// noted: the pending claim holds it.
	noted     bool
	inPayload bool
}

// outcome is how a transaction ends.
type outcome uint8

const (
	committed outcome = iota
	prepared
	xaCommitted
	xaRolledBack
)

// beginGroup handles the GTID event that begins a transaction.
func (l *loop) beginGroup(h binlog.Header, body []byte) error {
	g, err := binlog.ParseGTID(h, body)
	if err != nil {
		return l.damaged(l.begin, err)
	}
	if l.tx.open {
		l.abandon()
	}
	if l.fresh {
		if err := l.firstOf(g.GTID); err != nil {
			return err
		}
	}
	l.start()
	l.tx.GTID = g.GTID
	l.tx.XID = g.XID
	l.tx.Committed = committedAt(g.Committed, h)
	l.tx.announced, l.tx.standalone = true, g.Standalone
	return nil
}

// start begins a transaction at the present event.
func (l *loop) start() {
	t := &l.tx
	in := t.inPayload
	*t = transaction{} // emptied where it stands: made elsewhere and copied, it would cost twice as much
	t.open, t.begin, t.inPayload = true, l.begin, in
}

// open begins a transaction that no GTID event has announced.
func (l *loop) open() {
	if l.tx.open {
		return
	}
	l.start()
	l.fresh = false
}

// firstOf looks at the first transaction of a connection, for what it tells of those before it.
func (l *loop) firstOf(g event.GTID) error {
	l.fresh = false
	if !l.lost.IsZero() && l.lost != g {
		// What was open when the connection broke does not come again.
		l.vis.forget(l.lost)
	}
	l.lost = event.GTID{}
	if !l.done.isZero() && l.begin.compare(l.done) < 0 {
		err := l.raise(l.server, "the source's binlog has begun anew: what comes next is at "+l.begin.String()+
			", before "+l.done.String()+" that was read")
		l.target.epoch = l.epoch // it was asked for on this connection
		return err
	}
	return nil
}

// raise begins a new epoch: from here on, places in the binlog say nothing about what came before.
func (l *loop) raise(server, why string) error {
	if err := l.checkpoint.Raise(server, l.epoch+1); err != nil {
		return &sinkError{err}
	}
	l.epoch++
	l.server = server
	l.done, l.floor, l.replayed = place{}, place{}, false
	l.vis.begin(server, l.epoch)
	l.m.epoch.Set(float64(l.epoch))
	l.o.Alarms.Raise(alarm.EpochRaised, "source "+l.o.Source+": "+why+"; reading goes on by GTID under a new epoch")
	return nil
}

// abandon drops a transaction whose end did not come: the source crashed while it wrote it. Its rows were handed
// over, which does no harm, but nobody will ever see them.
func (l *loop) abandon() {
	if g := l.tx.GTID; !g.IsZero() {
		l.vis.forget(g)
		l.pend.runs.GTIDs = without(l.pend.runs.GTIDs, g)
	}
	l.tx = transaction{}
}

// finish ends the transaction at the present event.
func (l *loop) finish(h binlog.Header, how outcome) error {
	l.open()
	t := &l.tx
	if t.Committed.IsZero() {
		t.Committed = committedAt(0, h)
	}
	t.open = false
	if how == xaCommitted && !t.noted {
		l.note() // its rows were prepared earlier; the keys are handed over again now
	}
	if l.pend.active && !t.noted {
		// So that the runs of a claim are few: what lies between its transactions is visible as well by then.
		l.pend.add(t.GTID)
	}
	end := event.End{Epoch: l.epoch, File: l.at.file, Pos: l.at.pos, Committed: t.Committed}
	run := event.GTIDRange{First: t.GTID, Last: t.GTID.Number}
	if l.byGTID && !t.GTID.IsZero() {
		l.pend.end[0] = run
		end.GTIDs = l.pend.end[:]
	}
	if err := l.tell(how, end); err != nil {
		return err
	}
	l.done, l.replayed = l.at, false
	if l.byGTID {
		l.runs.AddTx(end.File, end.Pos, t.GTID, t.Committed)
	}
	l.transactions++
	l.committed = t.Committed
	return l.afterEnd()
}

// tell tells the sink of the end of a transaction, and what has to be known beside the position from there on.
func (l *loop) tell(how outcome, end event.End) (err error) {
	t := &l.tx.Tx
	if how == prepared {
		l.xa.prepare(t.XID, t.GTID, l.at)
	}
	if end.State, err = l.newState(); err != nil {
		return err
	}
	switch how {
	case xaCommitted, xaRolledBack:
		return l.resolve(how == xaCommitted, end)
	case prepared:
		err = l.sink.Prepare(t, end)
	default:
		err = l.sink.Commit(t, end)
	}
	if err != nil {
		return &sinkError{err}
	}
	return nil
}

// afterEnd looks after what grows, and stops where it was asked to.
func (l *loop) afterEnd() error {
	if l.transactions%publishEach == 0 {
		l.publish()
	}
	if len(l.runs.GTIDs) < maxRuns && !l.reached() {
		return nil
	}
	return l.idle()
}

// xaPrepare ends the rows of an XA transaction.
func (l *loop) xaPrepare(h binlog.Header, body []byte) error {
	x, err := binlog.ParseXAPrepare(body)
	if err != nil {
		return l.damaged(l.begin, err)
	}
	if l.tx.XID == "" {
		l.tx.XID = x.XID
	}
	if l.tx.XID != x.XID {
		return l.unreadable(errors.New("XA PREPARE of another transaction than was begun"))
	}
	if x.OnePhase {
		return l.finish(h, committed)
	}
	return l.finish(h, prepared)
}

// pending is what was handed to the sink and not yet handed over by it, as a claim: the transactions from the first
// to the last one that had rows.
type pending struct {
	active bool
	runs   event.End
	// need is behind the beginning of the last transaction that had rows.
	need place
	end  [1]event.GTIDRange // the memory of [event.End].GTIDs
}

func (p *pending) clear() { p.active, p.runs.GTIDs = false, p.runs.GTIDs[:0] }

func (p *pending) add(g event.GTID) { p.runs.AddTx("", 0, g, p.runs.Committed) }

// note adds the present transaction to the pending claim: before the sink gets anything of it, since the sink may
// hand over at once.
func (l *loop) note() {
	l.tx.noted = true
	l.pend.active = true
	l.pend.add(l.tx.GTID)
	l.pend.need = l.tx.begin
	l.pend.need.pos++
}

// claim takes the pending claim. If there is none (the keys of one transaction fill several batches), the claim is
// again that of the last transaction.
func (l *loop) claim(last event.Version) claim {
	if !l.pend.active {
		l.note()
	}
	p := &l.pend
	c := claim{last: last, need: p.need, gtids: append([]event.GTIDRange(nil), p.runs.GTIDs...)}
	if l.tx.open {
		c.open = l.tx.GTID
	}
	p.clear()
	l.tx.noted = false
	return c
}
