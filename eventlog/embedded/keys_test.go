package embedded

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// ever is when everything parked is due.
var ever = time.Unix(1<<33, 0)

func due(t rapid.TB, s *Store, now time.Time) []retry.Entry {
	t.Helper()
	entries, err := s.Due(context.Background(), now, 1<<20)
	must(t, err)
	return entries
}

func dead(t rapid.TB, s *Store, f retry.Filter) []retry.Entry {
	t.Helper()
	entries, err := s.DeadLetters(context.Background(), f, 0, 1<<20)
	must(t, err)
	return entries
}

func keys(entries []retry.Entry) (out []string) {
	for _, e := range entries {
		out = append(out, e.Key)
	}
	return out
}

func ids(entries []retry.Entry) (out []uint64) {
	for _, e := range entries {
		out = append(out, e.ID)
	}
	return out
}

// sound fails the test unless counts, sizes and indexes agree with the entries.
func sound(t rapid.TB, s *Store) {
	t.Helper()
	must(t, s.db.View(func(tx *bolt.Tx) error {
		b, err := openBooks(tx)
		must(t, err)
		var bytes int64
		for name, sh := range map[string]*shelf{"parked": &b.parked, "dead": &b.dead} {
			n, dues := 0, 0
			must(t, sh.entries.ForEach(func(k, v []byte) error {
				e, err := decodeEntry(v)
				must(t, err)
				if same, found, err := sh.like(&e); err != nil || !found || same.ID != e.ID || string(k) != string(idKey(e.ID)) {
					t.Errorf("%s: entry %d of %s is found as %d (%v)", name, e.ID, e.Key, same.ID, err)
				}
				if sh.due != nil && sh.due.Get(dueKey(e.Due, e.ID)) == nil {
					t.Errorf("%s: entry %d is not in the order of due times", name, e.ID)
				}
				n++
				bytes += int64(len(v))
				return nil
			}))
			if *sh.count != n || sh.keys.Stats().KeyN != n {
				t.Errorf("%s: %d entries, %d identities, counted %d", name, n, sh.keys.Stats().KeyN, *sh.count)
			}
			if sh.due != nil {
				if dues = sh.due.Stats().KeyN; dues != n {
					t.Errorf("%s: %d entries, %d due times", name, n, dues)
				}
			}
		}
		if bytes != b.usage.Bytes {
			t.Errorf("entries take %d bytes, counted %d", bytes, b.usage.Bytes)
		}
		return nil
	}))
}

func TestParkedKeysComeBackAsTheyWereInTheOrderOfTheirDueTimes(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	a, b, c := entry(30), entry(10), entry(20)
	a.ID, b.ID = 7, 7 // the caller's IDs mean nothing
	a.Key, b.Key = "\x00\xff not text \x80", strings.Repeat("long", 20_000)
	must(t, s.Park(t.Context(), []retry.Entry{a, b, c}))
	s = reopen(t, s)
	for _, now := range []int64{9, 10} {
		if got := due(t, s, time.Unix(now, 0)); len(got) != 0 {
			t.Errorf("at %d s %v are due, half a microsecond early", now, keys(got))
		}
	}
	got := due(t, s, time.Unix(20, 500))
	if len(got) != 2 {
		t.Fatalf("%d keys are due, want two", len(got))
	}
	got = due(t, s, ever)
	for i, want := range []retry.Entry{b, c, a} {
		want.ID = got[i].ID
		if d := cmp.Diff(want, got[i]); d != "" {
			t.Errorf("%d: %s", i, d)
		}
	}
	if some, err := s.Due(t.Context(), ever, 2); err != nil || len(some) != 2 {
		t.Errorf("%d keys where two are asked for (%v)", len(some), err)
	}
	next, err := s.NextDue(t.Context())
	if err != nil || !next.Equal(b.Due) {
		t.Errorf("the next is due at %s (%v), want %s", next, err, b.Due)
	}
	sound(t, s)
}

func TestNothingIsDueInAnEmptyStore(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	if next, err := s.NextDue(t.Context()); err != nil || !next.IsZero() {
		t.Errorf("next due at %s (%v)", next, err)
	}
	if got := due(t, s, ever); len(got) != 0 {
		t.Errorf("%v are due", keys(got))
	}
	must(t, s.Settle(t.Context(), []uint64{1, 2}, nil))
	sound(t, s)
}

