package leader

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/stash"
)

// stashRecords is where the topic keeps the stash: a run of records for each prepared transaction, named by the
// leadership that wrote it and by a number, so that an old leader never overwrites what its successor has. It
// implements [stash.Storage], and tries again while the brokers are away, for as long as this process leads.
//
// Two leaders may have read the same transaction, each under a name of its own. The second replaces the first, with
// its first chunk: it reads the transaction again because no position is after its XA PREPARE, so its successor reads
// it again too. Should a late chunk of the first turn up, it is recalled with the others: one delete too many.
type stashRecords struct{ c *Checkpoint }

// newStash returns the stash of what the topic holds.
func newStash(c *Checkpoint, o *Options, all []*stash.Prepared) *stash.Stash {
	return stash.New(stash.Options{
		Storage: stashRecords{c}, MaxKeys: o.MaxStashKeys, MaxBytes: o.MaxStashBytes, MaxRecord: maxRecord,
		Changed: c.metrics.stashed, Log: o.Log.With("source", o.Source),
	}, all)
}

// Name implements [stash.Storage].
func (x stashRecords) Name(string, event.Version) string {
	return x.c.reign.key(kindXA, x.c.named.Add(1))
}

// Encode implements [stash.Storage].
func (x stashRecords) Encode(p *stash.Prepared, keys []stash.Key) ([]byte, error) {
	value, err := json.Marshal(xaChunk{
		xaHead: xaHead{
			Format: format, Source: x.c.reign.source, XID: checkpoint.Text(p.XID), First: p.First,
			Since: p.Since, Count: len(keys),
		},
		Keys: keys,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: stash: %w", x.c.reign.name(), err)
	}
	return value, nil
}

// Put implements [stash.Storage].
func (x stashRecords) Put(p *stash.Prepared, record []byte, replaced []*stash.Prepared) (offset int64, err error) {
	r := x.c.reign
	err = x.c.insist("stash", func() (err error) {
		ctx, end := r.begin()
		defer end()
		offset, err = r.append(ctx, broker.Record{Key: []byte(chunkKey(p.Name, len(p.Chunks))), Value: record})
		return err
	})
	if err != nil {
		return 0, err
	}
	return offset, x.c.insist("replace a stash", func() error { return r.drop(replaced) })
}

// drop removes prepared transactions.
func (r *reign) drop(gone []*stash.Prepared) error {
	if len(gone) == 0 {
		return nil
	}
	var keys []string
	for _, p := range gone {
		for _, c := range p.Chunks {
			keys = append(keys, chunkKey(p.Name, c.N))
		}
	}
	ctx, end := r.begin()
	defer end()
	for part := range slices.Chunk(keys, 500) {
		if err := r.remove(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// Get implements [stash.Storage].
func (x stashRecords) Get(p *stash.Prepared, c stash.Chunk) ([]stash.Key, error) {
	var chunk xaChunk
	err := x.c.insist("recall", func() error {
		ctx, cancel := context.WithTimeout(x.c.ctx, maxAttempt)
		defer cancel()
		key := chunkKey(p.Name, c.N)
		value, err := x.c.reign.fetch(ctx, key, c.At)
		if err == nil {
			err = read(value, &chunk)
		}
		if err != nil {
			return x.c.reign.explain(fmt.Errorf("%s: %w", key, err))
		}
		return nil
	})
	return chunk.Keys, err
}

// prepared returns the prepared transactions of the topic, without those that a position says are gone.
func (s *snapshot) prepared(at *position) []*stash.Prepared {
	byName := map[string]*stash.Prepared{}
	for key, k := range s.live {
		kind, _, _ := parseKey(key)
		name, n, ok := chunkOf(key)
		if kind != kindXA || !ok || at.gone(key) {
			continue
		}
		p := byName[name]
		if p == nil {
			p = &stash.Prepared{Name: name, XID: string(k.head.XID), First: k.head.First, Since: k.head.Since}
			byName[name] = p
		}
		p.Keys += k.head.Count
		p.Bytes += int64(k.bytes)
		p.Chunks = append(p.Chunks, stash.Chunk{N: int(n), At: k.offset})
	}
	for _, p := range byName {
		slices.SortFunc(p.Chunks, func(a, b stash.Chunk) int { return a.N - b.N })
	}
	return slices.Collect(maps.Values(byName))
}
