package letters

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/doubt"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// The defaults of [Options].
const (
	DefaultWindow      = 5000
	DefaultWindowBytes = 8 << 20
)

// Options configure a [Store]. The zero value of a field means its default.
type Options struct {
	// Topic is the topic of invalidations, after which the others are named. Required.
	Topic string
	// Group is the consumer group of the invalidators. Required.
	Group string
	// Delays are the waits before the parked attempts, each with a topic of its own (retry.park_delays). Default:
	// those of [retry.Policy].
	Delays []time.Duration
	// Window and WindowBytes bound how much of one partition is in memory: entries that are not finished, and those
	// finished after them, and the bytes of the former; one fetch of up to 1 MiB comes on top. Defaults 5000 and
	// 8 MiB.
	Window, WindowBytes int
	// TrimEvery is how often the records of finished keys are removed from the retry topics. It takes the right to
	// Delete on them; without it they grow, and the log says so. Default 10 min.
	TrimEvery time.Duration
	// Parse reads a record of Topic, for replaying one that could not be read before. Default: none can be.
	Parse func(data []byte) (*event.Batch, error)
	// Registerer takes the store's metrics; nil: they are registered nowhere.
	Registerer prometheus.Registerer
	// Alarms hears what an operator must hear. Nil: it is logged.
	Alarms *alarm.Board
	// Doubts keeps which losses were passed over. Nil: they are logged, and forgotten.
	Doubts *doubt.Book
	// Log takes changes of state. Default [slog.Default].
	Log *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Topic == "" || o.Group == "" {
		errs = append(errs, errors.New("parked keys: a topic and a group are needed to name their topics"))
	}
	if len(o.Delays) == 0 {
		o.Delays = retry.DefaultParkDelays()
	}
	o.Delays = slices.Compact(slices.Sorted(slices.Values(o.Delays)))
	if o.Delays[0] <= 0 {
		errs = append(errs, fmt.Errorf("retry.park_delays: %s: want more than 0s", o.Delays[0]))
	}
	if o.Window == 0 {
		o.Window = DefaultWindow
	}
	if o.WindowBytes == 0 {
		o.WindowBytes = DefaultWindowBytes
	}
	if o.TrimEvery == 0 {
		o.TrimEvery = DefaultTrimEvery
	}
	if o.Window < 0 || o.WindowBytes < 0 || o.TrimEvery < 0 {
		errs = append(errs, errors.New("parked keys: a negative bound or time makes no sense"))
	}
	if o.Parse == nil {
		o.Parse = func([]byte) (*event.Batch, error) { return nil, errors.New("records of this topic are not known here") }
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, errors.Join(errs...)
}

// Store keeps parked keys and dead letters in topics.
type Store struct {
	client  *broker.Client
	o       Options
	names   broker.Names
	dead    string // the topic of dead letters
	metrics *metrics

	// mu guards what follows. It is held for memory only, never while waiting.
	mu      sync.Mutex
	lastID  uint64
	ids     map[uint64]*item
	windows []*window
	unread  map[string]error // partitions that cannot be read for longer, and why
	letters int              // live dead letters, as [Store.Run] knows
	counted bool             // it has read them
	tailing error            // why it knows no better; nil while all is well
}

var _ retry.Store = (*Store)(nil)

// New returns a store. It does not connect: the topics must exist when a method is called.
func New(c *broker.Client, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{client: c, o: o, names: broker.Names{Topic: o.Topic}, ids: map[uint64]*item{}, unread: map[string]error{}}
	s.dead = s.names.DeadLetters(o.Group)
	s.metrics = newMetrics(s)
	if err := s.metrics.register(o.Registerer); err != nil {
		return nil, fmt.Errorf("parked keys: metrics: %w", err)
	}
	return s, nil
}

// Topics returns the retry topics of the delays, the shortest first: what a member of the group must be assigned and
// [Store.Serve]. See [Store.Former] for those of delays that are configured no more.
func (s *Store) Topics() []string {
	out := make([]string, len(s.o.Delays))
	for i, d := range s.o.Delays {
		out[i] = s.names.Retry(s.o.Group, d)
	}
	return out
}

// Former returns which of all topics are retry topics of the group whose delay is not configured any more. What is
// parked there would be forgotten, so they are to be assigned and served like the others until they are deleted.
func (s *Store) Former(all []string) []string {
	var out []string
	ours := s.Topics()
	for _, t := range all {
		if s.isRetry(t) && !slices.Contains(ours, t) {
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return out
}

// isRetry reports whether a topic is one of parked keys of this group, whatever its delay.
func (s *Store) isRetry(topic string) bool {
	// A name ends with its delay, so what stands before that is the name of the delay 1s without its end.
	prefix := strings.TrimSuffix(s.names.Retry(s.o.Group, time.Second), "1s")
	delay, ok := strings.CutPrefix(topic, prefix)
	if !ok {
		return false
	}
	d, err := time.ParseDuration(delay)
	return err == nil && d > 0
}

// route returns the topic of an entry: the one whose delay is nearest to its wait, or that of the dead letters.
//
// Nearest, and not the longest that is no longer: Due is reckoned a moment before the entry comes here, so that a wait
// of a minute is always a little less than one. An entry that waits less than its topic's delay is not late for it:
// the window is offered by Due, not by order. Only after a full window it is tried up to the delay later.
func (s *Store) route(e *retry.Entry, now time.Time) string {
	if e.Due.IsZero() {
		return s.dead
	}
	wait, best := e.Due.Sub(now), s.o.Delays[0]
	for _, d := range s.o.Delays[1:] {
		if (d - wait).Abs() < (best - wait).Abs() {
			best = d
		}
	}
	return s.names.Retry(s.o.Group, best)
}

// Held returns what the store holds from memory. It fails, with what was known last, while the dead letters cannot
// be read.
func (s *Store) Held() (retry.Held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := retry.Held{DeadLetters: s.letters, Counted: s.counted}
	for _, w := range s.windows {
		u.Parked += w.parked()
	}
	return u, s.tailing
}

// Advice says what to do when the store fails for longer. Errors say the rest.
func (s *Store) Advice() string {
	return "look at the brokers of eventlog.kafka, and at the topics " +
		strings.TrimSuffix(s.names.Retry(s.o.Group, time.Second), "1s") + "* and " + s.dead
}
