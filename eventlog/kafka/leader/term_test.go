package leader

import (
	"errors"
	"sync"
	"testing"

	"github.com/freshet/freshet/event"
)

func TestAtMostOneTakesEachTerm(t *testing.T) {
	r := newRig(t)
	const claimants, each = 12, 5
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		took  = map[uint64]string{}
	)
	for range claimants {
		group.Go(func() {
			for range each {
				c, err := r.take(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, ok := took[c.Term]; ok {
					t.Errorf("term %d was taken by %s and by %s", c.Term, other, c.Writer)
				}
				took[c.Term] = c.Writer
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if len(took) != claimants*each {
		t.Errorf("%d terms were taken, want %d", len(took), claimants*each)
	}
	// A later reader of the topic comes to the same.
	s, err := r.read(t.Context())
	must(t, err)
	p, err := s.newest()
	must(t, err)
	for term := range took {
		if term > p.Term {
			t.Errorf("term %d was taken, the newest is %d", term, p.Term)
		}
	}
	if took[p.Term] != p.Writer {
		t.Errorf("term %d is %s's for who reads it, %s took it", p.Term, p.Writer, took[p.Term])
	}
}

func TestATermIsAboveThatOfEveryMark(t *testing.T) {
	r := newRig(t)
	cp := r.open()
	must(t, cp.Begin(place(4)))
	r.mark(41, 7)
	cp = r.open()
	if cp.Term() != 42 {
		t.Errorf("the term is %d after a mark of 41", cp.Term())
	}
	if p := cp.Position(); p.Epoch != 7 || p.Pos != 4 {
		t.Errorf("the position is %s in epoch %d, after a mark of epoch 7", p.String(), p.Epoch)
	}
}

func TestALostCheckpointIsNoFirstStart(t *testing.T) {
	r := newRig(t)
	if cp := r.open(); cp.Term() != 1 || cp.Durable().File != "" {
		t.Errorf("a first start has the term %d", cp.Term())
	}
	r.mark(3, 5)
	_, err := r.take(t.Context())
	var lost *LostError
	if !errors.As(err, &lost) {
		t.Fatalf("the source has made marks and has no position: %v", err)
	}
	v, err := OpenCheckpoint(t.Context(), r.client, r.names, r.source)
	must(t, err)
	if v.Lost == nil || v.Position.Epoch != 5 {
		t.Errorf("the view is %+v", v)
	}
	must(t, SetPosition(t.Context(), r.client, r.names, r.source, event.Position{File: "binlog.000009", Pos: 4}))
	cp := r.open()
	if p := cp.Position(); p.File != "binlog.000009" || p.Epoch != 6 || cp.Term() <= 4 {
		t.Errorf("after it was set by hand the position is %s, epoch %d, term %d", p.String(), p.Epoch, cp.Term())
	}
}