func TestSettledKeysAreGoneParkedLaterOrDead(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	must(t, s.Park(t.Context(), []retry.Entry{entry(1), entry(2), entry(3), entry(4)}))
	got := due(t, s, time.Unix(4, 0))
	later, given := got[1], got[2]
	later.Due, later.Attempts, later.Error = time.Unix(100, 0).UTC(), 4, "again"
	given.Due, given.Attempts = time.Time{}, 8
	for range 2 { // the second time changes nothing: the first reply may have been lost
		must(t, s.Settle(t.Context(), ids(got[:1]), []retry.Entry{later, given}))
		sound(t, s)
	}
	if d := cmp.Diff([]string{"user:4", "user:2"}, keys(due(t, s, ever))); d != "" {
		t.Errorf("parked: %s", d)
	}
	if d := cmp.Diff(later, due(t, s, ever)[1]); d != "" {
		t.Errorf("parked for later: %s", d)
	}
	if d := cmp.Diff([]retry.Entry{given}, dead(t, s, retry.Filter{})); d != "" {
		t.Errorf("dead: %s", d)
	}
}

func TestAKeyInTroubleTakesOnePlaceHoweverOftenItChanges(t *testing.T) {
	s := open(t, t.TempDir(), Options{MaxEntries: 1})
	e := entry(1)
	for n := range 50 {
		e.Version, e.D = at(uint64(100-n)), time.Duration((n+5)%10)*time.Second
		e.Last = time.Unix(int64(10+n), 0).UTC()
		e.First, e.Due = e.Last, e.Last.Add(10*time.Second)
		must(t, s.Park(t.Context(), []retry.Entry{e, e}))
	}
	got := due(t, s, ever)
	if len(got) != 1 {
		t.Fatalf("%d entries, want one", len(got))
	}
	if got[0].Version != at(100) || got[0].D != 9*time.Second || !got[0].First.Equal(time.Unix(10, 0)) || !got[0].Last.Equal(time.Unix(59, 0)) {
		t.Errorf("merged to %+v", got[0])
	}
	// It was due at 20 s; when that was past, the next one at 30, 40, …: never put off by new changes.
	if !got[0].Due.Equal(time.Unix(60, 0)) {
		t.Errorf("due at %s, want 60 s", got[0].Due)
	}
	other := e
	other.Table = "shop.cart"
	if err := s.Park(t.Context(), []retry.Entry{other}); !errors.Is(err, retry.ErrFull) {
		t.Errorf("the same key of another table: %v, want an entry of its own and so %v", err, retry.ErrFull)
	}
	sound(t, s)
}

// TestAnAttemptUnderWayDoesNotSettleWhatWasParkedSince is why merging gives a new ID.
func TestAnAttemptUnderWayDoesNotSettleWhatWasParkedSince(t *testing.T) {
	park := func(s *Store, version uint64) {
		e := entry(1)
		e.Version = at(version)
		must(t, s.Park(t.Context(), []retry.Entry{e}))
	}
	t.Run("done", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		park(s, 1)
		under := due(t, s, ever) // the delete is sent for version 1, and takes effect
		park(s, 2)               // version 2 failed meanwhile
		must(t, s.Settle(t.Context(), ids(under), nil))
		if got := due(t, s, ever); len(got) != 1 || got[0].Version != at(2) {
			t.Errorf("parked is %v, want version 2", got)
		}
		sound(t, s)
	})
	t.Run("failed", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		park(s, 1)
		under := due(t, s, ever)
		park(s, 2)
		under[0].Attempts, under[0].Due = 5, time.Unix(50, 0).UTC()
		must(t, s.Settle(t.Context(), nil, under))
		got := due(t, s, ever)
		if len(got) != 1 || got[0].Version != at(2) || got[0].Attempts != 5 || !got[0].Due.Equal(time.Unix(50, 0)) {
			t.Errorf("parked is %+v, want one entry of version 2 after 5 attempts", got)
		}
		must(t, s.Settle(t.Context(), ids(got), nil))
		if got := due(t, s, ever); len(got) != 0 {
			t.Errorf("after the next attempt %v are parked", keys(got))
		}
		sound(t, s)
	})
	t.Run("given up", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		park(s, 1)
		under := due(t, s, ever)
		park(s, 2)
		under[0].Due = time.Time{}
		must(t, s.Settle(t.Context(), nil, under))
		if got := dead(t, s, retry.Filter{}); len(got) != 1 || got[0].Version != at(2) || len(due(t, s, ever)) != 0 {
			t.Errorf("dead is %v, want version 2, and nothing parked", got)
		}
		sound(t, s)
	})
}

