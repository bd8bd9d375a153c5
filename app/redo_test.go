package app

import (
	"testing"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/event"
)

// A redo goes through the binlog, so the binlog says how much of it is left.
func TestARedoSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	r := &redo{extent: canal.Extent{{Name: "binlog.000001", Size: 1000}, {Name: "binlog.000002", Size: 1000}}}
	if done, of, keys := r.reached(); done != 0 || of != 0 || keys != 0 {
		t.Errorf("before it has begun: %d of %d, %d keys", done, of, keys)
	}
	r.keys.first.Store(&event.Version{File: 1, Pos: 200})
	r.keys.newest.Store(&event.Version{File: 1, Pos: 650})
	r.keys.taken.Store(300)
	if done, of, keys := r.reached(); done != 300 || of != 1200 || keys != 300 {
		t.Errorf("at a quarter: %d of %d, %d keys", done, of, keys)
	}
	r.keys.newest.Store(&event.Version{File: 3, Pos: 5})
	if done, of, _ := r.reached(); done != 300 || of != 300 {
		t.Errorf("beyond the end that it had when it began: %d of %d", done, of)
	}
}
