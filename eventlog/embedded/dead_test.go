package embedded

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

func TestDeadLettersAreListedInPagesAndByFilter(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	buried(t, s, 10)
	var all []retry.Entry
	for after := uint64(0); ; {
		page, err := s.DeadLetters(t.Context(), retry.Filter{Table: "shop.cart"}, after, 2)
		must(t, err)
		all = append(all, page...)
		if len(page) < 2 {
			break
		}
		after = page[1].ID
	}
	if d := cmp.Diff([]string{"user:0", "user:2", "user:4", "user:6", "user:8"}, keys(all)); d != "" {
		t.Errorf("by table: %s", d)
	}
	for name, c := range map[string]struct {
		f    retry.Filter
		want []string
	}{
		"key":            {retry.Filter{Key: "user:3"}, []string{"user:3"}},
		"ids":            {retry.Filter{IDs: []uint64{all[1].ID, 9999, all[0].ID, all[0].ID}}, []string{"user:0", "user:2"}},
		"ids and table":  {retry.Filter{IDs: []uint64{all[0].ID}, Table: "shop.user"}, nil},
		"older":          {retry.Filter{Before: time.Unix(2, 0)}, []string{"user:0", "user:1"}},
		"older of table": {retry.Filter{Before: time.Unix(2, 0), Table: "shop.user"}, []string{"user:1"}},
	} {
		if d := cmp.Diff(c.want, keys(dead(t, s, c.f))); d != "" {
			t.Errorf("by %s: %s", name, d)
		}
	}
	one, found, err := s.DeadLetter(t.Context(), all[3].ID)
	if err != nil || !found || one.Key != "user:6" {
		t.Errorf("one letter: %v %v %v", one, found, err)
	}
	if _, found, err := s.DeadLetter(t.Context(), 9999); found || err != nil {
		t.Errorf("a letter that is not there: %v %v", found, err)
	}
}

func TestReplayedLettersAreDueAtOnceAndBeginAnew(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	buried(t, s, 4)
	now := time.Unix(1000, 0).UTC()
	for i, want := range []int{2, 0} { // again finds none
		if n, err := s.Replay(t.Context(), retry.Filter{Table: "shop.cart"}, now); n != want || err != nil {
			t.Errorf("replay %d: %d letters (%v), want %d", i, n, err, want)
		}
	}
	got := due(t, s, now)
	if d := cmp.Diff([]string{"user:0", "user:2"}, keys(got)); d != "" {
		t.Error(d)
	}
	for _, e := range got {
		if e.Attempts != 0 || !e.Due.Equal(now) {
			t.Errorf("%s has %d attempts and is due at %s", e.Key, e.Attempts, e.Due)
		}
	}
	if d := cmp.Diff([]string{"user:1", "user:3"}, keys(dead(t, s, retry.Filter{}))); d != "" {
		t.Errorf("the others: %s", d)
	}
	sound(t, s)
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
