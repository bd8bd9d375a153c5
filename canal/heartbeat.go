package canal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

const (
	// soonest is how much sooner than a heartbeat the source is asked while something waits to be confirmed: a
	// tenth. It lets a final delete fall due a tenth of a heartbeat after the commit instead of a whole one.
	soonest = 10
	// maxPast bounds the ends of the binlog that are remembered while nothing can be said.
	maxPast = 64
	// bigAnswer is the length of a gtid_executed above which it is asked for once a heartbeat only.
	bigAnswer = 64 << 10
)

// Watch asks the source what everybody can read, and calls mark with what follows from the answers, until ctx ends. It
// runs alongside the calls of [Canal.Next], whose first one has it begin, and has a connection of its own: steps that
// are held up by back pressure, or by one transaction of hours, hold up no mark. mark must not block.
func (c *Canal) Watch(ctx context.Context, mark func(event.Mark)) {
	select {
	case <-ctx.Done():
	case h := <-c.reading:
		var alongside sync.WaitGroup
		defer alongside.Wait()
		if !c.o.UntilCaughtUp { // what ends by itself does not last until anything is purged
			alongside.Go(func() { c.watchRetention(ctx) })
			alongside.Go(func() { c.watchLacks(ctx) })
		}
		alongside.Go(func() { c.watchFills(ctx) })
		alongside.Go(func() { c.watchBehind(ctx) })
		alongside.Go(func() { c.watchServers(ctx) })
		h.marks = mark
		h.run(ctx)
	}
}

// heart is what [Canal.Watch] knows.
type heart struct {
	o     *Options
	vis   *visibility
	marks func(event.Mark)
	m     *metrics
	n     *counters
	// base is what had been executed before the run: answers are kept without it.
	base  event.GTIDSet
	whole bool // the source has said that base is visible

	flavor event.Flavor
	byGTID bool // MySQL with GTIDs
	// past are ends of the binlog that are not known to be visible yet, oldest first: MySQL without GTIDs, and MariaDB.
	past []pastEnd
	// first is the first place in a file at which MariaDB was said to have ended a transaction.
	first binlogPos
	big   bool
	// last is the answer before, and set what of it was executed: none goes back, unless the binlog was begun again.
	last struct {
		place, end binlogPos
		text       string
		set        event.GTIDSet
	}
	// still is up to where has been read, since when that is all though the source has more, and how often the stream had
	// had nothing by then.
	still struct {
		at    binlogPos
		since time.Time
		quiet int
	}
	// cut ends the dump.
	cut func()
	// lastMark is when a mark was last sent.
	lastMark time.Time
	alarmed  time.Time
}

type pastEnd struct {
	asked  time.Time
	end    binlogPos
	groups uint64 // MariaDB's group commits by then
	quiet  bool   // no commit was seen to wait for a replica since, nor then; on MariaDB
}

func newHeart(c *Canal, p *event.Position, info *SourceInfo) *heart {
	return &heart{
		o: &c.o, vis: c.vis, m: c.m, n: &c.n, base: p.GTIDs, cut: func() { (*c.cut.Load())() },
		flavor: info.Flavor, byGTID: info.Flavor == event.MySQL && info.GTID,
	}
}

// run asks until ctx ends.
func (h *heart) run(ctx context.Context) {
	var s *session
	var server string
	defer func() {
		if s != nil {
			s.close()
		}
	}()
	for wait := time.Duration(0); ; {
		if h.wait(ctx, wait) != nil {
			return
		}
		asked := time.Now()
		var err error
		if s == nil {
			s, server, err = h.connect(ctx)
		}
		if err == nil {
			err = h.beat(ctx, s, server)
		}
		if err != nil && ctx.Err() == nil {
			h.m.asks.failed.Inc()
			h.o.Logger.Debug("the source was not asked what is visible", "source", h.o.Source, "error", err)
		}
		if err != nil && s != nil {
			s.close()
			s = nil
		}
		h.complain()
		wait = h.next(asked, h.period(err))
	}
}

