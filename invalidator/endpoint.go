package invalidator

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/freshet/freshet/credential"
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
	user      string
	password  *credential.Source
	timeout   time.Duration
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
	e := &endpoint{
		addr: o.Address, sentinels: o.Sentinels, user: o.Username, password: o.Password, timeout: o.Timeout,
		open: map[*conn]struct{}{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.dial = dialer(o.Timeout, o.TLS)
	return e
}

// dialer returns how a connection is made, over TLS if that is not nil: with its settings as they are then.
func dialer(timeout time.Duration, settings credential.TLS) dial {
	plain := &net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
	if settings == nil {
		return plain.DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		secured, err := settings()
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{NetDialer: plain, Config: secured}).DialContext(ctx, network, addr)
	}
}

// patience is how long all of [endpoint.connect] may take: to ask sentinels, to connect, to run what prints passwords,
// and to log in twice. It goes on when the command that it was made for is given up, and serves another one then.
func (e *endpoint) patience() time.Duration {
	d := 4*e.timeout + e.password.Patience()
	if e.sentinels != nil {
		d += e.sentinels.patience()
	}
	return d
}

// counted is connect for connections that the engine uses.
func (e *endpoint) counted(ctx context.Context, _, _ string) (net.Conn, error) {
	e.dials.Add(1)
	return e.connect(ctx, e.password.Try, (*Sentinels).Master), nil
}

// look is connect for a look at the server, which there is every second: a command for the password is only run when
// what it printed before is refused. It says whether the server is still the one, so it wants to be sure of that.
func (e *endpoint) look(ctx context.Context, _, _ string) (net.Conn, error) {
	return e.connect(ctx, e.password.Seldom, (*Sentinels).Surely), nil
}

// finding asks sentinels where the master is: [Sentinels.Master] or [Sentinels.Surely].
type finding func(s *Sentinels, ctx context.Context) (addr string, err error)

// connect makes a connection to where Redis is now, by what find says if there are sentinels, and logs in with what try
// reads. A failure is returned as a [failedConn].
func (e *endpoint) connect(ctx context.Context, try tryLogin, find finding) net.Conn {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	e.mu.Lock()
	left := e.left
	e.mu.Unlock()
	addr, err := e.addr, error(nil)
	if e.sentinels != nil {
		if addr, err = find(e.sentinels, ctx); err != nil {
			return failedConn{err: err}
		}
	}
	c, err := e.dial(ctx, "tcp", addr)
	if err == nil && e.password != nil {
		if err = e.login(ctx, c, try); err != nil {
			_ = c.Close()
		}
	}
	if err != nil {
		return failedConn{err: err}
	}
	made := &conn{Conn: c, endpoint: e}
	e.mu.Lock()
	defer e.mu.Unlock()
	if left != e.left { // it may lead to the server that was left meanwhile
		made.leave()
		return failedConn{err: errLeft}
	}
	e.open[made] = struct{}{}
	e.at = addr
	return made
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
