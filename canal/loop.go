package canal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/event"
)

const (
	// maxRuns bounds the runs of GTIDs that are gathered before they are noted.
	maxRuns = 4096
	// publishEach is after how many rows or transactions, a power of two, the loop's numbers are shown.
	publishEach = 1024
)

// loop reads the source. One goroutine owns it: that of [Canal.Run], which is also the one that calls the sink.
type loop struct {
	*Canal
	ctx     context.Context // of the run
	dec     *binlog.Decoder
	tables  *tables
	started func(*heart) // starts the heartbeat, once
	each    func(*event.Change) error
	inner   func(binlog.Header, []byte) error

	// What survives a connection: how far everything has been handed to the sink.

	flavor event.Flavor
	server string
	epoch  uint32
	byGTID bool
	gtids  event.GTIDSet // of all transactions that were handed over, but for those in runs
	runs   event.End     // those since the last flush
	done   place         // where the last transaction ended
	last   event.Version // of the last row
	target target
	pend   pending
	xa     *xaStart
	// begun is of the file of done; reading of the one that is being read.
	begun, reading birth
	pace           pace
	// lost is the transaction that was open when the connection broke, until it comes again.
	lost event.GTID
	// lagging is the server that answers and lacks what we have passed, once that is a doubt; "" while none does.
	lagging string
	// troubles are the tables of which rows could not be read, by schema.table. suspect is the last event that may have
	// been damaged on its way.
	troubles map[string]trouble
	suspect  place

	// What does not.

	at       place  // where the next event begins
	floor    place  // no transaction that is sent begins before it
	from     uint64 // what begins before it in the first file is not wanted
	fresh    bool   // no transaction has come yet
	replayed bool   // rows that were handed over may come again
	tx       transaction
	change   event.Change
	begin    place // of the present event, or of the TRANSACTION_PAYLOAD around it

	// The loop's own numbers; publish shows them. shown are the rows that it has shown.

	events, transactions, rows, again, shown uint64
	committed                                time.Time
}

func newLoop(ctx context.Context, c *Canal) (*loop, error) {
	l := &loop{Canal: c, ctx: ctx, troubles: map[string]trouble{}, xa: &xaStart{}}
	l.each, l.inner = l.row, l.dispatch
	l.pace.now = time.Now
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
	if l.pace.read(len(ev)) {
		if err := l.idle(); err != nil {
			return err
		}
	}
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
	return l.dispatch(h, body)
}

