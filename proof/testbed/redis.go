package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/freshet/freshet/proof/testbed/internal/port"
)

// RedisServer is a running Redis server.
type RedisServer struct {
	*Process

	Version string // 7.0.15
	Addr    string // host:port
	Port    int
	Dir     string // the instance's directory. Empty for a shared server
	// BusPort is where the nodes of a cluster talk. By itself Redis takes Port plus 10,000, which may be in use.
	BusPort int

	client  *redis.Client
	held    *port.Reservation
	busHeld *port.Reservation // nil: it is no node of a cluster
	owned   *instanceDir
}

// Redis starts a private Redis server for the test, without persistence and with DEBUG
// allowed. It ends with the test.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return forTest(t, StartRedis, Options{Args: args})
}

// Redis8 is Redis with the newest version that the testbed knows.
func Redis8(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return forTest(t, StartRedis, Options{Args: args, Newest: true})
}

// Valkey is Redis with a Valkey that moves slots of a cluster by itself.
func Valkey(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return forTest(t, StartRedis, Options{Args: args, Valkey: true})
}

// SharedRedis is the server that FRESHET_TEST_REDIS names, or a private one. Take a key prefix
// that no other test has.
func SharedRedis(t testing.TB) *RedisServer {
	t.Helper()
	return forTest(t, StartRedis, Options{Shared: true})
}

// StartRedis starts a Redis server. Close ends it.
func StartRedis(ctx context.Context, o Options) (*RedisServer, error) {
	if address := os.Getenv(EnvRedis); o.Shared && address != "" {
		return sharedRedis(ctx, address)
	}
	find := o.installer().redis
	switch {
	case o.Valkey:
		find = o.installer().valkey
	case o.Newest:
		find = o.installer().redis8
	}
	p, err := find(ctx)
	if err != nil {
		return nil, err
	}
	held, err := port.Reserve()
	if err != nil {
		return nil, err
	}
	s := &RedisServer{
		Version: p.version, Addr: held.Addr, Port: held.Port,
		Process: &Process{name: p.name}, held: held,
	}
	if s.owned, err = newInstanceDir(o.Dir, p.name); err != nil {
		held.Release()
		return nil, err
	}
	s.Dir = s.owned.path
	s.Process.dir, s.logPath = s.Dir, filepath.Join(s.Dir, "log")
	s.argv = append(append([]string{}, p.argv...), "--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", s.Dir)
	if atLeast(p.version, 7) {
		s.argv = append(s.argv, "--enable-debug-command", "local")
	}
	s.argv = append(s.argv, o.Args...)
	if slices.Contains(o.Args, "--cluster-enabled") {
		if s.busHeld, err = port.Reserve(); err != nil {
			held.Release()
			return nil, errors.Join(err, s.owned.remove())
		}
		s.BusPort = s.busHeld.Port
		s.argv = append(s.argv, "--cluster-port", strconv.Itoa(s.BusPort))
	}
	s.client = s.NewClient(&redis.Options{})
	s.ready = s.answers
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func sharedRedis(ctx context.Context, address string) (*RedisServer, error) {
	s := &RedisServer{Addr: address, Process: &Process{name: "redis"}}
	s.client = s.NewClient(&redis.Options{})
	info, err := s.client.Info(ctx, "server").Result()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("testbed: shared server %s: %w", address, err), s.client.Close())
	}
	_, version, _ := strings.Cut(info, "redis_version:")
	s.Version = versionPattern.FindString(version)
	return s, nil
}

// answers is nil once the server has loaded its data. A server that wants a password, or lets
// in nobody, answers too.
func (s *RedisServer) answers(ctx context.Context) error {
	err := s.client.Ping(ctx).Err()
	if err != nil && (redis.IsAuthError(err) || redis.IsPermissionError(err)) {
		return nil
	}
	return err
}

// Client returns a client that retries nothing and honours the context's deadline. It is
// closed with the server.
func (s *RedisServer) Client() *redis.Client { return s.client }

// NewClient returns another client of this server: with a user, another protocol or through a
// proxy, by setting Addr. What the options leave open is set as in Client. The caller closes it.
func (s *RedisServer) NewClient(o *redis.Options) *redis.Client {
	if o.Addr == "" {
		o.Addr = s.Addr
	}
	if o.MaxRetries == 0 {
		o.MaxRetries = -1
	}
	if o.MaintNotificationsConfig == nil {
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	o.ContextTimeoutEnabled = true
	return redis.NewClient(o)
}

// Do runs one command given as words and fails the test if the server refuses it.
func (s *RedisServer) Do(t testing.TB, words ...any) any {
	t.Helper()
	v, err := s.client.Do(t.Context(), words...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("testbed: redis %v: %v", words, err)
	}
	return v
}

// Close kills the server, gives its port back and removes its directory. A shared server is
// left as it is.
func (s *RedisServer) Close() error {
	err := s.client.Close()
	if s.argv == nil {
		return err
	}
	err = errors.Join(err, s.Kill())
	s.held.Release()
	s.busHeld.Release()
	return errors.Join(err, s.owned.remove())
}

// atLeast says if a version's first number is major or more.
func atLeast(version string, major int) bool {
	n, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	return err == nil && n >= major
}
