package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// want fails the test unless err, as a client got it from a real server, is of the class and reads as expected.
func want(t *testing.T, err error, class retry.Class, text string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %s with %q", class, text)
	}
	t.Logf("%T %q", err, err)
	if !strings.Contains(err.Error(), text) {
		t.Errorf("the server said %q, want %q", err, text)
	}
	if got := retry.ClassifyRedis(err); got != class {
		t.Errorf("%q is %s, want %s", err, got, class)
	}
	wrapped := fmt.Errorf("redis: unlink 3 keys on 10.0.0.3: %w", err)
	if got := retry.ClassifyRedis(wrapped); got != class {
		t.Errorf("%q is %s when wrapped, want %s", err, got, class)
	}
}

func unlink(c *redis.Client) error { return c.Unlink(context.Background(), "product:1").Err() }

func TestOneKeyInTroubleOnARealServer(t *testing.T) {
	s := testbed.Redis(t)
	c := s.Client()
	s.Do(t, "set", "text", "x")
	ctx := t.Context()
	want(t, c.HSet(ctx, "text", "f", "v").Err(), retry.Key, "WRONGTYPE")
	want(t, c.Eval(ctx, "error('boom')", nil).Err(), retry.Key, "boom")
	want(t, c.Eval(ctx, "return redis.call('hset', KEYS[1], 'f', 'v')", []string{"text"}).Err(), retry.Key, "WRONGTYPE")
	want(t, c.Incr(ctx, "text").Err(), retry.Key, "not an integer")

	want(t, c.EvalSha(ctx, strings.Repeat("0", 40), nil).Err(), retry.Away, "NOSCRIPT")
	want(t, c.Do(ctx, "unlinq", "k").Err(), retry.Fatal, "unknown command")
	want(t, c.Do(ctx, "unlink").Err(), retry.Fatal, "wrong number of arguments")
	want(t, c.Do(ctx, "set", "k", "v", "zz").Err(), retry.Fatal, "syntax error")
	if got := retry.ClassifyRedis(c.Get(ctx, "missing").Err()); got != retry.None {
		t.Errorf("a missing key is %s, want none", got)
	}
}

