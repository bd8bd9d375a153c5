package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/event/latency"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/group"
	"github.com/freshet/freshet/retry"
)

// Options configure a [Consumer]. The zero value of an optional field is the default that it names.
type Options struct {
	// Names are the topics to read. Required.
	Names broker.Names
	// Group is the consumer group, for what is said to people. Required.
	Group string
	// Bury keeps a record that cannot be read, whole, with the reason; it returns once it is durable. It may be called
	// again for the same record. Required.
	Bury func(ctx context.Context, topic string, partition int, r broker.Record, cause error) error
	// Letters says how many dead letters the group has, about: from some number on, records that are none of freshet's
	// are passed over without becoming more. It must not block. Default: none.
	Letters func() int
	// SkipLost passes over lost records, with an alarm, instead of ending with a [*LostError]: for an operator who has
	// cleared the cache.
	SkipLost bool
	// Latency takes how long records took from the producer to here. Its maker registers it; nil: it is not measured.
	Latency *latency.Stages
	// Alarms are raised for what an operator must hear; nil: logged.
	Alarms *alarm.Board
	// Doubts keeps which losses were passed over. Nil: they are logged, and forgotten.
	Doubts *doubt.Book
	// Registerer takes the metrics; nil: they are registered nowhere.
	Registerer prometheus.Registerer
	// Log takes changes of state. Default slog.Default.
	Log *slog.Logger
}

// Consumer reads a topic of invalidations and its topic of marks. All methods may be called from any goroutine.
type Consumer struct {
	client  *broker.Client
	cluster cluster // the same
	o       Options
	metrics *metrics
	newest  *newest
	history history
	stop    stops

	fetcher fetcher
	// reporter is of all attempts to ask the brokers for something.
	reporter *retry.Reporter

	ended context.Context // with Run, for the partitions
	end   context.CancelFunc

	mu     sync.Mutex
	parts  map[int]*assignedPartition
	loops  sync.WaitGroup // of the partitions, and of what is done for them
	closed bool
	// retention is the topic's retention.ms; 0: not known, or forever.
	retention time.Duration
}

