package canal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// errModeChanged says that the source's positions are of another kind than at the start of the run.
var errModeChanged = errors.New("the source's gtid_mode has changed while it was read: positions are kept in another way now")

// errNonsense is wrapped by errors that say that the stream contradicts itself.
var errNonsense = errors.New("the binlog stream makes no sense")

// run reads until ctx ends, making connections anew.
func (l *loop) run(ctx context.Context) error {
	r := l.newReconnect()
	for {
		before := l.progress()
		err := l.connection(ctx, r)
		if l.n.connected.Swap(false) {
			r.ended()
		}
		if err := l.disconnected(err); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := r.judge(ctx, l, err, l.progress() != before); err != nil {
			return err
		}
		wait := r.attempts.Failed(err)
		l.m.connects.WithLabelValues("error").Inc()
		if time.Since(r.since) >= awayAfter && !isBehind(err) { // that has an alarm of its own
			l.o.Alarms.Raise(alarm.SourceAway, "source "+l.o.Source+" at "+l.o.Address+" cannot be read: "+words(err))
		}
		if retry.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// disconnected hands on what was gathered, drops what was half read, and returns the error if no new connection
// would mend it.
func (l *loop) disconnected(err error) error {
	var se *sinkError
	switch {
	case errors.Is(err, errCaughtUp), errors.Is(err, errModeChanged), errors.As(err, &se):
		return err
	case errors.Is(err, retry.ErrHalt) && !isDoubtful(err):
		return err
	}
	if l.server == "" {
		return nil
	}
	if l.tx.open {
		l.lost = l.tx.GTID
	}
	err = l.handOn()
	l.tx = transaction{}
	return err
}

// connection connects, checks whether the source can go on from our position, and reads until something breaks.
func (l *loop) connection(ctx context.Context, r *reconnect) error {
	ctx, hangUp := context.WithCancel(ctx)
	defer hangUp()
	l.hangUp.Store(&hangUp)
	s, err := l.o.connect(ctx, queryTimeout)
	if err != nil {
		return err
	}
	defer s.close()
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
		return err
	}
	events, err := s.dump(info.Flavor, l.request(info, s.replicas(info)))
	if err != nil {
		return err
	}
	r.begun()
	s.link.timeout = l.o.silence() * time.Duration(max(1, r.patience))
	s.link.received, s.link.idle = &l.n.received, l.waits
	l.m.connects.WithLabelValues("ok").Inc()
	l.n.connected.Store(true)
	l.o.Logger.Info("reading the source", "source", l.o.Source, "server", info.Server, "version", info.Version,
		"file", l.done.file, "pos", l.done.pos, "by_gtid", l.byGTID, "epoch", l.epoch)
	return l.read(s, events, r)
}

// read handles events until something breaks.
func (l *loop) read(s *session, events *stream, r *reconnect) error {
	for alive := false; ; {
		ev, err := events.next()
		if err != nil {
			return fmt.Errorf("binlog dump from %s: %w", l.o.Address, err)
		}
		if l.events == 0 {
			l.firstByte()
		}
		if err := l.event(ev); err != nil {
			return err
		}
		if !alive && !l.at.isZero() && !l.fresh {
			// It has found what we asked for, however long it had to look.
			alive = true
			s.link.timeout = l.o.silence()
			r.patience = 1
		}
	}
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
	l.at, l.floor, l.from = place{}, l.done, 0
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
	done place
	last event.Version
}

func (l *loop) progress() progress { return progress{l.done, l.last} }

// words is an error in one line, the same each time that it comes: without our own port.
func words(err error) string {
	var e *net.OpError
	if errors.As(err, &e) {
		return e.Op + ": " + e.Err.Error()
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
