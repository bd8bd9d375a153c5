package canal

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// errModeChanged says that the source's positions are of another kind than at the start of the run.
var errModeChanged = errors.New("the source's gtid_mode has changed while it was read: positions are kept in another " +
	"way now")

// errCaughtUp ends the stream when everything that was asked for has been read.
var errCaughtUp = errors.New("caught up")

// errNonsense is wrapped by errors that say that the stream contradicts itself.
var errNonsense = errors.New("the binlog stream makes no sense")

// mostQuiet is how many bytes of events that make no step are read at a time: what was read before must not wait for
// all of a statement's LOAD DATA.
const mostQuiet = 1 << 20

// dump is a connection that the source's binlog comes down.
type dump struct {
	*session
	events *stream
	// alive: it has brought what we asked for.
	alive bool
}

// next makes the next step. Until there is one it connects, reads, and connects again.
func (l *loop) next() error {
	err := l.settle()
	for {
		if err != nil {
			if err = l.disconnected(err); err != nil {
				return err
			}
		}
		if l.step.Kind == nothing && l.step.Size >= mostQuiet {
			l.step.Kind = Idle
		}
		if l.step.Kind != nothing {
			return nil
		}
		if l.broken != nil {
			if err = l.tryAgain(); err != nil {
				return err
			}
		}
		err = l.advance()
	}
}

// settle does what was put off until the caller had the step before.
func (l *loop) settle() error {
	switch {
	case l.fatal != nil:
		return l.fatal
	case l.failed != nil:
		err := l.failed
		l.failed = nil
		return err
	case l.dump == nil:
		l.handed = false
		return nil
	}
	end := l.reached()
	if end && !l.handed {
		l.step.Kind = Idle // what was read must not wait while tables are looked at
		return nil
	}
	if l.handed {
		l.handed = false
		if err := errors.Join(l.tables.look(end), l.askKeysAgain()); err != nil {
			return err
		}
		if err := l.tables.regain(); err != nil {
			return err
		}
		if !l.tx.open {
			if err := l.recordMissed(); err != nil {
				return err
			}
		}
	}
	if end {
		return errCaughtUp
	}
	if len(l.runs.GTIDs) >= maxRuns {
		l.step.Kind = Idle
	}
	return nil
}

// advance handles one event, or connects.
func (l *loop) advance() error {
	switch {
	case l.dump == nil:
		return l.connect()
	case l.payload != nil:
		return l.unfold()
	}
	ev, err := l.dump.events.next()
	if errors.Is(err, errWouldWait) {
		l.tables.looks.waits()
		if l.quiet {
			l.vis.isQuiet()
			l.quiet = false
		}
		l.step.Kind = Idle
		return nil
	}
	if err != nil {
		return fmt.Errorf("binlog dump from %s: %w", l.dump.address, err)
	}
	if l.events == 0 {
		l.firstByte()
	}
	if err := l.event(ev); err != nil {
		return err
	}
	if d := l.dump; !d.alive && !l.at.isZero() && !l.fresh {
		// It has found what we asked for, however long it had to look.
		d.alive = true
		d.link.timeout = l.o.silence()
		l.reconnect.patience = 1
	}
	return nil
}

// disconnected closes the connection, and returns the error if no new one would fix it. Before another is made, what
// was read is handed on.
func (l *loop) disconnected(err error) error {
	reading := l.hangUp()
	switch {
	case l.fatal != nil:
		return l.fatal
	case l.ctx.Err() != nil:
		return l.ctx.Err()
	case errors.Is(err, errCaughtUp), errors.Is(err, errModeChanged):
		return err
	case errors.Is(err, retry.ErrHalt) && !isDoubtful(err):
		return err
	}
	l.broken = err
	if reading {
		if l.tx.open {
			l.lost = l.tx.GTID
		}
		l.step.Kind = Idle
	}
	return nil
}

// tryAgain drops what was half read, and waits until it is time for a new connection. It returns the error that broke
// the one before if it must be taken for the truth.
func (l *loop) tryAgain() error {
	l.tx = transaction{}
	r, err := l.reconnect, l.broken
	l.broken = nil
	if err := r.judge(l.ctx, l, err, l.progress() != r.before); err != nil {
		return err
	}
	wait := r.attempts.Failed(err)
	l.m.connects.WithLabelValues("error").Inc()
	if time.Since(r.since) >= awayAfter && !isBehind(err) { // that has an alarm of its own
		l.o.Alarms.Raise(alarm.SourceAway, "source "+l.o.Source+" at "+l.o.Servers.words()+" cannot be read: "+words(err))
	}
	return retry.Sleep(l.ctx, wait)
}

