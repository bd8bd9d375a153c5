package canal

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// GapError says that the source can not go on from our position: some changes will never be read. It is a
// [retry.ErrHalt].
type GapError struct {
	// Position is ours.
	Position event.Position
	// Reason is what happened, in words.
	Reason string
	// Missing are the transactions in question, where they are known.
	Missing event.GTIDSet
	// Oldest is the oldest binlog file that the source still has; "" if that is not known.
	Oldest string
	// Fix is what to do.
	Fix string
}

// Error implements error.
func (e *GapError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "position lost: %s; our position is %s", e.Reason, e.Position.String())
	if !e.Position.GTIDs.IsEmpty() && e.Position.File != "" {
		fmt.Fprintf(&b, " (%s:%d)", e.Position.File, e.Position.Pos)
	}
	if !e.Missing.IsEmpty() {
		fmt.Fprintf(&b, "; transactions in question: %s", e.Missing.String())
	}
	if e.Oldest != "" {
		fmt.Fprintf(&b, "; oldest binlog file of the source: %s", e.Oldest)
	}
	if e.Fix != "" {
		fmt.Fprintf(&b, "; %s", e.Fix)
	}
	return b.String()
}

// Is makes a GapError a [retry.ErrHalt].
func (e *GapError) Is(target error) bool { return target == retry.ErrHalt }

// EventError says that the stream holds an event that cannot be passed over, or that could not be read. It is a
// [retry.ErrHalt].
type EventError struct {
	// File and Pos are where the event begins.
	File string
	Pos  uint64
	Err  error
}

// Error implements error.
func (e *EventError) Error() string {
	return fmt.Sprintf("binlog %s:%d: %v; report it with the server's version, or step over the event with "+
		"`freshet position set` once the keys of the changes up to there have been cleared", e.File, e.Pos, e.Err)
}

// Unwrap returns what is wrong with the event.
func (e *EventError) Unwrap() error { return e.Err }

// Is makes an EventError a [retry.ErrHalt].
func (e *EventError) Is(target error) bool { return target == retry.ErrHalt }

// fixPurged is what to do when changes are gone for good.
const fixPurged = "changes in the gap are not known, so keys that they made stale may still be cached: " +
	"clear the mapped keys in Redis, then choose where to go on with `freshet position set … --skip`"

// ownedFor is how long transactions that we have and the source does not may be on their way to it: under
// semi-synchronous replication an event comes before its commit.
const ownedFor = 3 * time.Second

// checkPosition returns a [*GapError] if the source cannot go on from p.
func (o *Options) checkPosition(ctx context.Context, s *session, info *SourceInfo, p *event.Position) error {
	if !info.GTID {
		return checkFile(s, p)
	}
	// What MariaDB has purged, it says itself when asked for a dump.
	if missing := info.Purged.Subtract(&p.GTIDs); !missing.IsEmpty() {
		return &GapError{
			Position: *p, Missing: missing, Oldest: oldest(s), Fix: fixPurged,
			Reason: "the source has purged binlogs with transactions that were not read",
		}
	}
	if p.Server != info.Server {
		return checkBehind(s, info, p)
	}
	return o.checkLost(ctx, s, info, p)
}

// behindError says that another server answers, and that it does not show its readers all that we have passed: it may
// yet get it from the server before. It is not a [retry.ErrHalt].
type behindError struct {
	server, was string
	missing     event.GTIDSet
}

// Error implements error. It is the same at every attempt, though less is missing each time.
func (e *behindError) Error() string {
	return "another server answers (" + e.server + " instead of " + e.was +
		"), which has not executed all that was read " +
		"from the one before; it is asked again until it has"
}

// checkBehind compares what the readers of another server see with all that we have passed.
func checkBehind(s *session, info *SourceInfo, p *event.Position) error {
	visible := info.Executed
	if info.Flavor == event.MariaDB {
		v, err := s.snapshot()
		if err != nil {
			return err
		}
		if visible, err = s.gtidPos(v.at); err != nil {
			return err
		}
		visible.Union(&info.Replicated)
	}
	if missing := p.GTIDs.Subtract(&visible); !missing.IsEmpty() {
		return &behindError{info.Server, p.Server, missing}
	}
	return nil
}

