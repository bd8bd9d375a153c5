package canal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/freshet/freshet/event"
)

// adopt takes the server that answers as the source, if it can go on from our position.
func (l *loop) adopt(ctx context.Context, s *session, info *SourceInfo) error {
	l.serverID = info.ServerID
	if err := l.tables.adopt(ctx, s, info); err != nil {
		return err
	}
	if err := l.tables.cascading.ask(l.tables, s, info); err != nil {
		return err
	}
	first := l.server == ""
	if first {
		if err := l.found(ctx, s, info); err != nil {
			return err
		}
	}
	if err := l.tables.cascading.keepHidden(l.tables, s); err != nil {
		return err
	}
	if first {
		if err := l.askXA(s, info); err != nil {
			return err
		}
	}
	if info.Flavor != l.flavor || info.GTID != l.byGTID {
		return errModeChanged
	}
	p := l.position()
	if l.server != info.Server {
		if is, _ := info.HasGTIDsOfAll(); !is {
			return otherServer(&p, info)
		}
		if err := l.checkForeign(ctx, s, info, p); err != nil {
			return err
		}
	}
	err := l.o.checkPosition(ctx, s, info, &p)
	if behind := (*behindError)(nil); errors.As(err, &behind) {
		return l.lags(behind)
	}
	if err == nil {
		err = l.o.checkBegun(ctx, s, info, &p, l.begun)
	}
	if err != nil {
		return err
	}
	l.caughtUp()
	if l.server != info.Server {
		if err := l.raise(info.Server, "another server answers ("+info.Server+" instead of "+l.server+")"); err != nil {
			return err
		}
	}
	if err := l.doubtLacks(l.ctx, s, info, false); err != nil {
		return err
	}
	if err := l.openEmptied(s); err != nil {
		return err
	}
	l.vis.begin(l.server, l.epoch)
	if l.apart != "" {
		l.vis.setApart(l.server, l.apart)
	}
	if err := l.askLogged(s, info); err != nil {
		return err
	}
	if !l.o.Follow && !l.o.Servers.several() {
		l.vis.setProcess(s.process(info.Flavor))
	}
	if err := l.aim(s, info); err != nil {
		return err
	}
	if !l.beats {
		l.beats = true
		l.Canal.reading <- newHeart(l.Canal, &p, info)
	}
	return nil
}

// askLogged asks MariaDB what its binlog has, where it matters which server an address leads to, or whether what fill
// servers have is the source's.
func (l *loop) askLogged(s *session, info *SourceInfo) error {
	if l.flavor != event.MariaDB || l.o.Follow || l.o.Servers.several() && len(l.o.FillFrom) == 0 {
		return nil
	}
	logged, err := s.binlogState()
	if err == nil {
		l.vis.setLogged(logged, &info.Executed, &info.Replicated)
	}
	return err
}

// checkForeign returns a [*ForeignError] if another server answers and has another database, once that is a doubt.
func (l *loop) checkForeign(ctx context.Context, s *session, info *SourceInfo, p event.Position) error {
	if p.Committed = l.committed; p.Committed.IsZero() { // nothing was read since the start
		saved := l.checkpoint.Position()
		p.Committed = saved.Committed
	}
	_, err := l.o.compare(ctx, s, info, &p)
	if foreign := (*ForeignError)(nil); errors.As(err, &foreign) {
		if err := l.o.Doubts.Record(l.ctx, foreign.Doubt()); err != nil {
			return err
		}
	}
	return err
}

// maxMissing bounds the list of transactions in a message, in bytes.
const maxMissing = 300

// found finds where to begin: at the checkpoint, or, if there is none, where the operator says.
func (l *loop) found(ctx context.Context, s *session, info *SourceInfo) error {
	p := l.checkpoint.Position()
	if p.Flavor != "" && p.Flavor != info.Flavor { // no gap: that would be passed where gaps are
		return l.checkForeign(ctx, s, info, p)
	}
	if !p.IsZero() && l.gap != nil {
		return l.move(ctx, s, info, &p)
	}
	if !p.IsZero() {
		changed, err := l.convert(ctx, info, &p)
		if err == nil && changed {
			err = l.save(p)
		}
		if err != nil {
			return err
		}
		return l.beginAt(&p, info, !l.o.Logged && p.Server != "" && p.Epoch != 0) // else it was given by hand
	}
	p, err := l.o.startPosition(ctx, s, info)
	if err != nil {
		return err
	}
	p.Epoch = firstEpoch()
	if err := l.learn(ctx, info, &p); err != nil {
		return err
	}
	if l.o.FirstStart != nil { // before the position is kept: afterwards it is no first start any more
		if err := l.o.FirstStart(ctx, p.String()); err != nil {
			return err
		}
	}
	if err := l.save(p); err != nil {
		return err
	}
	l.o.Logger.Info("there is no checkpoint, so this looks like a first start", "source", l.o.Source, "position", p.String())
	return l.beginAt(&p, info, false)
}

