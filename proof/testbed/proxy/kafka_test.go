package proxy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/freshet/freshet/proof/testbed"
	"github.com/freshet/freshet/proof/testbed/proxy"
)

// kafkaMessage is a request, or a response if there is no kind.
func kafkaMessage(correlation int32, body string, api ...proxy.API) []byte {
	var b []byte
	for _, a := range api {
		b = binary.BigEndian.AppendUint16(b, uint16(a))
		b = binary.BigEndian.AppendUint16(b, 9) // api_version
	}
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(b, body...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// readMessage returns what follows a message's length.
func readMessage(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(r, b)
	return b, err
}

// fakeBroker answers each request with its own body, and tells which it got.
func fakeBroker(t *testing.T) (addr string, got chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testbed.Must(t, err)
	got = make(chan string, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				for {
					b, err := readMessage(c)
					if err != nil {
						return
					}
					got <- string(b[8:])
					_, _ = c.Write(kafkaMessage(int32(binary.BigEndian.Uint32(b[4:])), string(b[8:])))
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String(), got
}

func TestKafkaLosesTheReplyToARequestThatTookEffect(t *testing.T) {
	addr, got := fakeBroker(t)
	p := proxy.StartKafka(t, addr)
	p.OnRequest(func(r proxy.Request) proxy.Action {
		if r.API == proxy.Produce && r.N == 2 {
			return proxy.DropReply
		}
		return proxy.Forward
	})
	c, r := dial(t, p.Addr())
	all := slices.Concat(kafkaMessage(1, "a", proxy.Metadata), kafkaMessage(2, "b", proxy.Produce),
		kafkaMessage(3, "c", proxy.Produce))
	for _, b := range all { // byte by byte: no message comes in one piece
		_, err := c.Write([]byte{b})
		testbed.Must(t, err)
	}
	for i, want := range []string{"a", "b"} {
		b, err := readMessage(r)
		testbed.Must(t, err)
		if !bytes.Equal(b, append([]byte{0, 0, 0, byte(i + 1)}, want...)) {
			t.Fatalf("reply %q, want %q", b, want)
		}
	}
	if _, err := readMessage(r); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("after the lost reply: %v, want a reset", err)
	}
	for _, want := range []string{"a", "b", "c"} {
		if b := <-got; b != want {
			t.Fatalf("the broker got %q, want %q", b, want)
		}
	}
	c, r = dial(t, p.Addr())
	_, err := c.Write(kafkaMessage(4, "d", proxy.Produce))
	testbed.Must(t, err)
	_, err = readMessage(r)
	testbed.Must(t, err)
	if n := p.Requests(proxy.Produce); n != 3 {
		t.Fatalf("%d requests, want 3", n)
	}
}

func TestKafkaLosesARequest(t *testing.T) {
	addr, got := fakeBroker(t)
	p := proxy.StartKafka(t, addr)
	asked := make(chan proxy.Request, 1)
	p.OnRequest(func(r proxy.Request) proxy.Action { asked <- r; return proxy.DropCommand })
	c, r := dial(t, p.Addr())
	_, err := c.Write(kafkaMessage(1, "a topic", proxy.OffsetCommit))
	testbed.Must(t, err)
	if r := <-asked; r.API != proxy.OffsetCommit || !strings.HasSuffix(r.Begins, "a topic") {
		t.Errorf("asked about %+v", r)
	}
	if _, err := readMessage(r); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("reply: %v, want a reset", err)
	}
	p.OnRequest(nil)
	c, r = dial(t, p.Addr())
	_, err = c.Write(kafkaMessage(1, "b", proxy.OffsetCommit))
	testbed.Must(t, err)
	_, err = readMessage(r)
	testbed.Must(t, err)
	if b := <-got; b != "b" {
		t.Fatalf("the broker got %q", b)
	}
}

func TestKafkaLetsPassWhatItCannotRead(t *testing.T) {
	p := proxy.StartKafka(t, echo(t))
	p.OnRequest(func(proxy.Request) proxy.Action { return proxy.DropCommand })
	for _, first := range []string{
		"\x16\x03\x01 a TLS handshake",
		"\x00\x00\x00\x04tok", // a token without a request's head
	} {
		c, r := dial(t, p.Addr())
		say(t, c, r, first)
	}
}

func TestRepliesAreLostByStallAndReset(t *testing.T) {
	addr, got := fakeBroker(t)
	p := proxy.StartKafka(t, addr)
	p.Stall(proxy.ToClient)
	c, r := dial(t, p.Addr())
	_, err := c.Write(kafkaMessage(1, "a", proxy.Produce))
	testbed.Must(t, err)
	if b := <-got; b != "a" {
		t.Fatalf("the broker got %q", b)
	}
	p.Reset()
	testbed.Must(t, p.Resume())
	if _, err := readMessage(r); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("reply: %v, want a reset", err)
	}
}
