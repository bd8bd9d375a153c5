package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/retry"
)

// every is how long commits are gathered before they are sent.
const every = 500 * time.Millisecond

// commits gathers what the handles commit, and sends it for the generation that this member is part of. An assignment
// may outlive its generation; what could not be sent for that one is sent for the next.
type commits struct {
	client  *kafka.Client
	group   string
	timeout time.Duration // of one request
	log     *slog.Logger
	explain func(context.Context, error) error
	on      func() string

	mu         sync.Mutex
	generation int
	member     string
	// the brokers say that this member is not part of the generation any more: nothing is sent until the next
	out bool
	// room is how much metadata the brokers take, as far as is known; 0: as much as there is.
	room        int
	assignments map[*Assignment]*progress
	more        chan struct{} // has room for one; full: there is something to send

	// sending is held while a request is under way: of two, that with the lower offset might arrive last, and the
	// brokers would take it.
	sending  chan struct{}
	attempts retry.Loop // paced by every; belongs to the holder of sending
}

func (r *run) newCommits() *commits {
	c := &commits{
		client: r.client.Kafka(), group: r.o.ID, timeout: r.o.Session / 5, log: r.o.Log, on: r.o.On,
		explain:     func(ctx context.Context, err error) error { return r.explain(ctx, "commit the offsets of", err) },
		assignments: map[*Assignment]*progress{}, more: make(chan struct{}, 1), sending: make(chan struct{}, 1),
	}
	c.attempts.Reporter = c.newReporter()
	return c
}

func (c *commits) newReporter() *retry.Reporter {
	return broker.Reporter(
		func(err error) {
			c.log.Warn("offsets cannot be committed for now; what is finished may be done again", "group", c.group, "error", err)
		},
		func(time.Duration) { c.log.Info("offsets are committed again", "group", c.group) },
	)
}

// progress is how far an assignment has come.
type progress struct {
	offset   int64
	metadata string
	on       broker.WorkedOn
	ours     bool // on is what we work on; else it is what the owner before has worked on
	sent     bool // the brokers have it
}

// add takes the commits of an assignment from now on.
func (c *commits) add(assignment *Assignment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	assignment.commits = c
	c.assignments[assignment] = &progress{
		offset: assignment.Offset, metadata: assignment.Metadata, on: assignment.On, sent: true,
	}
}

// forget takes none of an assignment any more.
func (c *commits) forget(assignment *Assignment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.assignments, assignment)
}

// begin sends for another generation from now on, of which all assignments are part that are not forgotten.
func (c *commits) begin(generation int, member string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation, c.member, c.out = generation, member, false
	c.raise()
}

// raise has run look for what to send. The caller holds the lock.
func (c *commits) raise() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

func (c *commits) set(assignment *Assignment, offset int64, metadata string, rewind bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.assignments[assignment]
	if p == nil || offset < 0 || offset <= p.offset && !rewind {
		return
	}
	p.offset, p.metadata, p.sent = offset, metadata, false
	c.raise()
}

// takeOver has the commits of an assignment say what we work on.
func (c *commits) takeOver(assignment *Assignment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.assignments[assignment]
	if p == nil {
		return
	}
	p.ours = true
	if c.moves(p, c.on()) {
		c.raise()
	}
}

// moves reports whether a commit has to say another Redis than it did.
func (*commits) moves(p *progress, on string) bool {
	return p.ours && on != "" && on != p.on.Redis && p.offset >= 0
}

// run sends what was gathered, until ctx ends. While there is nothing to send it sleeps: a process at rest is not
// woken.
//
// Nothing is left behind: set raises more after it has changed the progress. If this looks for what to send before the
// change, it takes more afterwards, for that is still raised.
func (c *commits) run(ctx context.Context) {
	t := time.NewTimer(every)
	t.Stop()
	defer t.Stop()
	more := c.more
	for {
		select {
		case <-ctx.Done():
			return
		case <-more:
			more = nil // what else comes until t goes with it, and does not put it off
			t.Reset(every)
		case <-t.C:
			if c.send(ctx) {
				more = c.more
			} else {
				t.Reset(every)
			}
		}
	}
}

// flush sends until everything is committed or cannot be any more, or ctx ends. Nothing can be committed after it.
func (c *commits) flush(ctx context.Context) {
	defer func() {
		c.mu.Lock()
		clear(c.assignments)
		c.mu.Unlock()
	}()
	for !c.send(ctx) && retry.Sleep(ctx, every/5) == nil {
	}
}

// send commits what is not committed yet, in one attempt, and reports whether nothing of it must be sent again.
func (c *commits) send(ctx context.Context) bool {
	select {
	case c.sending <- struct{}{}:
		defer func() { <-c.sending }()
	case <-ctx.Done():
		return false
	}
	req, sent := c.request()
	if len(sent) == 0 {
		return true
	}
	attempt, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	res, err := c.client.OffsetCommit(attempt, req)
	if err == nil {
		err = c.settle(req, res, sent)
	}
	if err == nil {
		c.attempts.Succeeded()
		return true
	}
	if err = c.explain(ctx, err); ctx.Err() == nil {
		c.attempts.Failed(err)
	}
	return false
}

