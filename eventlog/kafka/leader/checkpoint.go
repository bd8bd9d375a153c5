package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog/checkpoint"
	"github.com/freshet/freshet/eventlog/kafka/broker"
	"github.com/freshet/freshet/eventlog/stash"
	"github.com/freshet/freshet/retry"
)

// Checkpoint is the checkpoint of a source while this process is its leader.
//
// Begin, Set, Move, Raise, SetMappings and what stashes keys try again while the brokers are away, for as long as this
// process leads, since their callers cannot go on without. Save makes one attempt: the saver repeats it, and tells.
// Once another reader has taken over, everything that writes fails with [ErrDeposed].
type Checkpoint struct {
	*checkpoint.Checkpoint
	reign *reign
	stash *stash.Stash
	named atomic.Uint64 // prepared transactions, see stashRecords

	ctx     context.Context // ends when this process leads no more
	log     *slog.Logger
	metrics *metrics
}

// storage is the checkpoint's own. It implements [checkpoint.Storage].
type storage struct{ c *Checkpoint }

// WritePosition implements [checkpoint.Storage].
func (s storage) WritePosition(w checkpoint.Write) error {
	began := time.Now()
	passed := s.c.stash.Passed(&w)
	err := s.c.reign.save(w, passed)
	if err == nil {
		err = s.drop(passed)
	}
	s.c.metrics.saved(time.Since(began), err)
	return s.explain("save the position", err)
}

// drop removes the prepared transactions whose outcome is before a position that is durable.
func (s storage) drop(passed []*stash.Prepared) error {
	if err := s.c.reign.drop(passed); err != nil {
		return err
	}
	s.c.reign.removed()
	s.c.stash.Forget(passed)
	return nil
}

// WriteMappings implements [checkpoint.Storage].
func (s storage) WriteMappings(hash string) error {
	return s.explain("save the mappings' hash", s.c.reign.rename(hash))
}

func (s storage) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("checkpoint topic %s: %s: %w", s.c.reign.name(), what, err)
}

// open makes the checkpoint of a term that was taken.
func open(ctx context.Context, c *claimed, o *Options, m *metrics) (*Checkpoint, error) {
	loaded, err := c.load(ctx, &c.position)
	if err != nil {
		return nil, err
	}
	cp := &Checkpoint{ctx: ctx, log: o.Log, metrics: m}
	cp.stash = newStash(cp, o, c.prepared(&c.position))
	cp.reign = newReign(c, func(key string) bool {
		name, _, _ := chunkOf(key)
		return cp.stash.Has(name)
	})
	cp.Checkpoint = checkpoint.New("checkpoint topic "+c.name(), storage{cp}, loaded)
	return cp, nil
}

// Stash returns the stash of prepared XA transactions.
func (c *Checkpoint) Stash() *stash.Stash { return c.stash }

// Term returns the leader's term.
func (c *Checkpoint) Term() uint64 { return c.reign.term }

// Heads returns the chain heads: the highest version of the source that is known to be in each partition of the topic
// of invalidations.
func (c *Checkpoint) Heads() map[int]event.Version {
	c.reign.mu.Lock()
	defer c.reign.mu.Unlock()
	return c.reign.last.heads()
}

// FollowHeads lets each save note the chain heads that sample returns then. It is called by one goroutine at a time,
// and must not block.
func (c *Checkpoint) FollowHeads(sample func() map[int]event.Version) {
	c.reign.mu.Lock()
	defer c.reign.mu.Unlock()
	c.reign.heads = sample
}

// Begin is [checkpoint.Checkpoint.Begin], see [Checkpoint].
func (c *Checkpoint) Begin(p event.Position) error {
	return c.insist("begin", func() error { return c.Checkpoint.Begin(p) })
}

// Set is [checkpoint.Checkpoint.Set], see [Checkpoint].
func (c *Checkpoint) Set(p event.Position) error {
	return c.insist("set the position", func() error { return c.Checkpoint.Set(p) })
}

// Move is [checkpoint.Checkpoint.Move], see [Checkpoint].
func (c *Checkpoint) Move(p event.Position) error {
	return c.insist("go on elsewhere", func() error { return c.Checkpoint.Move(p) })
}

// Raise is [checkpoint.Checkpoint.Raise], see [Checkpoint].
func (c *Checkpoint) Raise(server string, epoch uint32) error {
	return c.insist("raise the epoch", func() error { return c.Checkpoint.Raise(server, epoch) })
}

// SetMappings is [checkpoint.Checkpoint.SetMappings], see [Checkpoint].
func (c *Checkpoint) SetMappings(hash string) error {
	return c.insist("save the mappings' hash", func() error { return c.Checkpoint.SetMappings(hash) })
}

// insist repeats what fails because the brokers are away, until this process leads no more.
func (c *Checkpoint) insist(what string, f func() error) error {
	return insist(c.ctx, func(err error) {
		c.log.Warn("the checkpoint topic cannot be used for now; trying again", "source", c.reign.source, "operation", what,
			"error", err)
	}, f)
}

// insist repeats what fails because the brokers are away, until ctx ends, and reports it to waiting. Unlike
// [broker.Insist] it takes an error that is none of the brokers' for final.
func insist(ctx context.Context, waiting func(error), f func() error) error {
	loop := retry.Loop{
		Backoff: retry.Backoff{Max: 2 * time.Second}, Reporter: &retry.Reporter{Failed: waiting},
		Final: func(err error) bool { return !transient(err) },
	}
	return loop.Do(ctx, f)
}

// transient reports whether an error of the brokers passes by itself.
func transient(err error) bool {
	var e *broker.Error
	return errors.As(err, &e) && e.Class == broker.Transient
}
