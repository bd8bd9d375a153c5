package canal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// The rows of an XA transaction come with its XA PREPARE. One that was prepared before the place where reading began,
// and is committed after it, changes rows that nobody has read: its XA COMMIT names none.
//
// When reading begins at a place for the first time, the source is therefore asked for two things, in this order: which
// transactions are prepared (XA RECOVER), and what it has executed. What was prepared before the place is either
// listed, or was committed before the second answer. So a commit whose keys nobody remembers is a doubt if it was
// listed, or if it stands in the second answer and its XA PREPARE has not come by. All others changed no mapped rows.

// xaStart is what the source said when reading began, and what has come of it since. It is saved with the position.
type xaStart struct {
	// Listed are the transactions that were prepared and have not been heard of since.
	Listed []string `json:"listed,omitempty"`
	// All says that the source did not list them: any of them may have been prepared before.
	All bool `json:"all,omitempty"`
	// Executed is what had been executed then: a set of GTIDs, or without them, File and Pos are where the binlog
	// ended.
	Executed string `json:"executed,omitempty"`
	File     string `json:"file,omitempty"`
	Pos      uint64 `json:"pos,omitempty"`

	flavor event.Flavor
	gtids  event.GTIDSet
	end    binlogPos
	// seen are transactions that were prepared while Executed was being read. In memory only: after a restart there may
	// be a doubt too many.
	seen map[string]bool
	// changed: what is saved is out of date.
	changed bool
}

const (
	// maxSeen bounds seen. What is beyond it may be a doubt too many.
	maxSeen = 10_000
	// xaMark begins a state that has an [xaStart] before the definitions, which begin with a brace.
	xaMark = "xa "
)

// splitState takes apart what was saved with a position. Where nobody has asked the source yet, any transaction may
// have been prepared before.
func splitState(state []byte, f event.Flavor) (x *xaStart, definitions []byte, err error) {
	rest, marked := bytes.CutPrefix(state, []byte(xaMark))
	if !marked {
		return &xaStart{All: true, seen: map[string]bool{}}, state, nil
	}
	line, definitions, _ := bytes.Cut(rest, []byte("\n"))
	x = &xaStart{}
	if err = json.Unmarshal(line, x); err == nil {
		err = x.parse(f)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("prepared xa transactions in the checkpoint: %w", err)
	}
	return x, definitions, nil
}

func (x *xaStart) parse(f event.Flavor) (err error) {
	x.flavor, x.seen = f, map[string]bool{}
	if x.File != "" {
		x.end, err = binlogPosOf(x.File, x.Pos)
		return err
	}
	x.gtids, err = event.ParseGTIDSet(f, x.Executed)
	return err
}

// joinState is what splitState takes apart.
func (x *xaStart) joinState(definitions []byte) ([]byte, error) {
	line, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(xaMark), line, []byte("\n"), definitions), nil
}

// askXA asks the source what is prepared and what is executed, unless that is known.
func (l *loop) askXA(s *session, info *SourceInfo) error {
	if !l.xa.All {
		return nil
	}
	x := &xaStart{changed: true}
	listed, err := s.prepared()
	if _, refused := retry.ServerError(err); err != nil && !refused {
		return err
	}
	x.Listed, x.All = listed, err != nil
	now, err := l.o.identify(s)
	if err != nil {
		return err
	}
	x.Executed = now.Executed.String()
	if !info.GTID {
		x.Executed = ""
		if x.File, x.Pos, err = s.logStatus(info.Flavor); err != nil {
			return err
		}
	}
	if len(listed) > 0 {
		l.o.Logger.Warn("xa transactions are prepared on the source whose rows may not have been read", "source", l.o.Source,
			"transactions", len(listed))
	}
	l.xa = x
	return x.parse(info.Flavor)
}

// prepared lists the transactions that are prepared. MySQL wants XA_RECOVER_ADMIN for it.
// Source: MySQL Reference Manual, "XA Transaction SQL Statements".
func (s *session) prepared() (xids []string, err error) {
	rows, err := s.rows("XA RECOVER")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		format, err := strconv.ParseUint(r[0], 10, 32)
		gtrid, err2 := strconv.Atoi(r[1])
		if err != nil || err2 != nil || gtrid < 0 || gtrid > len(r[3]) {
			return nil, fmt.Errorf("XA RECOVER: %q makes no sense", r[:3])
		}
		xids = append(xids, ddl.XID([]byte(r[3][:gtrid]), []byte(r[3][gtrid:]), uint32(format)))
	}
	return xids, nil
}

// early reports whether a transaction had been executed when the source was asked.
func (x *xaStart) early(g event.GTID, at binlogPos) bool {
	if !x.end.isZero() {
		return at.compare(x.end) <= 0
	}
	return !g.IsZero() && x.gtids.Contains(g)
}

// prepare takes note of an XA PREPARE.
func (x *xaStart) prepare(xid string, g event.GTID, at binlogPos) {
	x.strike(xid)
	if (x.All || x.early(g, at)) && len(x.seen) < maxSeen {
		x.seen[xid] = true
	}
}

// unread reports whether a transaction that is committed, and of which nobody remembers a key, may have changed rows
// that nobody has read.
func (x *xaStart) unread(xid string, g event.GTID, at binlogPos) bool {
	return !x.seen[xid] && (x.All || x.early(g, at) || slices.Contains(x.Listed, xid))
}

// strike takes a transaction off the list.
func (x *xaStart) strike(xid string) {
	delete(x.seen, xid)
	if i := slices.Index(x.Listed, xid); i >= 0 {
		x.Listed = slices.Delete(slices.Clone(x.Listed), i, i+1)
		x.changed = true
	}
}

// resolve ends a prepared transaction.
func (l *loop) resolve() {
	l.m.statements.WithLabelValues(statementXAResolve).Inc()
	tx := l.step.Tx
	l.step.Unread = l.step.Kind == XACommitted && l.xa.unread(tx.XID, tx.GTID, l.at)
	l.xa.strike(tx.XID)
}

// newState returns what has to be known besides the position to go on from it, if that has changed.
func (l *loop) newState() ([]byte, error) {
	definitions := l.tables.newState()
	c := &l.tables.cascading
	if definitions == nil && !l.xa.changed && !c.unsaved && l.begun == l.reading {
		return nil, nil
	}
	if definitions == nil {
		definitions = l.tables.tracker.Encode()
	}
	l.xa.changed, c.unsaved, l.begun = false, false, l.reading
	state, err := joinKeys(c.now, c.past, c.held, definitions)
	if err == nil {
		state, err = l.xa.joinState(state)
	}
	return l.begun.join(state), err
}
