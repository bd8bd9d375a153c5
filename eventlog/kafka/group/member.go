package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// The defaults of [Options].
const (
	DefaultSession = 10 * time.Second
	DefaultDrain   = 3 * time.Second
)

// Options configure a [Member]. The zero value of an optional field is the default that it names.
type Options struct {
	// ID is the consumer group's. Required.
	ID string
	// Topics are those whose partitions this member takes its share of. They must exist. Required.
	Topics []string
	// Session is how long the brokers wait for a heartbeat before they give a member's partitions to others; two
	// heartbeats are sent each second, or five in a session if that is more often. Default 10 s. The brokers allow 6 s
	// to 30 min (group.min.session.timeout.ms, group.max.session.timeout.ms).
	Session time.Duration
	// Drain is how long the handles may take to return when a generation ends, the last commit included. At most
	// half a session, since no heartbeats are sent meanwhile. Default 3 s, or three tenths of a shorter session.
	Drain time.Duration
	// Keep lets the handles go on while a generation ends and the next one begins, with the partitions that it gives us
	// again. It is for work that may be done twice: until this member hears which of its partitions are somebody
	// else's, two work on them, for two sessions at the most after the generation has ended.
	Keep bool
	// On returns the name of the Redis on which all was done that is committed, but for what is in doubt: see
	// [broker.WorkedOn]; "": it is not known. It must not block. Default: it is never known.
	On func() string
	// Generation is called when a generation begins, with the partitions of each topic that this member was given: none
	// when there are more members than partitions. It must not block, nor change them. Default: nobody is told.
	Generation func(assigned map[string][]int)
	// Log takes changes of state. Default slog.Default.
	Log *slog.Logger
}

// Handle works on a partition until ctx ends. An error ends the member's [Member.Run]; one that is the context's does
// not. A handle that returns nil before ctx ends leaves its partition to rest; it is this member's all the same.
type Handle func(ctx context.Context, c *Assignment) error

// Member is a member of a consumer group.
type Member struct {
	client   *broker.Client
	o        Options
	balancer balancer
}

// New returns a member, which joins the group when it runs.
func New(c *broker.Client, o Options) (*Member, error) {
	if o.Session == 0 {
		o.Session = DefaultSession
	}
	if o.Drain == 0 {
		o.Drain = min(DefaultDrain, o.Session*3/10)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.On == nil {
		o.On = func() string { return "" }
	}
	if o.Generation == nil {
		o.Generation = func(map[string][]int) {}
	}
	var errs []error
	if o.ID == "" {
		errs = append(errs, errors.New("the group has no name"))
	}
	if len(o.Topics) == 0 {
		errs = append(errs, errors.New("there are no topics to share"))
	}
	if o.Session < time.Second {
		errs = append(errs, fmt.Errorf("a session of %s: at least 1s", o.Session))
	}
	if o.Drain < 0 || o.Drain > o.Session/2 {
		errs = append(errs, fmt.Errorf("a drain of %s: at most half of the session of %s", o.Drain, o.Session))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("kafka: group %q: %w", o.ID, err)
	}
	return &Member{client: c, o: o, balancer: balancer{log: o.Log}}, nil
}

// Run joins the group, calls handle for each partition that this member is given, each on a goroutine of its own, and
// joins again after each rebalance and each loss of the brokers. It leaves the group and returns nil when ctx ends, or
// the first error of a handle, once every handle has returned. One Run at a time.
func (m *Member) Run(ctx context.Context, handle Handle) error {
	joined, err := m.client.Group(kafka.ConsumerGroupConfig{
		ID: m.o.ID, Topics: m.o.Topics, GroupBalancers: []kafka.GroupBalancer{&m.balancer},
		SessionTimeout: m.o.Session, RebalanceTimeout: m.o.Session,
		// The answer to a heartbeat is how a member hears of a rebalance, for which all others wait, and a standby that
		// its leader has left. More of them would be heard of a little sooner, and are most of what a process costs at
		// rest.
		HeartbeatInterval: min(heartbeat, m.o.Session/5),
		// Half a session without an answer ends a generation here; with a heartbeat and the drain before and after,
		// that is within the session, so before the brokers give the partitions to somebody else.
		Timeout:          min(5*time.Second, m.o.Session/2),
		JoinGroupBackoff: backoff, WatchPartitionChanges: true, StartOffset: kafka.FirstOffset,
	})
	if err != nil {
		return fmt.Errorf("kafka: group %s: %w", m.o.ID, err)
	}
	r := m.newRun(joined, handle)
	err = r.run(ctx)
	_ = joined.Close() // leaves the group; it has no error to return
	r.hooks.Wait()
	r.ghosts.stop()
	return err
}

// heartbeat is how often a member says that it is there.
const heartbeat = 500 * time.Millisecond

// backoff is the pause after an attempt to join that failed, and what a generation takes at the least.
const backoff = 500 * time.Millisecond

// generations is where the generations of the group come from, and what joining fails with. [kafka.ConsumerGroup] is
// one.
type generations interface {
	Next(ctx context.Context) (*kafka.Generation, error)
}

// run is one call of [Member.Run].
type run struct {
	*Member
	joined  generations
	handle  Handle
	commits *commits
	hooks   sync.WaitGroup // the goroutines of [generation.release]
	ghosts  *ghosts

	member string // the member id of the last generation; "": joining has failed since
	number int32  // the last generation's
	ended  time.Time
	held   map[topicPartition]held
	last   map[topicPartition]<-chan struct{} // closed when the last handle of a partition has returned

	working sync.WaitGroup // the handles
	once    sync.Once
	first   error  // of a handle; to be read when all have returned
	stop    func() // ends all

	joining retry.Loop // paced by the library
	short   int        // generations in a row that ended at once
}

func (m *Member) newRun(joined generations, handle Handle) *run {
	r := &run{
		Member: m, joined: joined, handle: handle, ghosts: newGhosts(m), held: map[topicPartition]held{},
		last: map[topicPartition]<-chan struct{}{},
	}
	r.joining.Reporter = broker.Reporter(func(err error) {
		r.o.Log.Warn("the consumer group cannot be joined for now; trying again", "group", r.o.ID, "error", err)
	}, nil)
	r.commits = r.newCommits()
	return r
}

// run returns once ctx has ended or a handle has failed, every handle has returned, and what they have finished is
// committed.
func (r *run) run(ctx context.Context) error {
	after := context.WithoutCancel(ctx)
	ctx, r.stop = context.WithCancel(ctx)
	defer r.stop()
	cctx, stop := context.WithCancel(after)
	var committing sync.WaitGroup
	committing.Go(func() { r.commits.run(cctx) })
	r.loop(ctx)
	r.windUp(after)
	stop()
	committing.Wait()
	return r.first
}

func (r *run) loop(ctx context.Context) {
	for {
		gen, err := r.next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.failed(ctx, err)
			continue
		}
		began := time.Now()
		r.generation(ctx, gen)
		if err := r.pace(ctx, time.Since(began)); err != nil {
			return
		}
	}
}

