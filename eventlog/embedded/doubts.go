package embedded

import (
	"bytes"
	"context"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/freshet/freshet/doubt"
)

var (
	_ doubt.Keeper = (*Store)(nil)
	_ doubt.Facts  = (*Store)(nil)
)

// Doubts implements [doubt.Keeper].
func (s *Store) Doubts(ctx context.Context) (kept []doubt.Doubt, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = s.view("doubts", func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucketDoubts))
		if b == nil { // none was put yet
			return nil
		}
		return b.ForEach(func(id, record []byte) error {
			var d doubt.Doubt
			if err := decode(record, &d); err != nil {
				return fmt.Errorf("doubt %q: %w", id, err)
			}
			kept = append(kept, d)
			return nil
		})
	})
	return kept, err
}

// PutDoubt implements [doubt.Keeper].
func (s *Store) PutDoubt(ctx context.Context, d doubt.Doubt) error {
	record, err := encode(d)
	if err != nil {
		return fmt.Errorf("doubt %s: %w", d.ID, err)
	}
	return s.putAside(ctx, opPutDoubt, bucketDoubts, d.ID, record)
}

// DropDoubt implements [doubt.Keeper].
func (s *Store) DropDoubt(ctx context.Context, id string) error {
	return s.dropAside(ctx, opDropDoubt, bucketDoubts, id)
}

// Fact implements [doubt.Facts].
func (s *Store) Fact(ctx context.Context, name string) (value []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = s.view("fact", func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucketFacts))
		if b == nil {
			return nil
		}
		record := b.Get([]byte(name))
		if record == nil {
			return nil
		}
		if err := decode(record, &value); err != nil {
			return fmt.Errorf("fact %q: %w", name, err)
		}
		return nil
	})
	return value, err
}

// SetFact implements [doubt.Facts].
func (s *Store) SetFact(ctx context.Context, name string, value []byte) error {
	if len(value) > doubt.MaxFact {
		return fmt.Errorf("fact %s: it has %d bytes, more than %d", name, len(value), doubt.MaxFact)
	}
	record, err := encode(value)
	if err != nil {
		return fmt.Errorf("fact %s: %w", name, err)
	}
	return s.putAside(ctx, opSetFact, bucketFacts, name, record)
}

// FactsUnder implements [doubt.SharedFacts].
func (s *Store) FactsUnder(ctx context.Context, prefix string) (facts map[string][]byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	facts = map[string][]byte{}
	err = s.view("facts", func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucketFacts))
		if b == nil {
			return nil
		}
		at, under := b.Cursor(), []byte(prefix)
		for name, record := at.Seek(under); name != nil && bytes.HasPrefix(name, under); name, record = at.Next() {
			var value []byte
			if err := decode(record, &value); err != nil {
				return fmt.Errorf("fact %q: %w", name, err)
			}
			facts[string(name)] = value
		}
		return nil
	})
	return facts, err
}

// DropFact implements [doubt.Facts].
func (s *Store) DropFact(ctx context.Context, name string) error {
	return s.dropAside(ctx, opDropFact, bucketFacts, name)
}

// dropAside removes a record from a bucket, if both are there.
func (s *Store) dropAside(ctx context.Context, op, bucket, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.update(op, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b == nil {
			return nil
		}
		return b.Delete([]byte(key))
	})
}

// putAside puts a record into a bucket that is made with its first.
func (s *Store) putAside(ctx context.Context, op, bucket, key string, record []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.update(op, func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		return b.Put([]byte(key), record)
	})
}