func TestRightsOnARealServer(t *testing.T) {
	s := testbed.Redis(t)
	s.Do(t, "acl", "setuser", "reader", "on", ">secret", "~*", "&*", "+@read", "+hello", "+client")
	s.Do(t, "acl", "setuser", "shop", "on", ">secret", "~shop:*", "&shop", "+@all")
	as := func(user, password string) *redis.Client {
		c := s.NewClient(&redis.Options{Username: user, Password: password})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	want(t, unlink(as("reader", "secret")), retry.Away, "NOPERM")
	want(t, unlink(as("shop", "secret")), retry.Key, "NOPERM")
	want(t, as("shop", "secret").Publish(t.Context(), "other", "x").Err(), retry.Key, "NOPERM")
	want(t, unlink(as("shop", "wrong")), retry.Away, "WRONGPASS")
	want(t, s.Client().Do(t.Context(), "auth", "any").Err(), retry.Away, "ERR AUTH <password> called without any password")

	db := s.NewClient(&redis.Options{DB: 99})
	t.Cleanup(func() { _ = db.Close() })
	want(t, unlink(db), retry.Away, "DB index is out of range")

	s.Do(t, "config", "set", "requirepass", "secret")
	want(t, unlink(as("", "")), retry.Away, "NOAUTH")
}

func TestAServerThatTakesNoWrites(t *testing.T) {
	s := testbed.Redis(t)
	c := s.Client()
	ctx := t.Context()

	s.Do(t, "config", "set", "min-replicas-to-write", "1")
	want(t, unlink(c), retry.Away, "NOREPLICAS")
	s.Do(t, "config", "set", "min-replicas-to-write", "0")

	s.Do(t, "set", "text", "x")
	s.Do(t, "config", "set", "maxmemory", "1")
	s.Do(t, "config", "set", "maxmemory-policy", "noeviction")
	want(t, c.Set(ctx, "product:1", "v", 0).Err(), retry.Memory, "OOM")
	want(t, c.Eval(ctx, "return redis.call('set', KEYS[1], 'v')", []string{"product:1"}).Err(), retry.Memory, "OOM")
	if err := c.Unlink(ctx, "text").Err(); err != nil {
		t.Errorf("a delete without memory: %v", err)
	}
	s.Do(t, "config", "set", "maxmemory", "0")

	// A directory in the place of the file makes every save fail.
	testbed.Must(t, os.Mkdir(filepath.Join(s.Dir, "dump.rdb"), 0o700))
	s.Do(t, "config", "set", "save", "3600 1")
	s.Do(t, "set", "text", "x")
	s.Do(t, "bgsave")
	testbed.Eventually(t, 2*time.Minute, "the save fails", func() bool {
		return strings.Contains(c.Info(ctx, "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	want(t, unlink(c), retry.Away, "MISCONF")
	s.Do(t, "config", "set", "save", "")

	s.Do(t, "replicaof", "127.0.0.1", "1")
	want(t, unlink(c), retry.Away, "READONLY")
	want(t, c.Eval(ctx, "return redis.call('set', KEYS[1], 'v')", []string{"k"}).Err(), retry.Away, "READONLY")
	s.Do(t, "config", "set", "replica-serve-stale-data", "no")
	want(t, c.Get(ctx, "k").Err(), retry.Away, "MASTERDOWN")
}

func TestAServerThatIsBusy(t *testing.T) {
	s := testbed.Redis(t)
	c := s.Client()
	s.Do(t, "config", "set", "lua-time-limit", "1")
	loop := make(chan error, 1)
	go func() { loop <- c.Eval(context.Background(), "while true do end", nil).Err() }()
	var err error
	testbed.Eventually(t, 2*time.Minute, "the script blocks others", func() bool {
		err = unlink(c)
		return err != nil
	})
	want(t, err, retry.Away, "BUSY")
	s.Do(t, "script", "kill")
	want(t, <-loop, retry.Key, "Script killed")

	// The server answers before it is asked and hangs up, so a client may find a broken pipe first.
	s.Do(t, "config", "set", "maxclients", "1")
	late := s.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = late.Close() })
	want(t, unlink(late), retry.Away, "")
	conn, err := net.Dial("tcp", s.Addr)
	testbed.Must(t, err)
	defer conn.Close()
	text, err := io.ReadAll(conn)
	testbed.Must(t, err)
	want(t, redisError(strings.TrimSpace(string(text[1:]))), retry.Away, "max number of clients")
}

func TestAServerThatLoads(t *testing.T) {
	s := testbed.Redis(t)
	c := s.Client()
	s.Do(t, "debug", "populate", "3000")
	s.Do(t, "config", "set", "loading-process-events-interval-bytes", "1024")
	s.Do(t, "config", "set", "key-load-delay", "1000") // µs for each key: 3 s in all
	reloaded := make(chan error, 1)
	go func() { reloaded <- c.Do(context.Background(), "debug", "reload").Err() }()
	var err error
	testbed.Eventually(t, 2*time.Minute, "the server loads", func() bool {
		err = unlink(c)
		return err != nil
	})
	want(t, err, retry.Away, "LOADING")
	testbed.Must(t, s.Kill())
	want(t, <-reloaded, retry.Away, "")
}

func TestAClusterThatIsNotWhole(t *testing.T) {
	s := testbed.Redis(t, "--cluster-enabled", "yes")
	c := s.Client()
	want(t, unlink(c), retry.Away, "CLUSTERDOWN")
	s.Do(t, "config", "set", "cluster-require-full-coverage", "no")
	s.Do(t, "cluster", "addslotsrange", "0", "16383")
	testbed.Eventually(t, 2*time.Minute, "the cluster is up", func() bool {
		return strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	want(t, c.Unlink(t.Context(), "a", "b").Err(), retry.Fatal, "CROSSSLOT")
	slot := c.ClusterKeySlot(t.Context(), "{a}1").Val()
	s.Do(t, "set", "{a}1", "x")
	peer := testbed.Redis(t, "--cluster-enabled", "yes")
	s.Do(t, "cluster", "meet", "127.0.0.1", peer.Port, peer.BusPort)
	id := peer.Do(t, "cluster", "myid").(string)
	testbed.Eventually(t, 2*time.Minute, "the nodes know each other", func() bool {
		return strings.Contains(c.ClusterNodes(t.Context()).Val(), id)
	})
	s.Do(t, "cluster", "setslot", slot, "migrating", id)
	want(t, c.Unlink(t.Context(), "{a}1", "{a}2").Err(), retry.Away, "TRYAGAIN")
	want(t, c.Unlink(t.Context(), "{a}2").Err(), retry.Away, "ASK")
	s.Do(t, "unlink", "{a}1")
	s.Do(t, "cluster", "setslot", slot, "node", id)
	want(t, c.Unlink(t.Context(), "{a}2").Err(), retry.Away, "MOVED")
}

func TestAServerThatIsNotThere(t *testing.T) {
	s := testbed.Redis(t)
	c := s.NewClient(&redis.Options{ReadTimeout: 50 * time.Millisecond, PoolSize: 1, PoolTimeout: 20 * time.Millisecond})
	t.Cleanup(func() { _ = c.Close() })

	s.Do(t, "client", "pause", "60000", "write")
	want(t, unlink(c), retry.Away, "timeout")
	s.Do(t, "client", "unpause")

	testbed.Must(t, s.Pause())
	want(t, unlink(c), retry.Away, "timeout")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	want(t, c.Unlink(ctx, "k").Err(), retry.Away, "")
	cancel()
	testbed.Must(t, s.Resume())

	waits := make(chan error, 1)
	go func() { waits <- c.BLPop(context.Background(), 0, "nothing").Err() }()
	testbed.Eventually(t, 2*time.Minute, "a client blocks", func() bool {
		return strings.Contains(s.Client().Info(t.Context(), "clients").Val(), "blocked_clients:1")
	})
	want(t, unlink(c), retry.Away, "pool timeout")
	testbed.Must(t, s.Kill())
	want(t, <-waits, retry.Away, "EOF")
	want(t, unlink(c), retry.Away, "refused")

	testbed.Must(t, c.Close())
	want(t, unlink(c), retry.Fatal, "client is closed")
}

func TestAConnectionThatIsResetOrSpeaksSomethingElse(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"reset": func(c net.Conn) {
			_ = c.(*net.TCPConn).SetLinger(0)
			_, _ = c.Read(make([]byte, 1))
		},
		"no redis": func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1024))
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			testbed.Must(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					serve(conn)
					_ = conn.Close()
				}
			}()
			c := redis.NewClient(&redis.Options{Addr: l.Addr().String(), MaxRetries: -1})
			want(t, unlink(c), retry.Away, "")
			testbed.Must(t, errors.Join(c.Close(), l.Close()))
			<-done
		})
	}
}

