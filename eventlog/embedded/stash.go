package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/stash"
)

// stashBuckets is where the store keeps the stash: a bucket for each transaction, named by XID and by the version of
// its first row, with a key for each chunk and one for what describes them. It implements [stash.Storage].
type stashBuckets struct{ store *Store }

// preparedRecord describes the chunks of one transaction.
type preparedRecord struct {
	XID    string    `json:"xid"`
	Since  time.Time `json:"since"`
	Keys   int       `json:"keys"`
	Bytes  int64     `json:"bytes"`
	Chunks uint32    `json:"chunks"`
}

// chunkKey is the key of chunk n, from 1; 0 is that of the description.
func chunkKey(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// versionLen is how many bytes of a bucket's name are the version. They follow the XID and a zero byte.
const versionLen = 20

// loadStash reads the index.
func loadStash(s *Store) (*stash.Stash, error) {
	var all []*stash.Prepared
	err := s.view("load the stash", func(tx *bolt.Tx) error {
		root := tx.Bucket([]byte(bucketStash))
		return root.ForEachBucket(func(name []byte) error {
			p, err := readPrepared(name, root.Bucket(name))
			if err != nil {
				return fmt.Errorf("xa stash %q: %w", name, err)
			}
			all = append(all, p)
			return nil
		})
	})
	return stash.New(stash.Options{
		Storage: stashBuckets{s}, MaxKeys: s.o.MaxStashKeys, MaxBytes: s.o.MaxStashBytes,
		Changed: func(keys int) { s.metrics.stashed.Set(float64(keys)) },
	}, all), err
}

func readPrepared(name []byte, b *bolt.Bucket) (*stash.Prepared, error) {
	var r preparedRecord
	if err := decode(b.Get(chunkKey(0)), &r); err != nil {
		return nil, err
	}
	if len(name) <= versionLen || r.Chunks == 0 {
		return nil, fmt.Errorf("%w: it has no version or no chunks", ErrDamaged)
	}
	v := name[len(name)-versionLen:]
	p := &stash.Prepared{
		Name: string(name), XID: string(name[:len(name)-versionLen-1]), Since: r.Since, Keys: r.Keys, Bytes: r.Bytes,
		First: event.Version{
			Epoch: binary.BigEndian.Uint32(v), File: binary.BigEndian.Uint32(v[4:]),
			Pos: binary.BigEndian.Uint64(v[8:]), Row: binary.BigEndian.Uint32(v[16:]),
		},
	}
	for n := range r.Chunks {
		p.Chunks = append(p.Chunks, stash.Chunk{N: int(n) + 1})
	}
	return p, nil
}

// Name implements [stash.Storage].
func (stashBuckets) Name(xid string, first event.Version) string {
	b := append([]byte(xid), 0)
	b = binary.BigEndian.AppendUint32(b, first.Epoch)
	b = binary.BigEndian.AppendUint32(b, first.File)
	b = binary.BigEndian.AppendUint64(b, first.Pos)
	return string(binary.BigEndian.AppendUint32(b, first.Row))
}

// Encode implements [stash.Storage].
func (x stashBuckets) Encode(_ *stash.Prepared, keys []stash.Key) ([]byte, error) {
	record, err := encode(stash.Keys(keys))
	if err != nil {
		return nil, fmt.Errorf("store %s: stash: %w", x.store.path, err)
	}
	return record, nil
}

// Put implements [stash.Storage]: all of it in one transaction.
func (x stashBuckets) Put(p *stash.Prepared, record []byte, replaced []*stash.Prepared) (int64, error) {
	n := len(p.Chunks)
	info, err := encode(preparedRecord{p.XID, p.Since, p.Keys, p.Bytes, uint32(n)})
	if err != nil {
		return 0, fmt.Errorf("store %s: stash: %w", x.store.path, err)
	}
	return 0, x.store.update("stash", func(tx *bolt.Tx) error {
		if err := dropPrepared(tx, replaced); err != nil {
			return err
		}
		b, err := tx.Bucket([]byte(bucketStash)).CreateBucketIfNotExists([]byte(p.Name))
		if err != nil {
			return err
		}
		return errors.Join(b.Put(chunkKey(n), record), b.Put(chunkKey(0), info))
	})
}

// Get implements [stash.Storage]. What is not there any more is no keys: its outcome was passed.
func (x stashBuckets) Get(p *stash.Prepared, c stash.Chunk) (keys []stash.Key, err error) {
	err = x.store.view("recall", func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucketStash)).Bucket([]byte(p.Name))
		if b == nil {
			return nil
		}
		record := b.Get(chunkKey(c.N))
		if record == nil {
			return nil
		}
		return decode(record, (*stash.Keys)(&keys))
	})
	return keys, err
}

// dropPrepared removes transactions, those that are there.
func dropPrepared(tx *bolt.Tx, gone []*stash.Prepared) error {
	root := tx.Bucket([]byte(bucketStash))
	for _, p := range gone {
		if err := root.DeleteBucket([]byte(p.Name)); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
			return err
		}
	}
	return nil
}
