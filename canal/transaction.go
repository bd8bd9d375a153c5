package canal

import (
	"errors"
	"slices"
	"time"

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
	begin binlogPos
	// began: BEGIN or XA START has been read, so a statement does not end it.
	began bool
	// announced: a GTID event has begun it. standalone: that said that one statement follows and is all.
	announced, standalone bool
	// noted: the pending requirement holds it.
	noted bool
	// doubted are the tables of the doubts that it has given rise to, if it is an XA transaction; "": all.
	doubted []string
}

// maxDoubted bounds how many tables of one transaction are named.
const maxDoubted = 100

// doubt takes note of a doubt in an XA transaction: nobody sees what it is about before that is committed.
func (t *transaction) doubt(tables []string) {
	if t.XID == "" {
		return
	}
	if len(tables) == 0 || len(t.doubted) >= maxDoubted {
		tables, t.doubted = []string{""}, nil
	}
	for _, name := range tables {
		if !slices.Contains(t.doubted, name) && !slices.Contains(t.doubted, "") {
			t.doubted = append(t.doubted, name)
		}
	}
}

// beginGroup handles the GTID event that begins a transaction.
func (l *loop) beginGroup(h binlog.Header, body []byte) error {
	g, err := binlog.ParseGTID(h, body)
	if err != nil {
		return l.damaged(l.begin, err)
	}
	if l.tx.open {
		l.abandon()
	}
	if err := l.fromElsewhere(h.ServerID); err != nil {
		return err
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
	return l.recordMissed()
}

// start begins a transaction at the present event.
func (l *loop) start() {
	t := &l.tx
	*t = transaction{} // emptied where it stands: made elsewhere and copied, it would cost twice as much
	t.open, t.begin = true, l.begin
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
		err := l.raise(l.server, "the source's binlog has begun again: what comes next is at "+l.begin.String()+
			", before "+l.done.String()+" that was read")
		l.target.epoch = l.epoch // it was asked for on this connection
		return err
	}
	return nil
}

// raise begins a new epoch: from here on, places in the binlog say nothing about what came before.
func (l *loop) raise(server, why string) error {
	if err := l.checkpoint.Raise(server, l.epoch+1); err != nil {
		return l.stop(err)
	}
	l.epoch++
	l.server = server
	l.done, l.floor, l.replayed = binlogPos{}, binlogPos{}, false
	l.vis.begin(server, l.epoch)
	l.m.epoch.Set(float64(l.epoch))
	l.o.Alarms.Raise(alarm.EpochRaised, "source "+l.o.Source+": "+why+"; reading goes on by GTID under a new epoch")
	return nil
}

// abandon drops a transaction whose end did not come: the source crashed while it wrote it. Its rows were handed
// out, which does no harm, but nobody will ever see them.
func (l *loop) abandon() {
	if g := l.tx.GTID; !g.IsZero() {
		l.vis.forget(g)
		l.pend.runs.GTIDs = without(l.pend.runs.GTIDs, g)
	}
	l.tx = transaction{}
}

// finish ends the transaction at the present event.
func (l *loop) finish(h binlog.Header, how Kind) (err error) {
	l.open()
	t, step := &l.tx, &l.step
	if t.Committed.IsZero() {
		t.Committed = committedAt(0, h)
	}
	t.open = false
	if how == XACommitted && !t.noted {
		l.note() // its rows were prepared earlier; the keys are handed over again now
	}
	if how == XACommitted {
		l.doubted = l.version(0)
	}
	if l.pend.active && !t.noted {
		// So that the runs of a requirement are few: what lies between its transactions is visible as well by then.
		l.pend.add(t.GTID)
	}
	end := &step.End
	*end = event.End{Epoch: l.epoch, File: l.at.file, Pos: l.at.pos, Committed: t.Committed}
	if l.byGTID && !t.GTID.IsZero() {
		l.pend.end[0] = event.GTIDRange{First: t.GTID, Last: t.GTID.Number}
		end.GTIDs = l.pend.end[:]
	}
	if step.Doubted = nil; how == Prepared {
		l.xa.prepare(t.XID, t.GTID, l.at)
		step.Doubted = t.doubted
	}
	if l.tables.cascading.passed(l.tables, l.at) {
		l.dec.Forget()
	}
	if end.State, err = l.newState(); err != nil {
		return err
	}
	step.Kind, step.Tx, step.Version, step.Unread = how, &t.Tx, l.version(0), false
	if how == XACommitted || how == XARolledBack {
		l.resolve()
	}
	l.done, l.replayed = l.at, false
	if l.byGTID {
		l.runs.AddTx(end.File, end.Pos, t.GTID, t.Committed)
	}
	l.transactions++
	l.committed = t.Committed
	if l.transactions%publishEach == 0 {
		l.publish()
	}
	return nil
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
		return l.finish(h, Committed)
	}
	return l.finish(h, Prepared)
}

// committedAt is the time of a commit by the source's clock.
func committedAt(micros uint64, h binlog.Header) time.Time {
	if micros != 0 {
		return time.UnixMicro(int64(micros))
	}
	return time.Unix(int64(h.Timestamp), 0)
}