// checkLost looks for transactions that were read and that the same server has no more. The source goes on working
// while it is asked, and p may be newer than the first answer, so what seems to be lost is asked for again.
func (o *Options) checkLost(ctx context.Context, s *session, info *SourceInfo, p *event.Position) error {
	began := time.Now()
	for wait := time.Duration(0); ; wait = 250 * time.Millisecond {
		lost := p.GTIDs.Subtract(&info.Executed)
		lost = lost.Subtract(&info.Owned)
		reason := "the source has lost transactions that were read"
		if lost.IsEmpty() {
			cut, err := cutOff(s, info, p)
			if err != nil || cut == "" {
				return err
			}
			reason += ", and may have given their numbers to others: " + cut
		}
		if time.Since(began) >= ownedFor {
			return &GapError{
				Position: *p, Missing: lost, Oldest: oldest(s),
				Reason: reason + " (it crashed without having synced its binlog, or was restored from a backup)",
				Fix: "what it holds now may differ from what was read: clear the mapped keys in Redis, " +
					"then choose where to go on with `freshet position set … --skip`",
			}
		}
		if err := retry.Sleep(ctx, wait); err != nil {
			return err
		}
		if err := s.executed(info); err != nil {
			return err
		}
	}
}

// cutOff says that a binlog file ends before what was read of it; "" if none does. A server that crashed begins a new
// file, so one that lost its tail stays shorter than it was, though its transactions' numbers are given out again.
// Where the binlog was begun again on purpose, all that was read is said to have been before the file.
func cutOff(s *session, info *SourceInfo, p *event.Position) (string, error) {
	if p.File == "" || p.Server != info.Server {
		return "", nil
	}
	files, err := s.binlogFiles()
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(files, func(f BinlogFile) bool { return f.Name == p.File })
	if i < 0 || p.Pos <= files[i].Size {
		return "", nil
	}
	before := info.Purged
	if info.Flavor == event.MariaDB {
		if before, err = s.gtidPos(binlogPos{file: p.File, pos: firstEvent}); err != nil {
			return "", err
		}
	}
	if after := p.GTIDs.Subtract(&before); after.IsEmpty() {
		return "", nil
	}
	return fmt.Sprintf("binlog file %s was read up to %d and is %d bytes long", p.File, p.Pos, files[i].Size), nil
}

// checkFile does the same by file and position.
func checkFile(s *session, p *event.Position) error {
	files, err := s.binlogFiles()
	if err != nil {
		return err
	}
	gap := &GapError{Position: *p, Fix: fixPurged}
	if len(files) > 0 {
		gap.Oldest = files[0].Name
	}
	i := slices.IndexFunc(files, func(f BinlogFile) bool { return f.Name == p.File })
	switch {
	case p.File == "":
		gap.Reason = "the source has no GTIDs (gtid_mode is not ON), and our position has no file"
	case i < 0:
		gap.Reason = fmt.Sprintf("the source has no binlog file %s any more", p.File)
	case p.Pos > files[i].Size:
		gap.Reason = fmt.Sprintf("binlog file %s of the source is only %d bytes long", p.File, files[i].Size)
	default:
		return nil
	}
	return gap
}

// otherServer is the gap between two servers without GTIDs that mean the same on both.
func otherServer(p *event.Position, info *SourceInfo) error {
	_, why := info.HasGTIDsOfAll()
	return &GapError{
		Position: *p, Fix: fixPurged,
		Reason: fmt.Sprintf("another server answers (%s instead of %s), and its binlog positions have nothing to do with "+
			"ours, since %s", info.Server, p.Server, why),
	}
}

// oldest names the oldest binlog file, if the server says.
func oldest(s *session) string {
	if files, err := s.binlogFiles(); err == nil && len(files) > 0 {
		return files[0].Name
	}
	return ""
}

// ownedBy are the thread numbers in gtid_owned: uuid:4#12.
var ownedBy = regexp.MustCompile(`#\d+`)

// parseOwned reads gtid_owned.
func parseOwned(text string) (event.GTIDSet, error) {
	return event.ParseGTIDSet(event.MySQL, ownedBy.ReplaceAllString(text, ""))
}
