package binlog

import "github.com/freshet/freshet/event"

// current makes from a row change of a table with system versioning what it is for the rows that hold now, and reports
// whether it is anything for them. An UPDATE is logged as one, followed by an INSERT of the row that was; a DELETE as
// an UPDATE that sets the ROW END. Observed on MariaDB 10.11 with binlog_row_image FULL, MINIMAL and NOBLOB.
func (r *rowReader) current(c *event.Change) bool {
	p := r.plan
	was, is := r.kind.op != event.Insert, r.kind.op != event.Delete
	if was {
		was = holds(&p.before[p.rowEnd])
	}
	if is {
		is = holds(&p.after[p.rowEnd])
	}
	c.Before, c.After = nil, nil
	if was {
		c.Before = p.before[:p.needs]
	}
	if is {
		c.After = p.after[:p.needs]
	}
	switch {
	case was && is:
		c.Op = event.Update
	case was:
		c.Op = event.Delete
	case is:
		c.Op = event.Insert
	}
	return was || is
}

// holds reports whether a row with this ROW END holds now: it is the last instant that a TIMESTAMP(6) can be, or the
// highest transaction. One that the image lacks was not changed by a statement that set it, so the row holds. Source:
// 2038-01-19 03:14:07.999999 observed on MariaDB 10.11; from 11.5 on it is 2106-02-07 06:28:15.999999 for tables that
// were made or altered since (MariaDB's MDEV-32188, "make TIMESTAMP use whole 32-bit unsigned range").
func holds(v *event.Value) bool {
	switch string(v.Raw) {
	case "", "\x7f\xff\xff\xff\x0f\x42\x3f", "\xff\xff\xff\xff\x0f\x42\x3f", "\xff\xff\xff\xff\xff\xff\xff\xff":
		return true
	}
	return false
}
