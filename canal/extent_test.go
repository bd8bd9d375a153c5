package canal

import (
	"testing"

	"github.com/freshet/freshet/event"
)

func TestHowMuchOfABinlogIsReadIsCountedInBytes(t *testing.T) {
	e := Extent{{"binlog.000007", 100}, {"binlog.000008", 1000}, {"binlog.000009", 300}}
	at := func(file uint32, pos uint64) event.Version { return event.Version{Epoch: 3, File: file, Pos: pos} }
	for _, c := range []struct {
		from, at event.Version
		want     float64
	}{
		{at(7, 0), at(8, 600), 0.5},
		{at(8, 0), at(8, 650), 0.5},
		{at(8, 650), at(9, 0), 350.0 / 650},
		{at(8, 650), at(8, 650), 0},
		{at(8, 650), at(8, 4), 0},      // it has begun again
		{at(8, 650), at(9, 300), 1},    // to the end
		{at(8, 650), at(9, 9000), 1},   // it has grown since
		{at(8, 650), at(10, 4), 1},     // the same
		{at(9, 300), at(9, 300), 0},    // there was nothing to read
		{at(6, 4), at(8, 4), 0},        // the file has been deleted since
		{at(10, 4), at(10, 4), 0},      // it was begun since
		{event.Version{}, at(8, 4), 0}, // not known
	} {
		if got := e.Share(c.from, c.at); got != c.want {
			t.Errorf("from %v at %v: %v, want %v", c.from, c.at, got, c.want)
		}
	}
	if got := Extent(nil).Share(at(8, 4), at(8, 9)); got != 0 {
		t.Errorf("nothing is known: %v", got)
	}
}