// New returns a consumer. Run makes it read marks; a partition is read from when it is assigned.
func New(c *broker.Client, o Options) (*Consumer, error) {
	var errs []error
	if o.Names.Topic == "" {
		errs = append(errs, errors.New("no topic"))
	}
	if o.Group == "" {
		errs = append(errs, errors.New("no group"))
	}
	if o.Bury == nil {
		errs = append(errs, errors.New("nowhere to keep records that cannot be read"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("kafka: consumer: %w", err)
	}
	if o.Latency == nil {
		o.Latency = latency.New()
	}
	if o.Letters == nil {
		o.Letters = func() int { return 0 }
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	out := &Consumer{client: c, cluster: c, o: o, newest: newNewest(), parts: map[int]*assignedPartition{}}
	out.reporter = out.newReporter()
	out.fetcher = fetcher{c: out, lanes: map[int]*lane{}}
	out.stop.changed = make(chan struct{})
	out.ended, out.end = context.WithCancel(context.Background())
	var err error
	if out.metrics, err = newMetrics(o.Registerer, out); err != nil {
		return nil, fmt.Errorf("kafka: consumer: metrics: %w", err)
	}
	return out, nil
}

// Marks delivers the marks of all sources: those of earlier leaders too, as they come. Only the newest of each source
// is kept for a slow receiver. The channel is never closed.
func (c *Consumer) Marks() <-chan event.Mark { return c.newest.out }

// Run reads the marks and watches how far the partitions are behind, until ctx ends. It then ends all partitions and
// waits for what is fetched of them; it returns nil. It is called once, and outlives the work on the partitions, which
// needs marks to be finished.
func (c *Consumer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { c.readMarks(ctx) })
	wg.Go(func() { c.newest.deliver(ctx) })
	wg.Go(func() { c.watch(ctx) })
	wg.Wait()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.loops.Wait()
	return nil
}

// Partition begins to read an assigned partition of the topic, from where the group has come to, until ctx ends. It
// waits for the brokers. The error is a [*LostError] when records are gone that the group has not finished, or the
// context's.
//
// A partition of which records were found to be lost before stays stopped, in any process, until [Options].SkipLost.
func (c *Consumer) Partition(assigned context.Context, assignment *group.Assignment) (eventlog.Partition, error) {
	if assignment.Topic != c.o.Names.Topic {
		return nil, fmt.Errorf("kafka: %s/%d is not of topic %s", assignment.Topic, assignment.Partition, c.o.Names.Topic)
	}
	ctx, cancel := context.WithCancel(assigned)
	p := &assignedPartition{
		c: c, assignment: assignment, id: assignment.Partition,
		what: fmt.Sprintf("%s/%d", assignment.Topic, assignment.Partition),
		ctx:  ctx,
	}
	if !c.enlist(p) {
		cancel()
		return nil, context.Canceled
	}
	from, err := p.begin()
	if err != nil {
		cancel()
		if p.stopped() {
			context.AfterFunc(assigned, func() { c.delist(p) }) // till then it is ours, and seen to be stopped
		} else {
			c.delist(p)
		}
		c.loops.Done()
		return nil, err
	}
	c.attend(p, from, cancel)
	return p, nil
}

// attend has a partition fetched from an offset on, until its context ends; cancel ends it.
func (c *Consumer) attend(p *assignedPartition, from int64, cancel context.CancelFunc) {
	p.feed = newFeed(p, from)
	unhook := context.AfterFunc(c.ended, cancel)
	c.loops.Add(1)
	go c.fetcher.restore(p.feed, nil)
	context.AfterFunc(p.ctx, func() {
		defer c.loops.Done()
		unhook()
		c.fetcher.leave(p.feed)
		c.delist(p)
	})
}

// enlist makes a partition one of ours; false: Run has ended.
func (c *Consumer) enlist(p *assignedPartition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.parts[p.id] = p
	c.loops.Add(1)
	return true
}

// delist forgets a partition that was revoked, unless it has been assigned again meanwhile.
func (c *Consumer) delist(p *assignedPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts[p.id] == p {
		delete(c.parts, p.id)
	}
}

// owned returns the partitions that are ours, by number.
func (c *Consumer) owned() []*assignedPartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.parts), func(a, b *assignedPartition) int { return cmp.Compare(a.id, b.id) })
}

// StopAt makes Fetch return [io.EOF] once a partition has been fetched up to its end; at once for a partition that ends
// does not name. It may be called at any time, also again with other ends.
func (c *Consumer) StopAt(ends map[int]int64) { c.stop.set(maps.Clone(ends)) }

// stops are where partitions end.
type stops struct {
	mu      sync.Mutex
	ends    map[int]int64 // nil: nowhere
	changed chan struct{} // closed when they change
}

func (s *stops) set(ends map[int]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ends == nil {
		ends = map[int]int64{}
	}
	s.ends = ends
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stops) at(partition int) (int64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends == nil {
		return math.MaxInt64, s.changed
	}
	return s.ends[partition], s.changed
}

// FreshAsOf returns the newest moment, on the readers' clocks, as of which all partitions that this process owns are
// finished: each change that a source held then has been acted upon here. With several sources it is the earliest of
// theirs. It is the zero time while it is not known, while this process owns no partition, and while it owns one that
// is stopped: what it lacks is not known.
func (c *Consumer) FreshAsOf() time.Time {
	finished := map[int]int64{}
	for _, p := range c.owned() {
		p.mu.Lock()
		begun := p.begun && p.loss == nil
		finished[p.id] = p.finished
		p.mu.Unlock()
		if !begun {
			return time.Time{}
		}
	}
	if len(finished) == 0 {
		return time.Time{}
	}
	return c.history.asOf(finished)
}
