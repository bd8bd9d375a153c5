package letters

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// letter is a dead letter as it is in its topic.
type letter struct {
	key   []byte // of the record
	entry retry.Entry
	doc   *document
	// err says why the letter itself cannot be read.
	err error
}

// read makes a letter of a record. It never fails: what cannot be read is a letter that says so.
func read(r broker.Record) letter {
	l := letter{key: slices.Clone(r.Key)} // the rest of the fetch is not to be kept for it
	if l.doc, l.err = decode(r.Value); l.err == nil {
		if b := l.doc.Record; b != nil {
			l.entry = retry.Entry{
				Error: fmt.Sprintf("record %s cannot be read: %s", b.name(), l.doc.Error),
				First: l.doc.First, Last: l.doc.Last,
			}
		} else {
			l.entry, l.err = l.doc.entry()
		}
	}
	if l.err != nil {
		l.entry = retry.Entry{Error: "this dead letter cannot be read: " + l.err.Error(), First: r.Time, Last: r.Time}
	}
	l.entry.ID = uint64(r.Offset) + 1 // 0 is no ID
	l.entry.Due = time.Time{}
	return l
}

// tombstones are the records that remove a letter.
func (l *letter) tombstones() []broker.Record {
	out := []broker.Record{{Key: l.key}}
	if l.doc != nil && l.doc.Record != nil {
		for n := range l.doc.Record.Parts {
			out = append(out, broker.Record{Key: []byte(partKey(string(l.key), n+1))})
		}
	}
	return out
}

// each visits the letters with IDs above after that the filter selects, in the order of their IDs, until visit returns
// false. Letters that came after the call are left out, so that it ends even when a replay makes new ones.
func (s *Store) each(ctx context.Context, f retry.Filter, after uint64, visit func(letter) (bool, error)) error {
	start, end, err := s.rangeOfDead(ctx)
	if err != nil {
		return err
	}
	ids := slices.Compact(slices.Sorted(slices.Values(f.IDs)))
	if len(ids) > 0 {
		after = max(after, ids[0]-min(ids[0], 1))
	}
	f.IDs = nil
	from := start
	if after > uint64(start) {
		from = int64(min(after, uint64(end)))
	}
	for more := true; more && from < end; {
		var offsets []int64
		if offsets, from, err = s.live(ctx, from, end, liveAtOnce); err != nil {
			return err
		}
		if len(ids) > 0 {
			offsets = slices.DeleteFunc(offsets, func(o int64) bool {
				_, found := slices.BinarySearch(ids, uint64(o)+1)
				return !found
			})
		}
		err = s.at(ctx, offsets, func(r broker.Record) (bool, error) {
			l := read(r)
			if !f.Match(&l.entry) {
				return true, nil
			}
			more, err = visit(l)
			return more, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// DeadLetters returns up to n dead letters that the filter selects, in the order of their IDs, from the first ID
// above after. A page that is not full is the last. Each call reads the topic from there to its end.
//
// A letter's ID is its offset, plus one. A record that could not be read is a letter without a key and a table; its
// Error names the record.
func (s *Store) DeadLetters(ctx context.Context, f retry.Filter, after uint64, n int) ([]retry.Entry, error) {
	if err := ctx.Err(); err != nil || n <= 0 {
		return nil, err
	}
	var out []retry.Entry
	err := s.each(ctx, f, after, func(l letter) (bool, error) {
		out = append(out, l.entry)
		return len(out) < n, nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DeadLetter returns one dead letter; false if there is none with this ID.
func (s *Store) DeadLetter(ctx context.Context, id uint64) (retry.Entry, bool, error) {
	found, err := s.DeadLetters(ctx, retry.Filter{IDs: []uint64{id}}, 0, 1)
	if err != nil || len(found) == 0 {
		return retry.Entry{}, false, err
	}
	return found[0], true, nil
}

// StillUnreadable says that dead letters could not be replayed, since they cannot be read: they stay.
type StillUnreadable struct {
	// Letters is how many; First is the ID of the first, and Err says why it cannot be read.
	Letters int
	First   uint64
	Err     error
}

// Error says so, and what to do.
func (e *StillUnreadable) Error() string {
	return fmt.Sprintf("%d dead letters cannot be read, and stay: the first is %d (%v); "+
		"replay them with the version of freshet that can read them, or purge them once their keys are seen to", e.Letters,
		e.First, e.Err)
}

// Unwrap returns why the first cannot be read.
func (e *StillUnreadable) Unwrap() error { return e.Err }

// Replay parks the dead letters that the filter selects, due now and with no attempts made, and returns how many. A
// record that could not be read is read again, and each of its keys is parked, due after its second delete; one that
// still cannot be read stays, and the others are replayed before a [StillUnreadable] is returned.
//
// It is safe to repeat: a letter is removed after its key is parked, so that a crash in between leads to the key being
// parked, and deleted, once more.
func (s *Store) Replay(ctx context.Context, f retry.Filter, now time.Time) (int, error) {
	var unreadable StillUnreadable
	n, err := s.take(ctx, opReplay, f, now, func(l letter) ([]retry.Entry, bool) {
		if l.err == nil && l.doc.Record == nil {
			l.entry.ID, l.entry.Attempts, l.entry.Due = 0, 0, now
			return []retry.Entry{l.entry}, true
		}
		entries, err := s.readAgain(ctx, &l, now)
		if err != nil {
			if unreadable.Letters++; unreadable.Letters == 1 {
				unreadable.First, unreadable.Err = l.entry.ID, err
			}
			return nil, false
		}
		return entries, true
	})
	if err == nil && unreadable.Letters > 0 {
		err = &unreadable
	}
	return n, err
}

// Purge removes the dead letters that the filter selects for good, and returns how many: their keys stay as they are
// in Redis. It is safe to repeat.
func (s *Store) Purge(ctx context.Context, f retry.Filter) (int, error) {
	return s.take(ctx, opPurge, f, time.Time{}, func(letter) ([]retry.Entry, bool) { return nil, true })
}

// take removes letters, some at a time, once what park wants parked for each is parked; it leaves those out for which
// park says no.
func (s *Store) take(ctx context.Context, op string, f retry.Filter, now time.Time,
	park func(letter) ([]retry.Entry, bool),
) (total int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	defer s.metrics.time(op, &err)()
	var entries []retry.Entry
	var tombstones []broker.Record
	letters, size := 0, 0
	flush := func() error {
		batches, err := s.sort(entries, now)
		if err != nil {
			return err
		}
		for _, b := range batches {
			if err := s.produce(ctx, b.topic, b.records, nil); err != nil {
				return err
			}
		}
		if err := s.produce(ctx, s.dead, tombstones, nil); err != nil {
			return err
		}
		total += letters
		entries, tombstones, letters, size = nil, nil, 0, 0
		return nil
	}
	err = s.each(ctx, f, 0, func(l letter) (bool, error) {
		parked, ok := park(l)
		if !ok {
			return true, nil
		}
		entries, tombstones = append(entries, parked...), append(tombstones, l.tombstones()...)
		letters++
		for i := range parked {
			size += sizeOf(&parked[i])
		}
		if size < batchBytes && len(tombstones) < batchRecords {
			return true, nil
		}
		return true, flush()
	})
	if err == nil {
		err = flush()
	}
	return total, err
}
