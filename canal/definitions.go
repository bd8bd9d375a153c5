package canal

import (
	"reflect"
	"unsafe"

	"github.com/freshet/freshet/canal/binlog"
	"github.com/freshet/freshet/canal/ddl"
	"github.com/freshet/freshet/event"
)

// maxDefinitionBytes bounds the memory of the definitions that are kept for comparison.
const maxDefinitionBytes = 32 << 20

// definitions are those that were handed to Bind last, one for each table. After DDL on any table the definitions
// of all are made again, and are mostly what they were: the caller then gets the table that it has compiled already.
type definitions struct {
	last  map[ddl.Name]*binlog.Definition
	bytes int
}

// one returns the definition that stands for d: the last one of the table if it is equal, else d. Needs do not count.
func (ds *definitions) one(d *binlog.Definition) *binlog.Definition {
	n := ddl.Name{Schema: d.Table.Schema, Table: d.Table.Name}
	old := ds.last[n]
	if old != nil {
		was := *old
		was.Needs = d.Needs
		if reflect.DeepEqual(&was, d) {
			return old
		}
		ds.bytes -= weigh(old)
	}
	size := weigh(d)
	if ds.last == nil || ds.bytes+size > maxDefinitionBytes {
		ds.last, ds.bytes = map[ddl.Name]*binlog.Definition{}, 0
	}
	ds.last[n] = d
	ds.bytes += size
	return d
}

// of returns the definition of a table that Bind was given last, or nil.
func (ds *definitions) of(n ddl.Name) *binlog.Definition { return ds.last[n] }

// weigh estimates how many bytes a definition takes.
func weigh(d *binlog.Definition) int {
	n := 512
	for i := range d.Table.Columns {
		c, a := &d.Table.Columns[i], &d.Columns[i]
		n += int(unsafe.Sizeof(*c)+unsafe.Sizeof(*a)+unsafe.Sizeof(event.Need{})) + len(c.Name) + len(c.Type)
		for _, l := range a.Labels {
			n += int(unsafe.Sizeof(l)) + len(l)
		}
	}
	return n
}
