package invalidator

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/freshet/freshet/doubt/alarm"
	"github.com/freshet/freshet/event"
	"github.com/freshet/freshet/eventlog"
	"github.com/freshet/freshet/invalidator/write"
	"github.com/freshet/freshet/retry"
)

// token is the ordinal of a batch in a fakeLog.
type token struct {
	eventlog.Issued
	n int
}

// fakeLog is a partition that is fed by hand.
type fakeLog struct {
	id      int
	batches chan *event.Batch // closed: the log ends
	fetched int

	mu        sync.Mutex
	committed int // how many batches; commits must rise
	commits   chan int
}

func newFakeLog() *fakeLog {
	return &fakeLog{id: 7, batches: make(chan *event.Batch, 1000), commits: make(chan int, 1000)}
}

func (l *fakeLog) ID() int { return l.id }

func (l *fakeLog) Fetch(ctx context.Context) (*event.Batch, eventlog.Token, error) {
	select {
	case b, ok := <-l.batches:
		if !ok {
			return nil, nil, io.EOF
		}
		l.fetched++
		return b, token{n: l.fetched}, nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (l *fakeLog) Commit(t eventlog.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := t.(token).n
	if n <= l.committed {
		panic("the watermark moved back from " + strconv.Itoa(l.committed) + " to " + strconv.Itoa(n))
	}
	l.committed = n
	select {
	case l.commits <- n:
	default:
	}
}

func (l *fakeLog) watermark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.committed
}

// batchOf makes a batch of the given keys, each a row of one rows event at pos. Without D it has just become known to
// be visible, so that one delete is enough.
func batchOf(pos uint64, d time.Duration, keys ...string) *event.Batch {
	var b event.Batch
	b.Reset()
	b.Source, b.Term = "s", 1
	b.AddOrigin(event.Origin{Table: "shop.product", Event: event.Version{Epoch: 1, File: 1, Pos: pos}, D: d})
	for i, k := range keys {
		b.Add(append(b.Text(), k...), uint32(i+1), event.ActionDelete)
	}
	b.End = event.End{File: "binlog.000001", Pos: pos + 1}
	if d == 0 {
		b.Age = 0
	}
	return b.Clone()
}

// markAt covers everything up to the rows event at pos.
func markAt(pos uint64) event.Mark {
	return event.Mark{Source: "s", Term: 1, Version: event.Version{Epoch: 1, File: 1, Pos: pos, Row: 1 << 31}}
}

// memStore is a store in memory.
type memStore struct {
	mu      sync.Mutex
	limit   int // how many entries fit; 0: any number
	last    uint64
	entries []retry.Entry // parked
	letters []retry.Entry // dead
	parks   int           // calls of Park
	fail    error
}

func (s *memStore) Park(_ context.Context, entries []retry.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parks++
	if s.fail != nil {
		return s.fail
	}
	if s.limit > 0 && len(s.entries)+len(s.letters)+len(entries) > s.limit {
		return retry.ErrFull
	}
	s.add(entries)
	return nil
}

func (s *memStore) add(entries []retry.Entry) {
	for _, e := range entries {
		s.last++
		e.ID = s.last
		if e.Due.IsZero() {
			s.letters = append(s.letters, e)
		} else {
			s.entries = append(s.entries, e)
		}
	}
	slices.SortStableFunc(s.entries, func(a, b retry.Entry) int { return a.Due.Compare(b.Due) })
}

func (s *memStore) Due(_ context.Context, now time.Time, n int) ([]retry.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []retry.Entry
	for _, e := range s.entries {
		if !e.Due.After(now) && len(due) < n {
			due = append(due, e)
		}
	}
	return due, nil
}

func (s *memStore) NextDue(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) == 0 {
		return time.Time{}, nil
	}
	return s.entries[0].Due, nil
}

func (s *memStore) Settle(_ context.Context, done []uint64, again []retry.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	for _, e := range again {
		done = append(done, e.ID)
	}
	s.entries = slices.DeleteFunc(s.entries, func(e retry.Entry) bool { return slices.Contains(done, e.ID) })
	s.add(again)
	return nil
}

func (s *memStore) counts() (parked, dead int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries), len(s.letters)
}

func (s *memStore) parked() []retry.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(slices.Values(s.entries), func(a, b retry.Entry) int { return cmp.Compare(a.ID, b.ID) })
}

// alarms counts alarms by kind.
type alarms struct {
	mu     sync.Mutex
	raised map[alarm.Kind]int
}

func (a *alarms) Raise(k alarm.Kind, _ string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.raised == nil {
		a.raised = map[alarm.Kind]int{}
	}
	a.raised[k]++
}

func (a *alarms) count(k alarm.Kind) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.raised[k]
}

// noRedis deletes nothing, at once.
type noRedis struct{}

func (noRedis) Unlink(_ context.Context, commands []*Command) {
	for _, c := range commands {
		c.Found = int64(c.Len())
	}
}

func (noRedis) Do(_ context.Context, calls []*write.Call) {
	for _, c := range calls {
		c.Reply = int64(1)
	}
}
func (noRedis) Ping(context.Context) error              { return nil }
func (noRedis) Time(context.Context) (time.Time, error) { return time.Now(), nil }
func (noRedis) Dials() int64                            { return 0 }
func (noRedis) String() string                          { return "nowhere:0" }

// start runs an engine until the test ends.
// caughtUp tells an engine that the reader has handed over everything: what comes from now on is new.
func caughtUp(e *Engine) { e.Mark(event.Mark{Source: "s", Term: 1, Read: true}) }

func start(t testing.TB, d Deps, o Options) *Engine {
	t.Helper()
	if d.Store == nil {
		d.Store = &memStore{}
	}
	e, err := New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	return e
}

// brokenLog cannot be read.
type brokenLog struct{ fakeLog }

var errBroken = errors.New("broken")

func (*brokenLog) Fetch(context.Context) (*event.Batch, eventlog.Token, error) {
	return nil, nil, errBroken
}
