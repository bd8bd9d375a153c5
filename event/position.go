package event

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SplitFile takes the name of a binlog file apart: binlog and 112 for binlog.000112. Names of one server are ordered by
// their numbers, which grow longer beyond 999999.
func SplitFile(name string) (base string, number uint32, err error) {
	i := strings.LastIndexByte(name, '.')
	n, err := strconv.ParseUint(name[i+1:], 10, 32)
	if i < 0 || err != nil {
		return "", 0, fmt.Errorf("binlog file %q: want a name that ends in a dot and a number", name)
	}
	return name[:i], uint32(n), nil
}

// VersionAt returns the version of a change at a position of a binlog file: its order among all changes of the source.
// The file's name is one that [SplitFile] takes, or empty, which comes before all others.
func VersionAt(epoch uint32, file string, pos uint64) Version {
	_, n, _ := SplitFile(file)
	return Version{Epoch: epoch, File: n, Pos: pos}
}

// End is the progress that whole transactions make: what a [Position] gains once they are finished. The zero End
// makes none.
type End struct {
	// Epoch is that of File and Pos, and File and Pos are where the last of the transactions ends.
	Epoch uint32
	File  string
	Pos   uint64
	// GTIDs are the transactions' own, in runs; empty where the source has none.
	GTIDs []GTIDRange
	// Committed is the last transaction's commit time by the source's clock, for lag.
	Committed time.Time
	// State, when not nil, is what canal must know in addition to the position to continue from here (the definitions
	// tables whose columns the binlog does not name). Opaque to all others, and never written to again.
	State []byte
	// Moved says that reading went on there after a gap, under a new epoch: what came before adds nothing to it.
	Moved bool
}

// IsZero reports whether the end makes no progress.
func (e *End) IsZero() bool { return e.File == "" }

// Add extends e by a transaction, or run of transactions, that follows it. One that reading moved to takes its place.
func (e *End) Add(o End) {
	if o.IsZero() {
		return
	}
	if o.Moved {
		*e = End{GTIDs: e.GTIDs[:0], Moved: true}
	}
	e.Epoch, e.File, e.Pos, e.Committed = o.Epoch, o.File, o.Pos, o.Committed
	if o.State != nil {
		e.State = o.State
	}
	for _, r := range o.GTIDs {
		e.addRange(r)
	}
}

func (e *End) addRange(r GTIDRange) {
	n := len(e.GTIDs)
	if n > 0 {
		t := &e.GTIDs[n-1]
		next := t.First
		next.Number = r.First.Number
		if next == r.First && t.Last+1 == r.First.Number {
			t.Last = r.Last
			return
		}
	}
	e.GTIDs = append(e.GTIDs, r)
}

// AddTx is [End.Add] for one transaction.
func (e *End) AddTx(file string, pos uint64, g GTID, committed time.Time) {
	e.File, e.Pos, e.Committed = file, pos, committed
	if !g.IsZero() {
		e.addRange(GTIDRange{First: g, Last: g.Number})
	}
}

// Position is where a restart begins: everything up to it is finished. It is always the end of a transaction.
type Position struct {
	// Flavor is the source's.
	Flavor Flavor
	// Server is the source's identity: MySQL server_uuid; MariaDB server_uid (where it has one) and server id.
	Server string
	// Epoch is the epoch of the versions of this stretch of the binlog.
	Epoch uint32
	// File and Pos are the place in that server's binlog; File is "" where only GTIDs tell: another server has taken
	// over, and nothing that was read from it is finished yet.
	File string
	Pos  uint64
	// GTIDs is everything executed up to here; empty where the source has no GTIDs, and then File and Pos are the
	// position, on that server only.
	GTIDs GTIDSet
	// Committed is the commit time of the last finished transaction, for lag.
	Committed time.Time
	// State is canal's own, see [End].
	State []byte
}

// IsZero reports whether there is no position yet: a first start.
func (p *Position) IsZero() bool { return p.File == "" && p.GTIDs.IsEmpty() }

// Advance moves the position over what has been finished.
func (p *Position) Advance(e End) {
	if e.IsZero() {
		return
	}
	if e.Epoch == 0 || e.Epoch >= p.Epoch { // work of the server before is finished later, and has a place there
		p.File, p.Pos = e.File, e.Pos
	}
	for _, r := range e.GTIDs {
		p.GTIDs.AddRange(r)
	}
	if !e.Committed.IsZero() {
		p.Committed = e.Committed
	}
	if e.State != nil {
		p.State = e.State
	}
}

// Raise begins a new epoch, or names the server of one that has none. The place in the binlog of the epoch before says
// nothing in a new one: with GTIDs they alone are the position from there on.
func (p *Position) Raise(server string, epoch uint32) {
	if p.Epoch != 0 && epoch != p.Epoch && !p.GTIDs.IsEmpty() {
		p.File, p.Pos = "", 0
	}
	p.Server, p.Epoch = server, epoch
}

// String returns the GTID set where there is one, else file:position.
func (p *Position) String() string {
	if !p.GTIDs.IsEmpty() {
		return p.GTIDs.String()
	}
	if p.File == "" {
		return "(none)"
	}
	return fmt.Sprintf("%s:%d", p.File, p.Pos)
}
