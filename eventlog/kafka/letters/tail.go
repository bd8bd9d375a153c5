package letters

import (
	"context"
	"fmt"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/eventlog/kafka/broker"
)

// countedKeys is how many dead letters are distinguished for counting them, in some 5 MB. Beyond that, one that is
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

// tail follows the dead letters.
type tail struct {
	store *Store
	count
	// next is the offset to read next; below 0: all is read, from the beginning on. end is what all is: it has been
	// read when next has come to it.
	next, end int64
	read      bool
	// before are the letters that were known when that began: those that are not found again are lost.
	before map[hashed]struct{}
}

// Run counts the dead letters for [Store.Usage], until ctx ends: it reads their topic once and follows it from then on.
// It never fails: when Kafka does, it tries again forever. Letters that are lost with their topic are a doubt, or else
// nobody would know of their keys any more.
func (s *Store) Run(ctx context.Context) {
	loop := s.newLoop(s.dead, func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tailing = err
	})
	t := &tail{store: s, next: -1}
	for ctx.Err() == nil {
		_ = loop.Do(ctx, func() error { return t.follow(ctx) }) // fails with ctx only
	}
}

// follow counts what one more fetch brings.
func (t *tail) follow(ctx context.Context) error {
	s := t.store
	if t.next < 0 {
		start, end, err := s.client.Range(ctx, s.dead, 0)
		if err != nil {
			return err
		}
		if t.before == nil {
			t.before = t.keys
		}
		t.count, t.next, t.end, t.read = count{keys: map[hashed]struct{}{}}, start, end, false
	}
	if !t.read && t.next >= t.end {
		return t.whole(ctx)
	}
	f, err := s.client.Fetch(ctx, s.dead, 0, t.next, fetchBytes, fetchWait)
	if class := broker.Classify(err); class == broker.OutOfRange || class == broker.Missing {
		t.next = -1 // it is not the topic that it was
	}
	if err != nil {
		return err
	}
	for _, r := range f.Records {
		t.add(r)
	}
	if f.Next == t.next {
		t.end = t.next // what would come is compacted
	}
	t.next = f.Next
	if t.read {
		t.tell()
	}
	return nil
}

// whole takes note that all has been read.
func (t *tail) whole(ctx context.Context) error {
	lost := 0
	for key := range t.before {
		if _, there := t.keys[key]; !there {
			lost++
		}
	}
	if lost > 0 {
		err := t.store.o.Doubts.Record(ctx, doubt.Doubt{
			Cause: alarm.RecordsLost, Group: t.store.o.Group, Subject: t.store.dead,
			Message: fmt.Sprintf("%d dead letters of group %s were lost with their topic %s, which was deleted, created again or "+
				"cut: the keys"+
				" that had been given up may stay stale", lost, t.store.o.Group, t.store.dead),
		})
		if err != nil {
			return err
		}
	}
	t.before, t.read = nil, true
	t.tell()
	return nil
}

// tell makes the count known.
func (t *tail) tell() {
	s := t.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letters, s.counted = len(t.keys)+t.more, true
}
