package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
)

// The stash of the store: a bucket for each transaction, named by XID and by the version of its first row, with a key
// for each chunk. Package checkpoint says what it is for.

// ErrStashFull: the keys of prepared XA transactions exceed [Options].MaxStashKeys or MaxStashBytes.
var ErrStashFull = checkpoint.ErrStashFull

// Stashed is one key that a row of a prepared transaction made stale.
type Stashed = checkpoint.Stashed

// Prepared describes the stash of one prepared transaction.
type Prepared = checkpoint.Prepared

// Stash is the stash of one transaction while its rows are read. It belongs to one goroutine.
type Stash struct {
	s     *Store
	name  []byte
	info  Prepared
	begun bool
}

// Stash begins the stash of the transaction xid whose first row has the version first. What an earlier reading of
// the same transaction has left is replaced with the first chunk.
func (s *Store) Stash(xid string, first event.Version) *Stash {
	return &Stash{s: s, name: stashName(xid, first), info: Prepared{XID: xid, First: first}}
}

// Append stores the next chunk of keys durably; some thousands make a good chunk. After an error the same call may
// be repeated. [ErrStashFull] means that nothing of the chunk was stored; a chunk of [checkpoint.Unknown] always is.
func (st *Stash) Append(keys []Stashed) error {
	if len(keys) == 0 {
		return nil
	}
	record, err := encodeChunk(keys)
	if err != nil {
		return fmt.Errorf("store %s: stash: %w", st.s.path, err)
	}
	next := st.info
	if !st.begun {
		next.Since = time.Now().UTC()
	}
	next.Keys += len(keys)
	next.Bytes += int64(len(record))
	next.Chunks++
	err = st.s.updateBooks("stash", func(b *books) error { return st.write(b, next, record, checkpoint.AllUnknown(keys)) })
	if err == nil {
		st.info, st.begun = next, true
	}
	return err
}

func (st *Stash) write(b *books, next Prepared, record []byte, unbounded bool) error {
	root := b.tx.Bucket([]byte(bucketStash))
	if !st.begun {
		if err := b.dropStash(root, st.name); err != nil {
			return err
		}
	}
	sub, err := root.CreateBucketIfNotExists(st.name)
	if err != nil {
		return err
	}
	// What is there already tells a repeated write from a first one: its chunk counts once.
	was, err := readPrepared(st.name, sub)
	if err != nil {
		return err
	}
	b.usage.StashKeys += next.Keys - was.Keys
	b.usage.StashBytes += next.Bytes - was.Bytes
	if !unbounded && (b.usage.StashKeys > st.s.o.MaxStashKeys || b.usage.StashBytes > st.s.o.MaxStashBytes) {
		return fmt.Errorf("xa transaction %s: %w", st.info.XID, ErrStashFull)
	}
	info, err := encode(next)
	if err != nil {
		return err
	}
	return errors.Join(sub.Put(chunkKey(next.Chunks), record), sub.Put(chunkKey(0), info))
}

// chunkKey is the key of chunk n, from 1; 0 is that of the stash's description.
func chunkKey(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// stashName orders stashes by XID, then by version.
func stashName(xid string, first event.Version) []byte {
	b := append([]byte(xid), 0)
	b = binary.BigEndian.AppendUint32(b, first.Epoch)
	b = binary.BigEndian.AppendUint32(b, first.File)
	b = binary.BigEndian.AppendUint64(b, first.Pos)
	return binary.BigEndian.AppendUint32(b, first.Row)
}

// versionLen is how many bytes of a stash's name are its version.
const versionLen = 20

// versionOf takes the version out of a stash's name.
func versionOf(name []byte) event.Version {
	b := name[len(name)-versionLen:]
	return event.Version{
		Epoch: binary.BigEndian.Uint32(b), File: binary.BigEndian.Uint32(b[4:]),
		Pos: binary.BigEndian.Uint64(b[8:]), Row: binary.BigEndian.Uint32(b[16:]),
	}
}

func readPrepared(name []byte, sub *bolt.Bucket) (Prepared, error) {
	var p Prepared
	v := sub.Get(chunkKey(0))
	if v == nil {
		return p, nil
	}
	if err := decode(v, &p); err != nil {
		return p, fmt.Errorf("xa stash: %w", err)
	}
	p.First = versionOf(name)
	return p, nil
}

// stashesOf returns the names of the stashes of xid that are before v, in their order.
func stashesOf(root *bolt.Bucket, xid string, v event.Version) [][]byte {
	var names [][]byte
	prefix := append([]byte(xid), 0)
	c := root.Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		if len(k) == len(prefix)+versionLen && versionOf(k).Compare(v) < 0 {
			names = append(names, bytes.Clone(k))
		}
	}
	return names
}

