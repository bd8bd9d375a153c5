package invalidator

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/retry"
	"github.com/freshet/freshet/testbed"
)

func unlinkOne(t *testing.T, s *Single, key string) *Command {
	t.Helper()
	c := commandsOf(key)
	s.Unlink(t.Context(), c)
	return c[0]
}

// A Redis with the setting timeout closes what is unused. That is no failure of Redis, of which all keys would have to be
// deleted anew.
func TestAnUnusedConnectionThatRedisHasClosedIsNotRedisAway(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	testbed.Must(t, unlinkOne(t, s, "a").Err)
	server.Do(t, "client", "kill", "type", "normal", "skipme", "yes")
	conn := <-s.unlinks
	conn.used = time.Time{} // long ago
	s.unlinks <- conn
	testbed.Must(t, unlinkOne(t, s, "a").Err)
	if again := <-s.unlinks; again == conn {
		t.Error("the connection that Redis had closed was kept")
	} else {
		testbed.Must(t, again.Close())
	}
}

func TestAConnectionIsUsedAgain(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	testbed.Must(t, unlinkOne(t, s, "a").Err)
	conn := <-s.unlinks
	for _, used := range []time.Time{conn.used, {}} {
		conn.used = used
		s.unlinks <- conn
		testbed.Must(t, unlinkOne(t, s, "a").Err)
		if again := <-s.unlinks; again != conn {
			t.Fatalf("last used %s: another connection was made", used)
		}
	}
	testbed.Must(t, conn.Close())
}

// Who has become a replica says so on every connection; its address may lead to the new master by now.
func TestAConnectionToWhatTakesNoDeletesIsNotUsedAgain(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	testbed.Must(t, unlinkOne(t, s, "a").Err)
	server.Do(t, "replicaof", "127.0.0.1", 1)
	if c := unlinkOne(t, s, "a"); retry.ClassifyRedis(c.Err) != retry.Away || !strings.HasPrefix(c.Err.Error(), "READONLY ") {
		t.Errorf("a replica: %v", c.Err)
	}
	if n := len(s.unlinks); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}

func TestCommandsOfManyMegabytesAreSent(t *testing.T) {
	server := testbed.Redis(t)
	s := single(t, SingleOptions{Address: server.Addr})
	long := strings.Repeat("k", 20_000)
	var commands []*Command
	for range tripCommands {
		c := newCommand(commandKeys)
		for i := range commandKeys {
			c.add(fmt.Sprintf("%s%d", long, i))
		}
		commands = append(commands, c)
	}
	testbed.Must(t, server.Client().Set(t.Context(), commands[0].Key(commandKeys-1), "1", 0).Err())
	s.Unlink(t.Context(), commands)
	for i, c := range commands {
		if want := max(0, int64(1-i)); c.Err != nil || c.Found != want {
			t.Errorf("command %d found %d, %v; want %d", i, c.Found, c.Err, want)
		}
	}
	conn := <-s.unlinks
	if n := cap(conn.out); n > 3*writeBuffer {
		t.Errorf("%d bytes are kept", n)
	}
	testbed.Must(t, conn.Close())
}

// scripted is a server that gives each command its answer: what it is asked is in asked.
func scripted(t *testing.T, answers ...string) (address string, asked <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	commands, done := make(chan string, len(answers)), make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, a := range answers {
			var n int
			if _, err := fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
				return
			}
			var words []string
			for range n {
				var size int
				var word string
				if _, err := fmt.Fscanf(in, "$%d\r\n%s\r\n", &size, &word); err != nil {
					return
				}
				words = append(words, word)
			}
			commands <- strings.Join(words, " ")
			if _, err := conn.Write([]byte(a)); err != nil {
				return
			}
		}
		_, _ = in.ReadByte() // until the other side closes
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return listener.Addr().String(), commands
}

func TestARedisWithoutHelloIsLoggedInTo(t *testing.T) {
	for name, c := range map[string]struct {
		o       SingleOptions
		answers []string
		want    []string
	}{
		"without": {
			SingleOptions{Password: "pw", DB: 2},
			[]string{"-ERR unknown command `hello`\r\n", "+OK\r\n", "+OK\r\n", ":1\r\n"},
			[]string{"hello 2 auth default pw", "auth pw", "select 2", "unlink a"},
		},
		"with, and a user": {
			SingleOptions{Username: "u", Password: "pw"},
			[]string{"*4\r\n$6\r\nserver\r\n$-1\r\n$2\r\nid\r\n:7\r\n", ":1\r\n"},
			[]string{"hello 2 auth u pw", "unlink a"},
		},
		"without, but with users": {
			SingleOptions{Username: "u", Password: "pw"},
			[]string{"-ERR what is that?\r\n", "+OK\r\n", ":1\r\n"},
			[]string{"hello 2 auth u pw", "auth u pw", "unlink a"},
		},
	} {
		address, asked := scripted(t, c.answers...)
		c.o.Address = address
		s, err := NewSingle(c.o)
		testbed.Must(t, err)
		if got := unlinkOne(t, s, "a"); got.Err != nil || got.Found != 1 {
			t.Errorf("%s: found %d, %v", name, got.Found, got.Err)
		}
		for _, want := range c.want {
			if got := <-asked; got != want {
				t.Errorf("%s: was asked %q, want %q", name, got, want)
			}
		}
		testbed.Must(t, s.Close())
	}
}

// What answers in another language is not the Redis that was meant: no key may count as deleted, or as refused.
func TestAnAnswerThatIsNoneIsRedisAway(t *testing.T) {
	for _, answer := range []string{"+OK\r\n", "HTTP/1.1 400 Bad Request\r\n", ":\r\n", ":x\r\n", "\r\n", ":1\n", strings.Repeat("1", 2*readBuffer) + "\r\n"} {
		address, _ := scripted(t, answer)
		s, err := NewSingle(SingleOptions{Address: address})
		testbed.Must(t, err)
		commands := commandsOf("a", "b")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		s.Unlink(ctx, commands[:1])
		cancel()
		if c := commands[0]; c.Err == nil || retry.ClassifyRedis(c.Err) != retry.Away {
			t.Errorf("%.20q: found %d, %v", answer, c.Found, c.Err)
		}
		if len(s.unlinks) != 0 {
			t.Errorf("%.20q: the connection is kept", answer)
		}
		testbed.Must(t, s.Close())
	}
}

// Another command's answer must never count for it.
func TestAConnectionWithAnAnswerTooManyIsNotUsedAgain(t *testing.T) {
	address, _ := scripted(t, ":1\r\n:1\r\n")
	s := single(t, SingleOptions{Address: address})
	testbed.Must(t, unlinkOne(t, s, "a").Err)
	if n := len(s.unlinks); n != 0 {
		t.Errorf("%d connections are kept", n)
	}
}
