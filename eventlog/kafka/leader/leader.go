package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/kafka/group"
	"github.com/freshet/freshet/eventlog/stash"
	"github.com/freshet/freshet/retry"
)

// DefaultWatch is the default of [Options].Watch.
const DefaultWatch = time.Second

// Options configure a [Leader]. The zero value of an optional field is the default that it names.
type Options struct {
	// Names are the topics'. Required.
	Names broker.Names
	// Source is the source's name. Required.
	Source string
	// Session is how long the brokers wait for a heartbeat before a standby takes over. Default
	// [group.DefaultSession]; the brokers allow 6 s to 30 min.
	Session time.Duration
	// Watch is how often a leader looks whether another has taken a higher term, besides at each save. Default 1 s.
	Watch time.Duration
	// MaxStashKeys and MaxStashBytes bound the keys of prepared XA transactions. Defaults 5 000 000 and 512 MiB.
	MaxStashKeys  int
	MaxStashBytes int64
	// Reporter reports attempts to take a term that fail; another follows. Default: they are logged.
	Reporter *retry.Reporter
	// Registerer takes the metrics; nil: they are registered nowhere.
	Registerer prometheus.Registerer
	// Log takes changes of state. Default slog.Default.
	Log *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	var errs []error
	if o.Names.Topic == "" {
		errs = append(errs, errors.New("no topic"))
	}
	if o.Source == "" {
		errs = append(errs, errors.New("no source"))
	}
	if o.Watch < 0 || o.MaxStashKeys < 0 || o.MaxStashBytes < 0 {
		errs = append(errs, errors.New("a negative bound or time makes no sense"))
	}
	if len(errs) > 0 {
		return o, fmt.Errorf("kafka: leader: %w", errors.Join(errs...))
	}
	o.Session = orDefault(o.Session, group.DefaultSession)
	o.Watch = orDefault(o.Watch, DefaultWatch)
	o.MaxStashKeys = orDefault(o.MaxStashKeys, stash.DefaultMaxKeys)
	o.MaxStashBytes = orDefault(o.MaxStashBytes, stash.DefaultMaxBytes)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Reporter == nil {
		o.Reporter = &retry.Reporter{Failed: func(err error) {
			o.Log.Warn("no term can be taken for now; trying again", "source", o.Source, "error", err)
		}}
	}
	return o, nil
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Why a leader stops leading, besides [ErrDeposed] and errRecreated.
var (
	errReassigned = errors.New("the consumer group has given the source to another reader")
	errCutOff     = errors.New("the consumer group has not been reached for longer than a session")
)

// Leader is one of the readers of a source, which leads or stands by.
type Leader struct {
	topic
	o       Options
	metrics *metrics
	taking  retry.Loop // of terms; one at a time

	held bool // this process has led with a position. It belongs to Run

	mu     sync.Mutex
	status Status
	seat   *seat // of the membership that is under way, or was; nil before the first
}

// Status is what an operator may want to know of a reader.
type Status struct {
	// Leading says whether this process leads.
	Leading bool
	// Standby says that it does not because the group has given the source to another reader, as far as was last heard.
	// Neither: it is joining, or cannot reach the brokers, and so does not know who leads.
	Standby bool
	// Term is the one that it leads in, or last did; 0 before the first.
	Term uint64
	// Since is when it became what it is.
	Since time.Time
	// Reason says why it leads no more; "" before the first loss.
	Reason string
}

// New returns a leader. It connects when it runs. The topics must exist by then.
func New(c *broker.Client, o Options) (*Leader, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Leader{topic: topic{client: c, names: o.Names, source: o.Source}, o: o, metrics: newMetrics()}
	if err := l.metrics.register(o.Registerer); err != nil {
		return nil, fmt.Errorf("kafka: leader: metrics: %w", err)
	}
	l.taking = retry.Loop{Backoff: retry.Backoff{Max: 2 * time.Second}, Reporter: o.Reporter, Final: cannotLead}
	l.status.Since = time.Now()
	return l, nil
}

// Status returns how this reader stands.
func (l *Leader) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	if l.seat != nil && !s.Leading {
		is, _, _ := l.seat.get()
		s.Standby = is == standby && !l.seat.missing.Load()
	}
	return s
}

// Leading reports whether this process leads.
func (l *Leader) Leading() bool { return l.Status().Leading }

// Run stands by, and calls lead whenever this process becomes the leader of the source, with the checkpoint of its new
// term. lead's context ends when the process leads no more, or when ctx ends; then lead is to finish what it has in
// flight and return: its last save counts if nobody has taken over yet. Run returns
//
//   - when ctx has ended: once lead has returned and the group is left, so that a standby takes over at once; with
//     lead's error,
//   - when lead returns by itself: with its error, which may be nil,
//   - when nobody can lead: a [*LostError], or [ErrNewer].
//
// One Run at a time.
func (l *Leader) Run(ctx context.Context, lead func(ctx context.Context, cp *Checkpoint) error) error {
	for {
		again, err := l.member(ctx, lead)
		if !again || err != nil {
			return err
		}
	}
}

