package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/retry"
)

// Keys in trouble.
//
// An entry says "this key lacks one delete, from now on". Two of them for one key say no more than one, so there is
// at most one parked entry and one dead letter for each identity (source, table, key): a hot key that cannot be
// deleted takes one place in the store, not one for every change, and a replay after a crash adds nothing. It does not
// matter which action the key had: no value is kept, so every attempt is a delete.
//
// The one thing to guard is an attempt under way while the same key is parked again: the attempt may have been too
// early for the new change. So a merged entry gets a new ID. Settling the old one then removes nothing, and the new
// one is tried again.

var _ retry.Store = (*Store)(nil)

// usage is what the bounds are held against. It is stored, so that it is always what the transaction sees.
type usage struct {
	Parked int   `json:"parked"`
	Dead   int   `json:"dead"`
	Bytes  int64 `json:"bytes"` // of both
}

// shelf is where entries are kept: parked ones, or dead letters.
type shelf struct {
	entries, keys *bolt.Bucket
	due           *bolt.Bucket // nil for dead letters
	count         *int
}

// books is one transaction's view of the entries.
type books struct {
	tx           *bolt.Tx
	usage        usage
	parked, dead shelf
}

func openBooks(tx *bolt.Tx) (*books, error) {
	b := &books{tx: tx}
	if err := readUsage(tx, &b.usage); err != nil {
		return nil, err
	}
	bucket := func(name string) *bolt.Bucket { return tx.Bucket([]byte(name)) }
	b.parked = shelf{bucket(bucketParked), bucket(bucketParkedKeys), bucket(bucketDue), &b.usage.Parked}
	b.dead = shelf{bucket(bucketDead), bucket(bucketDeadKeys), nil, &b.usage.Dead}
	return b, nil
}

func readUsage(tx *bolt.Tx, u *usage) error {
	v := tx.Bucket([]byte(bucketMeta)).Get([]byte(keyUsage))
	if v == nil {
		return nil
	}
	if err := decode(v, u); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	return nil
}

func writeUsage(tx *bolt.Tx, u *usage) error {
	record, err := encode(u)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyUsage), record)
}

// updateBooks is update for changes of entries.
func (s *Store) updateBooks(op string, f func(b *books) error) error {
	var after usage
	err := s.update(op, func(tx *bolt.Tx) error {
		b, err := openBooks(tx)
		if err != nil {
			return err
		}
		if err := f(b); err != nil {
			return err
		}
		after = b.usage
		return writeUsage(tx, &b.usage)
	})
	if err == nil {
		s.metrics.note(after)
	}
	return err
}

// identity tells entries apart that need an attempt each. Lengths keep "a"+"bc" and "ab"+"c" apart. What the attempt
// does is named, as it is in stores that were written before.
func identity(e *retry.Entry) []byte {
	h := sha256.New()
	for _, part := range []string{e.Source, e.Table, event.ActionDelete.String(), e.Key} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}

func idKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func dueKey(due time.Time, id uint64) []byte {
	at := uint64(max(due.UnixNano(), 0))
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, at), id)
}

// get returns the entry with this ID; false if there is none.
func (sh *shelf) get(id uint64) (retry.Entry, bool, error) {
	v := sh.entries.Get(idKey(id))
	if v == nil {
		return retry.Entry{}, false, nil
	}
	e, err := decodeEntry(v)
	if err != nil {
		return e, false, fmt.Errorf("entry %d: %w", id, err)
	}
	return e, true, nil
}

// like returns the entry with the identity of e; false if there is none.
func (sh *shelf) like(e *retry.Entry) (retry.Entry, bool, error) {
	v := sh.keys.Get(identity(e))
	if len(v) != 8 {
		return retry.Entry{}, false, nil
	}
	return sh.get(binary.BigEndian.Uint64(v))
}

// remove removes an entry as it is stored.
func (b *books) remove(sh *shelf, e *retry.Entry) error {
	size := len(sh.entries.Get(idKey(e.ID)))
	err := errors.Join(sh.entries.Delete(idKey(e.ID)), sh.keys.Delete(identity(e)))
	if sh.due != nil {
		err = errors.Join(err, sh.due.Delete(dueKey(e.Due, e.ID)))
	}
	*sh.count--
	b.usage.Bytes -= int64(size)
	return err
}

// put stores an entry that is not there, under a new ID if it has none.
func (b *books) put(sh *shelf, e *retry.Entry) error {
	if e.ID == 0 {
		id, err := b.parked.entries.NextSequence() // for both shelves: an entry keeps its ID when it dies
		if err != nil {
			return err
		}
		e.ID = id
	}
	record, err := encodeEntry(e)
	if err != nil {
		return err
	}
	err = errors.Join(sh.entries.Put(idKey(e.ID), record), sh.keys.Put(identity(e), idKey(e.ID)))
	if sh.due != nil {
		err = errors.Join(err, sh.due.Put(dueKey(e.Due, e.ID), nil))
	}
	*sh.count++
	b.usage.Bytes += int64(len(record))
	return err
}

