package localcache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 30 * time.Second
	stream   = "price-changes"
)

// shelf is a cache whose follower runs, over a line that can be cut. Values say how often they were loaded.
type shelf struct {
	*Cache
	t      *testing.T
	server *testbed.RedisServer
	line   *proxy.RESP
	loads  atomic.Int64
	stop   func()

	mu   sync.Mutex
	lost int
}

// Lost implements [Handler].
func (s *shelf) Lost() {
	s.mu.Lock()
	s.lost++
	s.mu.Unlock()
	s.Cache.Lost()
}

func (s *shelf) losses() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func newShelf(t *testing.T, limit int) *shelf {
	t.Helper()
	s := &shelf{t: t, server: testbed.Redis(t)}
	s.line = proxy.StartRESP(t, s.server.Addr)
	s.change("x") // a stream that was empty says nothing of what was in it
	s.Cache = New(limit, time.Hour, func(context.Context, string) (string, error) {
		return fmt.Sprint("value ", s.loads.Add(1)), nil
	})
	rdb := s.server.NewClient(&redis.Options{Addr: s.line.Addr(), MaxRetries: -1})
	f := Follower{Redis: rdb, Stream: stream, Handler: s}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx, func(err error) { t.Log(err) }) })
	s.stop = sync.OnceFunc(func() { cancel(); running.Wait(); rdb.Close() })
	t.Cleanup(s.stop)
	testbed.Eventually(t, patience, "keys are held", func() bool { return s.reads("a") && s.reads("b") })
	return s
}

// reads reads a key, and reports whether it was held.
func (s *shelf) reads(key string) bool {
	s.t.Helper()
	_, held, err := s.Get(s.t.Context(), key)
	testbed.Must(s.t, err)
	return held
}

// holds reports whether a key is held, without loading it.
func (s *shelf) holds(key string) bool {
	s.Cache.mu.Lock()
	defer s.Cache.mu.Unlock()
	_, held := s.values[key]
	return held
}

// change does what freshet does after an acknowledged action.
func (s *shelf) change(key string) {
	s.t.Helper()
	testbed.Must(s.t, s.server.Client().XAdd(s.t.Context(), &redis.XAddArgs{
		Stream: stream, Values: []string{
			"key", key, "table", "example.price", "source", "default", "version", "1/1/4/1",
			"action", "delete",
		},
	}).Err())
}

func (s *shelf) forgets(key string) {
	s.t.Helper()
	testbed.Eventually(s.t, patience, key+" is forgotten", func() bool { return !s.holds(key) })
}

func TestAKeyIsHeldUntilItChanges(t *testing.T) {
	s := newShelf(t, 100)
	s.change("a")
	s.forgets("a")
	if !s.reads("b") {
		t.Error("the other key was forgotten, too")
	}
	if s.reads("a") || !s.reads("a") {
		t.Error("the key is not held again")
	}
}

func TestWhatChangesWhileItIsLoadedIsNotHeld(t *testing.T) {
	s := newShelf(t, 100)
	s.change("a")
	s.forgets("a")
	load := s.load
	s.load = func(ctx context.Context, key string) (string, error) {
		s.load = load
		value, err := load(ctx, key)
		s.change("a")
		// The next entry is reported after it.
		testbed.Must(t, err)
		s.change("b")
		s.forgets("b")
		return value, nil
	}
	if s.reads("a") || s.holds("a") {
		t.Error("a value is held that was read before the key changed")
	}
}

func TestWhoWasAwayReadsOnWhereItWas(t *testing.T) {
	s := newShelf(t, 100)
	losses := s.losses()
	s.line.Reset()
	s.change("a")
	s.forgets("a")
	if !s.reads("b") || s.losses() > losses {
		t.Error("everything was forgotten although nothing was missed")
	}
}

func TestWhatMayHaveBeenMissedForgetsEverything(t *testing.T) {
	for name, happen := range map[string]func(s *shelf){
		"trimmed": func(s *shelf) {
			s.change("x")
			s.change("y")
			s.server.Do(s.t, "XTRIM", stream, "MAXLEN",
				"1")
		},
		"gone": func(s *shelf) { s.server.Do(s.t, "DEL", stream) },
		"older than it was": func(s *shelf) {
			s.server.Do(s.t, "DEL", stream)
			s.server.Do(s.t, "XADD", stream, "5-1", "key",
				"x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t, 100)
			losses := s.losses()
			s.line.Cut()
			happen(s)
			testbed.Must(t, s.line.Resume())
			testbed.Eventually(t, patience, "everything is forgotten", func() bool { return s.losses() > losses })
			s.forgets("b")
			testbed.Eventually(t, patience, "keys are held again", func() bool { return s.reads("a") && s.reads("b") })
			s.change("b")
			s.forgets("b")
		})
	}
}

func TestNothingIsHeldWhileNobodyIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads := 0
		c := New(10, 5*time.Second, func(context.Context, string) (string, error) { loads++; return "v", nil })
		held := func() bool {
			_, held, err := c.Get(t.Context(), "a")
			testbed.Must(t, err)
			return held
		}
		if held(); held() {
			t.Error("held before the stream was ever heard")
		}
		c.Current(time.Now())
		if !held() {
			t.Error("not held while the stream is heard")
		}
		time.Sleep(5 * time.Second) // the bubble's
		if held() {
			t.Error("held although the stream has been silent")
		}
		c.Current(time.Now())
		if !held() {
			t.Error("not held when the stream is heard again")
		}
	})
}

// What was loaded before the stream is followed can be older than the entry that following begins after.
func TestWhatWasLoadedBeforeIsForgottenWhenFollowingBegins(t *testing.T) {
	c := New(10, time.Hour, func(context.Context, string) (string, error) { return "v", nil })
	_, _, err := c.Get(t.Context(), "a")
	testbed.Must(t, err)
	server := testbed.Redis(t)
	f := Follower{Redis: server.Client(), Stream: stream, Handler: c}
	testbed.Must(t, f.read(t.Context()))
	if len(c.values) > 0 || f.Last != nothing {
		t.Errorf("%v is held; the last is %s", c.values, f.Last)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	c := New(10, time.Hour, func(context.Context, string) (string, error) { return "v", nil })
	for i := range 100 {
		_, _, err := c.Get(t.Context(), fmt.Sprint(i))
		testbed.Must(t, err)
	}
	if len(c.values) != 10 || len(c.loading) != 0 {
		t.Errorf("%d are held, %d are loading", len(c.values), len(c.loading))
	}
}
