package leader

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// The stash of the topic: a run of records for each prepared transaction, named by the leadership that wrote it and by
// a number, so that an old leader never overwrites what its successor has. In memory there is only an index of it.
//
// Two leaders may have read the same transaction, each into a stash of its own. The second replaces the first, with
// its first chunk: it reads the transaction again because no position is behind its XA PREPARE, so whoever comes next
// reads it again too. Should a late chunk of the first turn up, it is recalled beside the other: one delete too many.

// chunk is one record of a stash.
type chunk struct {
	n      int // from 1
	offset int64
	keys   int
	bytes  int64
}

// stash is what is known of one prepared transaction.
type stash struct {
	name   string
	xid    string
	first  event.Version
	since  time.Time
	chunks []chunk
}

func (s *stash) size() (keys int, bytes int64) {
	for _, c := range s.chunks {
		keys += c.keys
		bytes += c.bytes
	}
	return keys, bytes
}

// stashes is the index.
type stashes struct {
	maxKeys  int
	maxBytes int64
	changed  func(keys int)

	mu    sync.Mutex
	all   []*stash // by the versions of their first rows
	keys  int      // of all
	bytes int64
	named uint64
}

func newStashes(o *Options, all []*stash, changed func(keys int)) *stashes {
	x := &stashes{maxKeys: o.MaxStashKeys, maxBytes: o.MaxStashBytes, all: all, changed: changed}
	for _, s := range all {
		keys, bytes := s.size()
		x.keys += keys
		x.bytes += bytes
	}
	changed(x.keys)
	return x
}

// inUse reports whether the index has a chunk with this key.
func (x *stashes) inUse(key string) bool {
	name, _, _ := chunkOf(key)
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.ContainsFunc(x.all, func(s *stash) bool { return s.name == name })
}

// find returns those of xid that match.
func (x *stashes) find(xid string, match func(*stash) bool) (out []*stash) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.all {
		if s.xid == xid && match(s) {
			out = append(out, s)
		}
	}
	return out
}

// add takes note of chunks that are durable.
func (x *stashes) add(s *stash, chunks []encoded) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(s.chunks) == 0 {
		i, _ := slices.BinarySearchFunc(x.all, s, func(a, b *stash) int {
			if a.first.Compare(b.first) <= 0 {
				return -1
			}
			return 1
		})
		x.all = slices.Insert(x.all, i, s)
	}
	for _, c := range chunks {
		s.chunks = append(s.chunks, c.chunk)
		x.keys += c.keys
		x.bytes += c.bytes
	}
	x.changed(x.keys)
}

// forget removes stashes from the index.
func (x *stashes) forget(gone []*stash) {
	x.mu.Lock()
	defer x.mu.Unlock()
	of := map[*stash]bool{}
	for _, s := range gone {
		of[s] = true
	}
	x.all = slices.DeleteFunc(x.all, func(s *stash) bool {
		if of[s] {
			keys, bytes := s.size()
			x.keys -= keys
			x.bytes -= bytes
		}
		return of[s]
	})
	x.changed(x.keys)
}

// room returns [checkpoint.ErrStashFull] unless there is room for more in the place of what is replaced.
func (x *stashes) room(xid string, replaced []*stash, more []encoded) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys, bytes := x.keys, x.bytes
	for _, s := range replaced {
		k, b := s.size()
		keys, bytes = keys-k, bytes-b
	}
	for _, c := range more {
		keys, bytes = keys+c.keys, bytes+c.bytes
	}
	if keys > x.maxKeys || bytes > x.maxBytes {
		return fmt.Errorf("xa transaction %s: %w", xid, checkpoint.ErrStashFull)
	}
	return nil
}

// drop removes stashes from the topic, and then from the index.
func (c *Checkpoint) drop(gone []*stash) error {
	if len(gone) == 0 {
		return nil
	}
	var keys []string
	for _, s := range gone {
		for _, k := range s.chunks {
			keys = append(keys, chunkKey(s.name, k.n))
		}
	}
	ctx, end := c.reign.begin()
	defer end()
	for part := range slices.Chunk(keys, 500) {
		if err := c.reign.remove(ctx, part); err != nil {
			return err
		}
	}
	c.stashes.forget(gone)
	return nil
}

// resolved drops what was resolved before a position that is durable.
func (c *Checkpoint) resolved(passed []checkpoint.Resolution) error {
	var gone []*stash
	for _, r := range passed {
		gone = append(gone, c.stashes.find(r.XID, func(s *stash) bool {
			return s.first.Compare(r.Version) < 0 && !slices.Contains(gone, s)
		})...)
	}
	return c.drop(gone)
}

// Stash is the stash of one transaction while its rows are read. It belongs to one goroutine.
type Stash struct {
	c     *Checkpoint
	stash *stash
}

// Stash begins the stash of the transaction xid whose first row has the version first. What an earlier reading of
// the same transaction has left is replaced with the first chunk.
func (c *Checkpoint) Stash(xid string, first event.Version) *Stash {
	x := c.stashes
	x.mu.Lock()
	defer x.mu.Unlock()
	x.named++
	name := c.reign.key(kindXA, x.named)
	return &Stash{c: c, stash: &stash{name: name, xid: xid, first: first}}
}

