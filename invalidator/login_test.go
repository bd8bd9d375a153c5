package invalidator

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/freshet/freshet/credential"
	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/retry"
)

// printed is a password that a command prints: what is in a file, after so long. Each run is noted.
type printed struct {
	t          *testing.T
	file, runs string
	source     *credential.Source
}

func newPrinted(t *testing.T, password, before string) *printed {
	t.Helper()
	dir := t.TempDir()
	p := &printed{t: t, file: filepath.Join(dir, "password"), runs: filepath.Join(dir, "runs")}
	p.source = credential.Command("redis.password_command", []string{
		"sh", "-c", fmt.Sprintf("echo >> '%s'; %s cat '%s'", p.runs, before, p.file),
	})
	p.put(password)
	return p
}

func (p *printed) put(password string) {
	p.t.Helper()
	testbed.Must(p.t, os.WriteFile(p.file, []byte(password+"\n"), 0o600))
}

func (p *printed) ran() int {
	p.t.Helper()
	lines, err := os.ReadFile(p.runs)
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	return strings.Count(string(lines), "\n")
}

// A command of Redis waits for its own time only. The connection that it asked for is made all the same, and serves a
// later one.
func TestAPasswordMayTakeLongerThanACommandOfRedis(t *testing.T) {
	t.Parallel()
	server := testbed.Redis(t)
	server.Do(t, "config", "set", "requirepass", "secret")
	password := newPrinted(t, "secret", "sleep 2;")
	s := single(t, SingleOptions{Address: server.Addr, Password: password.source, Timeout: 300 * time.Millisecond})
	failed := 0
	testbed.Eventually(t, 2*time.Minute, "a command passes", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := s.Ping(ctx)
		if err != nil {
			failed++
		}
		return err == nil
	})
	if failed == 0 {
		t.Error("the command was in time: this test shows nothing")
	}
	if n := password.ran(); n > 3 {
		t.Errorf("%d commands were run for one password", n)
	}
}

// Who looks at Redis makes a connection every second. That runs no command as long as the password is taken.
func TestLooksAtRedisRunTheCommandOnlyWhenItsPasswordIsRefused(t *testing.T) {
	server := testbed.Redis(t)
	server.Do(t, "config", "set", "requirepass", "one")
	password := newPrinted(t, "one", "")
	s := single(t, SingleOptions{Address: server.Addr, Password: password.source})
	look := func(want int) {
		t.Helper()
		for range 3 {
			c, err := s.look(t.Context(), "", "")
			testbed.Must(t, err)
			_, err = c.Write([]byte("PING\r\n"))
			testbed.Must(t, err)
			if line, err := bufio.NewReader(c).ReadString('\n'); line != "+PONG\r\n" || err != nil {
				t.Errorf("%q, %v", line, err)
			}
			testbed.Must(t, c.Close())
		}
		if n := password.ran(); n != want {
			t.Errorf("the command has run %d times, want %d", n, want)
		}
	}
	look(1)
	password.put("two")
	look(1)
	server.Do(t, "config", "set", "requirepass", "two")
	look(2)
	for range 2 { // the engine's connections read it each time
		c, err := s.counted(t.Context(), "", "")
		testbed.Must(t, err)
		testbed.Must(t, c.Close())
	}
	look(4)
}

func TestSentinelsAreAskedWithTheirPasswordAsItIsNow(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, testbed.SentinelOptions{Name: "shop", Password: "one"}, 1)
	password := newPrinted(t, "one", "")
	s := &Sentinels{Name: "shop", Addresses: r.addresses(), Password: password.source, Timeout: 20 * time.Second}
	ask := func(want int) {
		t.Helper()
		for range 3 {
			if at, err := s.Master(t.Context()); err != nil || at != r.master.Addr {
				t.Errorf("%s, %v; want %s", at, err, r.master.Addr)
			}
		}
		if n := password.ran(); n != want {
			t.Errorf("the command has run %d times, want %d", n, want)
		}
	}
	ask(1)
	password.put("two")
	c := redis.NewClient(&redis.Options{Addr: r.sentinels[0].Addr, Password: "one"})
	defer c.Close()
	testbed.Must(t, c.Do(t.Context(), "acl", "setuser", "default", "resetpass", ">two").Err())
	ask(2)
	password.put("three")
	_, err := (&Sentinels{Name: "shop", Addresses: r.addresses(), Password: password.source}).Master(t.Context())
	testbed.Must(t, err) // the one that was accepted still is
	testbed.Must(t, c.Do(t.Context(), "acl", "setuser", "default", "resetpass", ">four").Err())
	if _, err := s.Master(t.Context()); err == nil || !strings.Contains(err.Error(), "set redis.sentinel_username") ||
		strings.Contains(err.Error(), "three") {
		t.Errorf("%v", err)
	}
}

