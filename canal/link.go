package canal

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// errWouldWait says that a read has found nothing that has arrived. Nothing is broken: the next read of the link waits.
var errWouldWait error = wouldWait{}

// wouldWait is temporary, as the TLS connection above a link understands it: it goes on with the record that it was
// reading. Any other error it would repeat forever.
type wouldWait struct{}

func (wouldWait) Error() string   { return "nothing has arrived" }
func (wouldWait) Timeout() bool   { return false }
func (wouldWait) Temporary() bool { return true }

// link is a network connection that is never waited on forever and that says, if it is asked to, when a read would
// wait.
//
// Reads first take what the kernel already has, without a deadline and without a timer; only a read that
// really waits sets the deadline. So a busy stream pays for neither, and a stream whose owner was
// busy elsewhere for minutes (back pressure) is not mistaken for a dead one.
//
// TLS lies above it: a TLS connection reads its records through Read.
type link struct {
	net.Conn
	raw syscall.RawConn // nil where the connection has no file descriptor (tests)
	// timeout bounds a read that waits, and a write. It may be changed between reads.
	timeout time.Duration
	// asked: a read that would wait returns errWouldWait, and the next one waits.
	asked bool
	// warned: the read before has returned errWouldWait.
	warned bool
	// received counts bytes; nil: not counted.
	received *atomic.Uint64

	buf []byte
	n   int
	err error
	try func(fd uintptr) bool // made once, so that a read allocates nothing
}

func newLink(c net.Conn, timeout time.Duration) *link {
	l := &link{Conn: c, timeout: timeout}
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			l.raw = raw
		}
	}
	l.try = func(fd uintptr) bool {
		l.n, l.err = syscall.Read(int(fd), l.buf)
		return true
	}
	return l
}

// Read implements net.Conn.
func (l *link) Read(b []byte) (int, error) {
	n, err := l.read(b)
	if l.received != nil && n > 0 {
		l.received.Add(uint64(n))
	}
	return n, err
}

func (l *link) read(b []byte) (int, error) {
	n, err, done := l.readNow(b)
	wait := !l.asked || l.warned
	l.warned = !done && !wait
	switch {
	case done:
		return n, err
	case !wait:
		return 0, errWouldWait
	}
	if err := l.Conn.SetReadDeadline(time.Now().Add(l.timeout)); err != nil {
		return 0, err
	}
	n, err = l.Conn.Read(b)
	// A deadline that stays would expire while the owner is busy, and fail the next read.
	if e := l.Conn.SetReadDeadline(time.Time{}); err == nil {
		err = e
	}
	return n, err
}

// readNow reads what the kernel has; done is false when that is nothing.
func (l *link) readNow(b []byte) (n int, err error, done bool) {
	if l.raw == nil || len(b) == 0 {
		return 0, nil, false
	}
	l.buf = b
	err = l.raw.Read(l.try)
	l.buf = nil
	switch {
	case err != nil:
		return 0, err, true
	case errors.Is(l.err, syscall.EAGAIN), errors.Is(l.err, syscall.EINTR):
		return 0, nil, false
	case l.err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Addr: l.RemoteAddr(), Err: l.err}, true
	case l.n == 0:
		return 0, io.EOF, true
	}
	return l.n, nil, true
}

// Write implements net.Conn.
func (l *link) Write(b []byte) (int, error) {
	if err := l.Conn.SetWriteDeadline(time.Now().Add(l.timeout)); err != nil {
		return 0, err
	}
	return l.Conn.Write(b)
}
