package letters

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/freshet/freshet/eventlog/kafka/broker"
)

const (
	// liveAtOnce is how many live letters one reading of the topic finds, which bounds its memory. With more of them,
	// the topic is read that many times more.
	liveAtOnce = 64 << 10
	// scanWait is how long a fetch waits that finds nothing, and emptyFetches after how many of them the rest of a
	// topic is taken to be empty: compaction may have removed all there was. One is not enough, since a broker also
	// answers with nothing when it throttles us (KIP-219).
	scanWait     = 250 * time.Millisecond
	emptyFetches = 4
)

// scan calls each with the records of the dead letters' topic from an offset up to another, until it returns false.
func (s *Store) scan(ctx context.Context, from, end int64, each func(broker.Record) bool) error {
	for empty := 0; from < end && empty < emptyFetches; {
		var f broker.Fetched
		err := insist(ctx, func() (err error) {
			f, err = s.client.Fetch(ctx, s.dead, 0, from, fetchBytes, scanWait)
			return err
		})
		if broker.Classify(err) == broker.OutOfRange {
			start, _, rangeErr := s.client.Range(ctx, s.dead, 0)
			if rangeErr != nil || start <= from {
				return errors.Join(err, rangeErr)
			}
			from = start // somebody has deleted the oldest records
			continue
		}
		if err != nil {
			return err
		}
		for _, r := range f.Records {
			if r.Offset >= end || !each(r) {
				return nil
			}
		}
		empty++
		if f.Next > from {
			from, empty = f.Next, 0
		}
	}
	return nil
}

// rangeOfDead returns where the dead letters begin and end.
func (s *Store) rangeOfDead(ctx context.Context) (start, end int64, err error) {
	err = insist(ctx, func() error {
		start, end, err = s.client.Range(ctx, s.dead, 0)
		return err
	})
	return start, end, err
}

// hashed stands for a record's key, which may be of any length.
type hashed [16]byte

func hashKey(key []byte) hashed {
	h := sha256.Sum256(key)
	return hashed(h[:16])
}

// live returns the offsets of letters from an offset on that are there: whose key no later record has. Up to most of
// them, the oldest; resume is where the next may be, or end.
func (s *Store) live(ctx context.Context, from, end int64, most int) (offsets []int64, resume int64, err error) {
	at := map[hashed]int64{}
	resume = end
	err = s.scan(ctx, from, end, func(r broker.Record) bool {
		if isPart(r.Key) {
			return true
		}
		key := hashKey(r.Key)
		switch _, known := at[key]; {
		case r.Value == nil:
			delete(at, key)
		case resume < end:
			delete(at, key) // it is there at this offset, and will be found from resume on
		case known || len(at) < most:
			at[key] = r.Offset
		default:
			resume = r.Offset
		}
		return true
	})
	for _, o := range at {
		offsets = append(offsets, o)
	}
	slices.Sort(offsets)
	return offsets, resume, err
}

// at calls each with the records at offsets, which rise. One that is not there any more is passed over.
func (s *Store) at(ctx context.Context, offsets []int64, each func(broker.Record) (bool, error)) error {
	for i := 0; i < len(offsets); {
		before := i
		var failed error
		stopped := false
		err := s.scan(ctx, offsets[i], offsets[len(offsets)-1]+1, func(r broker.Record) bool {
			for i < len(offsets) && offsets[i] < r.Offset {
				i++
			}
			if i == len(offsets) || r.Offset != offsets[i] {
				// Far from the next one it is quicker to ask for that.
				return i < len(offsets) && offsets[i]-r.Offset < 1000
			}
			i++
			var more bool
			more, failed = each(r)
			stopped = !more
			return more && failed == nil
		})
		if err := errors.Join(err, failed); err != nil || stopped {
			return err
		}
		if i == before {
			i++
		}
	}
	return nil
}