// A right that a script lacks concerns all keys, like one that the caller lacks, in whatever words the version says so.
func TestARightThatAScriptLacksIsNoKeysTrouble(t *testing.T) {
	for _, start := range []func(testing.TB, ...string) *testbed.RedisServer{testbed.Redis, testbed.Redis8} {
		s := start(t)
		s.Do(t, "acl", "setuser", "some", "on", ">secret", "~shop:*", "+@all", "-time")
		c := s.NewClient(&redis.Options{Username: "some", Password: "secret"})
		t.Cleanup(func() { _ = c.Close() })
		ctx := t.Context()
		inScript := c.Eval(ctx, "return redis.call('time')", nil).Err()
		want(t, inScript, retry.Away, "")
		ofKey := c.Eval(ctx, "return redis.call('set', 'other', 'x')", nil).Err()
		want(t, ofKey, retry.Key, "")
		for _, err := range []error{inScript, c.Time(ctx).Err()} {
			if !retry.IsDenied(err) || retry.RedisAdvice(err) == "" {
				t.Errorf("%q is no missing right, or has no advice", err)
			}
		}
		if retry.IsDenied(ofKey) || retry.IsDenied(io.EOF) || retry.IsDenied(nil) {
			t.Error("a key that may not be touched, a lost connection or nothing at all is a missing right")
		}
	}
}