// answering is a server that gives the answers in turn, one to each request, and hangs up after the last.
func answering(t *testing.T, answers ...string) (addr string, asked chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	asked, done := make(chan string, 10), make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := make([]byte, 4096)
		for _, a := range answers {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			asked <- string(b[:n])
			_, _ = c.Write([]byte(a))
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String(), asked
}

func TestWhatAServerAnswersToALogin(t *testing.T) {
	const args = "-ERR wrong number of arguments for 'auth' command\r\n"
	for name, c := range map[string]struct {
		user    string
		answers []string
		want    string // "": logged in
		asks    int
	}{
		"fine":                          {"", []string{"+OK\r\n"}, "", 1},
		"a server without ACLs":         {"", []string{args, "+OK\r\n"}, "", 2},
		"without ACLs, another one":     {"", []string{args, "-ERR invalid password\r\n"}, "ERR invalid password", 2},
		"a user where there are none":   {"u", []string{args}, "ERR wrong number", 1},
		"no password is needed":         {"", []string{args, "-ERR Client sent AUTH, but no password is set\r\n"}, "ERR Client sent AUTH", 2},
		"refused":                       {"", []string{"-WRONGPASS invalid\r\n"}, "WRONGPASS invalid", 1},
		"protected mode":                {"", []string{"-DENIED Redis is running in protected mode.\r\n"}, "DENIED Redis", 1},
		"something else than Redis":     {"", []string{"HTTP/1.1 400 Bad Request\r\n\r\n"}, "is this a Redis server?", 1},
		"an answer that does not end":   {"", []string{strings.Repeat("x", 2*maxAnswer)}, "is this a Redis server?", 1},
		"a server that hangs up at all": {"", []string{""}, "log in: EOF", 1},
	} {
		t.Run(name, func(t *testing.T) {
			addr, asked := answering(t, c.answers...)
			s := single(t, SingleOptions{
				Address: addr, Username: c.user, Password: credential.Text("p w\r\n"), Timeout: 20 * time.Second,
			})
			made := s.connect(t.Context(), s.password.Try, (*Sentinels).Master)
			defer made.Close()
			_, isFailed := made.(failedConn)
			_, err := made.Write(nil)
			if isFailed != (c.want != "") || isFailed && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if isFailed && (retry.ClassifyRedis(err) != retry.Away || strings.Contains(err.Error(), "p w")) {
				t.Errorf("%v: %v", retry.ClassifyRedis(err), err)
			}
			if n := len(asked); n != c.asks {
				t.Errorf("it was asked %d times, want %d", n, c.asks)
			}
			user := c.user
			if user == "" {
				user = "default"
			}
			want := fmt.Sprintf("*3\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n$5\r\np w\r\n\r\n", len(user), user)
			if got := <-asked; got != want {
				t.Errorf("it was asked %q, want %q", got, want)
			}
		})
	}
}

// A refused login keeps the advice that an answer of Redis has, and no client of Redis takes it for one: it would keep
// the connection.
func TestARefusedLoginIsNoAnswerToACommand(t *testing.T) {
	err := fmt.Errorf("first delete: %w", &retry.LoginRefused{Answer: "WRONGPASS invalid username-password pair"})
	if retry.ClassifyRedis(err) != retry.Away || retry.RedisAdvice(err) != "correct redis.username and redis.password" {
		t.Errorf("%v, %q", retry.ClassifyRedis(err), retry.RedisAdvice(err))
	}
	if _, is := error(&retry.LoginRefused{}).(redis.Error); is {
		t.Error("it is an answer")
	}
}

func TestALoginEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts and says nothing
	testbed.Must(t, err)
	defer l.Close()
	s := single(t, SingleOptions{Address: l.Addr().String(), Password: credential.Text("p"), Timeout: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, failed := s.connect(ctx, s.password.Try, (*Sentinels).Master).(failedConn); !failed {
		t.Error("it is logged in")
	}
}

// The client takes one layer off the error of a connection's first commands. What is left must still say which key is
// wrong, and what to do.
func TestAPasswordThatCannotBeReadIsNamed(t *testing.T) {
	addr, _ := answering(t)
	for name, connected := range map[string]func(context.Context, *redis.Conn) error{
		"at the first command": nil,
		"when it is made":      func(ctx context.Context, c *redis.Conn) error { return c.Ping(ctx).Err() },
	} {
		s := single(t, SingleOptions{
			Address: addr, Password: credential.File("redis.password_file", "/nowhere/password"), Timeout: 20 * time.Second,
			Connected: connected,
		})
		err := s.Ping(t.Context())
		if !credential.IsUnread(err) || !strings.HasPrefix(err.Error(), "redis.password_file: /nowhere/password: no such file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A server that does not know AUTH repeats what it was given, which is in no message: such as one whose administrator
// has renamed the command.
func TestAPasswordThatRedisRepeatsIsInNoMessage(t *testing.T) {
	server := testbed.Redis(t, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
	for _, user := range []string{"", "some"} {
		password := credential.Text("hunter2")
		s := single(t, SingleOptions{Address: server.Addr, Username: user, Password: password, Timeout: 10 * time.Second})
		if err := s.Ping(t.Context()); err == nil || strings.Contains(err.Error(), "hunter2") ||
			!strings.Contains(err.Error(), "unknown command") {
			t.Errorf("a server says %v", err)
		}
		asked := &Sentinels{
			Name: "shop", Addresses: []string{server.Addr}, Username: user, Password: password, Timeout: 20 * time.Second,
		}
		if _, err := asked.Master(t.Context()); err == nil || strings.Contains(err.Error(), "hunter2") ||
			!strings.Contains(err.Error(), "unknown command") {
			t.Errorf("a sentinel says %v", err)
		}
	}
}
