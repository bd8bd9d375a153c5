package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed/internal/port"
)

// SentinelOptions say which master a sentinel watches.
type SentinelOptions struct {
	// Name is what it calls the master, Master is the master, and Quorum how many sentinels must find it dead.
	Name   string
	Master *RedisServer
	Quorum int
	// Password is what clients and other sentinels must give; empty: none.
	Password string
	// MasterUser and MasterPassword are what it logs in with at the master and its replicas; empty: it does not.
	MasterUser, MasterPassword string
	// Text is its configuration, without port and directory; empty: what the others say.
	Text string
}

// Sentinel is a running Redis Sentinel.
type Sentinel struct {
	*Process

	Addr string // host:port
	Dir  string

	client *redis.SentinelClient
	held   *port.Reservation
	owned  *instanceDir
}

// Sentinels starts sentinels that watch a master and fail over soon after it is dead. They end with the test.
func Sentinels(t testing.TB, o SentinelOptions, n int) []*Sentinel {
	t.Helper()
	o.Quorum = n/2 + 1
	var all []*Sentinel
	for range n {
		all = append(all, forTest(t, StartSentinel, o))
	}
	Eventually(t, readyTimeout, "the sentinels know each other", func() bool {
		for _, s := range all {
			if others, err := s.client.Sentinels(t.Context(), o.Name).Result(); err != nil || len(others) != n-1 {
				return false
			}
		}
		return true
	})
	return all
}

// StartSentinel starts a sentinel. Close ends it.
func StartSentinel(ctx context.Context, o SentinelOptions) (*Sentinel, error) {
	p, err := Options{}.installer().redis(ctx)
	if err != nil {
		return nil, err
	}
	held, err := port.Reserve()
	if err != nil {
		return nil, err
	}
	s := &Sentinel{Addr: held.Addr, Process: &Process{name: "sentinel"}, held: held}
	if s.owned, err = newInstanceDir("", "sentinel"); err != nil {
		held.Release()
		return nil, err
	}
	s.Dir = s.owned.path
	s.Process.dir, s.logPath = s.Dir, filepath.Join(s.Dir, "log")
	s.client = redis.NewSentinelClient(&redis.Options{
		Addr: s.Addr, Password: o.Password, MaxRetries: -1, ContextTimeoutEnabled: true,
	})
	if o.Text == "" {
		o.Text = fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d\nsentinel down-after-milliseconds %s 1000\n"+
			"sentinel failover-timeout %s 5000\n", o.Name, o.Master.Port, o.Quorum, o.Name, o.Name)
	}
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n%s", held.Port, s.Dir, o.Text)
	if o.Password != "" {
		text += fmt.Sprintf("requirepass %s\n", o.Password)
	}
	if o.MasterUser != "" {
		text += fmt.Sprintf("sentinel auth-user %s %s\nsentinel auth-pass %s %s\n", o.Name, o.MasterUser, o.Name, o.MasterPassword)
	}
	file := filepath.Join(s.Dir, "sentinel.conf") // it writes down there what it has learned
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.argv = append(append([]string{}, p.argv...), file, "--sentinel", "--port", strconv.Itoa(held.Port))
	s.ready = func(ctx context.Context) error { return s.client.Ping(ctx).Err() }
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Client returns a client of the sentinel. It is closed with it.
func (s *Sentinel) Client() *redis.SentinelClient { return s.client }

// Close kills the sentinel and removes its directory.
func (s *Sentinel) Close() error {
	err := s.client.Close()
	if s.argv != nil {
		err = errors.Join(err, s.Kill())
	}
	s.held.Release()
	return errors.Join(err, s.owned.remove())
}