// redisError is an answer in words that the servers at hand do not give.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

func TestAnswersOfOtherVersions(t *testing.T) {
	for text, class := range map[string]retry.Class{
		// Redis 6.0 and 6.2
		"NOPERM this user has no permissions to run the 'unlink' command or its subcommand":                                            retry.Away,
		"NOPERM this user has no permissions to access one of the keys used as arguments":                                              retry.Key,
		"ERR Error running script (call to f_0): @user_script:1: -READONLY You can't write against a read only replica.":               retry.Away,
		"ERR Error running script (call to f_0): @user_script:1: -OOM command not allowed when used memory > 'maxmemory'.":             retry.Memory,
		"ERR Error running script (call to f_0): @user_script:1: @user_script: 1: Wrong number of args calling Redis command From Lua": retry.Key,
		"ERR Error running script (call to f_0): @user_script:1: WRONGTYPE Operation against a key holding the wrong kind of value":    retry.Key,
		"ERR Error running script (call to f_0): @user_script:1: The user executing the script can't run this command or subcommand":   retry.Away,
		"ERR unknown command `UNLINK`, with args beginning with: `a`, ":                                                                retry.Fatal,
		"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?": retry.Away,
		// 7.2
		"NOPERM User freshet has no permissions to run the 'unlink' command":                                                       retry.Away,
		"NOPERM No permissions to access a key":                                                                                    retry.Key,
		"MISCONF Errors writing to the AOF file: No space left on device":                                                          retry.Away,
		"DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.": retry.Away,
		"LOADING Valkey is loading the dataset in memory":                                                                          retry.Away,
		"REDIRECT 10.0.0.7:6379":                                  retry.Away, // Valkey 8, during a failover
		"ERR max number of clients + cluster connections reached": retry.Away,
		"ERR something that nobody has seen":                      retry.Key,
	} {
		if got := retry.ClassifyRedis(redisError(text)); got != class {
			t.Errorf("%q is %s, want %s", text, got, class)
		}
	}
}

func TestAdviceSaysWhatToDo(t *testing.T) {
	if got := retry.RedisAdvice(redisError("NOAUTH Authentication required.")); !strings.Contains(got, "redis.password") {
		t.Errorf("advice on NOAUTH: %q", got)
	}
	for _, err := range []error{nil, redis.Nil, errors.New("x"), redisError("LOADING x")} {
		if got := retry.RedisAdvice(err); got != "" {
			t.Errorf("advice on %v: %q, want none", err, got)
		}
	}
}

// What never gets better by itself says which key of the configuration to look at.
func TestAnAddressThatLeadsToNoRedisIsNamed(t *testing.T) {
	for _, err := range []error{
		&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "cache.invalid", IsNotFound: true}},
		errors.New("redis: invalid reply: \"K\\x00\\x00\\x00\\n\""),
	} {
		if got := retry.RedisAdvice(err); !strings.Contains(got, "correct redis.addresses") {
			t.Errorf("%v: %q", err, got)
		}
	}
	if got := retry.RedisAdvice(&net.DNSError{Err: "server misbehaving", IsTemporary: true}); got != "" {
		t.Errorf("what passes: %q", got)
	}
}
