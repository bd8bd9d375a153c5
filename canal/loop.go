package canal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/event"
)

// loop reads the source. The goroutine that calls [Canal.Next] owns it.
type loop struct {
	*Canal
	ctx    context.Context // of the call of Next
	dec    *binlog.Decoder
	tables *tables
	step   Step

	// What survives a connection: how far everything has been handed out.

	flavor event.Flavor
	server string
	epoch  uint32
	byGTID bool
	gtids  event.GTIDSet // of all transactions that were handed out, but for those in runs
	runs   event.End     // those since everything was last handed over
	done   binlogPos     // where the last transaction ended
	last   event.Version // of the last row
	target target
	pend   pending
	// serverID is the server_id of the server that is connected to.
	serverID uint32
	// doubted is where the last doubt, or XA COMMIT, is that no batch has covered yet; zero: there is none. It has no
	// keys as a rule, and a mark must cover it all the same.
	doubted event.Version
	xa      *xaStart
	// begun is of the file of done; reading of the one that is being read.
	begun, reading birth
	// lost is the transaction that was open when the connection broke, until it comes again.
	lost event.GTID
	// lagging is the server that answers and lacks what we have passed, once that is a doubt; "" while none does.
	lagging string
	// apart is the address of a server that takes writes next to the one that is connected to; "": there is none.
	apart string
	// troubles are the tables of which rows could not be read, by schema.table. suspect is the last event that may have
	// been damaged on its way.
	troubles map[string]unreadable
	suspect  binlogPos
	// reconnect decides what becomes of broken, which ended the last connection and has not been judged.
	reconnect *reconnect
	broken    error
	// failed is what was wrong with the event of the last step. fatal is an error of the caller's own, see stop.
	failed, fatal error
	// handed: everything was handed over since tables were last looked at.
	handed bool
	// beats: the heartbeat has begun.
	beats bool
	// gap is why reading does not go on from the checkpoint; nil: it does, or has moved on. moved is to where, until the
	// step says so.
	gap   error
	moved event.End

	// What does not.

	dump     *dump
	at       binlogPos // where the next event begins
	floor    binlogPos // no transaction that is sent begins before it
	from     uint64    // what begins before it in the first file is not wanted
	fresh    bool      // no transaction has come yet
	replayed bool      // rows that were handed out may come again
	quiet    bool      // the last event said that there is nothing more to send
	tx       transaction
	payload  *binlog.Payload // the TRANSACTION_PAYLOAD that is being taken apart; nil: none is
	out      rowsEvent
	change   event.Change
	begin    binlogPos // of the present event, or of the TRANSACTION_PAYLOAD around it

	// The loop's own numbers; publish shows them. shown are the rows that it has shown.

	events, transactions, rows, again, shown uint64
	committed                                time.Time
}

func newLoop(c *Canal) (*loop, error) {
	l := &loop{Canal: c, troubles: map[string]unreadable{}, xa: &xaStart{}, gap: c.o.Gap}
	l.reconnect = l.newReconnect()
	l.reconnect.stood = l.gap != nil // the canal before has read with these options
	l.step.Each, l.out.one = l.each, l.row
	l.tables = &tables{l: l, looks: looks{now: time.Now}}
	var err error
	l.dec, err = binlog.New(l.tables, binlog.Options{VerifyChecksums: true})
	return l, err
}

// event handles one event of the stream.
func (l *loop) event(ev []byte) error {
	h, body, err := l.dec.Split(ev)
	if err != nil {
		return l.damaged(l.at, err)
	}
	l.events++
	l.step.Size += len(ev)
	l.quiet = false
	begin := l.at
	switch {
	case h.Type == binlog.TypeRotate:
		return l.rotate(h, body)
	case h.Type == binlog.TypeHeartbeat || h.Type == binlog.TypeHeartbeatV2:
		return l.heartbeat(h, body)
	case h.Flags&binlog.FlagArtificial != 0:
		l.artificial(h)
		return nil
	case h.Type == binlog.TypeFormatDescription:
		return l.format(h)
	}
	if err := l.pass(h.Size, h.LogPos); err != nil {
		return err
	}
	if begin.pos < l.from {
		return nil
	}
	// Where the event begins, by its own word on the end where it gives it: the server may have left out others.
	begin.pos = l.at.pos - uint64(h.Size)
	l.begin = begin
	open := l.tx.open
	err = l.dispatch(h, body)
	if !open && !l.tx.open {
		l.vis.passed(l.at)
	}
	return err
}

// dispatch handles an event that stands in the file, or in a TRANSACTION_PAYLOAD in the file.
func (l *loop) dispatch(h binlog.Header, body []byte) error {
	switch {
	case h.Type.IsRows():
		l.beginRows(h, body)
		return nil
	case h.Type == binlog.TypeTableMap:
		return l.tableMap(body)
	case h.Type == binlog.TypeXID:
		return l.finish(h, Committed)
	case isQuery(h.Type):
		return l.query(h, body)
	case isGTID(h.Type):
		return l.beginGroup(h, body)
	case h.Type == binlog.TypeTransactionPayload:
		return l.beginPayload(body)
	case h.Type == binlog.TypeXAPrepare:
		return l.xaPrepare(h, body)
	case h.Type == binlog.TypeIncident:
		return l.incident(body)
	}
	if err := h.Ignorable(); err != nil {
		return l.unreadable(err)
	}
	return nil
}

// beginPayload begins a compressed transaction. One within another is damaged, and the outer one is closed with the
// connection.
func (l *loop) beginPayload(body []byte) error {
	p, err := l.dec.Payload(body)
	if err != nil {
		return l.damaged(l.begin, err)
	}
	l.payload, l.change.Version.Row = p, 0
	return nil
}

// unfold handles the next event of a compressed transaction.
func (l *loop) unfold() error {
	h, body, err := l.payload.Next()
	if err == io.EOF {
		l.payload = nil
		return nil
	}
	if err != nil {
		return l.damaged(l.begin, err)
	}
	l.step.Size += int(h.Size)
	return l.dispatch(h, body)
}

func isQuery(t binlog.Type) bool {
	switch t {
	case binlog.TypeQuery, binlog.TypeMariaQueryCompressed, binlog.TypeExecuteLoadQuery:
		return true
	}
	return false
}

func isGTID(t binlog.Type) bool {
	switch t {
	case binlog.TypeGTID, binlog.TypeGTIDTagged, binlog.TypeAnonymousGTID, binlog.TypeMariaGTID:
		return true
	}
	return false
}

// damaged explains an error of decoding; all others pass.
func (l *loop) damaged(at binlogPos, err error) error {
	if err == nil || !errors.Is(err, binlog.ErrDamaged) {
		return err
	}
	return &EventError{File: at.file, Pos: at.pos, Err: err}
}

// unreadable is an event that must not be passed over.
func (l *loop) unreadable(err error) error {
	return &EventError{File: l.begin.file, Pos: l.begin.pos, Err: err}
}

// incident: the source itself says that its binlog lacks something.
func (l *loop) incident(body []byte) error {
	i, err := binlog.ParseIncident(body)
	if err != nil {
		return l.unreadable(err)
	}
	p := l.position()
	return &GapError{
		Position: p, Fix: fixPurged,
		Reason: fmt.Sprintf("the source's binlog says at %s that it has lost events (incident %d: %q)", l.begin, i.Number,
			i.Message),
	}
}