// Park implements [retry.Store]. An entry with a zero Due becomes a dead letter at once. One whose key is parked
// already is merged with it and takes no more room. The entries' IDs are ignored, and not set.
func (s *Store) Park(ctx context.Context, entries []retry.Entry) error {
	if err := ctx.Err(); err != nil || len(entries) == 0 {
		return err
	}
	return s.updateBooks("park", func(b *books) error {
		before := b.usage
		for _, e := range entries {
			e.ID = 0
			if err := b.shelve(e); err != nil {
				return err
			}
		}
		more := b.usage.Parked+b.usage.Dead > before.Parked+before.Dead
		if more && (b.usage.Parked+b.usage.Dead > s.o.MaxEntries || b.usage.Bytes > s.o.MaxBytes) {
			return retry.ErrFull
		}
		return nil
	})
}

// shelve parks or buries a new entry.
func (b *books) shelve(e retry.Entry) error {
	if e.Due.IsZero() {
		return b.bury(e)
	}
	old, found, err := b.parked.like(&e)
	if err != nil {
		return err
	}
	if found {
		if err := b.remove(&b.parked, &old); err != nil {
			return err
		}
		// The known schedule goes on, unless its next attempt is under way and would be too early for e.
		if old.Due.After(e.Last) && old.Due.Before(e.Due) {
			e.Due = old.Due
		}
		e.Merge(&old)
	}
	return b.put(&b.parked, &e)
}

// bury makes a dead letter of e.
func (b *books) bury(e retry.Entry) error {
	e.Due = time.Time{}
	old, found, err := b.dead.like(&e)
	if err != nil {
		return err
	}
	if found {
		if err := b.remove(&b.dead, &old); err != nil {
			return err
		}
		e.Merge(&old)
	}
	return b.put(&b.dead, &e)
}

// Due implements [retry.Store].
func (s *Store) Due(ctx context.Context, now time.Time, n int) ([]retry.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []retry.Entry
	err := s.view("find due keys", func(tx *bolt.Tx) error {
		b, err := openBooks(tx)
		if err != nil {
			return err
		}
		c := b.parked.due.Cursor()
		for k, _ := c.First(); len(k) == 16 && len(out) < n; k, _ = c.Next() {
			if binary.BigEndian.Uint64(k) > uint64(max(now.UnixNano(), 0)) {
				return nil
			}
			e, found, err := b.parked.get(binary.BigEndian.Uint64(k[8:]))
			if err != nil || !found {
				return errors.Join(err, notFound(found))
			}
			out = append(out, e)
		}
		return nil
	})
	return out, err
}

// notFound is the error of an index that names an entry that is not there.
func notFound(found bool) error {
	if found {
		return nil
	}
	return fmt.Errorf("%w: an entry is missing", ErrDamaged)
}

// NextDue implements [retry.Store].
func (s *Store) NextDue(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	var due time.Time
	return due, s.view("find the next due key", func(tx *bolt.Tx) error {
		if k, _ := tx.Bucket([]byte(bucketDue)).Cursor().First(); len(k) == 16 {
			due = time.Unix(0, int64(binary.BigEndian.Uint64(k))).UTC()
		}
		return nil
	})
}

// Settle implements [retry.Store]. IDs that are not there any more are left out: their key was parked again since, or
// this was settled before. It is never refused for want of room.
func (s *Store) Settle(ctx context.Context, done []uint64, again []retry.Entry) error {
	if err := ctx.Err(); err != nil || len(done)+len(again) == 0 {
		return err
	}
	return s.updateBooks("settle", func(b *books) error {
		for _, id := range done {
			e, found, err := b.parked.get(id)
			if err != nil {
				return err
			}
			if found {
				if err := b.remove(&b.parked, &e); err != nil {
					return err
				}
			}
		}
		for _, e := range again {
			if err := b.retain(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// retain stores an entry again whose attempt failed.
func (b *books) retain(e retry.Entry) error {
	old, found, err := b.parked.like(&e)
	if err != nil {
		return err
	}
	if found {
		if err := b.remove(&b.parked, &old); err != nil {
			return err
		}
		// Parked again since: the later ID stays, for an attempt on it may be under way as well.
		e.ID = max(e.ID, old.ID)
		e.Merge(&old)
	}
	if e.Due.IsZero() {
		return b.bury(e)
	}
	return b.put(&b.parked, &e)
}
