package retrytest

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// Store is a [retry.Store] with its dead letters.
type Store interface {
	retry.Store
	DeadLetters(ctx context.Context, f retry.Filter, after uint64, n int) ([]retry.Entry, error)
	DeadLetter(ctx context.Context, id uint64) (retry.Entry, bool, error)
	Replay(ctx context.Context, f retry.Filter, now time.Time) (int, error)
	Purge(ctx context.Context, f retry.Filter) (int, error)
}

// Rig is an empty store of one test.
type Rig struct {
	// Open opens the store as a new process would, after the one before has died.
	Open func() Store
	// Seen waits until Due offers all that was parked.
	Seen func()
	// Sound fails the test when the store is not in order in itself.
	Sound func()
}

// Run runs the suite; each test has a rig of its own.
func Run(t *testing.T, rig func(t *testing.T) Rig) {
	for name, test := range map[string]func(*suite){
		"parked keys come back as they were, in the order of their due times": (*suite).parked,
		"nothing is due in an empty store":                                    (*suite).empty,
		"settled keys are gone, parked later or dead":                         (*suite).settled,
		"a hot key is one attempt, however often it changes":                  (*suite).hot,
		"any action is kept, and one attempt serves all of a key":             (*suite).anyAction,
		"the key's own version is kept before one that may be another key's":  (*suite).foreign,
		"an attempt under way does not settle what was parked since":          (*suite).underWay,
		"a store does nothing for an ended context":                           (*suite).ended,
		"an action that is not known is refused":                              (*suite).refused,
		"dead letters are listed in pages and by filter":                      (*suite).listed,
		"replayed letters are due at once and begin again":                    (*suite).replayed,
		"purged letters are gone":                                             (*suite).purged,
	} {
		t.Run(name, func(t *testing.T) {
			r := rig(t)
			s := &suite{T: t, rig: r, store: r.Open()}
			test(s)
			r.Sound()
		})
	}
}

// suite is one test under way.
type suite struct {
	*testing.T
	rig   Rig
	store Store
}

// ever is when everything parked is due.
func ever() time.Time { return time.Unix(1<<33, 0) }

// At returns the n-th version.
func At(n uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: n, Row: 1} }

// Entry makes a parked entry of key user:n, due n seconds and some after 1970.
func Entry(n int) retry.Entry {
	return retry.Entry{
		Key: "user:" + digits(n), Action: event.ActionDelete, Source: "default", Table: "shop.user", Version: At(uint64(n)),
		D: 2 * time.Second, Error: "NOPERM", Attempts: 3,
		First: time.Unix(1, 0).UTC(), Last: time.Unix(2, 0).UTC(), Due: time.Unix(int64(n), 500).UTC(),
	}
}

func digits(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return digits(n/10) + digits(n%10)
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) park(entries ...retry.Entry) {
	s.Helper()
	s.must(s.store.Park(s.Context(), entries))
	s.rig.Seen()
	s.rig.Sound()
}

func (s *suite) settle(done []uint64, again ...retry.Entry) {
	s.Helper()
	s.must(s.store.Settle(s.Context(), done, again))
	s.rig.Seen()
	s.rig.Sound()
}

func (s *suite) due(now time.Time) []retry.Entry {
	s.Helper()
	entries, err := s.store.Due(s.Context(), now, 1<<20)
	s.must(err)
	return entries
}

func (s *suite) dead(f retry.Filter) []retry.Entry {
	s.Helper()
	entries, err := s.store.DeadLetters(s.Context(), f, 0, 1<<20)
	s.must(err)
	return entries
}

// want fails the test unless the keys of the entries are these, in this order.
func (s *suite) want(what string, entries []retry.Entry, keys ...string) {
	s.Helper()
	var got []string
	for _, e := range entries {
		got = append(got, e.Key)
	}
	if !slices.Equal(got, keys) {
		s.Errorf("%s: %q, want %q", what, got, keys)
	}
}

// same fails the test unless got is want, but for its ID.
func (s *suite) same(what string, got, want retry.Entry) {
	s.Helper()
	got.ID, want.ID = 0, 0
	if !reflect.DeepEqual(got, want) {
		s.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func ids(entries []retry.Entry) (out []uint64) {
	for _, e := range entries {
		out = append(out, e.ID)
	}
	return out
}

func byKey(a, b retry.Entry) int { return cmp.Compare(a.Key, b.Key) }