// next waits for the next generation. What is kept meanwhile is given up two sessions after the last one ended: one for
// those that do not join, and one to join.
func (r *run) next(ctx context.Context) (*kafka.Generation, error) {
	if len(r.held) > 0 {
		bounded, cancel := context.WithDeadline(ctx, r.ended.Add(2*r.o.Session))
		defer cancel()
		gen, err := r.joined.Next(bounded)
		if err == nil || bounded.Err() == nil || !errors.Is(err, bounded.Err()) {
			return gen, err
		}
		r.revoke(all)
	}
	return r.joined.Next(ctx)
}

// failed takes note that joining failed. The library tries again by itself, as a new member: it forgets its member id,
// and when the coordinator is away cannot leave as the old one either. That ghost would keep its share of the
// partitions, and the rebalance waiting, until its session ends, so it is sent away as soon as somebody answers.
func (r *run) failed(ctx context.Context, err error) {
	if errors.Is(err, kafka.RebalanceInProgress) {
		return // the library keeps the id and joins the next generation
	}
	if r.member != "" {
		r.ghosts.sendAway(r.member)
		r.member = ""
	}
	err = r.explain(ctx, "join", err)
	if broker.Classify(err) != broker.Transient {
		r.revoke(all) // it is thrown out, or not let in: others have its partitions, or will
	}
	r.joining.Failed(err)
}

// explain makes a sentence of an error of the group's coordinator.
func (m *Member) explain(ctx context.Context, what string, err error) error {
	return m.client.Explain(ctx, what+" consumer group "+m.o.ID, err,
		broker.Need{Operation: "Read", Resource: "group", Name: m.o.ID})
}

// calm is how many generations in a row may end at once before the next one waits: as many come when processes are
// started one after the other, and while a member waits the others wait for it.
const calm = 4

// pace waits a little after generations that ended at once, one after the other: the library would join again without
// a pause, for instance while a topic is missing, and each time make all other members join again too.
func (r *run) pace(ctx context.Context, took time.Duration) error {
	if took >= backoff {
		r.short = 0
		return ctx.Err()
	}
	if r.short = min(r.short+1, calm+4); r.short <= calm {
		return ctx.Err()
	}
	return retry.Sleep(ctx, backoff<<(r.short-calm-1)) // to 4 s; heartbeats go on meanwhile
}