// Append stores the next keys durably; some thousands make a good chunk. It tries again while the brokers are away, for
// as long as this process leads. After an error the same call may be repeated. [checkpoint.ErrStashFull] means that
// nothing was stored; [checkpoint.Unknown] always is.
func (st *Stash) Append(keys []checkpoint.Stashed) error {
	if len(keys) == 0 {
		return nil
	}
	s, x := st.stash, st.c.stashes
	if s.since.IsZero() {
		s.since = time.Now().UTC()
	}
	values, err := st.encode(keys)
	if err != nil {
		return err
	}
	var replaced []*stash
	if len(s.chunks) == 0 {
		replaced = x.find(s.xid, func(o *stash) bool { return o.first == s.first })
	}
	if !checkpoint.AllUnknown(keys) {
		if err := x.room(s.xid, replaced, values); err != nil {
			return err
		}
	}
	for i := range values {
		if err := st.c.insist("stash", func() error { return st.write(len(s.chunks)+i+1, &values[i]) }); err != nil {
			return err
		}
	}
	if err := st.c.insist("replace a stash", func() error { return st.c.drop(replaced) }); err != nil {
		return err
	}
	x.add(s, values)
	return nil
}

// encoded is a chunk on its way to the topic.
type encoded struct {
	chunk
	value []byte
}

// encode makes records of keys, none larger than it may be. What is to be written under a key that is too large by
// itself is left out, for a transaction must not be held up by it: the key is forgotten then.
func (st *Stash) encode(keys []checkpoint.Stashed) ([]encoded, error) {
	value, err := json.Marshal(xaChunk{
		xaHead: xaHead{
			Format: format, Source: st.c.reign.source, XID: checkpoint.Text(st.stash.xid),
			First: checkpoint.Version(st.stash.first), Since: st.stash.since, Count: len(keys),
		},
		Keys: keys,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: stash: %w", st.c.reign.name(), err)
	}
	if len(value) > maxRecord && len(keys) == 1 {
		if less := keys[0]; less.Shorten() {
			st.c.log.Warn("a value of a prepared xa transaction is too large to be kept, so its key will be forgotten in place of written",
				"source", st.c.reign.source, "table", less.Table, "bytes", len(value), "limit", maxRecord)
			return st.encode([]checkpoint.Stashed{less})
		}
	}
	if len(value) <= maxRecord || len(keys) == 1 {
		return []encoded{{chunk{keys: len(keys), bytes: int64(len(value))}, value}}, nil
	}
	a, err := st.encode(keys[:len(keys)/2])
	if err != nil {
		return nil, err
	}
	b, err := st.encode(keys[len(keys)/2:])
	return append(a, b...), err
}

func (st *Stash) write(n int, e *encoded) error {
	r := st.c.reign
	ctx, end := r.begin()
	defer end()
	offset, err := r.append(ctx, broker.Record{Key: []byte(chunkKey(st.stash.name, n)), Value: e.value})
	e.n, e.offset = n, offset
	return err
}

// Recall hands the keys that were stashed for xid before the version v to each, chunk by chunk, in their order. It
// reads one chunk at a time, and tries again while the brokers are away, for as long as this process leads; each may
// block. The stash stays, see [checkpoint.Checkpoint.Resolve].
func (c *Checkpoint) Recall(xid string, v event.Version, each func(keys []checkpoint.Stashed) error) error {
	for _, s := range c.stashes.find(xid, func(s *stash) bool { return s.first.Compare(v) < 0 }) {
		for _, k := range s.chunks {
			var keys []checkpoint.Stashed
			err := c.insist("recall", func() (err error) {
				keys, err = c.chunk(chunkKey(s.name, k.n), k.offset)
				return err
			})
			if err != nil {
				return err
			}
			if err := each(keys); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunk reads one chunk of a stash.
func (c *Checkpoint) chunk(key string, offset int64) ([]checkpoint.Stashed, error) {
	ctx, cancel := context.WithTimeout(c.ctx, maxAttempt)
	defer cancel()
	var x xaChunk
	value, err := c.reign.fetch(ctx, key, offset)
	if err == nil {
		err = read(value, &x)
	}
	if err != nil {
		return nil, c.reign.explain(fmt.Errorf("%s: %w", key, err))
	}
	return x.Keys, nil
}

// Prepared lists the stashes: transactions that are prepared, or resolved so lately that the checkpoint has not
// passed them.
func (c *Checkpoint) Prepared() ([]checkpoint.Prepared, error) {
	c.stashes.mu.Lock()
	defer c.stashes.mu.Unlock()
	return describe(c.stashes.all), nil
}

func describe(all []*stash) []checkpoint.Prepared {
	out := make([]checkpoint.Prepared, len(all))
	for i, s := range all {
		keys, bytes := s.size()
		out[i] = checkpoint.Prepared{
			XID: s.xid, First: s.first, Since: s.since, Keys: keys, Bytes: bytes, Chunks: uint32(len(s.chunks)),
		}
	}
	return out
}

// DropStash removes all stashes of xid, for an operator who knows that its transaction is gone from the source.
func (c *Checkpoint) DropStash(xid string) error {
	return c.insist("drop a stash", func() error {
		return c.drop(c.stashes.find(xid, func(*stash) bool { return true }))
	})
}
