package proxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every line with itself, until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

func dial(t *testing.T, addr string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	testbed.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

func say(t *testing.T, c net.Conn, r *bufio.Reader, line string) {
	t.Helper()
	_, err := c.Write([]byte(line + "\n"))
	testbed.Must(t, err)
	got, err := r.ReadString('\n')
	testbed.Must(t, err)
	if got != line+"\n" {
		t.Fatalf("got %q, want %q", got, line)
	}
}

// silent says that nothing arrives for a while.
func silent(t *testing.T, c net.Conn, r *bufio.Reader) {
	t.Helper()
	testbed.Must(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if _, err := r.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("peek: %v, want a timeout", err)
	}
	testbed.Must(t, c.SetReadDeadline(time.Time{}))
}

func TestCutClosesAndRefusesUntilResume(t *testing.T) {
	p := proxy.Start(t, echo(t))
	c, r := dial(t, p.Addr())
	say(t, c, r, "one")
	p.Cut()
	if _, err := r.ReadByte(); err == nil {
		t.Fatal("connection is still open")
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial: %v, want connection refused", err)
	}
	testbed.Must(t, p.Resume())
	c, r = dial(t, p.Addr())
	say(t, c, r, "two")
}

func TestResetIsSeenAsReset(t *testing.T) {
	p := proxy.Start(t, echo(t))
	c, r := dial(t, p.Addr())
	say(t, c, r, "one")
	p.Reset()
	if _, err := r.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v, want a reset", err)
	}
	c, r = dial(t, p.Addr())
	say(t, c, r, "two")
	c.Close()
	testbed.Eventually(t, 2*time.Minute, "no connection is left", func() bool { return p.Conns() == 0 })
}

func TestStallIsSilentAndLosesNothing(t *testing.T) {
	for _, d := range []proxy.Direction{proxy.ToServer, proxy.ToClient, proxy.Both} {
		p := proxy.Start(t, echo(t))
		c, r := dial(t, p.Addr())
		say(t, c, r, "one")
		p.Stall(d)
		_, err := c.Write([]byte("two\n"))
		testbed.Must(t, err)
		silent(t, c, r)
		c2, r2 := dial(t, p.Addr())
		_, err = c2.Write([]byte("three\n"))
		testbed.Must(t, err)
		silent(t, c2, r2)
		testbed.Must(t, p.Resume())
		for _, r := range []*bufio.Reader{r, r2} {
			_, err := r.ReadString('\n')
			testbed.Must(t, err)
		}
		p.Stall(d)
		p.Close() // also while stalled
	}
}

func TestDelayAddsLatencyOnce(t *testing.T) {
	p := proxy.Start(t, echo(t))
	c, r := dial(t, p.Addr())
	const d = 30 * time.Millisecond
	p.Delay(d)
	start := time.Now()
	say(t, c, r, "one")
	if took := time.Since(start); took < 2*d {
		t.Fatalf("round trip took %s, want at least %s", took, 2*d)
	}
	p.Delay(0)
	say(t, c, r, "two")
}

func TestEndOfOneDirectionPasses(t *testing.T) {
	p := proxy.Start(t, echo(t))
	c, r := dial(t, p.Addr())
	_, err := c.Write([]byte("last"))
	testbed.Must(t, err)
	testbed.Must(t, c.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(r)
	testbed.Must(t, err)
	if string(got) != "last" {
		t.Fatalf("got %q", got)
	}
}

func TestServerThatIsDownIsSeenAsAReset(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	addr := l.Addr().String()
	l.Close()
	p := proxy.Start(t, addr)
	c, err := net.Dial("tcp", p.Addr())
	if err == nil { // the reset may be here before the dial has returned
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %v, want a reset", err)
	}
}
