package canal

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/freshet/freshet/event"
)

// snapshot is what MariaDB says of its last commit.
type snapshot struct {
	// at is where in its binlog the last commit ends that everybody can read: if it is the end of a transaction. MariaDB
	// sets it also when it begins a file, and when it writes a BINLOG_CHECKPOINT: then it may stand after a commit that
	// waits for a semi-synchronous replica. Once that commit ends, the new file's name stands next to its position in
	// the old one, until the next commit.
	at binlogPos
	// groups counts the group commits that are visible, as of the same moment.
	groups uint64
	// waiting counts the sessions that wait for a semi-synchronous replica.
	waiting uint64
}

// snapshot asks for that. gtid_binlog_pos and SHOW MASTER STATUS are always ahead of what can be read.
func (s *session) snapshot() (snapshot, error) {
	v, err := s.pairs("SHOW STATUS WHERE Variable_name IN ('Binlog_snapshot_file', 'Binlog_snapshot_position', " +
		"'Binlog_group_commits', 'Rpl_semi_sync_master_wait_sessions')")
	if err != nil {
		return snapshot{}, err
	}
	file := v["binlog_snapshot_file"]
	pos, err := strconv.ParseUint(v["binlog_snapshot_position"], 10, 64)
	if err != nil || file == "" {
		return snapshot{}, fmt.Errorf("binlog_snapshot_file %q, binlog_snapshot_position %q: want a place in the binlog",
			file, v["binlog_snapshot_position"])
	}
	out := snapshot{}
	if out.at, err = binlogPosOf(file, pos); err != nil {
		return snapshot{}, err
	}
	out.groups, err = strconv.ParseUint(v["binlog_group_commits"], 10, 64)
	if err != nil {
		return snapshot{}, fmt.Errorf("binlog_group_commits %q: %w", v["binlog_group_commits"], err)
	}
	if text, has := v["rpl_semi_sync_master_wait_sessions"]; has {
		if out.waiting, err = strconv.ParseUint(text, 10, 64); err != nil {
			return snapshot{}, fmt.Errorf("rpl_semi_sync_master_wait_sessions %q: %w", text, err)
		}
	}
	return out, nil
}

// visible returns a place of MariaDB's binlog that no commit is before which somebody does not see. While commits
// wait that is where the file before the present one begins: a file is begun while those in the one before may wait,
// and no other one is before these have ended.
func (s *session) visible() (binlogPos, error) {
	v, err := s.snapshot()
	if err != nil {
		return binlogPos{}, err
	}
	end, err := s.end(event.MariaDB)
	if err != nil || v.waiting == 0 && v.at.compare(end) <= 0 {
		return v.at, err
	}
	files, err := s.binlogFiles()
	if err != nil {
		return binlogPos{}, err
	}
	name := v.at.file
	if i := slices.IndexFunc(files, func(f BinlogFile) bool { return f.Name == name }); i > 0 {
		name = files[i-1].Name
	}
	return binlogPosOf(name, firstEvent)
}

// gtidPos asks MariaDB for the GTIDs at a place of its binlog.
func (s *session) gtidPos(at binlogPos) (event.GTIDSet, error) {
	r, err := s.row("SELECT BINLOG_GTID_POS(" + quote(at.file) + "," + strconv.FormatUint(at.pos, 10) + ")")
	if err != nil {
		return event.GTIDSet{}, err
	}
	return event.ParseGTIDSet(event.MariaDB, r[0])
}

// askSnapshot: MariaDB's snapshot place moves when a commit is visible. It also moves when none is (see [snapshot]), so
// it counts at once only where the stream has shown that a transaction ends; else once what it speaks of must be
// visible. What was handed over under another server's positions is found by GTID.
func (h *heart) askSnapshot(ctx context.Context, s *session, a *answer) error {
	v, err := s.snapshot()
	if err != nil {
		return err
	}
	if h.ends(ctx, v.at) {
		a.place, a.end = v.at, v.at
		if err = h.goesOn(&h.last.place, v.at); err == nil {
			err = h.reaches(s, v)
		}
	} else {
		err = h.askEarlier(s, a, v)
	}
	if err != nil || a.place.isZero() || !h.vis.foreign() {
		return err
	}
	if a.gtids, err = s.gtidPos(a.place); err != nil {
		return err
	}
	a.named, a.whole = true, true
	return nil
}

// reaches takes note that the binlog has been begun again if its snapshot place is before an end that it had: there may
// be a commit in between that nobody sees yet, and there may be nothing any more. While a commit waits that is not
// asked: the server may not answer.
func (h *heart) reaches(s *session, v snapshot) error {
	if v.waiting > 0 || v.at.compare(h.last.end) >= 0 {
		return nil
	}
	end, err := s.end(event.MariaDB)
	if err != nil {
		return err
	}
	return h.goesOn(&h.last.end, end)
}

// ends reports whether a transaction ends at MariaDB's snapshot place, and waits a little for the stream to get there.
// The first such place in a file may be a position in the file before, at which one ends here too.
func (h *heart) ends(ctx context.Context, at binlogPos) bool {
	if !h.vis.endsAt(ctx, at, h.soon()) {
		return false
	}
	if h.first.file != at.file {
		h.first = at
	}
	return h.first != at
}

// askEarlier says what of earlier answers of MariaDB is visible by now: what a heartbeat ago was the end of the binlog,
// if no commit waits; or what was said two group commits ago: at most one group waits for a replica, and another one
// after it, and no third one is written before the first has ended.
func (h *heart) askEarlier(s *session, a *answer, v snapshot) error {
	a.end = v.at
	if v.waiting == 0 {
		var err error
		if a.end, err = s.end(event.MariaDB); err != nil {
			return err
		}
		if a.end.compare(h.last.place) < 0 {
			return h.wentBack()
		}
		if err = h.goesOn(&h.last.end, a.end); err != nil {
			return err
		}
	}
	waits := h.past[:0]
	for _, p := range h.past {
		switch {
		case p.end.compare(a.end) > 0: // of the file before
		case v.waiting == 0 && a.made.Sub(p.asked) >= h.o.Heartbeat, v.groups >= p.groups+2:
			a.place = later(a.place, later(p.end, h.last.place))
		default:
			waits = append(waits, p)
		}
	}
	h.past = waits
	h.remember(pastEnd{a.made, a.end, v.groups})
	return nil
}

func later(a, b binlogPos) binlogPos {
	if a.compare(b) < 0 {
		return b
	}
	return a
}

// passed takes note that an event ends at a place, outside of all transactions. It comes before what hands it over.
func (v *visibility) passed(at binlogPos) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.bare = append(v.bare, at); len(v.bare) > maxBare {
		v.bare = slices.Delete(v.bare, 0, maxBare/2)
	}
}

// endsAt reports whether a transaction ends at a place: once all before it was read, for which it waits at most for d.
func (v *visibility) endsAt(ctx context.Context, at binlogPos, d time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	timeout := time.After(d)
	for v.wanted = at; !v.isPast(at); {
		v.mu.Unlock()
		over := false
		select {
		case <-v.reached:
		case <-timeout:
			over = true
		case <-ctx.Done():
			over = true
		}
		v.mu.Lock()
		if over {
			break
		}
	}
	v.wanted = binlogPos{}
	return v.isPast(at) && !slices.Contains(v.bare, at)
}

// foreign reports whether the first requirement that the source has not confirmed is of an earlier epoch, or has no
// position, so that a position does not tell.
func (v *visibility) foreign() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen < len(v.queue) && (v.queue[v.seen].last.Epoch != v.epoch || v.queue[v.seen].need.isZero())
}
