package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// format is the version of what the buckets hold. A higher one in a file means that a newer freshet wrote it.
const format = 1

// The buckets, and the keys of the first two.
const (
	bucketMeta       = "meta"
	bucketCheckpoint = "checkpoint"
	bucketParked     = "parked"      // id → entry
	bucketParkedKeys = "parked_keys" // identity → id
	bucketDue        = "due"         // due, id → nothing
	bucketDead       = "dead"        // id → entry
	bucketDeadKeys   = "dead_keys"   // identity → id
	bucketStash      = "xa"          // xid, version → bucket of chunks

	// These are made with their first record, so that a file from before there were any is still whole.
	bucketDoubts = "doubts" // id → doubt
	bucketFacts  = "facts"  // name → value

	keyFormat   = "format"
	keyUsage    = "usage"
	keyTerm     = "term"
	keyMappings = "mappings"
	keyPosition = "position"
	keyState    = "state"
)

func buckets() []string {
	return []string{
		bucketMeta, bucketCheckpoint, bucketParked, bucketParkedKeys, bucketDue, bucketDead, bucketDeadKeys, bucketStash,
	}
}

// create makes the directory and an empty store in it, if there is no file, and reports whether it did. The file
// appears whole or not at all: an empty file in its place is therefore damage, never a first start.
func create(dir, path string) (bool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("eventlog.dir %s: %w: make it for the user that freshet runs as", dir, err)
	}
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("eventlog.dir %s: %w", dir, err)
	}
	created, err := createFile(dir, path)
	if err != nil {
		return false, fmt.Errorf("eventlog.dir %s: make %s: %w", dir, FileName, err)
	}
	return created, nil
}

func createFile(dir, path string) (bool, error) {
	tmp, err := os.CreateTemp(dir, "new-*.db") // for its owner only
	if err != nil {
		return false, err
	}
	defer os.Remove(tmp.Name())
	if err := tmp.Close(); err != nil {
		return false, err
	}
	db, err := bolt.Open(tmp.Name(), 0o600, nil)
	if err != nil {
		return false, err
	}
	if err := errors.Join(db.Update(initialize), db.Close()); err != nil {
		return false, err
	}
	// A link, unlike a rename, does not replace what another process made meanwhile.
	err = os.Link(tmp.Name(), path)
	switch {
	case errors.Is(err, fs.ErrExist):
		return false, nil
	case err != nil: // a file system without links
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return false, err
	}
	return true, syncDir(filepath.Dir(path))
}

func initialize(tx *bolt.Tx) error {
	for _, b := range buckets() {
		if _, err := tx.CreateBucket([]byte(b)); err != nil {
			return err
		}
	}
	return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyFormat), []byte(strconv.Itoa(format)))
}

// syncDir makes a new name in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openVerified opens the file after it has been looked through.
func openVerified(path string, readOnly bool, wait time.Duration) (*bolt.DB, error) {
	if err := verify(path, wait); err != nil {
		return nil, explain(path, err)
	}
	db, err := openFile(path, readOnly, wait)
	if err != nil {
		return nil, explain(path, err)
	}
	return db, nil
}

// openFile opens an existing file; unlike bbolt it never makes one.
func openFile(path string, readOnly bool, wait time.Duration) (db *bolt.DB, err error) {
	defer noPanic(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return bolt.Open(path, 0o600, &bolt.Options{
		Timeout: wait, ReadOnly: readOnly, FreelistType: bolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			return os.OpenFile(name, flag&^os.O_CREATE, mode)
		},
	})
}

// noPanic makes an error of a panic: bbolt panics on pages that make no sense, and a page beyond the end of the file
// is a fault of memory.
func noPanic(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %v", ErrDamaged, r)
	}
}

// verify looks through the whole file before anything is believed: it is opened for reading, is as long as it says,
// every record's checksum is right, and every page is where it belongs.
func verify(path string, wait time.Duration) (err error) {
	if info, err := os.Stat(path); err != nil {
		return err
	} else if info.Size() == 0 {
		return fmt.Errorf("%w: the file is empty", ErrDamaged)
	}
	db, err := openFile(path, true, wait)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(func(tx *bolt.Tx) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("%w: the file is cut short: %d of %d bytes", ErrDamaged, info.Size(), tx.Size())
		}
		return verifyPages(tx)
	})
}

func verifyPages(tx *bolt.Tx) (err error) {
	defer noPanic(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if err := verifyFormat(tx); err != nil {
		return err
	}
	for _, name := range buckets() {
		if err := verifyRecords(tx.Bucket([]byte(name)), name); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
		}
	}
	for _, name := range []string{bucketDoubts, bucketFacts} {
		if b := tx.Bucket([]byte(name)); b != nil {
			if err := verifyRecords(b, name); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
			}
		}
	}
	var found error
	for problem := range tx.Check() { // to the end, or its goroutine stays
		if found == nil {
			found = fmt.Errorf("%w: %w", ErrDamaged, problem)
		}
	}
	return found
}

func verifyFormat(tx *bolt.Tx) error {
	meta := tx.Bucket([]byte(bucketMeta))
	if meta == nil {
		return fmt.Errorf("%w: it is another program's", ErrDamaged)
	}
	text := string(meta.Get([]byte(keyFormat)))
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 1:
		return fmt.Errorf("%w: its format is %q", ErrDamaged, text)
	case n > format:
		return fmt.Errorf("%w: format %d, this one knows %d", ErrNewer, n, format)
	}
	for _, b := range buckets() {
		if tx.Bucket([]byte(b)) == nil {
			return fmt.Errorf("%w: %s is missing", ErrDamaged, b)
		}
	}
	return nil
}

// verifyRecords reads everything that a bucket holds and checks the records' checksums.
func verifyRecords(b *bolt.Bucket, name string) error {
	return b.ForEach(func(k, v []byte) error {
		switch {
		case v == nil:
			return verifyRecords(b.Bucket(k), name)
		case name == bucketDue, name == bucketParkedKeys, name == bucketDeadKeys, string(k) == keyFormat:
			return nil // numbers, not records
		}
		_, err := unseal(v)
		return err
	})
}

// explain tells an operator what is wrong with the store and what to do.
func explain(path string, err error) error {
	dir := filepath.Dir(path)
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("eventlog.dir %s: %w: another freshet runs on it; stop that one, or give this one a directory of "+
			"its own",
			dir, ErrLocked)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("eventlog.dir %s: %w: freshet has not run on it yet, or %s was removed", dir, ErrMissing, FileName)
	case errors.Is(err, ErrNewer):
		return fmt.Errorf("eventlog.dir %s: %s: %w: use that version, or a directory of its own for this one", dir, FileName,
			err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("eventlog.dir %s: %w: it belongs to another user than the one that freshet runs as", dir, err)
	}
	if !isDamage(err) {
		return fmt.Errorf("eventlog.dir %s: %s: %w", dir, FileName, err)
	}
	return fmt.Errorf("eventlog.dir %s: %s: %w: put back a copy, or move the file away, set the position where the "+
		"source "+
		"must be read from (freshet position set), and clear the keys that were cached since", dir, FileName, asDamage(err))
}

// isDamage reports whether the file's content is to blame, not the access to it.
func isDamage(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, bolterrors.ErrInvalid) || errors.Is(err, bolterrors.ErrChecksum) ||
		errors.Is(err, bolterrors.ErrVersionMismatch) || strings.Contains(err.Error(), "file size too small")
}

func asDamage(err error) error {
	if errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}
