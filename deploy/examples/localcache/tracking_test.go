package localcache

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// tracker is a connection with RESP3, on which Redis tells what keys are no longer what they were.
type tracker struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	told []string
}

func track(t *testing.T, server *testbed.RedisServer, options string) *tracker {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr)
	testbed.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	testbed.Must(t, conn.SetDeadline(time.Now().Add(patience)))
	c := &tracker{t: t, conn: conn, in: bufio.NewReader(conn)}
	c.send("HELLO 3")
	c.send("CLIENT TRACKING ON " + options)
	return c
}

// send sends a command and reads its reply, and what is pushed before it.
func (c *tracker) send(command string) {
	c.t.Helper()
	_, err := fmt.Fprintf(c.conn, "%s\r\n", command)
	testbed.Must(c.t, err)
	for c.value() == "push" {
	}
}

// tells returns what has been told since it was last asked. What Redis writes to a connection is in order, so all that
// was changed before is there when a PING is answered.
func (c *tracker) tells() string {
	c.t.Helper()
	c.send("PING")
	told := strings.Join(c.told, " ")
	c.told = nil
	return told
}

// value reads one value; what is pushed is noted.
func (c *tracker) value() string {
	c.t.Helper()
	line, err := c.in.ReadString('\n')
	testbed.Must(c.t, err)
	kind, rest := line[0], strings.TrimSpace(line[1:])
	n, _ := strconv.Atoi(rest)
	switch kind {
	case '$':
		if n < 0 {
			return "nil"
		}
		text := make([]byte, n+2)
		for read := 0; read < len(text); {
			m, err := c.in.Read(text[read:])
			testbed.Must(c.t, err)
			read += m
		}
		return string(text[:n])
	case '%':
		n *= 2
	case '*', '~', '>':
	case '_':
		return "nil"
	case '-':
		c.t.Fatalf("redis: %s", rest)
	default:
		return rest
	}
	var values []string
	for range n {
		values = append(values, c.value())
	}
	if kind == '>' {
		c.told = append(c.told, values[1:]...)
		return "push"
	}
	return strings.Join(values, ",")
}

// What docs/local-caches.md says of client-side caching, by what freshet sends.
func TestWhatRedisTellsWhoTracksKeys(t *testing.T) {
	server := testbed.Redis(t)
	redis := func(command ...any) { server.Do(t, command...) }
	read, all := track(t, server, ""), track(t, server, "BCAST PREFIX price:")
	expect := func(when, ofRead, ofAll string) {
		t.Helper()
		if got := read.tells(); got != ofRead {
			t.Errorf("%s: who read the key is told %q, want %q", when, got, ofRead)
		}
		if got := all.tells(); got != ofAll {
			t.Errorf("%s: who asked for all is told %q, want %q", when, got, ofAll)
		}
	}
	redis("SET", "price:17", "9.90")
	expect("written, never read", "", "price:17")
	read.send("GET price:17")
	redis("UNLINK", "price:17")
	expect("the first delete", "price:17", "price:17")
	redis("UNLINK", "price:17")
	expect("a delete of what is not there", "", "")
	read.send("GET price:17")
	redis("SET", "price:17", "9.90")
	expect("a fill of what was read as missing", "price:17", "price:17")
	read.send("GET price:17")
	redis("UNLINK", "price:17")
	expect("the final delete of what was filled meanwhile", "price:17", "price:17")

	read.send("GET price:17")
	redis("EVAL", "redis.call('SET', KEYS[1], 'v') redis.call('SET', KEYS[2], '1/1/4/1')", 2, "price:17",
		"freshet:v:{price:17}")
	expect("a guarded write", "price:17", "price:17")
	read.send("GET price:17")
	redis("PEXPIRE", "price:17", "1")
	testbed.Eventually(t, patience, "the key has expired",
		func() bool { return read.tells()+all.tells() != "" && server.Do(t, "EXISTS", "price:17") == int64(0) })
	read.tells()
	all.tells()
	redis("SET", "price:17", "9.90")
	read.send("GET price:17")
	all.tells()
	redis("FLUSHALL")
	expect("everything is gone", "nil", "nil")
}
