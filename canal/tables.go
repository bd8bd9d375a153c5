package canal

import (
	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/charset"
	"github.com/freshet/freshet/canal/ddl"
)

// tables says how the rows of each table are decoded.
type tables struct {
	l     *loop
	state []byte
}

func newTables(l *loop) *tables { return &tables{l: l} }

func (t *tables) Wanted(schema, table []byte) bool {
	return t.l.o.Wanted(string(schema), string(table))
}

func (t *tables) Define(m *binlog.TableMap) (*binlog.Definition, error) {
	d, err := binlog.Describe(m, nil, nil)
	if err != nil {
		return nil, err
	}
	d.Needs, err = t.l.sink.Bind(d.Table)
	if err != nil {
		return nil, &sinkError{err}
	}
	if d.Needs == nil {
		return nil, nil
	}
	return d, nil
}

func (t *tables) charset(id uint16) *charset.Charset { return nil }

func (t *tables) apply(st *ddl.Statement) error { return nil }

func (t *tables) newState() []byte {
	s := t.state
	t.state = nil
	return s
}

func (t *tables) restore(state []byte) error { return nil }