// stop notes an error of the caller's own checkpoint, binding or function: it ends the stream as it is, and no new
// connection is made.
func (l *loop) stop(err error) error {
	l.fatal = err
	return err
}

// hangUp closes the connection, wherever it is, and reports whether a dump had begun.
func (l *loop) hangUp() bool {
	if l.payload != nil {
		l.payload.Close()
		l.payload = nil
	}
	if l.dump != nil {
		l.dump.close()
		l.dump = nil
	}
	if cut := l.cut.Load(); cut != nil {
		(*cut)()
	}
	l.streams("")
	reading := l.n.connected.Swap(false)
	if reading {
		l.reconnect.ended()
	}
	return reading
}

// connect connects, checks whether the source can go on from our position, and begins a dump.
func (l *loop) connect() error {
	l.reconnect.begins(l.progress())
	ctx, cut := context.WithCancel(l.ctx)
	l.cut.Store(&cut)
	if l.o.Servers.several() && !l.o.Follow {
		return l.connectAny(ctx)
	}
	address, err := l.o.address(ctx)
	if err != nil {
		return err
	}
	return l.connectTo(ctx, address)
}

// connectTo does so at one address. All questions go there from now on.
func (l *loop) connectTo(ctx context.Context, address string) error {
	if !l.o.Follow {
		l.o.Servers.lead(address, "")
	}
	s, err := l.o.connectTo(ctx, address, queryTimeout)
	if err != nil {
		return err
	}
	events, err := l.begins(ctx, s)
	if err != nil {
		s.close()
		return err
	}
	l.dump = &dump{session: s, events: events}
	if !l.o.Follow {
		l.o.Servers.lead(address, l.server)
	}
	l.streams(address)
	if !l.moved.IsZero() {
		return l.sayMoved()
	}
	return nil
}

// streams shows which address the binlog comes from.
func (l *loop) streams(address string) {
	for _, a := range l.o.Servers.addresses {
		v := 0.0
		if a == address {
			v = 1
		}
		l.m.streamed.WithLabelValues(a).Set(v)
	}
}

// begins begins a dump on a connection, if the source that answers can go on from our position.
func (l *loop) begins(ctx context.Context, s *session) (*stream, error) {
	info, err := l.o.identify(s)
	if err == nil {
		err = info.usable()
	}
	if err == nil {
		err = s.settings(info)
	}
	if err == nil {
		err = l.adopt(ctx, s, info)
	}
	if err != nil {
		return nil, err
	}
	events, err := s.dump(info.Flavor, l.request(info, s.replicas(info)))
	if err != nil {
		return nil, err
	}
	r := l.reconnect
	r.begun()
	s.link.timeout = l.o.silence() * time.Duration(max(1, r.patience))
	s.link.received, s.link.asked = &l.n.received, true
	l.m.connects.WithLabelValues("ok").Inc()
	l.n.connected.Store(true)
	l.o.Logger.Info("reading the source", "source", l.o.Source, "address", s.address, "server", info.Server,
		"version", info.Version, "file", l.done.file, "pos", l.done.pos, "by_gtid", l.byGTID, "epoch", l.epoch)
	return events, nil
}

// firstByte notes when the first event came.
func (l *loop) firstByte() {
	l.mu.Lock()
	l.first = time.Now()
	l.mu.Unlock()
}

// request says what to ask for, and resets what belongs to one connection. taken are the server ids of replicas.
func (l *loop) request(info *SourceInfo, taken []uint32) dumpRequest {
	l.dec.Reset()
	l.at, l.floor, l.from = binlogPos{}, l.done, 0
	l.tx, l.fresh = transaction{}, true
	l.replayed = !l.last.IsZero()
	q := dumpRequest{heartbeat: l.o.Heartbeat, serverID: l.o.freeServerID(info, taken)}
	q.uuid = replicaUUID(q.serverID, l.o.Source)
	p := l.position()
	if l.byGTID && (l.flavor == event.MySQL || !p.GTIDs.IsEmpty()) {
		q.gtids = &p.GTIDs
		return q
	}
	q.file, q.pos = p.File, p.Pos
	if q.pos >= 1<<32 {
		// The command has 32 bits only: read the file from its beginning, and leave out what we have.
		q.pos, l.from = firstEvent, p.Pos
	}
	return q
}

// progress is what tells whether a connection brought anything.
type progress struct {
	done binlogPos
	last event.Version
}

func (l *loop) progress() progress { return progress{l.done, l.last} }

// ownPort is our end of a connection in the words of package net: read tcp 10.0.0.5:51808->10.0.0.7:3306.
var ownPort = regexp.MustCompile(`\b(tcp|tcp4|tcp6) \S+->`)

// words is an error in one line, the same each time that it comes: without our own port.
func words(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return ownPort.ReplaceAllString(text, "$1 ")
}
