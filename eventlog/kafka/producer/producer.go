package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// Defaults of [Options].
const (
	DefaultMaxRecord   = 512 << 10
	DefaultMaxBuffered = 32 << 20
	DefaultRefresh     = 5 * time.Second
)

// Errors of a producer.
var (
	// ErrClosed: a batch was appended after [Producer.Close], or after [Producer.Run] had returned.
	ErrClosed = errors.New("the event log is closed")
	// ErrTopicChanged: the topic is not the one that the producer began with, or lost what it had acknowledged: it has
	// fewer partitions, or ends before its last record. Somebody has to decide what to do about what was lost.
	ErrTopicChanged = retry.Halt("the topic of invalidations has lost records")
	// ErrTooLarge: the brokers do not take a record of one single invalidation, without any payload.
	ErrTooLarge = errors.New("a key is too large for kafka")
)

// afterLoss is what an operator can do about [ErrTopicChanged].
const afterLoss = "clear the cache in each Redis that the topic feeds, then start the reader again, which goes on " +
	"from its checkpoint, " +
	"and each invalidator that stops, too, once with --skip-lost"

// Client is what a producer needs of [broker.Client]. All methods make one attempt.
type Client interface {
	// ProduceAll appends records to some partitions that one broker leads, and returns for each the offset of the first
	// once all in-sync replicas have all of them, or why it has none.
	ProduceAll(ctx context.Context, topic string, to []broker.ProduceTo) []broker.ProduceResult
	// Leaders returns who leads each partition of a topic.
	Leaders(ctx context.Context, topic string) ([]int, error)
	// End returns the offset that the next record of a partition will get.
	End(ctx context.Context, topic string, partition int) (int64, error)
}

var _ Client = (*broker.Client)(nil)

// Options configure a [Producer]. The zero value of a field is the default that it names.
type Options struct {
	// Topics are the topics to produce to. Required.
	Topics broker.Names
	// Source is the name of the source that all batches are of. Required.
	Source string
	// Term is that of this leader; it must be higher than that of every earlier one. Required.
	Term uint64
	// Heads are the highest versions of the source that earlier terms are known to have put into each partition, as
	// the checkpoint has them. A partition that is not in it begins a chain.
	Heads map[int]event.Version
	// MaxRecord is where a record is closed, in bytes before compression. It is exceeded by little: a key of odd bytes
	// takes more than was reckoned, and one that is larger by itself is alone in its record. An invalidation whose
	// payload alone exceeds it loses the payload: the key is forgotten instead of written. Default 512 KiB: half of
	// the brokers' default of max.message.bytes (message.max.bytes), and room for a value of 256 KiB of any bytes.
	MaxRecord int
	// MaxBuffered is how many bytes of batches may wait to be acknowledged before Append blocks. A batch that is larger
	// is taken when nothing else waits. The records on their way come on top, one for each partition. Default 32 MiB.
	MaxBuffered int
	// Refresh is how often the number of partitions is asked for. Default 5 s.
	Refresh time.Duration
	// Keep, if it is there, keeps durably that keys are spread over so many partitions. Nothing is before it has returned
	// nil; it is called again until it does. ends asks where each of them ends.
	Keep func(ctx context.Context, partitions int, ends func(context.Context) ([]int64, error)) error
	// Backoff spaces attempts. Default 50 ms to 1 s, so that the brokers' return is noticed within a second.
	Backoff retry.Backoff
	// Latency takes how long batches take until they are acknowledged. Its maker registers it; nil: it is not measured.
	Latency *latency.Stages
	// Registerer takes the metrics while Run runs; nil: they are registered nowhere.
	Registerer prometheus.Registerer
	// Log takes the log. Default slog.Default().
	Log *slog.Logger
	// Alarms hears of trouble that lasts. Nil: it is logged.
	Alarms *alarm.Board
	// Doubts keeps what was lost before this term. Nil: it is logged, and forgotten.
	Doubts *doubt.Book
}

