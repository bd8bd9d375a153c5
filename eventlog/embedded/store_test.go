package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/stash"
	"github.com/freshet/freshet/retry"
)

// open opens the store in dir until the test ends.
func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// reopen closes the store and opens its file again.
func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return open(t, filepath.Dir(s.Path()), s.o)
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAMissingStoreIsMadeForItsOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "freshet-data")
	s := open(t, dir, Options{})
	if !s.Created() {
		t.Error("a store that was missing does not say so")
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, s.Path(): 0o600} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("%s is %o, want %o", path, info.Mode().Perm(), want)
		}
	}
	if p := s.Checkpoint().Position(); !p.IsZero() {
		t.Errorf("a new store has the position %s", p.String())
	}
	if s = reopen(t, s); s.Created() {
		t.Error("a store that was there says that it was made")
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	if len(left) != 1 {
		t.Errorf("the directory holds %v, want the store only", left)
	}
}

func TestASecondProcessIsTurnedAwayAtOnce(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, Options{})
	for name, again := range map[string]func(string, Options) (*Store, error){"open": Open, "read only": OpenReadOnly} {
		start := time.Now()
		_, err := again(dir, Options{LockWait: time.Millisecond})
		if !errors.Is(err, ErrLocked) {
			t.Fatalf("%s: %v, want %v", name, err, ErrLocked)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: it took %s to say so", name, took)
		}
		if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "stop that one") {
			t.Errorf("%s: %q does not say where and what to do", name, err)
		}
	}
	must(t, first.Close())
	open(t, dir, Options{})
}

func TestReadersShareAStoreAndChangeNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenReadOnly(dir, Options{}); !errors.Is(err, ErrMissing) {
		t.Fatalf("a missing store: %v, want %v", err, ErrMissing)
	}
	if _, err := os.Stat(filepath.Join(dir, FileName)); err == nil {
		t.Fatal("reading made a store")
	}
	s := open(t, dir, Options{})
	must(t, s.Checkpoint().Begin(position(t, 4)))
	must(t, s.Close())
	a, err := OpenReadOnly(dir, Options{})
	must(t, err)
	defer a.Close()
	b, err := OpenReadOnly(dir, Options{})
	must(t, err)
	defer b.Close()
	if p := b.Checkpoint().Position(); p.Pos != 4 {
		t.Errorf("a reader sees %s", p.String())
	}
	if err := a.Park(t.Context(), []retry.Entry{entry(1)}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("park: %v, want %v", err, ErrReadOnly)
	}
	if _, err := a.Checkpoint().NextTerm(); !errors.Is(err, ErrReadOnly) {
		t.Errorf("take a term: %v, want %v", err, ErrReadOnly)
	}
}

// filled makes a store that holds something of everything, closed, and returns its path.
func filled(t *testing.T) string {
	t.Helper()
	s := open(t, t.TempDir(), Options{})
	c := s.Checkpoint()
	p := position(t, 4)
	p.State = bytes.Repeat([]byte("state"), 5000)
	must(t, c.Begin(p))
	_, err := c.NextTerm()
	must(t, err)
	must(t, c.SetMappings("abc"))
	var entries []retry.Entry
	for n := range 300 {
		entries = append(entries, entry(n))
	}
	entries[7].Due = time.Time{}
	must(t, s.Park(t.Context(), entries))
	must(t, s.Stash().Begin("X'01',X'',1", at(9)).Append(stashed("a", "b")))
	must(t, s.Close())
	return s.Path()
}

func TestADamagedFileIsNeverAFirstStart(t *testing.T) {
	whole, err := os.ReadFile(filled(t))
	must(t, err)
	page := os.Getpagesize()
	for name, damage := range map[string]func([]byte) []byte{
		"empty":                   func([]byte) []byte { return nil },
		"one byte":                func(b []byte) []byte { return b[:1] },
		"one page":                func(b []byte) []byte { return b[:page] },
		"cut in the middle":       func(b []byte) []byte { return b[:len(b)/2/page*page] },
		"cut by a page":           func(b []byte) []byte { return b[:highWater(b, page)-page] },
		"another program's file":  func([]byte) []byte { return bytes.Repeat([]byte("SQLite format 3\x00"), 4096) },
		"both roots wiped":        func(b []byte) []byte { clear(b[:2*page]); return b },
		"a value changed":         func(b []byte) []byte { return flip(b, `"attempts":3`) },
		"the position changed":    func(b []byte) []byte { return flip(b, `"pos":4`) },
		"canal's state changed":   func(b []byte) []byte { return flip(b, "statestate") },
		"a stashed key changed":   func(b []byte) []byte { return flip(b, `"keys":["a"`) },
		"pages of nonsense":       func(b []byte) []byte { return nonsense(b, page) },
		"pages that point beyond": func(b []byte) []byte { return wild(b, page) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			must(t, os.WriteFile(path, damage(bytes.Clone(whole)), 0o600))
			was, err := os.ReadFile(path)
			must(t, err)
			s, err := Open(dir, Options{})
			if err == nil {
				_ = s.Close()
				t.Fatal("it is opened")
			}
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), dir) ||
				!strings.Contains(err.Error(), "position set") {
				t.Errorf("%q does not say what is wrong, where, and what to do", err)
			}
			is, err := os.ReadFile(path)
			must(t, err)
			if !bytes.Equal(was, is) {
				t.Error("the damaged file was changed")
			}
		})
	}
}

// highWater returns how many bytes of a bbolt file are in use.
func highWater(b []byte, page int) int {
	most := 0
	for i := range 2 { // the root page's header is 16 bytes; 40 bytes on is the number of pages
		most = max(most, int(binary.LittleEndian.Uint64(b[i*page+16+40:])))
	}
	return most * page
}

