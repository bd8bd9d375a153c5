package canal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/freshet/freshet/event"
)

// Locate turns what an operator says of a position into one that the source can go on from: "now", "earliest",
// "gtid:<set>", "<file>:<position>", or a time (RFC 3339): the position before the first transaction that was committed
// then or later. The position has no epoch yet. The error is a [*GapError] if the source does not have what follows the
// position any more, and [ErrBeforeBinlog] if its binlog begins after a time.
func Locate(ctx context.Context, o Options, where string) (event.Position, error) {
	if at, err := time.Parse(time.RFC3339, where); err == nil {
		return o.locate(ctx, func(o *Options, s *session, info *SourceInfo) (event.Position, error) {
			return o.positionAt(ctx, s, info, at)
		})
	}
	o.Start = where
	return o.locate(ctx, func(o *Options, s *session, info *SourceInfo) (event.Position, error) {
		return o.startPosition(ctx, s, info)
	})
}

// LocateSince is [Locate] for a time by our own clock. Where the source's is behind ours, so are the times of its
// commits, and the position is by as much earlier. Where it is ahead, the position is earlier than it need be.
func LocateSince(ctx context.Context, o Options, at time.Time) (event.Position, error) {
	return o.locate(ctx, func(o *Options, s *session, info *SourceInfo) (event.Position, error) {
		behind, err := s.clockBehind()
		if err != nil {
			return event.Position{}, err
		}
		return o.positionAt(ctx, s, info, at.Add(-behind))
	})
}

// clockBehind returns how far the source's clock is behind ours; 0 for less than a second, which positions by time do
// not tell apart.
func (s *session) clockBehind() (time.Duration, error) {
	ours := time.Now() // before: the way there and back must not count
	r, err := s.row("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))")
	if err != nil {
		return 0, err
	}
	theirs, err := strconv.ParseInt(r[0], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("UTC_TIMESTAMP: %w", err)
	}
	behind := ours.Sub(time.UnixMicro(theirs))
	if behind < time.Second {
		return 0, nil
	}
	return behind, nil
}

// locate returns the position that find finds, if the source can go on from it.
func (o Options) locate(ctx context.Context, find func(*Options, *session, *SourceInfo) (event.Position, error),
) (event.Position, error) {
	o, err := o.withDefaults()
	if err != nil {
		return event.Position{}, err
	}
	s, err := o.connect(ctx, queryTimeout)
	if err != nil {
		return event.Position{}, err
	}
	defer s.close()
	info, err := o.identify(s)
	if err != nil {
		return event.Position{}, err
	}
	if err := info.usable(); err != nil {
		return event.Position{}, err
	}
	p, err := find(&o, s, info)
	if err != nil {
		return event.Position{}, err
	}
	if err := o.checkPosition(ctx, s, info, &p); err != nil {
		return p, err
	}
	return p, checkOldest(s, info, &p)
}

// GoesOn asks the source whether it can go on from a saved position. The error is a [*GapError] if it does not have
// what follows it any more.
func GoesOn(ctx context.Context, o Options, p *event.Position) error {
	_, err := o.locate(ctx, func(_ *Options, _ *session, info *SourceInfo) (event.Position, error) {
		if is, _ := info.HasGTIDsOfAll(); !is && p.Server != info.Server {
			return *p, otherServer(p, info)
		}
		return *p, nil
	})
	return err
}

// checkOldest returns a [*GapError] if MariaDB has purged binlogs with transactions that follow a position. A stream
// needs no such question, since the server says so when it is asked for a dump.
func checkOldest(s *session, info *SourceInfo, p *event.Position) error {
	if info.Flavor != event.MariaDB || p.GTIDs.IsEmpty() {
		return nil
	}
	var from event.Position
	if err := startEarliest(s, info, &from); err != nil {
		return err
	}
	if missing := from.GTIDs.Subtract(&p.GTIDs); !missing.IsEmpty() {
		return &GapError{
			Position: *p, Missing: missing, Oldest: from.File, Fix: fixPurged,
			Reason: "the source has purged binlogs with transactions that were not read",
		}
	}
	return nil
}

// ErrBeforeBinlog says that a time is before the beginning of the oldest binlog file.
var ErrBeforeBinlog = errors.New("it is not known what came before")

// usable says why nothing can be read from the server at all.
func (info *SourceInfo) usable() error {
	if !info.LogBin {
		return errors.New("the source writes no binlog: start it with log_bin (MySQL and MariaDB: log-bin=binlog)")
	}
	return nil
}

// startPosition returns where a first start begins.
func (o *Options) startPosition(ctx context.Context, s *session, info *SourceInfo) (event.Position, error) {
	at, err := parseStart(o.Start)
	if err != nil {
		return event.Position{}, err
	}
	p := event.Position{Flavor: info.Flavor, Server: info.Server}
	switch {
	case at.now:
		err = o.startNow(s, info, &p)
	case at.earliest:
		err = startEarliest(s, info, &p)
	case at.gtids != "":
		if !info.GTID {
			return p, fmt.Errorf("start gtid:…: the source's gtid_mode is %s; only ON keeps positions by GTID", info.GTIDMode)
		}
		p.GTIDs, err = event.ParseGTIDSet(info.Flavor, at.gtids)
	default:
		p.File, p.Pos = at.file, at.pos
		if err = checkFile(s, &p); err == nil && info.GTID {
			p.GTIDs, err = o.gtidsAt(ctx, info, p.File, p.Pos)
		}
	}
	return p, err
}

// startNow fills in the visible position: a reader of the database from now on sees what is before it, so keys
// filled from now on need none of it. It must not be the end of the binlog, which may hold a commit that nobody
// sees yet.
func (o *Options) startNow(s *session, info *SourceInfo, p *event.Position) error {
	if info.Flavor == event.MariaDB {
		at, err := s.visible()
		if err != nil {
			return err
		}
		p.File, p.Pos = at.file, at.pos
		p.GTIDs, err = s.gtidPos(at)
		return err
	}
	// The file first: what is not visible when gtid_executed is asked stands in this file or a later one, since a
	// new file is only begun when all commits in the old one are complete.
	if err := s.binlogEnd(info); err != nil {
		return err
	}
	p.File, p.Pos = info.File, firstEvent
	if !info.GTID {
		return nil
	}
	if err := s.mysqlGTIDs(info); err != nil {
		return err
	}
	p.GTIDs = info.Executed.Clone()
	return nil
}

func startEarliest(s *session, info *SourceInfo, p *event.Position) error {
	files, err := s.binlogFiles()
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("the source lists no binlog files")
	}
	p.File, p.Pos = files[0].Name, firstEvent
	switch {
	case info.Flavor == event.MariaDB:
		p.GTIDs, err = s.gtidPos(binlogPos{file: p.File, pos: p.Pos})
	case info.GTID:
		p.GTIDs = info.Purged.Clone()
	}
	return err
}