func (o *Options) complete() error {
	o.MaxRecord = orElse(o.MaxRecord, DefaultMaxRecord)
	o.MaxBuffered = orElse(o.MaxBuffered, DefaultMaxBuffered)
	o.Refresh = orElse(o.Refresh, DefaultRefresh)
	o.Backoff.Min = orElse(o.Backoff.Min, 50*time.Millisecond)
	o.Backoff.Max = orElse(o.Backoff.Max, time.Second)
	if o.Latency == nil {
		o.Latency = latency.New()
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	var errs []error
	if o.Topics.Topic == "" {
		errs = append(errs, errors.New("no topic"))
	}
	if o.Source == "" {
		errs = append(errs, errors.New("no source"))
	}
	if o.Term == 0 {
		errs = append(errs, errors.New("no term"))
	}
	if o.MaxRecord < 0 || o.MaxBuffered < 0 || o.Refresh < 0 {
		errs = append(errs, fmt.Errorf(
			"records of %d bytes, a buffer of %d bytes, a refresh every %s: must not be negative", o.MaxRecord, o.MaxBuffered,
			o.Refresh,
		))
	}
	return errors.Join(errs...)
}

func orElse[T int | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// Producer is the reader's side of the event log in Kafka, for one source and one term. One goroutine at a time
// appends; all other methods may be called from anywhere.
type Producer struct {
	client   Client
	o        Options
	key      []byte // of all records: the source
	ledger   *ledger
	lanes    lanes
	encoders sync.Pool // those that no request is being made with
	metrics  *metrics
	reporter *retry.Reporter
	spread   spread
}

// New returns a producer that does nothing until [Producer.Run].
func New(c Client, o Options) (*Producer, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("kafka producer: %w", err)
	}
	p := &Producer{client: c, o: o, key: []byte(o.Source), ledger: newLedger(o.MaxBuffered, o.Latency)}
	p.metrics = newMetrics(p.ledger)
	p.reporter, p.lanes.p = p.newReporter(), p
	return p, nil
}

// Run produces what is appended, until ctx ends, which is no error; what was not acknowledged by then stays undone. It
// goes on after [Producer.Close], since marks do, until ctx ends.
//
// It fails with [ErrTopicChanged] and [ErrTooLarge]. Kafka being away, or refusing us, is no failure: it waits, and
// raises an alarm. Call it once.
func (p *Producer) Run(ctx context.Context) error {
	defer p.ledger.stop()
	unregister, err := p.metrics.register(p.o.Registerer)
	defer unregister()
	if err != nil {
		return fmt.Errorf("kafka producer: metrics: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.runMarks(ctx) })
	g.Go(func() error { return p.watch(ctx, g) })
	return g.Wait()
}

// Append takes a batch, in commit order. It blocks while more than [Options].MaxBuffered bytes wait, and until Kafka
// has said how many partitions there are. It returns the context's error when that ends first, or [ErrClosed]: nothing
// of the batch was taken then. What is kept of the batch is a copy.
func (p *Producer) Append(ctx context.Context, b *event.Batch) error {
	at := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, to, err := p.ledger.admit(b, at)
		if err != nil {
			return err
		}
		if e != nil {
			p.spread.out(p.ledger, e, b, to)
			return nil
		}
		select {
		case <-p.ledger.space:
		case <-ctx.Done():
		}
	}
}

// Mark passes a mark on, past the batches and never held up by them. It does not block. A newer mark replaces one that
// the brokers do not have yet.
func (p *Producer) Mark(m event.Mark) { p.ledger.mark(m) }

// Durable delivers the ends of batches whose every record, and that of every batch before, is acknowledged; in order,
// and added up while nobody looks. After [Producer.Close] it is closed once all is acknowledged and, if there are
// marks, one that tells so; not before Kafka has said how many partitions there are. Else it is closed when Run
// returns.
func (p *Producer) Durable() <-chan event.End { return p.ledger.ends }

// Close says that no more will be appended. What was goes on its way. Close may be called more than once.
func (p *Producer) Close() { p.ledger.close() }

// Heads returns for each partition the highest version that is known to be acknowledged in it, by this term or an
// earlier one. A partition without one is left out.
func (p *Producer) Heads() map[int]event.Version {
	_, heads := p.ledger.progress()
	all := make(map[int]event.Version, len(heads))
	for id, v := range p.o.Heads {
		all[id] = v // also before the partitions are known
	}
	for id, v := range heads {
		if !v.IsZero() {
			all[id] = v
		}
	}
	return all
}

// Ends returns for each partition the offset below which everything lies that the source is known to have in it:
// after the last acknowledged record or, while this term has none there, where the partition ended when the producer
// first asked. Nil until Kafka has said how many partitions there are.
func (p *Producer) Ends() []int64 {
	ends, _ := p.ledger.progress()
	return ends
}

// AsOf returns the newest moment at which the source was asked of which everything that it held is acknowledged; the
// zero time while none is known.
func (p *Producer) AsOf() time.Time { return p.ledger.asOf() }

// spread puts the invalidations of a batch into their partitions. Its memory is used again.
type spread struct {
	partition []uint32
	count     []uint32
	order     []uint32
	touched   []*sendQueue
}

// out hands a batch to the partitions, and wakes their lanes once all of them have it, so that one request takes it
// all. It costs a lock for each partition that is touched, and a wake-up for each broker; none for a key.
//
// The batch is arranged by partition first. Each partition's record is made later, by itself, of what many batches have
// for it: with many partitions it would else fetch a part of the cache's lines for each key, and use little of it.
func (s *spread) out(l *ledger, e *entry, b *event.Batch, to []*sendQueue) {
	pieces := s.sort(b, len(to))
	l.split(e, pieces)
	if pieces == 0 {
		return
	}
	if pieces > 1 {
		b = b.Arrange(s.order)
	} else {
		b = b.Clone()
	}
	from := 0
	touched := s.touched[:0]
	for id, part := range to {
		if end := int(s.count[id]); end > from {
			part.push(piece{entry: e, batch: b, from: from, end: end})
			touched = append(touched, part)
			from = end
		}
	}
	for _, part := range touched {
		part.lane.Load().wake.raise()
	}
	s.touched = touched
}

// sort puts the ordinals of a batch's invalidations in the order of their partitions, and count to where those of each
// end there. It returns how many partitions have any.
func (s *spread) sort(b *event.Batch, partitions int) (pieces int) {
	n := b.Len()
	s.partition, s.order = grown(s.partition, n), grown(s.order, n)
	s.count = grown(s.count, partitions+1)
	clear(s.count)
	for i := range n {
		id := Partition(b.Key(i), partitions)
		s.partition[i] = uint32(id)
		s.count[id+1]++
	}
	for id := range partitions {
		if s.count[id+1] > 0 {
			pieces++
		}
		s.count[id+1] += s.count[id] // where those of the next partition begin
	}
	for i, id := range s.partition {
		s.order[s.count[id]] = uint32(i)
		s.count[id]++ // ends where the next partition's began
	}
	return pieces
}

// grown returns s with length n; what it holds is not kept.
func grown[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
