package letters

import (
	"context"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// countedKeys is how many dead letters are told apart for counting them, in some 5 MB. Beyond that, one that is
// written twice counts twice.
const countedKeys = 128 << 10

// count is how many letters are live.
type count struct {
	keys map[hashed]struct{}
	more int // beyond countedKeys
}

func (c *count) add(r broker.Record) {
	if isPart(r.Key) {
		return
	}
	key := hashKey(r.Key)
	_, known := c.keys[key]
	switch {
	case r.Value == nil && known:
		delete(c.keys, key)
	case r.Value == nil:
		c.more = max(c.more-1, 0) // the letter may have been compacted away long ago
	case known:
	case len(c.keys) < countedKeys:
		c.keys[key] = struct{}{}
	default:
		c.more++
	}
}

// Run counts the dead letters for [Store.Usage], until ctx ends: it reads their topic once and follows it from then
// on. It never fails: when Kafka does, it tries again for ever.
func (s *Store) Run(ctx context.Context) {
	p := &patient{store: s, what: s.dead, note: func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tailing = err
	}}
	c, next := count{}, int64(-1)
	for ctx.Err() == nil {
		_ = p.until(ctx, func() error { return s.follow(ctx, &c, &next) }) // fails with ctx only
	}
}

// follow counts what one more fetch brings. A next below 0 begins anew.
func (s *Store) follow(ctx context.Context, c *count, next *int64) error {
	if *next < 0 {
		start, _, err := s.client.Range(ctx, s.dead, 0)
		if err != nil {
			return err
		}
		*c, *next = count{keys: map[hashed]struct{}{}}, start
	}
	f, err := s.client.Fetch(ctx, s.dead, 0, *next, fetchBytes, fetchWait)
	if broker.Classify(err) == broker.OutOfRange {
		*next = -1 // it is not the topic that it was
	}
	if err != nil {
		return err
	}
	for _, r := range f.Records {
		c.add(r)
	}
	*next = f.Next
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters = len(c.keys) + c.more
	s.progressed()
	return nil
}
