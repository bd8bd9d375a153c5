package embedded

import (
	"testing"

	"github.com/freshet/freshet/eventlog/checkpoint/checkpointtest"
)

// life is a store as the conformance suite wants it.
type life struct {
	*Store
	*Checkpoint
}

type lives struct {
	t      *testing.T
	dir    string
	o      Options
	store  *Store
	faults faults
}

func (l *lives) Open() checkpointtest.Checkpoint {
	l.t.Helper()
	if l.store != nil {
		must(l.t, l.store.Close())
	}
	s, err := Open(l.dir, l.o)
	must(l.t, err)
	s.db.NoSync = true
	l.store = s
	_, err = s.Checkpoint().NextTerm()
	must(l.t, err)
	return life{s, s.Checkpoint()}
}

func (l *lives) LoseReply() {
	l.faults.set(nil, func(string) error {
		l.faults.after = nil
		return errDisk
	})
}

func TestTheStoreKeepsACheckpointAsItShould(t *testing.T) {
	checkpointtest.Run(t, func(t *testing.T, o checkpointtest.Options) checkpointtest.Storage {
		l := &lives{t: t, dir: t.TempDir(), o: Options{MaxStashKeys: o.MaxStashKeys, MaxStashBytes: o.MaxStashBytes}}
		l.o.Write = l.faults.write
		t.Cleanup(func() { must(t, l.store.Close()) })
		return l
	})
}
