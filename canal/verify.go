package canal

import (
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/canal/schema"
)

// verification says what of the tables' definitions must still be compared with what the server says.
type verification struct {
	due part
	// server and done are where it was last done.
	server string
	done   binlogPos
}

// part is a part of a definition.
type part uint8

const (
	// attributes are what no binlog says of columns, columns is all else.
	attributes part = 1 << iota
	columns
)

// begin notes that a server answers whose tables may not be those that are known. If nothing has been read since that
// was asked last, it is not asked again: to look through a long binlog may last longer than a connection does.
func (v *verification) begin(server string, done binlogPos) {
	if v.server != server || v.done != done {
		v.due = attributes | columns
	}
}

// verify compares what is known of tables with what the server says, once on each connection: when its first rows come,
// because before them the place is not known on another server. What differs, and is explained by no statement, is a
// doubt before rows are decoded by it. named says that names of columns come with the rows.
func (t *tables) verify(named bool) error {
	parts := attributes | columns
	if named {
		parts = attributes
	}
	if t.check.due&parts == 0 {
		return nil
	}
	at := schema.BinlogPos{File: t.l.tx.begin.file, Pos: t.l.tx.begin.pos}
	err := t.ask(t.l.ctx, func(s *session, h *history) error {
		if err := s.waitFor(0); err != nil { // what is locked is compared later
			return err
		}
		return t.tracker.Verify(t.l.ctx, s, h, at, named, t.altered)
	})
	if err != nil {
		return err
	}
	t.check = verification{t.check.due &^ parts, t.l.server, t.l.done}
	t.lookLater()
	return nil
}

// altered records that a table was altered by a statement that was not read.
func (t *tables) altered(n ddl.Name, how string) error {
	if !t.l.wants(n) {
		return nil
	}
	return t.l.doubtful(n.String(), "it is not what the statements in the binlog made of it ("+how+
		"): a statement that is in "+
		"no binlog altered it, with sql_log_bin=0 or on one server of several, so rows may have been read under wrong names")
}
