package producer

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/record"
	"github.com/freshet/freshet/retry"
)

// sendQueue is one partition of the topic: a queue that Append fills, and what becomes of it. One request at a time is
// for it.
type sendQueue struct {
	id int
	// lane carries it: that of the broker which leads it.
	lane atomic.Pointer[lane]

	mu     sync.Mutex
	queue  []piece
	queued int // rows in it

	// What follows belongs to the goroutine that has taken it from its lane; while nobody has, it is under the lock of the
	// lanes.

	taken bool
	loop  *retry.Loop // of attempts to produce its record
	again time.Time   // after a failure: when it is tried again; else zero

	have   []piece // what is not acknowledged, in order
	done   int     // how many rows of the first piece are
	left   int     // how many rows in all are not
	sealed *sealed // the record that is tried; nil: there is none
	seq    uint64  // of the last record that was acknowledged
	head   event.Version
	end    int64     // offset after the last acknowledged record
	most   int       // bytes that a record may have
	told   time.Time // when it was last said that a payload was left out
}

// piece is what a batch has for one partition.
type piece struct {
	entry     *entry
	batch     *event.Batch
	from, end int // ordinals of the first invalidation, and after the last
}

func (p *piece) rows() int { return p.end - p.from }

// sealed is a record. Its bytes are not written to again, so that every attempt sends the same, whatever becomes of the
// one before.
type sealed struct {
	value     []byte
	upTo      recordEnd     // how far it goes
	head      event.Version // of the partition, after it
	rows      int
	forgotten int  // how many of them lost their payload
	canForget bool // the last one still has a payload to lose
}

// push queues a piece. Its lane must be woken.
func (s *sendQueue) push(p piece) {
	s.mu.Lock()
	s.queue = append(s.queue, p)
	s.queued += p.rows()
	s.mu.Unlock()
}

// waiting returns how many rows wait to be sent.
func (s *sendQueue) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left + s.queued
}

// take moves what is queued to what its taker has.
func (s *sendQueue) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.have = append(s.have, s.queue...)
	s.left += s.queued
	clear(s.queue)
	s.queue, s.queued = s.queue[:0], 0
}

// recordEnd is how far a record goes: over the pieces before have[piece] and its first rows.
type recordEnd struct{ piece, rows int }

// fill encodes the next record: everything there is, until it is full. It returns how far it goes and since when
// everything in it has been known to be visible; the zero time if that is not known of all.
func (s *sendQueue) fill(enc *record.Encoder) (upTo recordEnd, visible time.Time) {
	known := true
	row := s.done
	for i := range s.have {
		p := &s.have[i]
		if row < p.rows() {
			// A batch that was known to be visible for a while when it was handed over still is: on the same clock.
			if p.batch.Age < 0 {
				known = false
			} else if v := p.batch.At.Add(-p.batch.Age); v.After(visible) {
				visible = v
			}
		}
		for ; row < p.rows(); row++ {
			if enc.Len() >= full || !enc.TryAdd(p.batch, p.from+row, s.most) {
				return s.upTo(i, row, known, visible)
			}
		}
		row = 0
	}
	return s.upTo(len(s.have), 0, known, visible)
}

func (s *sendQueue) upTo(piece, rows int, known bool, visible time.Time) (recordEnd, time.Time) {
	if !known {
		visible = time.Time{}
	}
	return recordEnd{piece, rows}, visible
}

// drop forgets what was acknowledged.
func (s *sendQueue) drop(upTo recordEnd) {
	clear(s.have[:upTo.piece])
	s.have = s.have[upTo.piece:]
	s.done = upTo.rows
}

// seal makes the next record with an encoder, which is empty afterwards as before; if there is none. The head is the
// highest version so far, not the last: canal may send a stretch of the binlog again.
func (s *sendQueue) seal(o *Options, enc *record.Encoder) {
	if s.sealed != nil {
		return
	}
	s.take()
	defer enc.Reset() // not to keep a batch
	upTo, visible := s.fill(enc)
	h := record.Header{Source: o.Source, Term: o.Term, Seq: s.seq + 1, Prev: s.head, Age: event.Unknown}
	if !visible.IsZero() {
		h.Age = max(0, time.Since(visible))
	}
	head := s.head
	if last := enc.Last(); last.Compare(head) > 0 {
		head = last
	}
	s.sealed = &sealed{
		value: enc.Finish(h), upTo: upTo, head: head, rows: enc.Count(), forgotten: enc.Forgotten(),
		canForget: enc.CanForget(),
	}
}

