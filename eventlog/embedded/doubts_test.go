package embedded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/freshet/freshet/doubt/doubttest"
)

func TestTheStoreKeepsDoubtsAsItShould(t *testing.T) {
	doubttest.Run(t, func(t *testing.T) doubttest.Rig {
		dir := t.TempDir()
		var open *Store
		t.Cleanup(func() { must(t, open.Close()) })
		return doubttest.Rig{
			Open: func(t *testing.T) doubttest.Keeper {
				var err error
				open, err = Open(dir, Options{})
				must(t, err)
				return open
			},
			Crash: func(t *testing.T, _ doubttest.Keeper) { must(t, open.Close()) },
		}
	})
}

// helpDoubt puts one doubt after the other, and drops every second one.
func helpDoubt(dir string) error {
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	kept, err := s.Doubts(ctx)
	if err != nil {
		return err
	}
	for n := len(kept) * 2; ; n++ {
		if err := s.PutDoubt(ctx, doubttest.Sample(n)); err != nil {
			return err
		}
		fmt.Println("put", n)
		if n%2 == 0 {
			continue
		}
		if err := s.DropDoubt(ctx, doubttest.Sample(n).ID); err != nil {
			return err
		}
		fmt.Println("dropped", n)
	}
}

func TestADoubtIsKeptThroughAKill(t *testing.T) {
	dir := t.TempDir()
	want := map[string]bool{}
	for range 5 {
		for _, line := range killed(t, "doubt", dir, 1+rand.IntN(30)) {
			var verb string
			var n int
			if _, err := fmt.Sscan(line, &verb, &n); err != nil {
				continue // cut short by the kill
			}
			want[doubttest.Sample(n).ID] = verb == "put"
		}
		s, err := Open(dir, Options{})
		must(t, err)
		kept, err := s.Doubts(t.Context())
		must(t, err)
		is := map[string]bool{}
		for _, d := range kept {
			is[d.ID] = true
		}
		unsaid := 0
		for id, put := range want {
			switch {
			case put && !is[id]:
				unsaid++ // it was dropped, and the kill came before the word
			case !put && is[id]:
				t.Errorf("doubt %s was dropped, and is there", id)
			}
			want[id] = is[id]
		}
		for id := range is {
			if !want[id] {
				unsaid++ // it was put, and the kill came before the word
				want[id] = true
			}
		}
		if unsaid > 1 {
			t.Errorf("%d doubts are not as was said", unsaid)
		}
		must(t, s.Close())
	}
}

func TestADamagedDoubtIsFoundWhenTheStoreIsOpened(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	must(t, err)
	must(t, s.PutDoubt(t.Context(), doubttest.Sample(0)))
	must(t, s.putAside(t.Context(), opPutDoubt, bucketDoubts, "x", []byte("00000000 {}")))
	must(t, s.Close())
	if _, err := Open(dir, Options{}); !isDamage(err) {
		t.Fatalf("opened: %v", err)
	}
}
