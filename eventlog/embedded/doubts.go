package embedded

import (
	"context"
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/freshet/freshet/doubt"
)

var _ doubt.Keeper = (*Store)(nil)

// Doubts implements [doubt.Keeper].
func (s *Store) Doubts(context.Context) (kept []doubt.Doubt, err error) {
	err = s.view("doubts", func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucketDoubts))
		if b == nil { // a file of before there were doubts, opened for reading only
			return nil
		}
		return b.ForEach(func(id, text []byte) error {
			var d doubt.Doubt
			if err := json.Unmarshal(text, &d); err != nil {
				return fmt.Errorf("doubt %q: %w: %w", id, ErrDamaged, err)
			}
			kept = append(kept, d)
			return nil
		})
	})
	return kept, err
}

// PutDoubt implements [doubt.Keeper].
func (s *Store) PutDoubt(_ context.Context, d doubt.Doubt) error {
	text, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("doubt %s: %w", d.ID, err)
	}
	return s.update("put doubt", func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucketDoubts))
		if err != nil {
			return err
		}
		return b.Put([]byte(d.ID), text)
	})
}

// DropDoubt implements [doubt.Keeper].
func (s *Store) DropDoubt(_ context.Context, id string) error {
	return s.update("drop doubt", func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucketDoubts))
		if b == nil {
			return nil
		}
		return b.Delete([]byte(id))
	})
}
