package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"

	bolt "go.etcd.io/bbolt"

	"github.com/freshet/freshet/eventlog/checkpoint"
)

// Checkpoint is the position from which the source is read again after a restart, kept in the store.
type Checkpoint struct {
	*checkpoint.Checkpoint
	store *Store

	mu   sync.Mutex
	term uint64
}

// cells is where the store keeps a checkpoint. It implements [checkpoint.Storage].
type cells struct{ store *Store }

func loadCheckpoint(s *Store) (*Checkpoint, error) {
	c := &Checkpoint{store: s}
	var loaded checkpoint.Loaded
	err := s.view("load the checkpoint", func(tx *bolt.Tx) error {
		cp, meta := tx.Bucket([]byte(bucketCheckpoint)), tx.Bucket([]byte(bucketMeta))
		var err error
		if v := cp.Get([]byte(keyPosition)); v != nil {
			if loaded.Position, err = decodePosition(v); err != nil {
				return fmt.Errorf("position: %w", err)
			}
		}
		if v := cp.Get([]byte(keyState)); v != nil {
			state, err := unseal(v)
			if err != nil {
				return fmt.Errorf("state: %w: %w", ErrDamaged, err)
			}
			loaded.Position.State = bytes.Clone(state)
		}
		if c.term, err = readTerm(meta); err != nil {
			return err
		}
		if v := meta.Get([]byte(keyMappings)); v != nil {
			hash, err := unseal(v)
			if err != nil {
				return fmt.Errorf("mappings: %w: %w", ErrDamaged, err)
			}
			loaded.Mappings = string(hash)
		}
		return nil
	})
	c.Checkpoint = checkpoint.New("store "+s.path, cells{s}, loaded)
	return c, err
}

func readTerm(meta *bolt.Bucket) (uint64, error) {
	v := meta.Get([]byte(keyTerm))
	if v == nil {
		return 0, nil
	}
	body, err := unseal(v)
	if err != nil {
		return 0, fmt.Errorf("term: %w: %w", ErrDamaged, err)
	}
	term, err := strconv.ParseUint(string(body), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("term: %w: %w", ErrDamaged, err)
	}
	return term, nil
}

// WritePosition implements [checkpoint.Storage]: all of it in one transaction.
func (c cells) WritePosition(w checkpoint.Write) error {
	passed := c.store.stash.Passed(&w)
	err := c.store.update("save the position", func(tx *bolt.Tx) error {
		return errors.Join(putPosition(tx, &w), dropPrepared(tx, passed))
	})
	if err == nil {
		c.store.stash.Forget(passed)
	}
	return err
}

func putPosition(tx *bolt.Tx, w *checkpoint.Write) error {
	b := tx.Bucket([]byte(bucketCheckpoint))
	record, err := encodePosition(&w.Position)
	if err != nil {
		return err
	}
	if err := b.Put([]byte(keyPosition), record); err != nil || !w.State {
		return err
	}
	if w.Position.State == nil {
		return b.Delete([]byte(keyState))
	}
	return b.Put([]byte(keyState), seal(w.Position.State))
}

// WriteMappings implements [checkpoint.Storage].
func (c cells) WriteMappings(hash string) error {
	return c.store.update("save the mappings' hash", func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(bucketMeta)).Put([]byte(keyMappings), seal([]byte(hash)))
	})
}

// NextTerm takes the next term and returns it once it is durable. A term may be skipped, never taken twice.
func (c *Checkpoint) NextTerm() (uint64, error) {
	var term uint64
	err := c.store.update("take a term", func(tx *bolt.Tx) error {
		meta := tx.Bucket([]byte(bucketMeta))
		last, err := readTerm(meta)
		if err != nil {
			return err
		}
		term = last + 1
		return meta.Put([]byte(keyTerm), seal(strconv.AppendUint(nil, term, 10)))
	})
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = term
	return term, nil
}

// Term returns the last term that was taken; 0 before the first.
func (c *Checkpoint) Term() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term
}
