package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/freshet/freshet/canal"
	"github.com/freshet/freshet/canal/walk"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router"
)

// walkRun is a walk as a partition of the engine.
type walkRun struct {
	*walking
	*walked
	walk  *walk.Walk
	route *router.Router

	// server is the one that the session is with, and wanted the one that the marks are about.
	server, wanted string
	pace           walkPace
	// chunk are the batches of the present one that are still to be handed out; place is where it ends, and last says
	// that none follows.
	chunk []*event.Batch
	place walk.Place
	last  bool
	// reading ends once nobody waits for the walk, or the engine stops: the session lives until then. end ends it.
	reading context.Context
	end     context.CancelFunc
	// err is why nothing more comes.
	err error

	issued, done int
	ended        bool
}

// walkToken is the ordinal of a batch. place is where the walk is once it is finished; the batches of a chunk before
// its last one have none.
type walkToken struct {
	eventlog.Issued
	n     int
	place *walk.Place
}

// ID implements [eventlog.Partition].
func (*walkRun) ID() int { return walkPartition }

// Commit implements [eventlog.Partition].
func (p *walkRun) Commit(of eventlog.Token) {
	t := of.(walkToken)
	p.done = t.n
	if t.place != nil {
		p.walked.mu.Lock()
		p.walked.done = *t.place
		p.walked.mu.Unlock()
	}
}

// finished reports whether all was handed out and is finished. It is asked once the engine has returned.
func (p *walkRun) finished() bool { return p.ended && p.done == p.issued }

// Fetch implements [eventlog.Partition].
func (p *walkRun) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	if err := p.fill(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, nil, err
		}
		p.err, p.chunk = err, nil
	}
	if len(p.chunk) == 0 {
		p.ended = p.err == nil
		return nil, nil, io.EOF
	}
	b := p.chunk[0]
	if err := p.take(ctx, b.Len()); err != nil {
		return nil, nil, err
	}
	p.chunk = p.chunk[1:]
	p.issued++
	t := walkToken{n: p.issued}
	if len(p.chunk) == 0 {
		place := p.place
		t.place = &place
	}
	p.keys.Add(int64(b.Len()))
	p.metrics.keys.WithLabelValues(p.what()).Add(float64(b.Len()))
	return b, t, nil
}

// fill reads chunks until there is something to hand out, or nothing is left. It fails once the walk is not wanted.
func (p *walkRun) fill(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.end)()
	for p.reading.Err() == nil {
		if len(p.chunk) > 0 || p.last {
			return nil
		}
		if err := p.next(p.reading); err != nil && p.reading.Err() == nil {
			return err
		}
	}
	return cmp.Or(ctx.Err(), context.Cause(p.reading))
}

// next reads the next chunk. It tries until the source answers, and fails with ctx, or if it never will.
func (p *walkRun) next(ctx context.Context) error {
	loop := retry.Loop{Backoff: retry.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}}
	for refused := 0; ; {
		if err := p.rest(ctx); err != nil {
			return err
		}
		err := p.read(ctx)
		if err == nil {
			p.trouble.Store(nil)
			return nil
		}
		var never walk.Refusal
		if errors.As(err, &never) {
			return err
		}
		if refused++; !walk.Refused(err) {
			refused = 0
		} else if refused == refusals {
			return walk.Refusal{Why: err}
		}
		p.pace.failed()
		text := err.Error()
		p.trouble.Store(&text)
		if loop.Wait(ctx, err) != nil {
			return ctx.Err()
		}
	}
}

// rest waits until the source may be asked again, and until what was read has had its time at the rate.
func (p *walkRun) rest(ctx context.Context) error {
	if err := p.take(ctx, 0); err != nil {
		return err
	}
	p.pace.handedOut()
	return retry.Sleep(ctx, time.Until(p.pace.rested))
}

// read reads a chunk.
func (p *walkRun) read(ctx context.Context) error {
	source := p.config.Source.Name
	asked := time.Now() // first: what the mark says was so before
	m, marked := p.newest(source)
	switch {
	case !marked:
		return fmt.Errorf("the reader of source %s has not said yet what everybody can see", source)
	case m.Server == "":
		return fmt.Errorf("the reader of source %s does not say which server it reads: upgrade the readers", source)
	case m.Version.Compare(p.least) < 0:
		return fmt.Errorf("the reader of source %s has not come as far again, or was not heard to have, as keys may have been "+
			"written for", source)
	case p.server != "" && p.server != m.Server:
		p.walk.Close()
	}
	p.wanted = m.Server
	c := chunk{
		route: p.route, tx: event.Tx{}, version: m.Version,
		like: event.Batch{Source: source, Term: m.Term, Leftover: p.Forget, Read: asked},
	}
	if p.about.Load() == 0 {
		p.about.Store(p.walk.About(ctx))
	}
	got, err := p.walk.Chunk(ctx, walk.Size{Rows: p.pace.next(), Bytes: chunkBytes}, c.row)
	took := time.Since(asked)
	if err != nil {
		return err
	}
	p.route.Publish()
	c.hand()
	if err := p.mayHand(ctx, len(c.batches), got.Place, m.Version); err != nil {
		return err
	}
	p.chunk, p.place, p.last = c.batches, got.Place, got.Last
	p.walked.rows.Add(int64(got.Rows))
	p.walked.passed.Add(int64(got.Passed))
	p.metrics.rows.WithLabelValues(p.what()).Add(float64(got.Rows))
	p.pace.read(took, &got)
	return nil
}

// mayHand waits until it is kept that the keys of a chunk may be begun. It fails only with ctx.
func (p *walkRun) mayHand(ctx context.Context, batches int, to walk.Place, v event.Version) error {
	if p.handing == nil || batches == 0 {
		return nil
	}
	p.hands(to, v)
	loop := retry.Loop{Backoff: retry.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}}
	return loop.Do(ctx, func() error {
		err := p.handing(ctx)
		if err != nil {
			text := fmt.Sprintf("it cannot be kept which keys are about to be written: %v", err)
			p.trouble.Store(&text)
		}
		return err
	})
}

// connect opens a session with the server that is read: the marks are about no other.
func (p *walkRun) connect(ctx context.Context, o canal.Options) (walk.Conn, func(), error) {
	conn, server, closes, err := canal.Session(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if server != p.wanted {
		closes()
		o.Servers.Lost()
		return nil, nil, fmt.Errorf("%s is server %s, and the reader of source %s reads server %s: source.addresses must name "+
			"that one", o.Servers.Current(), server, p.config.Source.Name, p.wanted)
	}
	p.server = server
	return conn, closes, nil
}

// chunk makes batches of rows.
type chunk struct {
	route   *router.Router
	tx      event.Tx
	version event.Version
	// like is what all batches have in common.
	like     event.Batch
	building event.Batch
	batches  []*event.Batch
}

// row routes a row as one that was just inserted.
func (c *chunk) row(t *event.Table, values []event.Value) error {
	b := &c.building
	c.route.Route(b, &event.Change{Table: t, Tx: &c.tx, After: values, Version: c.version, Op: event.Insert})
	if b.Len() >= walkBatch || len(b.Text()) >= batchBytes {
		c.hand()
	}
	return nil
}

// hand ends a batch.
func (c *chunk) hand() {
	b := &c.building
	if b.Len() == 0 {
		return
	}
	b.Source, b.Term, b.Leftover, b.Read = c.like.Source, c.like.Term, c.like.Leftover, c.like.Read
	b.Age, b.At = event.Unknown, c.like.Read
	c.batches = append(c.batches, b.Clone())
	b.Reset()
}