// dropStash removes one stash, if it is there.
func (b *books) dropStash(root *bolt.Bucket, name []byte) error {
	sub := root.Bucket(name)
	if sub == nil {
		return nil
	}
	p, err := readPrepared(name, sub)
	if err != nil {
		return err
	}
	b.usage.StashKeys -= p.Keys
	b.usage.StashBytes -= p.Bytes
	return root.DeleteBucket(name)
}

// Recall hands the keys that were stashed for xid before the version v to f, chunk by chunk, in their order. f may
// block: nothing is held meanwhile. The stash stays, see [Checkpoint.Resolve].
func (s *Store) Recall(xid string, v event.Version, f func(keys []Stashed) error) error {
	var names [][]byte
	err := s.view("recall", func(tx *bolt.Tx) error {
		names = stashesOf(tx.Bucket([]byte(bucketStash)), xid, v)
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		for n := uint32(1); ; n++ {
			keys, err := s.chunk(name, n)
			if err != nil {
				return err
			}
			if len(keys) == 0 {
				break
			}
			if err := f(keys); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunk returns one chunk of a stash; none when there are no more.
func (s *Store) chunk(name []byte, n uint32) (keys []Stashed, err error) {
	return keys, s.view("recall", func(tx *bolt.Tx) error {
		sub := tx.Bucket([]byte(bucketStash)).Bucket(name)
		if sub == nil {
			return nil
		}
		v := sub.Get(chunkKey(n))
		if v == nil {
			return nil
		}
		keys, err = decodeChunk(v)
		return err
	})
}

// Prepared lists the stashes: transactions that are prepared, or resolved so lately that the checkpoint has not
// passed them.
func (s *Store) Prepared() ([]Prepared, error) {
	var out []Prepared
	return out, s.view("list prepared transactions", func(tx *bolt.Tx) error {
		root := tx.Bucket([]byte(bucketStash))
		return root.ForEachBucket(func(name []byte) error {
			p, err := readPrepared(name, root.Bucket(name))
			out = append(out, p)
			return err
		})
	})
}

// DropStash removes all stashes of xid, for an operator who knows that its transaction is gone from the source.
func (s *Store) DropStash(xid string) error {
	return s.updateBooks("drop stash", func(b *books) error {
		root := b.tx.Bucket([]byte(bucketStash))
		for _, name := range stashesOf(root, xid, lastVersion()) {
			if err := b.dropStash(root, name); err != nil {
				return err
			}
		}
		return nil
	})
}

func lastVersion() event.Version {
	return event.Version{Epoch: 1<<32 - 1, File: 1<<32 - 1, Pos: 1<<64 - 1, Row: 1<<32 - 1}
}

// dropResolved removes the stashes of resolved transactions, in the write that saves the position after them.
func dropResolved(b *books, resolved []checkpoint.Resolution) error {
	root := b.tx.Bucket([]byte(bucketStash))
	for i := range resolved {
		for _, name := range stashesOf(root, resolved[i].XID, resolved[i].Version) {
			if err := b.dropStash(root, name); err != nil {
				return err
			}
		}
	}
	return nil
}
