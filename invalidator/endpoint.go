package invalidator

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// endpoint makes the connections to Redis, and knows all that are open: once another server is the one that is
// written to, those to the former one are left together. A name, a virtual address or a primary endpoint may lead
// elsewhere without any connection being closed.
//
// It is safe for concurrent use.
type endpoint struct {
	addr      string // host:port; "" with sentinels
	sentinels *Sentinels
	dial      dial
	ctx       context.Context // ends with close, and with it what is being dialled
	cancel    context.CancelFunc
	dials     atomic.Int64

	mu   sync.Mutex
	open map[*conn]struct{}
	// at is where the last connection led to.
	at string
	// left is how often all connections have been left.
	left int
}

// dial makes a connection.
type dial func(ctx context.Context, network, addr string) (net.Conn, error)

func newEndpoint(o *SingleOptions) *endpoint {
	e := &endpoint{addr: o.Address, sentinels: o.Sentinels, open: map[*conn]struct{}{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.dial = dialer(o.Timeout, o.TLS)
	return e
}

// dialer returns how a connection is made, over TLS if it is not nil.
func dialer(timeout time.Duration, secured *tls.Config) dial {
	plain := &net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
	if secured == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: secured}).DialContext
}

// counted is connect for connections that the engine uses.
func (e *endpoint) counted(ctx context.Context, network, addr string) (net.Conn, error) {
	e.dials.Add(1)
	return e.connect(ctx, network, addr)
}

// connect makes a connection to where Redis is now. A failure is handed on as a [failedConn].
func (e *endpoint) connect(ctx context.Context, network, _ string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	e.mu.Lock()
	left := e.left
	e.mu.Unlock()
	addr, err := e.addr, error(nil)
	if e.sentinels != nil {
		if addr, err = e.sentinels.Master(ctx); err != nil {
			return failedConn{err: err}, nil
		}
	}
	c, err := e.dial(ctx, network, addr)
	if err != nil {
		return failedConn{err: err}, nil
	}
	made := &conn{Conn: c, endpoint: e}
	e.mu.Lock()
	defer e.mu.Unlock()
	if left != e.left { // it may lead to the server that was left meanwhile
		made.leave()
		return failedConn{err: errLeft}, nil
	}
	e.open[made] = struct{}{}
	e.at = addr
	return made, nil
}

// closed takes note of a connection that is closed.
func (e *endpoint) closed(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.open, c)
}

// Leave leaves all connections that there are, and those that are being made: the server at their other end is not the
// one any more. A command that is under way on one fails, and says nothing of Redis ([errLeft]). It does not block.
func (e *endpoint) Leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left++
	for c := range e.open {
		c.leave()
	}
}

// String names the server for the operator.
func (e *endpoint) String() string {
	if e.sentinels == nil {
		return e.addr
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == "" {
		return e.sentinels.Name
	}
	return fmt.Sprintf("%s (%s)", e.sentinels.Name, e.at)
}

func (e *endpoint) close() { e.cancel() }