// settle enters what became of an attempt, and returns how long to wait before the next if it has to be made again. It
// fails when the record is too large whatever is done, and when the partition turns out to have lost what it had
// acknowledged.
//
// An attempt whose outcome is not known (a timeout, a lost connection) may have been appended, and may even be appended
// later than the next: a reader knows it by its seq.
func (p *Producer) settle(s *sendQueue, r broker.ProduceResult) (pause time.Duration, err error) {
	switch {
	case r.Err == nil:
		return 0, p.acknowledged(s, r.Offset)
	case tooLarge(r.Err):
		return 0, p.shrink(s, r.Err)
	}
	return s.loop.Failed(r.Err), nil
}

// acknowledged enters that the brokers have the record.
func (p *Producer) acknowledged(s *sendQueue, offset int64) error {
	s.loop.Succeeded()
	s.again = time.Time{}
	if offset < s.end {
		return p.wentBack(s, offset)
	}
	r := s.sealed
	p.metrics.produced(r)
	p.tellForgotten(s, r.forgotten)
	s.seq, s.head, s.end, s.sealed = s.seq+1, r.head, offset+1, nil
	p.ledger.acknowledged(s.id, s.end, s.head, s.have[:r.upTo.piece])
	s.drop(r.upTo)
	s.left -= r.rows
	return nil
}

// tooLarge: the brokers will never take a record of this size.
func tooLarge(err error) bool {
	return errors.Is(err, kafka.MessageSizeTooLarge) || errors.Is(err, kafka.RecordListTooLarge)
}

// shrink halves the records of a partition, down to one invalidation, after the one that was tried was too large. The
// limit stays so small: nobody is expected to set the brokers' back. One that is too large alone then loses
// its payload, so that the next attempt takes less.
//
// An earlier attempt may have appended the whole record all the same, if the limit was lowered in between. Then its
// halves come after it: the first with the same seq, which makes it a repeat, the second with the next.
func (p *Producer) shrink(s *sendQueue, err error) error {
	r := s.sealed
	s.sealed = nil
	p.metrics.retries.WithLabelValues(broker.Classify(err).String()).Inc()
	if r.rows == 1 && !r.canForget {
		first := &s.have[0]
		return fmt.Errorf("%w: an invalidation of table %s makes a record of %d bytes, which topic %s does not take (%w): "+
			"raise its max.message.bytes, or make the key of that mapping shorter",
			ErrTooLarge, first.batch.Of(first.from+s.done).Table, len(r.value), p.o.Topics.Topic, err)
	}
	s.most = len(r.value) / 2
	p.o.Log.Warn("kafka does not take records of this size, so smaller ones are made: raise max.message.bytes of the "+
		"topic",
		"topic", p.o.Topics.Topic, "partition", s.id, "bytes", len(r.value), "limit", s.most)
	return nil
}

// tellForgotten says, now and then, that payloads were left out of a record that is in the log now.
func (p *Producer) tellForgotten(s *sendQueue, n int) {
	if n == 0 || !s.told.IsZero() && time.Since(s.told) < retry.Quiet {
		return
	}
	s.told = time.Now()
	p.o.Log.Warn("what was to be written is too large for a record, so its key is forgotten instead of written",
		"topic", p.o.Topics.Topic, "partition", s.id, "keys", n, "limit", s.most)
}

// wentBack is the error of a partition whose next record got an offset below its last one.
func (p *Producer) wentBack(s *sendQueue, offset int64) error {
	return fmt.Errorf("%w: partition %d of %s had ended at offset %d, and now a record got offset %d: the topic was "+
		"deleted and made "+
		"again, or its brokers lost records in an unclean leader election; what they acknowledged and nobody had read is gone: %s",
		ErrTopicChanged, s.id, p.o.Topics.Topic, s.end, offset, afterLoss)
}
