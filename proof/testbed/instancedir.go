package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// instanceDir is the directory of one server. Its lock file is locked for as long as the
// process that owns the server lives, so that what a killed process left behind can be known
// from what is in use.
type instanceDir struct {
	path string
	lock *os.File
}

// newInstanceDir makes a directory below parent (default: see instancesDir), having removed those that nobody owns any
// more.
func newInstanceDir(parent, name string) (*instanceDir, error) {
	if parent == "" {
		parent = instancesDir()
	}
	removeOrphans(parent)
	for {
		path, err := os.MkdirTemp(parent, "freshet-"+name+"-")
		if err != nil {
			return nil, fmt.Errorf("testbed: %w", err)
		}
		d := &instanceDir{path: path}
		locked, err := d.tryLock(os.O_CREATE)
		if err != nil {
			return nil, fmt.Errorf("testbed: %w", err)
		}
		if locked { // else another process has just taken it for an orphan
			return d, nil
		}
	}
}

// instancesDir is where the directories of instances are: the temporary directory, and for tests memory, if there is
// enough of it. A database has some two hundred files. To make and remove them for hundreds of servers takes a tenth of
// the processor's time of a test run on a disk, above all where the file system is slow to give a file's number to
// another one. What is measured (proof/bench) is on the disk. So is all where TMPDIR is set.
func instancesDir() string {
	if testing.Testing() && os.Getenv("TMPDIR") == "" {
		if dir := inMemory(); dir != "" {
			return dir
		}
	}
	return os.TempDir()
}

// tryLock takes the directory's lock if nobody holds it.
func (d *instanceDir) tryLock(flag int) (bool, error) {
	f, err := os.OpenFile(filepath.Join(d.path, "lock"), os.O_RDWR|flag, 0o644)
	if err != nil {
		return false, err
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false, f.Close()
	}
	d.lock = f
	return true, nil
}

// remove deletes the directory.
func (d *instanceDir) remove() error {
	defer d.lock.Close()
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("testbed: %w", err)
	}
	return nil
}

// removeOrphans deletes directories of processes that are gone, as far as it may.
func removeOrphans(parent string) {
	locks, _ := filepath.Glob(filepath.Join(parent, "freshet-*", "lock"))
	for _, lock := range locks {
		d := &instanceDir{path: filepath.Dir(lock)}
		if locked, err := d.tryLock(0); err == nil && locked {
			_ = d.remove()
		}
	}
}
