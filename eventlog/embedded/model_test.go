package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/freshet/freshet/retry"
)

// The model: for each key, whether it lacks a delete, and since which change. A delete that began before that change
// does not count. Whatever fails, before or after it took effect, and is repeated by its caller, and however often the
// store is closed and opened: a key that lacks a delete is in the store, and one that lacks none is not, unless an
// attempt failed that began before.
type model struct {
	s *Store
	f *faults

	now   int64
	clock uint64         // counts changes
	lacks map[int]uint64 // key → its last change without a delete since
	extra map[int]bool   // keys that may be in the store and lack nothing
	under []attempt
}

// attempt is a delete under way.
type attempt struct {
	entry retry.Entry
	key   int
	began uint64
}

// repeat calls a write until it succeeds, with the faults that rapid draws.
func (m *model) repeat(t *rapid.T, write func() error) {
	t.Helper()
	failures := rapid.IntRange(0, 2).Draw(t, "failures")
	for i := 0; ; i++ {
		m.f.before, m.f.after = nil, nil
		if i < failures {
			if rapid.Bool().Draw(t, "takes effect") {
				m.f.after = failing
			} else {
				m.f.before = failing
			}
		}
		err := write()
		if err == nil {
			return
		}
		if !errors.Is(err, errDisk) {
			t.Fatal(err)
		}
	}
}

func (m *model) park(t *rapid.T) {
	var batch []retry.Entry
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		key := rapid.IntRange(0, 4).Draw(t, "key")
		m.clock++
		e := entry(key)
		e.Version, e.Last = at(m.clock), time.Unix(m.now, 0)
		if !rapid.Bool().Draw(t, "dead at once") {
			e.Due = time.Unix(m.now+rapid.Int64Range(0, 20).Draw(t, "delay"), 0)
		} else {
			e.Due = time.Time{}
			m.extra[key] = true // a letter stays, whatever becomes of its key
		}
		m.lacks[key] = m.clock
		batch = append(batch, e)
	}
	m.repeat(t, func() error { return m.s.Park(context.Background(), batch) })
}

// begin takes what is due, as the retrier does; several attempts on one key may be under way.
func (m *model) begin(t *rapid.T) {
	m.now += rapid.Int64Range(0, 20).Draw(t, "time passes")
	entries, err := m.s.Due(context.Background(), time.Unix(m.now, 0), 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		var key int
		_, _ = fmt.Sscanf(e.Key, "user:%d", &key)
		m.under = append(m.under, attempt{entry: e, key: key, began: m.clock})
	}
}

// settle ends some of the attempts.
func (m *model) settle(t *rapid.T) {
	n := min(len(m.under), rapid.IntRange(1, 3).Draw(t, "attempts"))
	var done []uint64
	var again []retry.Entry
	for _, a := range m.under[:n] {
		switch rapid.SampledFrom([]string{"done", "later", "dead"}).Draw(t, "outcome") {
		case "done":
			done = append(done, a.entry.ID)
			if m.lacks[a.key] <= a.began {
				delete(m.lacks, a.key)
			}
			continue
		case "later":
			a.entry.Due = time.Unix(m.now+rapid.Int64Range(1, 20).Draw(t, "delay"), 0)
		case "dead":
			a.entry.Due = time.Time{}
		}
		a.entry.Attempts++
		again = append(again, a.entry)
		m.extra[a.key] = true
	}
	m.under = slices.Delete(m.under, 0, n)
	m.repeat(t, func() error { return m.s.Settle(context.Background(), done, again) })
}

func (m *model) replay(t *rapid.T) {
	f := retry.Filter{Key: fmt.Sprintf("user:%d", rapid.IntRange(0, 4).Draw(t, "key"))}
	if rapid.Bool().Draw(t, "all") {
		f = retry.Filter{}
	}
	m.repeat(t, func() error {
		_, err := m.s.Replay(context.Background(), f, time.Unix(m.now, 0))
		return err
	})
}

func (m *model) check(t *rapid.T) {
	t.Helper()
	sound(t, m.s)
	in := map[string]bool{}
	for _, e := range append(due(t, m.s, ever), dead(t, m.s, retry.Filter{})...) {
		in[e.Key] = true
	}
	for key := range 5 {
		name := fmt.Sprintf("user:%d", key)
		_, lacks := m.lacks[key]
		if lacks && !in[name] {
			t.Fatalf("%s lacks a delete and is lost", name)
		}
		if in[name] && !lacks && !m.extra[key] {
			t.Fatalf("%s is in the store and lacks nothing", name)
		}
	}
}

func TestNoKeyInTroubleIsLostWhateverFails(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		var f faults
		o := Options{Write: f.write}
		path := fmt.Sprintf("%s/%d", dir, n)
		s, err := Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		s.db.NoSync = true
		m := &model{s: s, f: &f, lacks: map[int]uint64{}, extra: map[int]bool{}}
		defer func() { _ = m.s.Close(); _ = os.RemoveAll(path) }()
		t.Repeat(map[string]func(*rapid.T){
			"park": m.park, "begin": m.begin, "settle": m.settle, "replay": m.replay,
			"open again": func(t *rapid.T) {
				m.under = nil // the process died with its attempts
				if err := m.s.Close(); err != nil {
					t.Fatal(err)
				}
				if m.s, err = Open(path, o); err != nil {
					t.Fatal(err)
				}
				m.s.db.NoSync = true
			},
			"": m.check,
		})
	})
}
