package embedded

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

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
	if got[0].Version != at(100) || got[0].D != 9*time.Second || !got[0].First.Equal(time.Unix(10, 0)) ||
		!got[0].Last.Equal(time.Unix(59, 0)) {
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
