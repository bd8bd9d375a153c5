package canal

import (
	"fmt"
	"strings"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/event"
)

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
	to, err := binlogPosOf(strings.Clone(r.File), r.Pos)
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
	l.quiet = true
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
	err := l.pass(h.Size, h.LogPos)
	l.vis.passed(l.at)
	return err
}

// pass moves over an event.
func (l *loop) pass(size, logPos uint32) error {
	at := l.at
	if err := l.at.pass(size, logPos, l.floorPos(), l.maxJump()); err != nil {
		return &EventError{File: at.file, Pos: at.pos, Err: err}
	}
	return nil
}

// version is that of the event being handled.
func (l *loop) version(row uint32) event.Version {
	return event.Version{Epoch: l.epoch, File: l.begin.number, Pos: l.begin.pos, Row: row}
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

// target is where to stop.
type target struct {
	binlogPos
	epoch uint32
}

// reached reports whether everything that the source held at the start has been read.
func (l *loop) reached() bool {
	return l.o.UntilCaughtUp && !l.tx.open && l.target.epoch == l.epoch && l.at.compare(l.target.binlogPos) >= 0
}
