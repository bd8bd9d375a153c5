package invalidator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// trusted is how long a connection may have been unused for it to be taken without a look whether Redis has left it
// open, and for its loss to be news of Redis.
const trusted = 100 * time.Millisecond

// errUnused is in the error of a command that went down a connection which had been unused for longer than trusted, and
// turned out to be closed. Servers (the setting timeout) and proxies close what is unused, so it says nothing of Redis:
// the command is sent again at once. It may or may not have taken effect.
var errUnused = errors.New("the connection was closed while it was not used")

// errLeft is in the error of a command whose connection led to a server that is not the one any more
// ([endpoint.Leave]). It says nothing of the one that is, and the command is sent there at once.
var errLeft = errors.New("the connection led to a server that has been left")

// isNoNews reports whether an error says nothing of Redis.
func isNoNews(err error) bool { return errors.Is(err, errUnused) || errors.Is(err, errLeft) }

// isOverdue reports whether an error is that no answer came in time.
func isOverdue(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// conn is a connection to Redis that knows whether it was unused before it was lost. The pool looks at a connection
// before it hands it out ([conn.SyscallConn]), but it may be closed just then.
//
// One goroutine at a time uses it, but for [conn.leave].
type conn struct {
	net.Conn
	endpoint *endpoint
	left     atomic.Bool
	// used is when something last came; the zero time: nothing yet. A new connection has not been unused.
	used time.Time
	// doubted is set while nothing has come since a write that followed a time of no use.
	doubted bool
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.used, c.doubted = time.Now(), false
	}
	return n, c.judge(err)
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	if !c.doubted && !c.used.IsZero() {
		c.doubted = time.Since(c.used) >= trusted
	}
	n, err := c.Conn.Write(b)
	return n, c.judge(err)
}

// SetDeadline implements [net.Conn]. It fails once the connection has been left, as do the next two.
func (c *conn) SetDeadline(t time.Time) error { return c.judge(c.Conn.SetDeadline(t)) }

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error { return c.judge(c.Conn.SetReadDeadline(t)) }

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(t time.Time) error { return c.judge(c.Conn.SetWriteDeadline(t)) }

// judge says of an error whether it is that of a connection which was closed while it was not used. What did not come
// in time never is: a Redis that is silent is just that.
func (c *conn) judge(err error) error {
	switch {
	case err == nil:
		return nil
	case c.left.Load():
		return fmt.Errorf("%w: %w", errLeft, err)
	case !c.doubted:
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("%w: %w", errUnused, err)
	}
	return err
}

// SyscallConn implements [syscall.Conn], by which the pool looks whether a connection is still open: of TLS, too, of
// which it sees that something has come, be it the end or the other side's notice of it. Between commands nothing else
// comes.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	under := c.under()
	if s, ok := under.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, fmt.Errorf("a %T has no file descriptor", under)
}

// under returns the connection that TLS goes over, or c's own.
func (c *conn) under() net.Conn {
	if secured, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		return secured.NetConn()
	}
	return c.Conn
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.endpoint.closed(c)
	return c.Conn.Close()
}

// leave ends what is under way on the connection, and all use of it. It says no goodbye, as TLS would: the other side
// may not be there to hear it.
func (c *conn) leave() {
	c.left.Store(true)
	_ = c.under().Close()
}

// failedConn is a connection that could not be made, and fails at its first use. The pool would count failures to
// dial, and after some of them try only once a second, which is too late to notice that Redis is back. It would log
// each, too.
type failedConn struct{ err error }

func (c failedConn) Read([]byte) (int, error)       { return 0, notMade{c.err} }
func (c failedConn) Write([]byte) (int, error)      { return 0, notMade{c.err} }
func (failedConn) Close() error                     { return nil }
func (failedConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (failedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (failedConn) SetDeadline(time.Time) error      { return nil }
func (failedConn) SetReadDeadline(time.Time) error  { return nil }
func (failedConn) SetWriteDeadline(time.Time) error { return nil }

// notMade is an error with a layer for the client to take off: it unwraps what ends the first commands of a connection,
// and would say only that a file is missing, and not which key of the configuration names it.
type notMade struct{ err error }

func (e notMade) Error() string { return e.err.Error() }

func (e notMade) Unwrap() error { return e.err }
