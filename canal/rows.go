package canal

import (
	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/event"
)

// rowsEvent is the one whose rows the present step hands out.
type rowsEvent struct {
	head binlog.Header
	body []byte
	// take is what takes the rows while they are handed out, and one is loop.row.
	take, one func(*event.Change) error
}

// tableMap takes the definition that the next rows have.
func (l *loop) tableMap(body []byte) (err error) {
	defer l.contain(&err)
	return l.dec.TableMap(body)
}

// beginRows makes a step of a rows event.
func (l *loop) beginRows(h binlog.Header, body []byte) {
	l.open()
	if l.payload == nil {
		l.change.Version.Row = 0
	}
	l.change.Version = l.version(l.change.Version.Row)
	l.change.Tx = &l.tx.Tx
	l.out.head, l.out.body = h, body
	l.step.Kind, l.step.Tx, l.step.Version = Rows, l.change.Tx, l.change.Version
	l.step.Cascaded, l.tables.cascading.doubts = nil, l.tables.cascading.doubts[:0]
}

// each is [Step.Each].
func (l *loop) each(f func(*event.Change) error) error {
	l.out.take = f
	l.failed = l.decode()
	l.out.take = nil
	l.step.Cascaded = l.tables.cascading.doubts
	if l.rows-l.shown >= publishEach {
		l.publish()
	}
	return l.fatal
}

// decode decodes the rows.
func (l *loop) decode() (err error) {
	defer l.contain(&err)
	return l.dec.Rows(l.out.head, l.out.body, &l.change, l.out.one)
}

// row hands out one row change.
func (l *loop) row(c *event.Change) error {
	if o := l.tables.cascading.lookout(c.Table); o != nil {
		l.cascade(o, c)
		if !o.wanted {
			return nil
		}
	}
	if l.replayed {
		// The server sends the whole transaction again. Its rows have the versions that they had, so what is not
		// above the last one has been handed out.
		if c.Version.Compare(l.last) <= 0 {
			l.again++
			return nil
		}
		l.replayed = false
	}
	if !l.tx.noted {
		l.note()
	}
	l.rows++
	l.last = c.Version
	if err := l.out.take(c); err != nil {
		return l.stop(err)
	}
	return nil
}
