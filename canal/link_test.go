package canal

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet/freshet/proof/testbed"
)

// pair returns the two ends of a TCP connection, the first as a link.
func pair(t *testing.T, timeout time.Duration) (*link, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return newLink(client, timeout), server
}

// awaitBytes returns when n bytes lie in the kernel for the link.
func awaitBytes(t *testing.T, l *link, n int) {
	t.Helper()
	raw, err := l.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Read(func(fd uintptr) bool { return peek(fd, n) }); err != nil {
		t.Fatal(err)
	}
}

func TestALinkThatIsAskedSaysOnceThatItWouldWait(t *testing.T) {
	l, server := pair(t, time.Minute)
	l.asked = true
	var received atomic.Uint64
	l.received = &received
	b := make([]byte, 2)
	for round := range 2 {
		if _, err := server.Write([]byte("abcdef")); err != nil {
			t.Fatal(err)
		}
		awaitBytes(t, l, 6)
		for range 3 {
			if _, err := io.ReadFull(l, b); err != nil {
				t.Fatalf("round %d: %v, while there was something to read", round, err)
			}
		}
		if n, err := l.Read(b); n != 0 || err != errWouldWait {
			t.Fatalf("round %d: %d, %v, want that it would wait", round, n, err)
		}
		waiting := make(chan struct{})
		go func() {
			<-waiting
			server.Write([]byte("gh"))
		}()
		close(waiting)
		if _, err := io.ReadFull(l, b); err != nil || string(b) != "gh" {
			t.Fatalf("round %d: %q, %v", round, b, err)
		}
	}
	if n := received.Load(); n != 16 {
		t.Errorf("%d bytes counted, want 16", n)
	}
}

// dribble writes one byte for each token, once it is slow.
type dribble struct {
	net.Conn
	slow   bool
	tokens <-chan struct{}
}

func (d *dribble) Write(b []byte) (int, error) {
	if !d.slow {
		return d.Conn.Write(b)
	}
	for i := range b {
		<-d.tokens
		if _, err := d.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// A TLS record that has come in part is continued: nothing of the stream is lost, at whichever byte it would wait.
func TestATLSConnectionGoesOnWhereItWouldHaveWaited(t *testing.T) {
	l, server := pair(t, time.Minute)
	tokens := make(chan struct{})
	slow := &dribble{Conn: server, tokens: tokens}
	text := bytes.Repeat([]byte("binlog"), 30)
	done := make(chan error, 1)
	go func() {
		s := tls.Server(slow, &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}})
		err := s.Handshake()
		slow.slow = true
		for range 2 {
			if err == nil {
				_, err = s.Write(text)
			}
		}
		done <- err
	}()
	secure := tls.Client(l, &tls.Config{InsecureSkipVerify: true})
	testbed.Must(t, secure.Handshake())
	l.asked = true
	got, waits := make([]byte, 0, 2*len(text)), 0
	read := func(f func() error) {
		err := f()
		for ; errors.Is(err, errWouldWait); err = f() {
			waits++
			select {
			case tokens <- struct{}{}: // and the next read waits for the byte
			case err := <-done:
				t.Fatalf("it waits at the end: %v, %d bytes", err, len(got))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for len(got) < cap(got) {
		read(func() error {
			n, err := secure.Read(got[len(got):cap(got)])
			got = got[:len(got)+n]
			return err
		})
	}
	if want := bytes.Repeat(text, 2); !bytes.Equal(got, want) || waits < len(want) {
		t.Fatalf("%q after %d waits", got, waits)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// selfSigned makes a certificate.
func selfSigned(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testbed.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	testbed.Must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestNoDeadlineRunsWhileTheOwnerIsBusy(t *testing.T) {
	const timeout = 50 * time.Millisecond
	l, server := pair(t, timeout)
	first := make(chan struct{})
	go func() {
		server.Write([]byte("a"))
		<-first
		server.Write([]byte("b"))
	}()
	b := make([]byte, 1)
	if _, err := l.Read(b); err != nil {
		t.Fatal(err)
	}
	close(first)
	awaitBytes(t, l, 1)
	// Busy for longer than the timeout.
	if err := server.SetReadDeadline(time.Now().Add(2 * timeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the link wrote something: %v", err)
	}
	if _, err := l.Read(b); err != nil {
		t.Fatalf("after a busy time: %v", err)
	}
	if _, err := l.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a silent server: %v, want a timeout", err)
	}
}

func TestTheEndOfTheConnectionIsTheEnd(t *testing.T) {
	l, server := pair(t, time.Minute)
	server.Close()
	if _, err := l.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("%v, want EOF", err)
	}
}