// next is how long to wait for the next question, after one that was asked a while ago. It is asked at a beat of the
// process, which may come sooner; but not where an answer counts once it is a heartbeat old (askPast): two beats are
// one apart only about, and an answer that is a moment too young would have to wait for the one after it.
func (h *heart) next(asked time.Time, period time.Duration) time.Duration {
	wait := time.Until(asked.Add(period))
	if h.flavor == event.MySQL && !h.byGTID {
		return wait
	}
	return min(wait, retry.ToBeat(period))
}

// wait waits for the time to ask again. It is woken when there is something new to ask for or to say.
func (h *heart) wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			return nil
		case <-h.vis.wake:
			if h.vis.urgent() {
				return nil
			}
			if v, ok := h.vis.again(); ok {
				h.mark(v)
			}
			if n, _ := h.vis.waiting(); n > 0 && d > h.soon() {
				d = h.soon()
				t.Reset(d)
			}
		}
	}
}

// period is how long after a question the next one is due.
func (h *heart) period(err error) time.Duration {
	if n, _ := h.vis.waiting(); n > 0 && err == nil {
		return h.soon()
	}
	if h.o.FillLag > 0 && h.vis.unconfirmed() > 0 { // only the next answer takes note that the time has passed
		return h.soon()
	}
	return h.o.Heartbeat
}

// soon is the period while something waits.
func (h *heart) soon() time.Duration {
	if h.big || (h.flavor == event.MySQL && !h.byGTID) {
		return h.o.Heartbeat
	}
	return h.o.Heartbeat / soonest
}

// connect opens a connection and returns whose it is.
func (h *heart) connect(ctx context.Context) (*session, string, error) {
	s, err := h.o.connect(ctx, h.o.silence())
	if err != nil {
		return nil, "", err
	}
	info, err := h.o.identify(s)
	if err != nil {
		s.close()
		return nil, "", err
	}
	h.past, h.first, h.whole = nil, binlogPos{}, false
	h.last.place, h.last.end, h.last.text, h.last.set = binlogPos{}, binlogPos{}, "", event.GTIDSet{}
	h.flavor, h.byGTID = info.Flavor, info.Flavor == event.MySQL && info.GTID
	return s, info.Server, nil
}

// beat asks once, and passes on the mark that follows.
func (h *heart) beat(ctx context.Context, s *session, server string) error {
	of, epoch := h.vis.stream()
	if server != of {
		return fmt.Errorf("%s answers, but the stream comes from %s", server, of)
	}
	a := answer{server: server, epoch: epoch, made: time.Now()}
	if err := h.ask(ctx, s, &a); err != nil {
		return err
	}
	a.received = time.Now()
	h.m.asks.answered.Inc()
	v, ok := h.vis.take(a)
	if ok && (v.news || v.read && a.made.Sub(h.lastMark) > 0 || time.Since(h.lastMark) >= h.o.Heartbeat) {
		h.mark(v)
	}
	return nil
}

// ask fills in the answer.
func (h *heart) ask(ctx context.Context, s *session, a *answer) error {
	switch {
	case h.byGTID:
		return h.askGTIDs(s, a)
	case h.flavor == event.MariaDB:
		return h.askSnapshot(ctx, s, a)
	}
	return h.askPast(s, a)
}

// goesOn takes note of a place that never goes back.
func (h *heart) goesOn(last *binlogPos, to binlogPos) error {
	if to.compare(*last) < 0 {
		return h.wentBack()
	}
	*last = to
	return nil
}

// wentBack ends the dump: a server whose binlog is deleted under its readers may leave them waiting at the end of a
// file that is no more. What became of it is found out when the next one is begun.
func (h *heart) wentBack() error {
	return h.endDump("the source's binlog has gone back while it was read: it was deleted and begun again")
}

// endDump has another dump begun, and says why.
func (h *heart) endDump(why string) error {
	h.o.Logger.Warn(why, "source", h.o.Source)
	h.cut()
	return errors.New(why)
}