// member is one membership in the group: until the end of all, or until this process is to join again.
func (l *Leader) member(ctx context.Context, lead func(context.Context, *Checkpoint) error) (again bool, err error) {
	s := newSeat()
	l.mu.Lock()
	l.seat = s
	l.mu.Unlock()
	m, err := group.New(l.client, group.Options{
		ID: l.names.ReaderGroup(l.source), Topics: []string{l.name()}, Session: l.o.Session,
		Generation: s.generation, Log: l.o.Log,
	})
	if err != nil {
		return false, err
	}
	// The membership outlives ctx: it keeps the partition ours while lead finishes.
	joined, leave := context.WithCancel(context.WithoutCancel(ctx))
	left := make(chan error, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { l.watchTopic(joined, s) })
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		err := m.Run(joined, s.handle)
		stop(err) // nothing to wait for any more
		left <- err
	}()
	again, err = l.stand(ctx, s, lead)
	leave()
	return again, errors.Join(err, <-left)
}

// stand waits for the seat and leads while it has it, again and again. It returns true if this process must leave the
// group and join it again before it may lead again.
func (l *Leader) stand(ctx context.Context, s *seat, lead func(context.Context, *Checkpoint) error) (again bool,
	err error,
) {
	for s.taken(ctx) {
		lost, err := l.lead(ctx, s, lead)
		if lost == nil {
			return false, err
		}
		if l.Leading() {
			l.metrics.losses.WithLabelValues(reasonOf(lost)).Inc()
		}
		l.note(Status{Since: time.Now(), Term: l.Status().Term, Reason: lost.Error()})
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrDeposed) {
			l.o.Log.Warn("what was led ended with an error", "source", l.source, "error", err)
		}
		// Somebody else has taken a higher term although the group gave us the partition. One of us may be wrong about
		// the group, and if both claimed again, both would go on to depose each other. So who was deposed leads again
		// only in a generation that it has joined since.
		if errors.Is(lost, ErrDeposed) || errors.Is(lost, errRecreated) {
			return true, nil
		}
	}
	return false, nil
}

// lead takes a term and calls lead. It returns why the seat was lost, nil if it was not, and lead's error.
func (l *Leader) lead(ctx context.Context, s *seat, lead func(context.Context, *Checkpoint) error) (lost, err error) {
	lctx, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop(nil)
	watching.Go(func() {
		if err := s.lost(lctx, l.o.Session); err != nil {
			stop(err)
		}
	})
	cp, err := l.take(lctx)
	switch {
	case err == nil:
		l.note(Status{Leading: true, Term: cp.Term(), Since: time.Now()})
		watching.Go(func() { stop(l.watch(lctx, cp.reign)) })
		err = lead(lctx, cp)
		at := cp.Durable()
		l.held = l.held || !at.IsZero()
	case lctx.Err() != nil:
		err = nil // there was no time for it
	}
	if lost = context.Cause(lctx); lost == nil {
		lost = overBy(err)
	}
	if ctx.Err() != nil || lost == nil {
		l.note(Status{Since: time.Now(), Term: l.Status().Term})
		if overBy(err) != nil {
			err = nil
		}
		return nil, err
	}
	return lost, err
}

// overBy returns what an error of lead says about why the reign is over; nil if nothing. A write is refused as soon as
// another leader is met, which may be before the next look.
func overBy(err error) error {
	for _, over := range []error{ErrDeposed, errRecreated} {
		if errors.Is(err, over) {
			return over
		}
	}
	return nil
}

// take takes a term, trying for as long as ctx lasts.
func (l *Leader) take(ctx context.Context) (cp *Checkpoint, err error) {
	err = l.taking.Do(ctx, func() (err error) {
		cp, err = l.attempt(ctx)
		return err
	})
	return cp, err
}

// cannotLead reports whether nobody can take a term until somebody has decided.
func cannotLead(err error) bool {
	var lost *LostError
	return errors.As(err, &lost) || errors.Is(err, ErrNewer)
}

func (l *Leader) attempt(ctx context.Context) (*Checkpoint, error) {
	t := l.topic
	t.held = l.held
	c, err := t.take(ctx)
	if err != nil {
		return nil, err
	}
	return open(ctx, c, &l.o, l.metrics)
}

// watch looks whether another leader has written, until ctx ends; it returns why the reign is over.
func (l *Leader) watch(ctx context.Context, r *reign) error {
	t := time.NewTimer(retry.ToBeat(l.o.Watch))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.ended: // a write has met the successor
			return r.watch(ctx)
		case <-t.C:
			t.Reset(retry.ToBeat(l.o.Watch))
			// Brokers that are away end no reign: whether we are cut off, the group tells.
			if err := r.watch(ctx); errors.Is(err, ErrDeposed) || errors.Is(err, errRecreated) {
				return err
			}
		}
	}
}

// note takes note of a change.
func (l *Leader) note(s Status) {
	l.mu.Lock()
	was := l.status
	l.status = s
	l.mu.Unlock()
	l.metrics.term.Set(float64(s.Term))
	switch {
	case s.Leading:
		l.metrics.leading.Set(1)
		l.metrics.terms.Inc()
		l.o.Log.Info("leading the source", "source", l.source, "term", s.Term)
	case was.Leading:
		l.metrics.leading.Set(0)
		l.o.Log.Info("leading the source no more", "source", l.source, "term", was.Term, "reason", s.Reason)
	}
}
