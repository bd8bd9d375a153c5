package scope

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/config/spec/spectest"
	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/invalidator"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/router/keyspace"
)

// liveD is short, since it passes in real time.
const liveD = 300 * time.Millisecond

// live is the engine and scopes on a real Redis.
type live struct {
	*testing.T
	server *testbed.RedisServer
	engine *invalidator.Engine
	// scopes is the client of the scopes.
	scopes *redis.Client
	// searched is what scopes search; nil: that of scopes.
	searched Redis
	// store keeps what is parked. away receives something when Redis counts as away.
	store *parked
	away  chan struct{}
	// stopEngine ends the engine, and returns when it has ended.
	stopEngine func()

	// began is called for each partition that the engine begins to serve, before it does.
	began func(n int)
	mu    sync.Mutex
	n     int
}

// setting is how a live rig differs from the usual.
type setting struct {
	server         *testbed.RedisServer
	address        string // of the engine's Redis: a proxy's
	user, password string
	db             int
	prefix         string
	cluster        *invalidator.Nodes // nil: the engine writes to one server
}

func newLive(t *testing.T, o setting) *live {
	t.Helper()
	l := &live{T: t, server: o.server, store: &parked{}, away: make(chan struct{}, 1)}
	if l.server == nil {
		l.server = testbed.Redis(t)
	}
	if o.user != "" {
		l.server.Do(t, "acl", "setuser", o.user, "on", ">"+o.password, "~*", "+@all")
	}
	r, err := invalidator.NewSingle(invalidator.SingleOptions{
		Address: cmp.Or(o.address, l.server.Addr), Username: o.user, Password: credential.Text(o.password), DB: o.db,
	})
	testbed.Must(t, err)
	t.Cleanup(func() { testbed.Must(t, r.Close()) })
	deps := invalidator.Deps{Redis: r, Store: l.store, Alarms: l, Log: silent}
	if o.cluster != nil {
		deps.Redis, deps.Cluster = nil, o.cluster
	}
	l.engine, err = invalidator.New(deps, invalidator.Options{
		ShortestD: liveD, KeyPrefix: o.prefix,
		Retry: retry.Policy{ParkAfter: 1, MinBackoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond},
	})
	testbed.Must(t, err)
	l.scopes = l.server.NewClient(&redis.Options{Username: o.user, Password: o.password, DB: o.db})
	t.Cleanup(func() { testbed.Must(t, l.scopes.Close()) })
	l.engine.Mark(event.Mark{Source: "s", Term: 1, Read: true})
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- l.engine.Run(ctx) }()
	l.stopEngine = sync.OnceFunc(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(l.stopEngine)
	return l
}

// Raise implements [invalidator.Alarms].
func (l *live) Raise(k alarm.Kind, _ string) {
	if k == alarm.RedisAway {
		select {
		case l.away <- struct{}{}:
		default:
		}
	}
}

// serve is the engine's Serve, as scopes have it.
func (l *live) serve(ctx context.Context, p eventlog.Partition) error {
	l.mu.Lock()
	n := l.n
	l.n++
	l.mu.Unlock()
	if l.began != nil {
		l.began(n)
	}
	return l.engine.Serve(ctx, p)
}

// start begins a scope of a source's keys at place 10.
func (l *live) start(task *Task, o Options) <-chan error {
	l.Helper()
	if task.Progress == nil {
		task.Progress = &Progress{}
	}
	if l.searched == nil {
		l.searched = Single{Client: l.scopes}
	}
	s, err := New(Deps{Redis: l.searched, Serve: l.serve, Log: silent}, o)
	testbed.Must(l, err)
	done := make(chan error, 1)
	go func() { done <- s.Run(l.Context(), *task) }()
	return done
}

func (l *live) mark(pos uint64) {
	l.engine.Mark(event.Mark{
		Source: "s", Term: 1, Version: event.Version{Epoch: 1, File: 1, Pos: pos, Row: 1 << 31}, Read: true,
	})
}

func (l *live) newest() event.Version {
	v, _ := l.engine.Visible("s")
	return v
}

// ended waits for a scope.
func (l *live) ended(done <-chan error) {
	l.Helper()
	timeout := time.NewTimer(5 * time.Minute)
	defer timeout.Stop()
	select {
	case err := <-done:
		testbed.Must(l, err)
	case <-timeout.C:
		l.Fatalf("the scope does not end: %+v", l.engine.Snapshot())
	}
}

func (l *live) there(key string) bool {
	l.Helper()
	n, err := l.scopes.Exists(l.Context(), key).Result()
	testbed.Must(l, err)
	return n == 1
}

func (l *live) value(key string) string { return l.scopes.Get(l.Context(), key).Val() }

func (l *live) set(keys ...string) {
	l.Helper()
	for _, k := range keys {
		testbed.Must(l, l.scopes.Set(l.Context(), k, "old", 0).Err())
	}
}

// parked is a store whose entries never fall due.
type parked struct {
	mu   sync.Mutex
	keys []string
}

func (s *parked) Park(_ context.Context, entries []retry.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range entries {
		s.keys = append(s.keys, entries[i].Key)
	}
	return nil
}

func (*parked) Due(context.Context, time.Time, int) ([]retry.Entry, error) { return nil, nil }
func (*parked) NextDue(context.Context) (time.Time, error)                 { return time.Time{}, nil }
func (*parked) Settle(context.Context, []uint64, []retry.Entry) error      { return nil }

func (s *parked) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

// written is a partition of batches that are finished one after another.
type written struct {
	batches chan *event.Batch
	commits chan struct{}
}

// log has the engine serve a log of its own until the test ends.
func (l *live) log() *written {
	w := &written{batches: make(chan *event.Batch), commits: make(chan struct{}, 100)}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- l.engine.Serve(ctx, w) }()
	l.Cleanup(func() {
		stop()
		testbed.Must(l, <-served)
	})
	return w
}

func (*written) ID() int { return 7 }

func (w *written) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	select {
	case b := <-w.batches:
		return b, token{}, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (w *written) Commit(eventlog.Token) { w.commits <- struct{}{} }

// put has a value of a row written that was changed at pos, under a mapping without a second delete, and returns when
// that is finished.
func (w *written) put(key, value string, pos uint64) {
	var b event.Batch
	b.Reset()
	b.Source, b.Term, b.Age, b.At = "s", 1, 0, time.Now()
	b.AddOrigin(event.Origin{Table: "shop.product", Event: place(pos)})
	b.AddItem(event.Item{
		Text: event.AppendField(append(b.Text(), key...), value), Key: len(key), Row: 1,
		Action: event.ActionRebuild, Intent: event.IntentPut, Effect: &event.Effect{As: event.FormString},
	})
	w.batches <- b.Clone()
	<-w.commits
}

func product(t testing.TB, prefix string) *keyspace.Keyspace {
	return keysOf(t, prefix, spectest.Keys("product:{id}").D(liveD))
}
