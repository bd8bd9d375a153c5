package canal

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
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

func TestALinkTellsThatItIsAboutToWaitOnlyWhenItIs(t *testing.T) {
	l, server := pair(t, time.Minute)
	var idle atomic.Int32
	waiting := make(chan struct{}, 10)
	l.idle = func() error {
		idle.Add(1)
		waiting <- struct{}{}
		return nil
	}
	var received atomic.Uint64
	l.received = &received
	if _, err := server.Write([]byte("abcdef")); err != nil {
		t.Fatal(err)
	}
	awaitBytes(t, l, 6)
	b := make([]byte, 2)
	for range 3 {
		if _, err := io.ReadFull(l, b); err != nil {
			t.Fatal(err)
		}
	}
	if n := idle.Load(); n != 0 {
		t.Fatalf("told %d times that it waits, while there was something to read", n)
	}
	go func() {
		<-waiting
		server.Write([]byte("gh"))
	}()
	if _, err := io.ReadFull(l, b); err != nil || string(b) != "gh" {
		t.Fatalf("%q, %v", b, err)
	}
	if n := idle.Load(); n != 1 {
		t.Fatalf("told %d times that it waits, want once", n)
	}
	if n := received.Load(); n != 8 {
		t.Errorf("%d bytes counted, want 8", n)
	}
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

func TestAnErrorOfTheOwnerEndsTheRead(t *testing.T) {
	l, _ := pair(t, time.Minute)
	full := errors.New("full")
	l.idle = func() error { return full }
	if _, err := l.Read(make([]byte, 1)); !errors.Is(err, full) {
		t.Fatalf("%v, want the owner's error", err)
	}
}

func TestTheEndOfTheConnectionIsTheEnd(t *testing.T) {
	l, server := pair(t, time.Minute)
	server.Close()
	if _, err := l.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("%v, want EOF", err)
	}
}
