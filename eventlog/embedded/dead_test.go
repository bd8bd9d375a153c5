package embedded

import (
	"testing"
	"time"

	"github.com/freshet/freshet/retry"
)

// buried puts the entries 0 to n-1 into the dead letters, those with even numbers of another table.
func buried(t *testing.T, s *Store, n int) {
	t.Helper()
	var entries []retry.Entry
	for i := range n {
		e := entry(i)
		e.Due, e.Last = time.Time{}, time.Unix(int64(i), 0)
		if i%2 == 0 {
			e.Table = "shop.cart"
		}
		entries = append(entries, e)
	}
	must(t, s.Park(t.Context(), entries))
}

func TestALetterWhoseKeyIsParkedAsWellBecomesOneWithIt(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	given := entry(1)
	given.Due, given.Version = time.Time{}, at(9)
	must(t, s.Park(t.Context(), []retry.Entry{given}))
	parked := entry(1)
	parked.Due = time.Unix(5000, 0)
	must(t, s.Park(t.Context(), []retry.Entry{parked}))
	under := due(t, s, ever)
	now := time.Unix(1000, 0).UTC()
	if n, err := s.Replay(t.Context(), retry.Filter{}, now); n != 1 || err != nil {
		t.Errorf("%d replayed (%v)", n, err)
	}
	got := due(t, s, ever)
	if len(got) != 1 || got[0].Version != at(9) || got[0].Attempts != 0 || !got[0].Due.Equal(now) {
		t.Errorf("parked is %+v", got)
	}
	must(t, s.Settle(t.Context(), ids(under), nil)) // of before: settles nothing
	if got := due(t, s, ever); len(got) != 1 {
		t.Errorf("parked is %v", got)
	}
	sound(t, s)
}

func TestManyLettersAreReplayedAndPurgedInSeveralWrites(t *testing.T) {
	var f faults
	s := open(t, t.TempDir(), Options{Write: f.write})
	const many = 2*chunk + 500
	buried(t, s, many)
	f.count()
	n, err := s.Replay(t.Context(), retry.Filter{Table: "shop.cart"}, ever)
	if n != many/2 || err != nil || f.count() != 2 {
		t.Errorf("%d replayed (%v)", n, err)
	}
	n, err = s.Purge(t.Context(), retry.Filter{})
	if n != many/2 || err != nil || f.count() != 2 {
		t.Errorf("%d purged (%v)", n, err)
	}
	if got := due(t, s, ever.Add(time.Hour)); len(got) != many/2 {
		t.Errorf("%d parked", len(got))
	}
	sound(t, s)
}