// firstEpoch is the epoch of a first start: the time, in seconds. Where the checkpoint was lost, an earlier life may
// have left versions in Redis, next to values (and in Kafka, in records); and if the source's binlog began again as
// well, its places say nothing about those. An epoch that was never used tells them apart, and a clock that was set
// back says no more than an epoch that always began at 1.
func firstEpoch() uint32 { return uint32(max(time.Now().Unix(), 1)) }

// learn asks for the columns of all tables, while the position is likely not to be far behind the present: the binlog
// names none of them, or does not say all that matters. What comes later follows from the statements in the binlog. At
// the earliest position the present is far, and what the server says now counts only after a look through the whole
// binlog in between; so those whose rows come before a statement that makes them are asked for when their first rows
// come, and the others never.
func (l *loop) learn(ctx context.Context, info *SourceInfo, p *event.Position) error {
	l.flavor, l.byGTID, l.server, l.gtids = info.Flavor, info.GTID, info.Server, p.GTIDs.Clone()
	defer func() { l.server = "" }() // nothing is begun yet
	if err := l.tables.restore(nil); err != nil || p.File == "" || l.o.Start == earliest {
		return err
	}
	if from, err := parseStart(l.o.Start); err != nil || info.RowMetadata == "FULL" && !from.now {
		return err // most tables have no column of which the binlog does not say all
	}
	at, err := binlogPosOf(p.File, p.Pos)
	if err != nil {
		return err
	}
	if _, err := l.tables.resolve(ctx, at, nil); err != nil {
		return err
	}
	c := &l.tables.cascading // asked for by now: another start may find them gone, or hidden, though they changed rows
	p.State, err = joinKeys(c.now, c.past, c.held, l.tables.newState())
	return err
}

// save saves a position before anything is read from it.
func (l *loop) save(p event.Position) error {
	if err := l.checkpoint.Begin(p); err != nil {
		return l.stop(err)
	}
	return nil
}

// convert says the same position in the way that the source keeps positions now: by GTID, or by file. It reports
// whether the position changed.
func (l *loop) convert(ctx context.Context, info *SourceInfo, p *event.Position) (bool, error) {
	same := p.Server == "" || p.Server == info.Server
	switch {
	case info.GTID && p.GTIDs.IsEmpty():
		if !same {
			return false, otherServer(p, info)
		}
		var err error
		p.GTIDs, err = l.o.gtidsAt(ctx, info, p.File, p.Pos)
		return !p.GTIDs.IsEmpty(), err
	case !info.GTID && !p.GTIDs.IsEmpty():
		if !same || p.File == "" {
			return false, &GapError{
				Position: *p, Fix: fixPurged,
				Reason: fmt.Sprintf("the position is one by GTID, but the source's gtid_mode is %s", info.GTIDMode),
			}
		}
		p.GTIDs = event.GTIDSet{}
		return true, nil
	}
	return false, nil
}

// beginAt takes over a position. finished says that all changes before it are finished.
func (l *loop) beginAt(p *event.Position, info *SourceInfo, finished bool) error {
	l.flavor, l.byGTID = info.Flavor, info.GTID
	l.gtids, l.epoch = p.GTIDs.Clone(), p.Epoch
	if l.epoch == 0 {
		l.epoch = firstEpoch()
	}
	if p.File != "" {
		var err error
		if l.done, err = binlogPosOf(p.File, p.Pos); err != nil {
			return err
		}
	}
	l.server = p.Server
	if p.Server == "" || p.Epoch == 0 {
		// The position was given by hand.
		if err := l.checkpoint.Raise(info.Server, l.epoch); err != nil {
			return l.stop(err)
		}
		l.server = info.Server
	}
	l.m.epoch.Set(float64(l.epoch))
	var state []byte
	var err error
	if l.begun, state, err = splitBegun(p.State); err != nil {
		return err
	}
	l.reading = l.begun
	x, definitions, err := splitState(state, l.flavor)
	if err != nil {
		return err
	}
	l.xa = x
	now, past, held, definitions, err := splitKeys(definitions)
	if err != nil {
		return err
	}
	c := &l.tables.cascading
	c.blind, c.saved = len(p.State) == 0, now
	was := slices.Concat(now, past)
	if held {
		c.missed = unknown(c.now, was)
	}
	c.remember(was)
	c.rebuild(l.tables)
	if err := l.tables.restore(definitions); err != nil {
		return err
	}
	// What an earlier run has read is confirmed once all before the position is visible. MySQL's answers say whether
	// they hold all that was executed before; MariaDB's are places, and GTIDs where the position is no place.
	need := requirement{last: event.Version{Epoch: l.epoch, File: l.done.number, Pos: l.done.pos}, need: l.done}
	if l.flavor == event.MariaDB && l.done.isZero() {
		had := l.gtids.Clone()
		need.more = &had
	}
	l.vis.base(need, l.gtids.Clone(), finished)
	return nil
}

// aim notes where to stop, if that was asked for.
func (l *loop) aim(s *session, info *SourceInfo) error {
	if !l.o.UntilCaughtUp || l.target.epoch == l.epoch {
		return nil
	}
	if err := s.binlogEnd(info); err != nil {
		return err
	}
	end, err := binlogPosOf(info.File, info.Pos)
	l.target = target{end, l.epoch}
	return err
}
