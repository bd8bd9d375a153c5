package retrytest

import (
	"slices"
	"time"

	"github.com/freshet/freshet/retry"
)

// bury puts the entries 0 to n-1 into the dead letters, those with even numbers of another table.
func (s *suite) bury(n int) {
	s.Helper()
	var entries []retry.Entry
	for i := range n {
		e := Entry(i)
		e.Due, e.Last = time.Time{}, time.Unix(int64(i), 0).UTC()
		if i%2 == 0 {
			e.Table = "shop.cart"
		}
		entries = append(entries, e)
	}
	s.park(entries...)
}

func (s *suite) listed() {
	s.bury(10)
	var all []retry.Entry
	for after := uint64(0); ; {
		page, err := s.store.DeadLetters(s.Context(), retry.Filter{Table: "shop.cart"}, after, 2)
		s.must(err)
		all = append(all, page...)
		if len(page) < 2 {
			break
		}
		after = page[1].ID
	}
	s.want("by table", all, "user:0", "user:2", "user:4", "user:6", "user:8")
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
		s.want("by "+name, s.dead(c.f), c.want...)
	}
	one, found, err := s.store.DeadLetter(s.Context(), all[3].ID)
	if err != nil || !found || one.Key != "user:6" {
		s.Errorf("one letter: %v %v %v", one, found, err)
	}
	for _, id := range []uint64{0, 9999} {
		if _, found, err := s.store.DeadLetter(s.Context(), id); found || err != nil {
			s.Errorf("a letter %d that is not there: %v %v", id, found, err)
		}
	}
	for _, e := range s.dead(retry.Filter{}) {
		if e.ID == 0 {
			s.Errorf("%s has no ID", e.Key)
		}
	}
}

func (s *suite) replayed() {
	s.bury(4)
	now := time.Unix(1000, 0).UTC()
	for i, want := range []int{2, 0} { // again finds none
		if n, err := s.store.Replay(s.Context(), retry.Filter{Table: "shop.cart"}, now); n != want || err != nil {
			s.Errorf("replay %d: %d letters (%v), want %d", i, n, err, want)
		}
	}
	s.rig.Seen()
	got := s.due(now)
	slices.SortFunc(got, byKey)
	s.want("due", got, "user:0", "user:2")
	for _, e := range got {
		if e.Attempts != 0 || !e.Due.Equal(now) {
			s.Errorf("%s has %d attempts and is due at %s", e.Key, e.Attempts, e.Due)
		}
	}
	s.want("the others", s.dead(retry.Filter{}), "user:1", "user:3")
}

func (s *suite) purged() {
	s.bury(4)
	first := s.dead(retry.Filter{})[0]
	for i, want := range []int{1, 0} {
		if n, err := s.store.Purge(s.Context(), retry.Filter{IDs: []uint64{first.ID}}); n != want || err != nil {
			s.Errorf("purge %d: %d letters (%v), want %d", i, n, err, want)
		}
	}
	s.store = s.rig.Open()
	s.want("left", s.dead(retry.Filter{}), "user:1", "user:2", "user:3")
	if n, err := s.store.Purge(s.Context(), retry.Filter{}); n != 3 || err != nil {
		s.Errorf("purge all: %d letters (%v)", n, err)
	}
	s.want("left", s.dead(retry.Filter{}))
	s.want("parked", s.due(ever()))
}
