package scope

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router/keyspace"
)

// Redis is what a pass asks of Redis.
type Redis interface {
	// Scan returns a page of about count keys that match a glob, and the cursor of the next page; 0: there is none.
	Scan(ctx context.Context, cursor uint64, glob string, count int64) (keys []string, next uint64, err error)
	// Fields returns a page of a hash's fields in the same way. What is no hash has none.
	Fields(ctx context.Context, key string, cursor uint64, count int64) (fields []string, next uint64, err error)
	// Server returns what tells the server that answers, and this run of it, from every other.
	Server(ctx context.Context) (string, error)
	// Size returns how many keys there are.
	Size(ctx context.Context) (int64, error)
}

// Deps are what a [Scope] works with. Redis and Serve are required.
type Deps struct {
	Redis Redis
	// Serve has the engine do what a partition hands out, until it ends and all of it is finished.
	Serve func(ctx context.Context, p eventlog.Partition) error
	// Log may be nil: slog.Default().
	Log *slog.Logger
}

// Options configure a [Scope].
type Options struct {
	// Rate is how many keys a second are forgotten at most. Default 2,000.
	Rate int
	// Prefix is what all keys in Redis begin with; the engine puts it before each.
	Prefix string
}

// DefaultRate is the default of [Options].Rate, in keys per second.
const DefaultRate = 2000

// Scope runs scopes, one at a time.
type Scope struct {
	deps    Deps
	options Options

	mu sync.Mutex
	// paced is until when nothing more is forgotten, for the rate's sake.
	paced time.Time
}

// Take waits until n keys more may be forgotten at the rate. It may be called by any goroutine, also for what is no
// scope and shares the rate. It fails only with ctx.
func (s *Scope) Take(ctx context.Context, n int) error {
	s.mu.Lock()
	at := time.Now()
	if at.Before(s.paced) {
		at = s.paced
	}
	takes := time.Duration(n) * time.Second / time.Duration(s.options.Rate)
	s.paced = at.Add(takes)
	s.mu.Unlock()
	err := retry.Sleep(ctx, time.Until(at))
	if err != nil { // nothing is forgotten, so others need not wait for it
		s.mu.Lock()
		s.paced = s.paced.Add(-takes)
		s.mu.Unlock()
	}
	return err
}

// New returns a scope. It asks nothing before [Scope.Run].
func New(d Deps, o Options) (*Scope, error) {
	if d.Redis == nil || d.Serve == nil {
		return nil, errors.New("scope: needs a redis and an engine")
	}
	if o.Rate < 0 {
		return nil, errors.New("scope: the rate must not be negative")
	}
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	return &Scope{deps: d, options: o}, nil
}

// Task is one scope.
type Task struct {
	// Keys are what may be forgotten: at least one template's.
	Keys *keyspace.Keyspace
	// Only, if it is there, says which of the templates count, and Pattern, if it is there, is a glob of Redis that keys,
	// without the prefix, also match.
	Only    func(t *keyspace.Target) bool
	Pattern string
	// Meant, if it is there, says which keys count, without the prefix.
	Meant func(key string) bool
	// Source and At say where in a source's binlog it happened: what readers read before everybody could see that
	// place may be stale. Without a source, it is what they read before now.
	Source string
	At     event.Version
	// Newest returns the newest version of the source that everybody can see, as far as is known: that of what is
	// forgotten. nil: it is At.
	Newest func() event.Version
	// Finished waits until nothing that the log holds of changes up to At can still be written: an older value that comes
	// after the second pass would stay. It fails only with ctx. nil: there is nothing.
	Finished func(ctx context.Context) error
	// Progress is kept up to date. Required.
	Progress *Progress
}

// Progress is how far a scope has come. Its fields may be read at any time.
type Progress struct {
	// Stage is one of the constants below.
	Stage atomic.Int32
	// Looked is how many keys the present pass has looked at, of about Keys; Found is how many both passes have found.
	Looked, Keys, Found atomic.Int64
	// Busy is how long passes took that are over, in nanoseconds.
	Busy atomic.Int64
	// Trouble is why Redis does not answer the scope, as long as it does not; nil: it does.
	Trouble atomic.Pointer[error]
}

// The stages of a scope.
const (
	StageWaiting int32 = iota
	StageFirst
	StageSettling
	StageSecond
)

// ErrStopped is what [Scope.Run] ends with if the engine was stopped before all keys were forgotten.
var ErrStopped = errors.New("scope: the engine was stopped before all keys were forgotten")

var errOtherServer = errors.New("another redis server answers since the pass began, so it begins again: " +
	"redis.addresses must lead to one server at a time")

// Run carries a scope out. It returns nil once every key is forgotten, and fails only with ctx, or when the engine
// does, or is stopped. While Redis is away it waits.
func (s *Scope) Run(ctx context.Context, t Task) error {
	t.Progress.Stage.Store(StageFirst)
	if err := s.pass(ctx, t); err != nil {
		return err
	}
	t.Progress.Stage.Store(StageSettling)
	if t.Finished != nil {
		if err := t.Finished(ctx); err != nil {
			return err
		}
	}
	if err := s.serve(ctx, newProbe(&t)); err != nil {
		return err
	}
	t.Progress.Stage.Store(StageSecond)
	return s.pass(ctx, t)
}

// Look goes through Redis once, and hands out what a pass finds. What becomes of it is up to Serve.
func (s *Scope) Look(ctx context.Context, t Task) error {
	t.Progress.Stage.Store(StageFirst)
	return s.pass(ctx, t)
}

// pass goes through all keys once.
func (s *Scope) pass(ctx context.Context, t Task) error {
	loop := retry.Loop{Backoff: retry.Backoff{Min: time.Second, Max: time.Minute}}
	for {
		p, began := &pass{scope: s, task: t}, time.Now()
		if err := s.serve(ctx, p); err != nil {
			return err
		}
		t.Progress.Busy.Add(int64(time.Since(began)))
		same, err := p.sameServer(ctx)
		if err != nil {
			return err
		}
		if same {
			t.Progress.Trouble.Store(nil)
			return nil
		}
		s.deps.Log.Info("another redis server answers since the scope began, so it begins again")
		t.Progress.Trouble.Store(&errOtherServer)
		if err := loop.Wait(ctx, errOtherServer); err != nil {
			return err
		}
	}
}

// serve has the engine do all that a partition hands out.
func (s *Scope) serve(ctx context.Context, p partition) error {
	if err := s.deps.Serve(ctx, p); err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	if !p.finished() {
		return ErrStopped
	}
	return nil
}
