package letters

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// partBytes is how much of a record goes into one letter. Written as base64 it stays well below the default of
// max.message.bytes (1 MiB).
const partBytes = 384 << 10

// leastPartBytes is how little goes into one where the topic takes small records only.
const leastPartBytes = 4 << 10

// Bury keeps a record that cannot be read whole, as a dead letter: where it was, its key and value, and why. It
// returns when the letter is durable. It is safe to repeat: the same record is the same letter.
func (s *Store) Bury(ctx context.Context, topic string, partition int, r broker.Record, cause error) (err error) {
	defer s.metrics.time(opBury, &err)()
	for most := partBytes; ; most /= 2 {
		err := s.bury(ctx, topic, partition, r, cause, most)
		if !errors.Is(err, kafka.MessageSizeTooLarge) || most/2 < leastPartBytes {
			return err
		}
	}
}

// bury is Bury with parts of a size. Those of an attempt with larger ones are replaced, since there are fewer of them.
func (s *Store) bury(ctx context.Context, topic string, partition int, r broker.Record, cause error, most int) error {
	now := time.Now().UTC()
	parts := split(fragment{r.Key, r.Value}, most)
	key := letterKey([]byte(topic), []byte(strconv.Itoa(partition)), []byte(strconv.FormatInt(r.Offset, 10)), r.Key,
		r.Value)
	// The parts first: a letter that is there is whole.
	var records []broker.Record
	for n, part := range parts[1:] {
		value, err := encode(&document{PartOf: key, Part: &part})
		if err != nil {
			return err
		}
		records = append(records, broker.Record{Key: []byte(partKey(key, n+1)), Value: value})
	}
	value, err := encode(&document{
		Error: cause.Error(), First: now, Last: now,
		Record: &buried{
			Topic: topic, Partition: partition, Offset: r.Offset, Time: r.Time.UTC(), fragment: parts[0], Parts: len(parts) - 1,
		},
	})
	if err != nil {
		return err
	}
	records = append(records, broker.Record{Key: []byte(key), Value: value})
	if err := s.produce(ctx, s.dead, records, nil); err != nil {
		return fmt.Errorf("keep the unreadable record %s/%d@%d: %w", topic, partition, r.Offset, err)
	}
	return nil
}

// split cuts a record into pieces of most bytes each, at least one.
func split(f fragment, most int) []fragment {
	var out []fragment
	for {
		piece := f
		if len(f.Key) > most {
			piece = fragment{Key: f.Key[:most]}
		} else if len(f.Key)+len(f.Value) > most {
			piece.Value = f.Value[:most-len(f.Key)]
		} else {
			return append(out, piece)
		}
		out = append(out, piece)
		f.Key, f.Value = rest(f.Key, len(piece.Key)), rest(f.Value, len(piece.Value))
	}
}

// rest returns what of b lies beyond n; a null stays one.
func rest(b []byte, n int) []byte {
	if b == nil {
		return nil
	}
	return b[n:]
}

// whole puts a letter's record together again.
func (s *Store) whole(ctx context.Context, l *letter) (fragment, error) {
	b := l.doc.Record
	if b.Parts == 0 {
		return b.fragment, nil
	}
	parts := make(map[string]*fragment, b.Parts)
	start, end, err := s.rangeOfDead(ctx)
	if err != nil {
		return fragment{}, err
	}
	err = s.scan(ctx, start, end, func(r broker.Record) bool {
		if !isPart(r.Key) || string(r.Key[:32]) != string(l.key) {
			return true
		}
		d, err := decode(r.Value)
		if err != nil || d.Part == nil {
			delete(parts, string(r.Key))
			return true
		}
		parts[string(r.Key)] = d.Part
		return true
	})
	if err != nil {
		return fragment{}, err
	}
	f := b.fragment
	for n := range b.Parts {
		p := parts[partKey(string(l.key), n+1)]
		if p == nil {
			return fragment{}, fmt.Errorf("part %d of %d of record %s is missing", n+1, b.Parts, b.name())
		}
		f.Key, f.Value = join(f.Key, p.Key), join(f.Value, p.Value)
	}
	return f, nil
}

func join(a, b []byte) []byte {
	if a == nil && b == nil {
		return nil
	}
	return append(append(make([]byte, 0, len(a)+len(b)), a...), b...)
}

// readAgain returns the entries to be parked for a record that could not be read before.
func (s *Store) readAgain(ctx context.Context, l *letter, now time.Time) ([]retry.Entry, error) {
	if l.err != nil {
		return nil, l.err
	}
	f, err := s.whole(ctx, l)
	if err != nil {
		return nil, err
	}
	if s.isRetry(l.doc.Record.Topic) {
		e, err := decodeEntry(f.Value)
		e.Attempts, e.Due = 0, now
		return []retry.Entry{e}, err
	}
	b, err := s.o.Parse(f.Value)
	if err != nil {
		return nil, err
	}
	return entries(b, now), nil
}

// entries returns what must be parked for a whole batch. Nothing is known here of its marks, so each key gets its
// second delete's time at least before its one delete.
func entries(b *event.Batch, now time.Time) []retry.Entry {
	out := make([]retry.Entry, len(b.Invalidations))
	for i := range b.Invalidations {
		inv := &b.Invalidations[i]
		o := b.Of(i)
		out[i] = retry.Entry{
			Key: b.Key(i), Action: inv.Action, Source: b.Source, Table: o.Table, Version: b.Version(i), D: o.D,
			Error: "replayed with a record that could not be read", First: now, Last: now, Due: now.Add(o.D),
		}
	}
	return out
}
