package letters

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// batch is what goes to one topic.
type batch struct {
	topic   string
	records []broker.Record
	ids     []uint64 // of the entries that the records come from
}

// sort writes the entries down, by the topics they belong to. Nothing was produced when it fails.
func (s *Store) sort(entries []retry.Entry, now time.Time) ([]*batch, error) {
	var out []*batch
	byTopic := map[string]*batch{}
	for i := range entries {
		e := &entries[i]
		value, err := encodeEntry(e)
		if err != nil {
			return nil, err
		}
		topic := s.route(e, now)
		b := byTopic[topic]
		if b == nil {
			b = &batch{topic: topic}
			byTopic[topic] = b
			out = append(out, b)
		}
		r := broker.Record{Value: value}
		if topic == s.dead {
			r.Key = []byte(letterKey(value))
		}
		b.records = append(b.records, r)
		b.ids = append(b.ids, e.ID)
	}
	return out, nil
}

// Park implements [retry.Store]: each entry is in the topic of its delay, or of the dead letters, when it returns nil.
// It never fails with [retry.ErrFull]: what bounds the topics is the brokers' disk.
func (s *Store) Park(ctx context.Context, entries []retry.Entry) (err error) {
	if err := ctx.Err(); err != nil || len(entries) == 0 {
		return err
	}
	defer s.metrics.time(opPark, &err)()
	batches, err := s.sort(entries, time.Now())
	if err != nil {
		return err
	}
	for _, b := range batches {
		if err := s.produce(ctx, b.topic, b.records, nil); err != nil {
			return err
		}
	}
	return nil
}

// Due implements [retry.Store], for the partitions that are being served. Entries that lack the same delete are given
// as one.
func (s *Store) Due(ctx context.Context, now time.Time, n int) ([]retry.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var heads []*item
	for _, w := range s.windows {
		var due []*item
		for _, it := range w.items {
			if !it.settled && !it.led && !it.entry.Due.After(now) {
				due = append(due, it)
			}
		}
		heads = append(heads, s.gather(due)...)
	}
	slices.SortStableFunc(heads, func(a, b *item) int { return a.entry.Due.Compare(b.entry.Due) })
	heads = heads[:min(n, len(heads))]
	out := make([]retry.Entry, len(heads))
	for i, it := range heads {
		out[i] = it.entry
	}
	return out, nil
}

// NextDue implements [retry.Store], for the partitions that are being served. It fails while one of them cannot be
// read for longer, so that its caller says so; the others are offered all the same.
func (s *Store) NextDue(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var next time.Time
	for _, w := range s.windows {
		for _, it := range w.items {
			if !it.settled && !it.led && (next.IsZero() || it.entry.Due.Before(next)) {
				next = it.entry.Due
			}
		}
	}
	if len(s.unread) > 0 {
		return next, s.unread[slices.Min(slices.Collect(maps.Keys(s.unread)))]
	}
	return next, nil
}

// Settle implements [retry.Store]. Entries to be tried again are produced again before their old records are finished.
// IDs that are not known any more are passed over, in again as well: such an entry was settled before, or its
// partition is another process's by now, which will try it itself.
func (s *Store) Settle(ctx context.Context, done []uint64, again []retry.Entry) (err error) {
	if err := ctx.Err(); err != nil || len(done)+len(again) == 0 {
		return err
	}
	defer s.metrics.time(opSettle, &err)()
	batches, err := s.sort(s.known(again), time.Now())
	if err != nil {
		return err
	}
	s.finish(done)
	var errs []error // a topic in trouble holds up no other
	for _, b := range batches {
		// What was acknowledged is finished at once, so that a repeat does not write it again. A crash in between
		// leaves both records: one delete too many.
		ids := b.ids
		errs = append(errs, s.produce(ctx, b.topic, b.records, func(n int) {
			s.finish(ids[:n])
			ids = ids[n:]
		}))
	}
	return errors.Join(errs...)
}

// known returns the entries that still stand for items.
func (s *Store) known(entries []retry.Entry) []retry.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]retry.Entry, 0, len(entries))
	for _, e := range entries {
		if s.ids[e.ID] != nil {
			out = append(out, e)
		}
	}
	return out
}

// finish settles items by their IDs, and commits what can be.
func (s *Store) finish(ids []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	touched := map[*window]struct{}{}
	for _, id := range ids {
		if it := s.ids[id]; it != nil {
			touched[it.window] = struct{}{}
			s.settle(it)
		}
	}
	for w := range touched {
		w.advance()
	}
}

// open begins to offer a partition's entries.
func (s *Store) open(w *window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows = append(s.windows, w)
	slices.SortFunc(s.windows, func(a, b *window) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
}

// close ends that: the partition is somebody else's from now on, and IDs of its entries settle nothing.
func (s *Store) close(w *window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.windows = slices.DeleteFunc(s.windows, func(o *window) bool { return o == w })
	for _, it := range w.items {
		if !it.settled && !it.led {
			delete(s.ids, it.entry.ID)
		}
	}
}
