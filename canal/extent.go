package canal

import (
	"context"

	"github.com/freshet/freshet/event"
)

// Extent are the files of the source's binlog, oldest first, as long as they were when it was measured. It is for
// people who wait: it says about how much is read.
type Extent []BinlogFile

// Measure asks the server that a stream would read now for the extent of its binlog.
func Measure(ctx context.Context, o Options) (Extent, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := o.connect(ctx, queryTimeout)
	if err != nil {
		return nil, err
	}
	defer s.close()
	return s.binlogFiles()
}

// Share returns which share of the bytes between a place and the end is before another place, from 0 to 1; 0 also where
// that is not known.
func (e Extent) Share(from, at event.Version) float64 {
	begin, known := e.bytes(from)
	end, _ := e.bytes(event.Version{File: ^uint32(0)})
	if !known || end <= begin {
		return 0
	}
	done, _ := e.bytes(at)
	return min(1, max(0, (done-begin)/(end-begin)))
}

// bytes returns how many bytes of the binlog are before a place; false if the file of the place is not there.
func (e Extent) bytes(at event.Version) (n float64, known bool) {
	for _, f := range e {
		_, number, err := event.SplitFile(f.Name)
		switch {
		case err != nil || number > at.File:
			return n, false
		case number == at.File:
			return n + float64(min(at.Pos, f.Size)), true
		}
		n += float64(f.Size)
	}
	return n, false
}
