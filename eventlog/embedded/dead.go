package embedded

import (
	"context"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/freshet/freshet/retry"
)

// chunk is how many dead letters one write changes: replaying or purging all of a full store takes several, so that
// none holds up the others for long.
const chunk = 1000

// DeadLetters returns up to n dead letters that the filter selects, in the order of their IDs, from the first ID
// above after. A page that is not full is the last.
func (s *Store) DeadLetters(ctx context.Context, f retry.Filter, after uint64, n int) ([]retry.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []retry.Entry
	err := s.view("list dead letters", func(tx *bolt.Tx) error {
		b, err := openBooks(tx)
		if err != nil {
			return err
		}
		out, err = b.deadPage(f, after, n)
		return err
	})
	return out, err
}

// DeadLetter returns one dead letter; false if there is none with this ID.
func (s *Store) DeadLetter(ctx context.Context, id uint64) (retry.Entry, bool, error) {
	found, err := s.DeadLetters(ctx, retry.Filter{IDs: []uint64{id}}, 0, 1)
	if err != nil || len(found) == 0 {
		return retry.Entry{}, false, err
	}
	return found[0], true, nil
}

// Replay parks the dead letters that the filter selects, due now and with no attempts made, and returns how many.
// It is safe to repeat: what was replayed is no dead letter any more.
func (s *Store) Replay(ctx context.Context, f retry.Filter, now time.Time) (int, error) {
	return s.takeDead(ctx, "replay", f, func(b *books, e retry.Entry) error {
		e.ID, e.Attempts, e.Due = 0, 0, now
		return b.replay(e)
	})
}

// replay parks a dead letter. If its key is parked as well, the two become one, due at once.
func (b *books) replay(e retry.Entry) error {
	old, found, err := b.parked.like(&e)
	if err != nil {
		return err
	}
	if found {
		if err := b.remove(&b.parked, &old); err != nil {
			return err
		}
		e.Merge(&old)
		e.Attempts = 0
	}
	return b.put(&b.parked, &e)
}

// Purge removes the dead letters that the filter selects for good, and returns how many: their keys stay as they are
// in Redis. It is safe to repeat.
func (s *Store) Purge(ctx context.Context, f retry.Filter) (int, error) {
	return s.takeDead(ctx, "purge", f, func(*books, retry.Entry) error { return nil })
}

// takeDead removes dead letters, a chunk in each write, and hands each to then.
func (s *Store) takeDead(ctx context.Context, op string, f retry.Filter, then func(*books, retry.Entry) error) (int,
	error,
) {
	total, after := 0, uint64(0)
	for {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		var n int
		var last uint64
		err := s.updateBooks(op, func(b *books) error {
			page, err := b.deadPage(f, after, chunk)
			if err != nil {
				return err
			}
			n, last = len(page), after
			for _, e := range page {
				last = e.ID
				if err := b.remove(&b.dead, &e); err != nil {
					return err
				}
				if err := then(b, e); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return total, err
		}
		total, after = total+n, last
		if n < chunk {
			return total, nil
		}
	}
}

// deadPage returns up to n dead letters above after. It reads all of them before anything is removed: a cursor does
// not outlive changes.
func (b *books) deadPage(f retry.Filter, after uint64, n int) ([]retry.Entry, error) {
	if len(f.IDs) > 0 {
		return b.deadByID(f, after, n)
	}
	var page []retry.Entry
	c := b.dead.entries.Cursor()
	for k, v := c.Seek(idKey(after + 1)); len(k) == 8 && len(page) < n; k, v = c.Next() {
		e, err := decodeEntry(v)
		if err != nil {
			return nil, err
		}
		if f.Match(&e) {
			page = append(page, e)
		}
	}
	return page, nil
}

// deadByID looks up each ID instead of holding each entry against all of them.
func (b *books) deadByID(f retry.Filter, after uint64, n int) ([]retry.Entry, error) {
	ids := slices.Compact(slices.Sorted(slices.Values(f.IDs)))
	f.IDs = nil
	var page []retry.Entry
	for _, id := range ids {
		if id <= after {
			continue
		}
		if len(page) == n {
			break
		}
		e, found, err := b.dead.get(id)
		if err != nil {
			return nil, err
		}
		if found && f.Match(&e) {
			page = append(page, e)
		}
	}
	return page, nil
}