// askGTIDs: MySQL's gtid_executed moves only when a commit is visible, even while semi-synchronous replication holds
// it up after its event has been sent.
func (h *heart) askGTIDs(s *session, a *answer) error {
	r, err := s.row("SELECT @@global.gtid_executed")
	if err != nil {
		return err
	}
	h.big = len(r[0]) > bigAnswer
	set, err := event.ParseGTIDSet(event.MySQL, r[0])
	if err != nil {
		return err
	}
	if r[0] != h.last.text {
		if gone := h.last.set.Subtract(&set); !gone.IsEmpty() {
			return h.wentBack()
		}
		h.last.text, h.last.set = r[0], set
	}
	if !h.whole {
		rest := h.base.Subtract(&set)
		h.whole = rest.IsEmpty()
	}
	a.named, a.whole = true, h.whole
	a.gtids = set.Subtract(&h.base)
	return h.reaches()
}

// reaches ends the dump if it goes on to say that there is nothing more, and the source says that it has more. What is
// lacking will not come down it: the binlog was begun again, and its GTIDs put back, between two questions, so that the
// dump waits where there is no file any more; or GTIDs were added (gtid_purged) of transactions that are in no binlog.
// Which of them it is, and what is lost, is found out when the next dump is begun.
func (h *heart) reaches() error {
	read, quiet, lacks := h.vis.lacks()
	if !lacks || read != h.still.at {
		h.still.at, h.still.since, h.still.quiet = read, time.Now(), quiet
		return nil
	}
	if time.Since(h.still.since) < h.o.silence() || quiet-h.still.quiet < 2 {
		return nil
	}
	h.still.since, h.still.quiet = time.Now(), quiet
	return h.endDump("the source has transactions that do not come down its binlog dump: another one is begun")
}

// lacks returns up to where was read, and how often the stream has had nothing so far, if what was read is not all that
// the source held when it last answered.
func (v *visibility) lacks() (read binlogPos, quiet int, is bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.read, v.quiet, v.readEpoch == v.epoch && v.unread != nil && !v.hasRead(v.unread)
}

// isQuiet takes note that the source has said in the stream that it has nothing more to send.
func (v *visibility) isQuiet() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.quiet++
}

// askPast: MySQL without GTIDs does not tell what is visible. The end of the binlog as it was a heartbeat ago is the
// best that can be had, and only while no commit waits for a semi-synchronous replica.
func (h *heart) askPast(s *session, a *answer) error {
	var err error
	if a.end, err = s.end(h.flavor); err != nil {
		return err
	}
	if err = h.goesOn(&h.last.end, a.end); err != nil {
		return err
	}
	waiting, err := s.pairs("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_%_wait_sessions'")
	if err != nil {
		return err
	}
	h.remember(pastEnd{asked: a.made, end: a.end})
	for _, n := range waiting {
		if n != "0" {
			return nil // what is visible is not known
		}
	}
	for len(h.past) > 0 && a.made.Sub(h.past[0].asked) >= h.o.Heartbeat {
		a.place = h.past[0].end
		h.past = h.past[1:]
	}
	return nil
}

// remember keeps an end of the binlog until it is known to be visible.
func (h *heart) remember(p pastEnd) {
	if h.past = append(h.past, p); len(h.past) > maxPast {
		h.past = slices.Delete(h.past, 1, 2)
	}
}

// mark hands out a mark.
func (h *heart) mark(v conclusion) {
	h.lastMark = time.Now()
	if v.read {
		h.n.read.Store(v.made.UnixNano())
	}
	h.m.marks.Inc()
	h.marks(event.Mark{
		Source: h.o.Source, Term: h.o.Term, Version: v.version, Server: v.server, Made: v.made, Read: v.read,
	})
}

// complain raises an alarm when something has long not been confirmed.
func (h *heart) complain() {
	n, since := h.vis.waiting()
	if n == 0 || time.Since(since) < unseenAfter || time.Since(h.alarmed) < unseenAfter {
		return
	}
	h.alarmed = time.Now()
	h.o.Alarms.Raise(alarm.NotVisible, "the source "+h.o.Source+" has not said for more than "+unseenAfter.String()+
		" that changes read from it can be seen by everybody, so their final deletes wait: look for commits that "+
		"wait for a semi-synchronous replica, and whether its status can be asked at all")
}
