package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
)

// Reached is how far somebody has come in a partition.
type Reached struct {
	// Offset is the first that is not finished.
	Offset int64 `json:"offset"`
	// Seen is what was seen of each source by then, as a group commits it with the offset: what comes next must follow.
	Seen string `json:"seen,omitempty"`
}

// ErrGone says that a partition does not hold all that it held.
var ErrGone = errors.New("the topic does not hold these changes any more")

// Span is a part of a partition that is read once more, apart from the group. It is not safe for concurrent use.
type Span struct {
	c         cluster
	topic     string
	partition int
	next, end int64
	chain     chain
	parser    record.Parser
	// records were fetched, and after is the offset after them.
	records []broker.Record
	after   int64
}

// NewSpan returns what a partition holds from a place that a group had reached up to an offset, without that.
func NewSpan(c *broker.Client, topic string, partition int, from Reached, end int64) *Span {
	return newSpan(c, topic, partition, from, end)
}

func newSpan(c cluster, topic string, partition int, from Reached, end int64) *Span {
	s := &Span{c: c, topic: topic, partition: partition, next: from.Offset, after: from.Offset, end: end}
	s.chain = parseChain(from.Seen)
	s.chain.whole = from.Offset == 0
	return s
}

// Reached returns how far it has been read.
func (s *Span) Reached() Reached { return Reached{s.next, s.chain.encode()} }

// Left returns how many offsets are left.
func (s *Span) Left() int64 { return max(s.end-s.next, 0) }

// Next returns the batch of the next record, as a leftover. The error is [io.EOF] at the end, [ErrGone] if records are
// missing, the context's, or that of brokers that do not answer as they should: then it may be called again.
func (s *Span) Next(ctx context.Context) (*event.Batch, error) {
	if s.next > s.end {
		return nil, fmt.Errorf("%w: %s/%d ends at offset %d, before %d: it was cut, or created again", ErrGone, s.topic,
			s.partition, s.end, s.next)
	}
	for {
		if len(s.records) == 0 {
			s.next = s.after
		}
		switch {
		case s.next >= s.end, len(s.records) > 0 && s.records[0].Offset >= s.end:
			s.next = max(s.next, s.end)
			return nil, io.EOF
		case len(s.records) == 0:
			if err := s.fetch(ctx); err != nil {
				return nil, err
			}
			continue
		}
		r := s.records[0]
		b, err := s.read(&r)
		if err != nil {
			return nil, err
		}
		s.records[0] = broker.Record{} // not to keep it
		s.records, s.next = s.records[1:], r.Offset+1
		if b != nil {
			return b, nil
		}
	}
}

// spanBytes is how much of a span is fetched at a time.
const spanBytes = 512 << 10

// fetch fetches what comes next.
func (s *Span) fetch(ctx context.Context) error {
	from := []broker.FetchFrom{{Partition: s.partition, Offset: s.next, MaxBytes: spanBytes}}
	f := s.c.FetchAll(ctx, s.topic, from, spanBytes, poll)[0]
	switch {
	case broker.Classify(f.Err) == broker.OutOfRange:
		start, end, err := s.c.Range(ctx, s.topic, s.partition)
		if err != nil || start <= s.next && s.next <= end {
			return errors.Join(f.Err, err) // the brokers do not agree yet
		}
		return fmt.Errorf("%w: %s/%d holds offsets %d to %d, and is read from %d on", ErrGone, s.topic, s.partition, start,
			end, s.next)
	case f.Err != nil:
		return f.Err
	case f.Next == s.next && f.HighWatermark < s.end:
		return &broker.Error{
			Class: broker.Transient, What: fmt.Sprintf("read %s/%d", s.topic, s.partition),
			Err: fmt.Errorf("nothing at offset %d, which is before the end %d", s.next, s.end),
		}
	}
	s.records, s.after = f.Records, f.Next
	return nil
}

// read makes a batch of a record; none of one that cannot be read, which is among the dead letters.
func (s *Span) read(r *broker.Record) (*event.Batch, error) {
	b, h, err := s.parser.Parse(r.Value)
	switch {
	case errors.Is(err, record.ErrUnknownFormat):
		return nil, fmt.Errorf("%s/%d at offset %d: %w: upgrade the invalidators", s.topic, s.partition, r.Offset, err)
	case err != nil:
		s.chain.bury(suspect(r))
		return nil, nil
	}
	l, moves, missing := s.chain.check(&h, b.Last)
	if missing != nil {
		lost := &LostError{Loss: Broken, Topic: s.topic, Partition: s.partition, Offset: r.Offset, Break: missing}
		return nil, fmt.Errorf("%w: in %s/%d %s", ErrGone, s.topic, s.partition, lost.what())
	}
	if moves {
		s.chain.move(h.Source, l)
	}
	b.Leftover = true
	return b, nil
}

// Since returns where the records of a partition begin that were written at a time or later. If such records may be
// gone, the error is [ErrGone].
func Since(ctx context.Context, c *broker.Client, topic string, partition int, at time.Time) (from Reached, err error) {
	start, end, err := c.Range(ctx, topic, partition)
	if err != nil {
		return from, err
	}
	offset, err := c.At(ctx, topic, partition, at)
	if err != nil {
		return from, err
	}
	// An older record that is left shows that none is missing. Without one, the topic's retention may.
	older := offset > start || offset < 0 && start < end
	if start > 0 && !older {
		kept, known := retention(ctx, c, topic)
		if !known || kept == 0 || time.Since(at) >= kept {
			return from, fmt.Errorf("%w: the oldest record of %s/%d that is left may have been written after %s", ErrGone, topic,
				partition, at.UTC().Format(time.RFC3339))
		}
	}
	if offset < 0 {
		offset = end
	}
	return Reached{Offset: offset}, nil
}