// attempt is an assignment's progress as it was sent.
type attempt struct {
	assignment *Assignment
	offset     int64
	metadata   string
	on         string
	size       int // of the metadata as it was sent
}

// noMetadata is a room for none.
const noMetadata = -1

// fit returns the metadata of a commit as far as there is room for it: whole parts, of which the first ones count most.
// The first one says whose the commit is, and comes before what it was worked on.
func fit(metadata string, on broker.WorkedOn, room int) string {
	if room == 0 {
		return on.AddTo(metadata)
	}
	parts := strings.Split(metadata, ";")
	for n := len(parts); n > 0; n-- {
		if text := on.AddTo(strings.Join(parts[:n], ";")); len(text) <= room {
			return text
		}
	}
	if on.Redis != "" {
		return fit(metadata, broker.WorkedOn{}, room)
	}
	return ""
}

func (c *commits) request() (*kafka.OffsetCommitRequest, map[string]map[int]attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	req := &kafka.OffsetCommitRequest{
		GroupID: c.group, GenerationID: c.generation, MemberID: c.member, Topics: map[string][]kafka.OffsetCommit{},
	}
	sent := map[string]map[int]attempt{}
	// It is asked after all that is sent was finished: what is done from now on may be done elsewhere.
	on := broker.WorkedOn{Redis: c.on(), At: time.Now()}
	for assignment, p := range c.assignments {
		if p.sent && c.moves(p, on.Redis) {
			p.sent = false
		}
		if p.sent || c.out {
			continue
		}
		if p.ours && on.Redis != "" {
			p.on = on
		}
		o := kafka.OffsetCommit{
			Partition: assignment.Partition, Offset: p.offset, Metadata: fit(p.metadata, p.on, c.room),
		}
		req.Topics[assignment.Topic] = append(req.Topics[assignment.Topic], o)
		if sent[assignment.Topic] == nil {
			sent[assignment.Topic] = map[int]attempt{}
		}
		sent[assignment.Topic][assignment.Partition] = attempt{
			assignment, p.offset, p.metadata, p.on.Redis, len(o.Metadata),
		}
	}
	return req, sent
}

// settle takes the brokers' answer for each partition, and returns an error when some of it must be sent again.
func (c *commits) settle(req *kafka.OffsetCommitRequest, res *kafka.OffsetCommitResponse,
	sent map[string]map[int]attempt,
) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var failed error
	for topic, partitions := range res.Topics {
		for _, r := range partitions {
			a, ok := sent[topic][r.Partition]
			if !ok {
				continue
			}
			delete(sent[topic], r.Partition)
			p := c.assignments[a.assignment]
			switch {
			case lost(r.Error) && req.GenerationID == c.generation && req.MemberID == c.member:
				// Thrown out of the group, or of a generation that is over: the partitions may be somebody else's.
				c.out = true
				return nil
			case p == nil: // forgotten while the request was under way
			case r.Error == nil:
				// It may have moved on while the request was under way, or have more to say of the same offset.
				p.sent = p.offset == a.offset && p.metadata == a.metadata && p.on.Redis == a.on
			case errors.Is(r.Error, kafka.OffsetMetadataTooLarge) && a.size > 0:
				c.shorten(a.size)
				failed = r.Error
			default:
				failed = fmt.Errorf("%s/%d at %d: %w", topic, r.Partition, a.offset, r.Error)
			}
		}
	}
	for topic, rest := range sent {
		for partition := range rest {
			return fmt.Errorf("%s/%d: the brokers' answer does not name it", topic, partition)
		}
	}
	return failed
}

// shorten takes note that metadata of a size is more than the brokers take. The caller holds the lock.
func (c *commits) shorten(refused int) {
	if c.room == 0 {
		c.log.Warn("the brokers do not take all metadata of a commit, and what does not fit is left out: it may go unnoticed "+
			"then that records were lost, or that redis was another one for a while; set offset.metadata.max.bytes=4096 on all "+
			"brokers, and restart the invalidators", "group", c.group, "bytes", refused)
	}
	room := refused * 3 / 4
	if room == 0 {
		room = noMetadata
	}
	if c.room == 0 || room < c.room {
		c.room = room
	}
}

// lost reports whether an answer means that this member is not part of the generation any more.
// Source: Kafka protocol guide, error codes 22, 25, 82.
func lost(err error) bool {
	return errors.Is(err, kafka.IllegalGeneration) || errors.Is(err, kafka.UnknownMemberId) ||
		errors.Is(err, kafka.FencedInstanceID)
}