// flip changes one bit after every occurrence of a text: old copies lie about in pages that are not used any more.
func flip(b []byte, text string) []byte {
	n := 0
	for i := 0; ; n++ {
		j := bytes.Index(b[i:], []byte(text))
		if j < 0 {
			break
		}
		i += j + len(text)
		b[i-1] ^= 1
	}
	if n == 0 {
		panic(text + " is not in the file")
	}
	return b
}

// nonsense fills all pages but the roots.
func nonsense(b []byte, page int) []byte {
	for i := 2 * page; i < len(b); i++ {
		b[i] = byte(i * 7)
	}
	return b
}

// wild makes every branch page point far beyond the end of the file.
func wild(b []byte, page int) []byte {
	n := 0
	for at := 2 * page; at+page <= len(b); at += page {
		if binary.LittleEndian.Uint16(b[at+8:]) == 1 { // a branch page: its elements are pos, ksize, page
			for e := range int(binary.LittleEndian.Uint16(b[at+10:])) {
				binary.LittleEndian.PutUint64(b[at+16+16*e+8:], 1<<40)
			}
			n++
		}
	}
	if n == 0 {
		panic("there is no branch page")
	}
	return b
}

func TestANewerFormatIsRefused(t *testing.T) {
	path := filled(t)
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyFormat), []byte(strconv.Itoa(format+1)))
	}))
	must(t, db.Close())
	_, err = Open(filepath.Dir(path), Options{})
	if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "format 2, this one knows 1") {
		t.Errorf("%v", err)
	}
}

func TestABboltFileOfAnotherProgramIsRefused(t *testing.T) {
	dir := t.TempDir()
	db, err := bolt.Open(filepath.Join(dir, FileName), 0o600, nil)
	must(t, err)
	must(t, db.Close())
	if _, err := Open(dir, Options{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v, want %v", err, ErrDamaged)
	}
}

// TestOpeningMakesNoFile: bbolt would make one if it went away between looking through it and opening it.
func TestOpeningMakesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	if db, err := openFile(path, false, time.Millisecond); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v, %v", db, err)
	}
}

func TestADirectoryThatCannotBeUsedIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := Open(filepath.Join(file, "dir"), Options{}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a directory below a file: %v", err)
	}
	if _, err := Open(t.TempDir(), Options{MaxEntries: -1}); err == nil {
		t.Error("a negative bound is taken")
	}
}

func TestStoreMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	dir := t.TempDir()
	s := open(t, dir, Options{Registerer: reg, MaxEntries: 3})
	lint(t, reg)
	dead := entry(2)
	dead.Due = time.Time{}
	must(t, s.Park(t.Context(), []retry.Entry{entry(0), entry(1), dead}))
	must(t, s.Stash().Begin("x", at(1)).Append(stashed("a", "b")))
	if err := s.Park(t.Context(), []retry.Entry{entry(3)}); !errors.Is(err, retry.ErrFull) {
		t.Errorf("park: %v, want %v", err, retry.ErrFull)
	}
	check := func(what string) {
		t.Helper()
		for name, want := range map[string]float64{
			"freshet_store_parked_keys": 2, "freshet_store_dead_letters": 1, "freshet_store_stashed_keys": 2,
		} {
			if err := hasValue(reg, name, want); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	check("as written")
	u, err := s.Usage()
	must(t, err)
	if u.Parked != 2 || u.DeadLetters != 1 || u.Bytes == 0 {
		t.Errorf("usage: %+v", u)
	}
	s = reopen(t, s) // and registers again
	check("as read")
	must(t, s.Close())
	if families, _ := reg.Gather(); len(families) != 0 {
		t.Errorf("after close %d metrics are left", len(families))
	}
}

func at(pos uint64) event.Version { return event.Version{Epoch: 1, File: 1, Pos: pos, Row: 1} }

// entry makes the parked entry of key n, due at n seconds.
func entry(n int) retry.Entry {
	return retry.Entry{
		Key: "user:" + strconv.Itoa(n), Action: event.ActionDelete, Source: "default", Table: "shop.user",
		Version: at(uint64(n)),
		D:       2 * time.Second, Error: "NOPERM", Attempts: 3,
		First: time.Unix(1, 0).UTC(), Last: time.Unix(2, 0).UTC(), Due: time.Unix(int64(n), 500).UTC(),
	}
}

func stashed(keys ...string) []stash.Key {
	var out []stash.Key
	for _, k := range keys {
		out = append(out, stash.Key{Key: k, Table: "shop.user", Mapping: 1, D: time.Second, Action: event.ActionDelete})
	}
	return out
}

// position makes a position without GTIDs.
func position(t testing.TB, pos uint64) event.Position {
	t.Helper()
	return event.Position{
		Flavor: event.MySQL, Server: "a", Epoch: 1, File: "binlog.000001", Pos: pos,
		Committed: time.Unix(5, 0).UTC(),
	}
}

// The system lets a process write on to a file that has no name any more; at the next start all of it is gone.
func TestAStoreThatIsRemovedUnderFreshetSaysSo(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"the directory is removed": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"another file is put in its place": func(path string) error {
			data, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".new", data, 0o600), os.Rename(path+".new", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, filepath.Join(t.TempDir(), "data"), Options{})
			must(t, s.SetFact(t.Context(), "a", []byte("1")))
			must(t, remove(s.Path()))
			err := s.SetFact(t.Context(), "a", []byte("2"))
			if !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), s.Path()) ||
				!strings.Contains(err.Error(), "freshet position set") {
				t.Errorf("written all the same: %v", err)
			}
		})
	}
}
