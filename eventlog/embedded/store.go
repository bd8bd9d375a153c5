package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bolt "go.etcd.io/bbolt"

	"github.com/freshet/freshet/eventlog/stash"
)

// FileName is the name of the store's file in its directory.
const FileName = "freshet.db"

// The defaults of [Options].
const (
	DefaultLockWait      = time.Second
	DefaultMaxEntries    = 100_000
	DefaultMaxBytes      = 64 << 20
	DefaultMaxStashKeys  = stash.DefaultMaxKeys
	DefaultMaxStashBytes = stash.DefaultMaxBytes
)

// Options configure a [Store]. The zero value of each field means its default.
type Options struct {
	// LockWait is how long [Open] waits for another process to leave the directory. Default 1 s.
	LockWait time.Duration
	// MaxEntries and MaxBytes bound parked keys and dead letters together. Defaults 100 000 and 64 MiB.
	MaxEntries int
	MaxBytes   int64
	// MaxStashKeys and MaxStashBytes bound the keys of prepared XA transactions. Defaults 5 000 000 and 512 MiB.
	MaxStashKeys  int
	MaxStashBytes int64
	// Registerer takes the store's metrics until [Store.Close]; nil: they are registered nowhere.
	Registerer prometheus.Registerer
	// Write, if set, is called in the place of every write, with the operation's name and the write itself: a test
	// lets it fail before or after it took effect. Calling it twice must do no harm.
	Write func(op string, write func() error) error
}

func (o Options) withDefaults() (Options, error) {
	o.LockWait = orDefault(o.LockWait, DefaultLockWait)
	o.MaxEntries = orDefault(o.MaxEntries, DefaultMaxEntries)
	o.MaxBytes = orDefault(o.MaxBytes, DefaultMaxBytes)
	o.MaxStashKeys = orDefault(o.MaxStashKeys, DefaultMaxStashKeys)
	o.MaxStashBytes = orDefault(o.MaxStashBytes, DefaultMaxStashBytes)
	if o.LockWait < 0 || o.MaxEntries < 0 || o.MaxBytes < 0 || o.MaxStashKeys < 0 || o.MaxStashBytes < 0 {
		return o, errors.New("eventlog.dir: a negative bound or time makes no sense")
	}
	return o, nil
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Errors of a store.
var (
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("in use by another process")
	// ErrMissing: there is no store in the directory. Only [OpenReadOnly] returns it.
	ErrMissing = errors.New("no store")
	// ErrDamaged: the file is not a whole store.
	ErrDamaged = errors.New("damaged")
	// ErrNewer: the file was written by a newer version of freshet.
	ErrNewer = errors.New("written by a newer version")
	// ErrRemoved: the store's file was removed or replaced while it was open.
	ErrRemoved = errors.New("the store's file was removed while freshet runs on it")
	// ErrReadOnly: a store that was opened by [OpenReadOnly] was to be changed.
	ErrReadOnly = errors.New("opened for reading only")
)

// Store is the durable state of one freshet: a bbolt file that one process at a time has open.
type Store struct {
	path    string
	o       Options
	db      *bolt.DB
	file    os.FileInfo // of the file that is open
	created bool
	metrics *metrics
	cp      *Checkpoint
	stash   *stash.Stash
}

// Open opens the store in dir, and makes both if they are missing (the directory for its owner only). It fails at
// once, after [Options].LockWait, when another process has it open ([ErrLocked]), and when it is damaged
// ([ErrDamaged]) or newer ([ErrNewer]); the error says what to do.
func Open(dir string, o Options) (*Store, error) {
	s, err := newStore(dir, o)
	if err != nil {
		return nil, err
	}
	if s.created, err = create(dir, s.path); err != nil {
		return nil, err
	}
	return s.open(false)
}

// OpenReadOnly opens the store in dir for looking into it. Several may at once, but not while a freshet runs on it
// ([ErrLocked]). It makes nothing: a missing store is [ErrMissing].
func OpenReadOnly(dir string, o Options) (*Store, error) {
	s, err := newStore(dir, o)
	if err != nil {
		return nil, err
	}
	return s.open(true)
}

func newStore(dir string, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("eventlog.dir %s: %w", dir, err)
	}
	return &Store{path: filepath.Join(abs, FileName), o: o}, nil
}

// open verifies the file, opens it and reads what is kept in memory.
func (s *Store) open(readOnly bool) (_ *Store, err error) {
	if s.db, err = openVerified(s.path, readOnly, s.o.LockWait); err != nil {
		return nil, err
	}
	if s.file, err = os.Stat(s.path); err != nil {
		return nil, errors.Join(explain(s.path, err), s.db.Close())
	}
	if s.cp, err = loadCheckpoint(s); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	s.metrics = newMetrics()
	if s.stash, err = loadStash(s); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	if err := s.noteUsage(); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	if err := s.metrics.register(s.o.Registerer); err != nil {
		return nil, errors.Join(fmt.Errorf("store %s: metrics: %w", s.path, err), s.db.Close())
	}
	return s, nil
}

// Close closes the file, and so lets another process in. It waits for what is being read or written.
func (s *Store) Close() error {
	s.metrics.unregister(s.o.Registerer)
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("store %s: close: %w", s.path, err)
	}
	return nil
}

// Path returns the file's path.
func (s *Store) Path() string { return s.path }

// Advice says what to do when the store fails for longer.
func (s *Store) Advice() string { return "look at the disk of eventlog.dir" }

// Created reports whether there was no file before this Open: a first start, unless the file was lost.
func (s *Store) Created() bool { return s.created }

// Checkpoint returns the store's checkpoint.
func (s *Store) Checkpoint() *Checkpoint { return s.cp }

// Stash returns the stash of prepared XA transactions.
func (s *Store) Stash() *stash.Stash { return s.stash }

// update runs f in a transaction of its own, which is on disk when update returns nil. f may run more than once.
func (s *Store) update(op string, f func(tx *bolt.Tx) error) error {
	if s.db.IsReadOnly() {
		return fmt.Errorf("store %s: %s: %w", s.path, op, ErrReadOnly)
	}
	start := time.Now()
	write := func() error {
		if err := s.inPlace(); err != nil {
			return err
		}
		return s.db.Update(f)
	}
	var err error
	if s.o.Write != nil {
		err = s.o.Write(op, write)
	} else {
		err = write()
	}
	s.metrics.wrote(op, time.Since(start), err)
	if err != nil {
		return fmt.Errorf("store %s: %s: %w", s.path, op, err)
	}
	return nil
}

// inPlace fails if the file that is open is not the one under its name any more: what is written to it then is gone
// with this process, and the next start finds no store, or another one.
func (s *Store) inPlace() error {
	info, err := os.Stat(s.path)
	switch {
	case err == nil && os.SameFile(info, s.file):
		return nil
	case err == nil:
		err = errors.New("another file has taken its place")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return fmt.Errorf("%w: %w: stop freshet, put back a copy of the file, or set the position where the source must be "+
		"read from"+
		" (freshet position set) before it is started again", ErrRemoved, err)
}

// view runs f in a transaction that only reads. f must be short: while it runs, pages that are freed cannot be
// used again, and it must not wait for anything that writes.
func (s *Store) view(op string, f func(tx *bolt.Tx) error) error {
	if err := s.db.View(f); err != nil {
		return fmt.Errorf("store %s: %s: %w", s.path, op, err)
	}
	return nil
}