// dispatch handles an event that stands in the file, or in a TRANSACTION_PAYLOAD in the file.
func (l *loop) dispatch(h binlog.Header, body []byte) error {
	var err error
	switch {
	case h.Type.IsRows():
		return l.rowsEvent(h, body)
	case h.Type == binlog.TypeTableMap:
		return l.tableMap(body)
	case h.Type == binlog.TypeXID:
		return l.finish(h, committed)
	case isQuery(h.Type):
		return l.query(h, body)
	case isGTID(h.Type):
		return l.beginGroup(h, body)
	case h.Type == binlog.TypeTransactionPayload:
		l.change.Version.Row = 0
		l.tx.inPayload = true
		err = l.dec.Payload(body, l.inner)
		l.tx.inPayload = false
	case h.Type == binlog.TypeXAPrepare:
		return l.xaPrepare(h, body)
	case h.Type == binlog.TypeIncident:
		return l.incident(body)
	default:
		if err := h.Ignorable(); err != nil {
			return l.unreadable(err)
		}
	}
	return l.damaged(l.begin, err)
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

// tableMap takes the definition that the next rows have.
func (l *loop) tableMap(body []byte) (err error) {
	defer l.contain(&err)
	return l.dec.TableMap(body)
}

// rowsEvent hands the rows of an event to the sink.
func (l *loop) rowsEvent(h binlog.Header, body []byte) (err error) {
	defer l.contain(&err)
	l.open()
	if !l.tx.inPayload {
		l.change.Version.Row = 0
	}
	row := l.change.Version.Row
	l.change.Version = l.version(row)
	l.change.Tx = &l.tx.Tx
	err = l.dec.Rows(h, body, &l.change, l.each)
	if l.rows-l.shown >= publishEach {
		l.publish()
	}
	return err
}

// version is that of the event being handled.
func (l *loop) version(row uint32) event.Version {
	return event.Version{Epoch: l.epoch, File: l.begin.number, Pos: l.begin.pos, Row: row}
}

// row hands one row change to the sink.
func (l *loop) row(c *event.Change) error {
	if l.replayed {
		// The server sends the whole transaction again. Its rows have the versions that they had, so what is not
		// above the last one has been handed over.
		if c.Version.Compare(l.last) <= 0 {
			l.again++
			return nil
		}
		l.replayed = false
	}
	if !l.tx.noted {
		l.note()
	}
	l.rows++
	l.last = c.Version
	if err := l.sink.Row(c); err != nil {
		return &sinkError{err}
	}
	return nil
}

// rotate moves to another file: at the end of one, and, made up by the server, at the beginning of a stream.
func (l *loop) rotate(h binlog.Header, body []byte) error {
	r, err := binlog.ParseRotate(body)
	if err != nil {
		return l.damaged(l.at, err)
	}
	if h.Flags&binlog.FlagArtificial == 0 {
		if err := l.pass(h.Size, h.LogPos); err != nil {
			return err
		}
	}
	if r.File == l.at.file && r.Pos == l.at.pos {
		return nil
	}
	to, err := placeOf(strings.Clone(r.File), r.Pos)
	if err != nil {
		return l.damaged(l.at, err)
	}
	if !l.fresh && to.compare(l.at) < 0 {
		return &EventError{File: l.at.file, Pos: l.at.pos, Err: fmt.Errorf("%w: it goes back to %s", errNonsense, to)}
	}
	if l.at.file != "" && to.file != l.at.file {
		l.from = 0
	}
	l.at = to
	return nil
}

// heartbeat says that all before it has been sent, or, at the beginning of a dump by GTID, left out because we have
// it.
func (l *loop) heartbeat(h binlog.Header, body []byte) error {
	b, err := binlog.ParseHeartbeat(h, body)
	if err != nil {
		return l.damaged(l.at, err)
	}
	if l.tx.open || string(b.File) != l.at.file {
		return nil
	}
	if b.Wide {
		l.at.pos = max(l.at.pos, b.Pos)
	} else {
		l.forward(reach(max(l.at.pos, l.floorPos()), uint32(b.Pos)))
	}
	return nil
}

// artificial handles what the server makes up at the beginning of a stream. MariaDB says so how far it has gone
// over what we have.
func (l *loop) artificial(h binlog.Header) {
	if h.Type == binlog.TypeMariaGTIDList && h.LogPos != 0 && !l.tx.open {
		l.forward(reach(max(l.at.pos, l.floorPos()), h.LogPos))
	}
}

// forward moves on to where the server says that it is, unless that is rather before the present place.
func (l *loop) forward(to uint64) {
	if to > l.at.pos && to-l.at.pos <= uint64(l.maxJump()) {
		l.at.pos = to
	}
}

// format begins a file. Sent at the beginning of a stream from the middle of a file, it does not move the position.
func (l *loop) format(h binlog.Header) error {
	if l.tx.open {
		l.abandon()
	}
	l.reading = birth{l.at.file, h.Timestamp}
	if l.at.pos != firstEvent || h.LogPos == 0 {
		return nil
	}
	return l.pass(h.Size, h.LogPos)
}

// pass moves over an event.
func (l *loop) pass(size, logPos uint32) error {
	at := l.at
	if err := l.at.pass(size, logPos, l.floorPos(), l.maxJump()); err != nil {
		return &EventError{File: at.file, Pos: at.pos, Err: err}
	}
	return nil
}

// floorPos is a position that the first events of a stream do not lie before, as far as it tells where the 32 bits of
// theirs have wrapped. Events between transactions may come that are a little before the transaction's end that we
// asked from.
func (l *loop) floorPos() uint64 {
	const slack = 1 << 24
	if !l.fresh || l.floor.file != l.at.file || l.floor.pos < 1<<32 {
		return 0
	}
	return l.floor.pos - slack
}

// maxJump is how much the server may leave out before an event: nothing on MySQL, but for transactions that we have
// in a dump by GTID; on MariaDB also the text of statements.
func (l *loop) maxJump() uint32 {
	switch {
	case l.flavor == event.MySQL && (!l.byGTID || l.tx.open):
		return 0
	case l.fresh:
		return anyJump
	}
	return 1<<31 - 1
}

// waits is called when the source has nothing more to send for now, on the loop's goroutine.
func (l *loop) waits() error {
	l.tables.looks.waits()
	return l.idle()
}

// idle is called when the source has nothing more to send for now, or when what was read has waited for long enough, on
// the loop's goroutine.
func (l *loop) idle() error {
	if err := l.handOn(); err != nil {
		return err
	}
	if err := l.tables.look(l.reached()); err != nil {
		return err
	}
	if l.reached() {
		return errCaughtUp
	}
	return nil
}

// handOn has the sink hand on what it has gathered, and notes that all that was read has been handed over.
func (l *loop) handOn() error {
	if err := l.flush(); err != nil {
		return err
	}
	// What the sink has not handed over by now had no keys.
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
	l.pace.handedOn()
	l.publish()
	return nil
}

// publish shows the loop's numbers.
func (l *loop) publish() {
	l.n.events.Store(l.events)
	l.n.transactions.Store(l.transactions)
	l.n.rows.Store(l.rows)
	l.n.replayed.Store(l.again)
	if !l.committed.IsZero() {
		l.n.committed.Store(l.committed.UnixNano())
	}
	l.shown = l.rows
}

// target is where to stop.
type target struct {
	place
	epoch uint32
}

// reached reports whether everything that the source held at the start has been read.
func (l *loop) reached() bool {
	return l.o.UntilCaughtUp && !l.tx.open && l.target.epoch == l.epoch && l.at.compare(l.target.place) >= 0
}

// damaged explains an error of decoding; errors of the sink and of the tables pass.
func (l *loop) damaged(at place, err error) error {
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
		Position: p, Mend: mendPurged,
		Reason: fmt.Sprintf("the source's binlog says at %s that it has lost events (incident %d: %q)", l.begin, i.Number, i.Message),
	}
}

// position is how far everything has been handed to the sink.
func (l *loop) position() event.Position {
	for _, r := range l.runs.GTIDs {
		l.gtids.AddRange(r)
	}
	return event.Position{
		Flavor: l.flavor, Server: l.server, Epoch: l.epoch, File: l.done.file, Pos: l.done.pos, GTIDs: l.gtids.Clone(),
	}
}

// committedAt is the time of a commit by the source's clock.
func committedAt(micros uint64, h binlog.Header) time.Time {
	if micros != 0 {
		return time.UnixMicro(int64(micros))
	}
	return time.Unix(int64(h.Timestamp), 0)
}