func TestTheStoreIsBoundedInEntriesAndBytes(t *testing.T) {
	t.Run("entries", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{MaxEntries: 3})
		given := entry(0)
		given.Due = time.Time{}
		must(t, s.Park(t.Context(), []retry.Entry{given, entry(1)}))
		if err := s.Park(t.Context(), []retry.Entry{entry(2), entry(3)}); !errors.Is(err, retry.ErrFull) {
			t.Fatalf("park: %v, want %v", err, retry.ErrFull)
		}
		if got := due(t, s, ever); len(got) != 1 {
			t.Errorf("a refused write left %v", keys(got))
		}
		must(t, s.Park(t.Context(), []retry.Entry{entry(2)}))
		// What is in the store can still be settled and merged, even if the bound was lowered meanwhile.
		s.o.MaxEntries = 1
		s = reopen(t, s)
		must(t, s.Park(t.Context(), []retry.Entry{entry(1), entry(2)}))
		s.o.MaxEntries = 3
		got := due(t, s, ever)
		got[0].Due = time.Time{}
		must(t, s.Settle(t.Context(), nil, got[:1]))
		if n, err := s.Purge(t.Context(), retry.Filter{}); n != 2 || err != nil {
			t.Errorf("%d purged, %v", n, err)
		}
		must(t, s.Park(t.Context(), []retry.Entry{entry(4), entry(5)})) // there is room again
		sound(t, s)
	})
	t.Run("bytes", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{MaxBytes: 10_000})
		e := entry(1)
		e.Key = strings.Repeat("k", 9000)
		must(t, s.Park(t.Context(), []retry.Entry{e}))
		e.Key = strings.Repeat("l", 9000)
		if err := s.Park(t.Context(), []retry.Entry{e}); !errors.Is(err, retry.ErrFull) {
			t.Errorf("park: %v, want %v", err, retry.ErrFull)
		}
		sound(t, s)
	})
}

func TestAnErrorsTextIsCutAndMadeText(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	e := entry(1)
	e.Error = "\xff" + strings.Repeat("x", 2*maxErrorText)
	must(t, s.Park(t.Context(), []retry.Entry{e}))
	if got := due(t, s, ever)[0].Error; len(got) != maxErrorText || got[:2] != "?x" {
		t.Errorf("%d bytes of error, %.10q", len(got), got)
	}
}

func TestAStoreDoesNothingForAnEndedContext(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err1 := s.Due(ctx, ever, 1)
	_, err2 := s.NextDue(ctx)
	_, err3 := s.DeadLetters(ctx, retry.Filter{}, 0, 1)
	_, err4 := s.Purge(ctx, retry.Filter{})
	_, err5 := s.Replay(ctx, retry.Filter{}, ever)
	errs := []error{s.Park(ctx, []retry.Entry{entry(1)}), s.Settle(ctx, []uint64{1}, nil), err1, err2, err3, err4, err5}
	if i := slices.IndexFunc(errs, func(err error) bool { return !errors.Is(err, context.Canceled) }); i >= 0 {
		t.Errorf("call %d: %v", i, errs[i])
	}
	if got := due(t, s, ever); len(got) != 0 {
		t.Errorf("%v were parked", keys(got))
	}
}

func TestAnActionThatIsNotKnownIsRefused(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	e := entry(1)
	e.Action = event.Action(200)
	if err := s.Park(t.Context(), []retry.Entry{entry(2), e}); err == nil {
		t.Error("an entry is stored that could not be read again")
	}
	if got := due(t, s, ever); len(got) != 0 {
		t.Errorf("%v are parked", keys(got))
	}
}
